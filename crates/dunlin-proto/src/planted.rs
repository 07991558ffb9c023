//! Bugs planted on purpose: each breaks a law, and the simulator must find each (`docs/simulator.md`).
//!
//! Without the feature `planted` none of this is compiled; with it, all bugs are inactive until one is
//! chosen.

/// Whether this bug is active in this thread.
#[cfg(feature = "planted")]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is($crate::planted::Bug::$bug)
    };
}
#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($bug:ident) => {
        false
    };
}
pub(crate) use planted;

#[cfg(feature = "planted")]
pub(crate) use chosen::is;
#[cfg(feature = "planted")]
pub use chosen::{Bug, choose};

#[cfg(feature = "planted")]
mod chosen {
    use std::cell::Cell;

    macro_rules! bugs {
        ($($(#[$doc:meta])* $bug:ident = $name:literal,)*) => {
            /// A bug to choose.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum Bug {
                $($(#[$doc])* $bug,)*
            }

            impl Bug {
                /// All of them.
                pub const ALL: &[Self] = &[$(Self::$bug),*];

                /// Its name on a command line.
                pub fn name(self) -> &'static str {
                    match self {
                        $(Self::$bug => $name,)*
                    }
                }
            }
        };
    }

    bugs! {
        /// The home reports a value taken when it arrives.
        AckOnArrival = "ack-on-arrival",
        /// After a new socket, everything unacknowledged is sent again, whatever the other side has received.
        ResendAll = "resend-without-memory",
        /// A side names the last frame it has acknowledged, not the last it has received.
        ResumeFromAcked = "resume-from-acked",
        /// A `Hello` of an earlier incarnation is answered.
        StaleAdmitted = "stale-admitted",
        /// A greater incarnation resumes the life of the one before.
        RestartUnnoticed = "restart-unnoticed",
        /// A side that gives a life up does not number the next one.
        RunIgnored = "run-ignored",
        /// `Taken` has no number: it is not sent again after a cut.
        TakenUnnumbered = "taken-unnumbered",
        /// An offer is withdrawn without asking the home.
        WithdrawnUnasked = "withdrawn-unasked",
        /// A value that may have been taken when a connection dies is reported not taken.
        UnknownAsNotTaken = "unknown-as-not-taken",
        /// The home still waits for a value that was cut short.
        CutIgnored = "cut-ignored",
        /// A home grants its credits again when a connection resumes.
        CreditsDoubled = "credits-doubled",
        /// A late socket replaces a newer one.
        LateSocket = "late-socket",
        /// The end of a connection's life is reported twice.
        DeathTwice = "death-twice",
        /// Offers of a dead node can still be taken.
        DeadOffers = "dead-offers",
        /// When both sides dial at once, both sockets are kept.
        CrossedKept = "crossed-kept",
        /// A goodbye overtakes earlier frames.
        GoodbyeFirst = "goodbye-first",
        /// A half that is gone reports that before its last offers.
        GoneFirst = "gone-first",
        /// A value granted to an earlier request counts as an answer to the present one.
        GrantUnnumbered = "grant-unnumbered",
        /// The owner of a choice is not notified that its reservation was aborted.
        AbortUntold = "abort-untold",
        /// A channel's frames are sent newest first.
        NewestFirst = "newest-first",
        /// A sender is admitted under any number, even one that is not newer than the known one.
        StaleTake = "stale-take",
        /// A half is not notified that its end is known elsewhere.
        SupersededUntold = "superseded-untold",
        /// The node that gave a sender away forgets it before it is known elsewhere.
        LentForgotten = "lent-forgotten",
        /// A home moves before everything on its way to it has arrived.
        QuietSkipped = "quiet-skipped",
        /// A sender is packed while its frames are still on their way.
        DrainSkipped = "drain-skipped",
        /// A sponsor that is asked for a home that it does not know yet forgets the asking node.
        WhereForgotten = "where-forgotten",
        /// A sender that is dropped unused is not reported lapsed.
        LapsedKept = "lapsed-kept",
        /// Offers that were open when the home moved are not requested again.
        MovedUntold = "moved-untold",
        /// The values of the buffer stay behind when the home moves.
        BufferLeft = "buffer-left",
        /// A receiver is given away for a claim that no longer counts.
        ClaimIgnored = "claim-ignored",
        /// The sender is not notified that its home moves.
        MovingUntold = "moving-untold",
        /// Credits of the previous home count besides those of the new one.
        CreditsTwice = "credits-twice",
        /// After an unknown outcome, a sender is taken under its old number.
        TransferReused = "transfer-reused",
        /// The node that passed a sender on is not notified that it is in use.
        SettledUntold = "settled-untold",
        /// A home that has announced its move still admits a sender.
        OldHomeAdmits = "old-home-admits",
        /// A new home is not notified of a sender that was lost while the home was made.
        LateLossUntold = "late-loss-untold",
        /// The first giver still answers for an end that has come back by another way.
        ReturnUnanswered = "return-unanswered",
        /// An offer that was withdrawn when the home moved is neither returned nor forgotten.
        AskedBackAgain = "asked-back-again",
        /// A node waits for an end whose taker is lost at the same moment.
        LeftToNobody = "left-to-nobody",
        /// The taker of an end counts as present, whichever life of the connection it took the end in.
        TakersLifeIgnored = "takers-life-ignored",
        /// A home answers offers after it has announced that its receiver is elsewhere.
        AnswersLate = "answers-late",
        /// A value sent on a credit to a channel that has ended meanwhile is dropped silently, with the ends
        /// in it.
        LateValueUntold = "late-value-untold",
        /// A sender that comes back to a node where its channel is over counts as unchanged.
        OverReturned = "over-returned",
        /// A report that an end lapsed in an earlier message is applied to its present message.
        LapseOfAnother = "lapse-of-another",
        /// A receiver that has come home unused leaves again under the same claim.
        ClaimKept = "claim-kept",
        /// Claims of a home begin at zero, whatever its epoch.
        StaleEpoch = "stale-epoch",
        /// A fenced half keeps waiting.
        FencedIgnored = "fenced-ignored",
        /// The owner of a choice that revokes a grant considers it aborted at once.
        OwnersClock = "owners-clock",
        /// Only one of the halves whose home is lost is notified.
        WakeOne = "wake-one",
        /// A node that learns of a later life of itself ends only the connection with the reporting node.
        ReplacedGoesOn = "replaced-goes-on",
        /// A retired home admits no half, not even an attached one.
        RetiredRefuses = "retired-refuses",
        /// A retired home is not notified that its sender is lost.
        RetiredUntold = "retired-untold",
        /// A resumed connection has the whole grace period again.
        GraceRestarted = "grace-restarted",
        /// The dialled side proceeds as soon as it has answered, whether its answer arrives or not.
        UnconfirmedResumed = "unconfirmed-resumed",
        /// The dialled side accepts any signature of the dialler.
        ConfirmUnchecked = "confirm-unchecked",
        /// A `Hello` is answered without a check of its signature.
        HelloUnchecked = "hello-unchecked",
        /// The dialler accepts any signature of the dialled side.
        WelcomeUnchecked = "welcome-unchecked",
        /// A connection that this node has forgotten resumes at its dialler's state.
        ForgottenResumes = "forgotten-resumes",
        /// A node counts as dead after one refused dial where it listens.
        OneRefusal = "one-refusal",
        /// One socket too many displaces the oldest without a handshake, whatever its source.
        OldestOut = "oldest-out",
        /// The reservation for a withdrawn value stays.
        RecantKept = "recant-kept",
        /// Values that have left a buffer stay charged to their sender.
        DrainedKept = "drained-kept",
        /// A signal overtakes the messages that were sent before it.
        SignalFirst = "signal-first",
        /// A watch that was told counts as open.
        WatchKept = "watch-kept",
        /// A watch that its node has ended counts as open.
        UnwatchIgnored = "unwatch-ignored",
        /// Nobody is told that a watched process's node is lost.
        LossUntold = "loss-untold",
        /// All watches of a node are told that it is lost as soon as one of its processes ends.
        LossEarly = "loss-early",
        /// A sender that waits for room in a mailbox is not notified.
        RoomUntold = "room-untold",
        /// The end of a process is reported twice to a watch.
        DownTwice = "down-twice",
        /// Of two messages that are received in a row, one leaves no place in its mailbox.
        PlaceLost = "place-lost",
        /// A message that is received returns no credit of the connection.
        CreditLost = "credit-lost",
        /// The reply to a call that was given up goes to another one.
        LateReply = "late-reply",
    }

    thread_local! {
        static AWAKE: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Activates this bug, and no other, in all machines of this thread.
    pub fn choose(bug: Option<Bug>) {
        AWAKE.set(bug);
    }

    pub(crate) fn is(bug: Bug) -> bool {
        AWAKE.get() == Some(bug)
    }
}
