//! Bugs planted on purpose: each breaks a law, and the simulator must find each (`docs/simulator.md`).
//!
//! Nothing of this is compiled without the feature `planted`; with it, all bugs sleep until one is chosen.

/// Whether this bug is awake in this thread.
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
            /// What can be broken.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum Bug {
                $($(#[$doc])* $bug,)*
            }

            impl Bug {
                /// All of them.
                pub const ALL: &[Self] = &[$(Self::$bug),*];

                /// What it is called on a command line.
                pub fn name(self) -> &'static str {
                    match self {
                        $(Self::$bug => $name,)*
                    }
                }
            }
        };
    }

    bugs! {
        /// The home says that a value is taken when it arrives.
        AckOnArrival = "ack-on-arrival",
        /// After a new socket all that is not acknowledged is said again, whatever the other side has seen.
        ResendAll = "resend-without-memory",
        /// A side names the last frame it has acknowledged, not the last it has seen.
        ResumeFromAcked = "resume-from-acked",
        /// A hello of an earlier incarnation is answered.
        StaleAdmitted = "stale-admitted",
        /// A greater incarnation goes on with the life of the one before.
        RestartUnnoticed = "restart-unnoticed",
        /// Who gives a life up does not number the next one.
        RunIgnored = "run-ignored",
        /// `Taken` has no number: it is not said again after a cut.
        TakenUnnumbered = "taken-unnumbered",
        /// An offer is withdrawn without asking the home.
        WithdrawnUnasked = "withdrawn-unasked",
        /// What may have been taken when a connection dies is told not to be.
        UnknownAsNotTaken = "unknown-as-not-taken",
        /// A value that was cut short is still waited for.
        CutIgnored = "cut-ignored",
        /// A home grants its credits again when a connection resumes.
        CreditsDoubled = "credits-doubled",
        /// A socket that comes late replaces a newer one.
        LateSocket = "late-socket",
        /// The end of a connection's life is told twice.
        DeathTwice = "death-twice",
        /// What a dead node offered can still be taken.
        DeadOffers = "dead-offers",
        /// When both sides dial at once, both sockets are kept.
        CrossedKept = "crossed-kept",
        /// A goodbye overtakes what was said before.
        GoodbyeFirst = "goodbye-first",
        /// A half that is gone says so before its last offers.
        GoneFirst = "gone-first",
        /// A value granted to an earlier request passes for an answer to the present one.
        GrantUnnumbered = "grant-unnumbered",
        /// The owner of a choice is not told that its reservation was given up.
        AbortUntold = "abort-untold",
        /// What a channel has to say goes out newest first.
        NewestFirst = "newest-first",
        /// A sender is admitted under any number, also one that is not newer than the one that is known.
        StaleTake = "stale-take",
        /// A half is not told that its end is known elsewhere.
        SupersededUntold = "superseded-untold",
        /// Who gave a sender away forgets it before it is known elsewhere.
        LentForgotten = "lent-forgotten",
        /// A home moves before all that was on its way to it has arrived.
        QuietSkipped = "quiet-skipped",
        /// A sender is packed while what it has sent is on its way.
        DrainSkipped = "drain-skipped",
        /// A sponsor that is asked for a home that it does not know yet forgets who has asked.
        WhereForgotten = "where-forgotten",
        /// A sender that is dropped unused is not said to have lapsed.
        LapsedKept = "lapsed-kept",
        /// What stood when the home moved is not asked for again.
        MovedUntold = "moved-untold",
        /// The values of the buffer stay behind when the home moves.
        BufferLeft = "buffer-left",
        /// A receiver is given away for a claim that does not count any more.
        ClaimIgnored = "claim-ignored",
        /// The sender is not told that its home moves.
        MovingUntold = "moving-untold",
        /// Credits of the home before count besides those of the new one.
        CreditsTwice = "credits-twice",
        /// After an unknown message a sender is taken under the number that it had.
        TransferReused = "transfer-reused",
        /// Who passed a sender on is not told that it is in use.
        SettledUntold = "settled-untold",
        /// A home that has said where it goes still admits a sender.
        OldHomeAdmits = "old-home-admits",
        /// A new home is not told of a sender that was lost while it was made.
        LateLossUntold = "late-loss-untold",
        /// An end that has come back by another way is still answered for by its first giver.
        ReturnUnanswered = "return-unanswered",
        /// What was asked back when the home moved is neither given back nor forgotten.
        AskedBackAgain = "asked-back-again",
        /// An end that was taken by a node that is lost in the same breath is waited for.
        LeftToNobody = "left-to-nobody",
        /// Who took an end is taken for being there still, whichever life of the connection that was in.
        TakersLifeIgnored = "takers-life-ignored",
        /// A home answers offers behind the word that its receiver is elsewhere.
        AnswersLate = "answers-late",
        /// What was sent on a credit to a channel that has ended meanwhile is dropped without a word, and the
        /// ends in it.
        LateValueUntold = "late-value-untold",
        /// A sender that comes back to a node where its channel is over is taken for what it was.
        OverReturned = "over-returned",
        /// That an end is gone which went in an earlier message is taken for a word of the one that it is in
        /// now.
        LapseOfAnother = "lapse-of-another",
        /// A receiver that has come home unused leaves under the same claim again.
        ClaimKept = "claim-kept",
        /// Claims of a home begin at zero, whichever of the channel's homes it is.
        StaleEpoch = "stale-epoch",
        /// A half that is fenced goes on waiting.
        FencedIgnored = "fenced-ignored",
        /// The owner of a choice that asks for its reservation back takes it as given back.
        OwnersClock = "owners-clock",
        /// Of the halves whose home is lost only one is told.
        WakeOne = "wake-one",
        /// A node that hears of a later life of itself ends only the connection with who has said so.
        ReplacedGoesOn = "replaced-goes-on",
        /// A home that is retired admits no half, not even one of which it has heard.
        RetiredRefuses = "retired-refuses",
        /// A home that is retired does not hear that its sender is lost.
        RetiredUntold = "retired-untold",
        /// A connection that is resumed has the whole grace period again.
        GraceRestarted = "grace-restarted",
        /// The dialled side goes on as soon as it has answered, whether its answer arrives or not.
        UnconfirmedResumed = "unconfirmed-resumed",
        /// The dialled side believes any signature of the dialler's.
        ConfirmUnchecked = "confirm-unchecked",
        /// A `Hello` is answered whoever has signed it.
        HelloUnchecked = "hello-unchecked",
        /// The dialler believes any signature of the dialled side's.
        WelcomeUnchecked = "welcome-unchecked",
        /// A connection that this node has forgotten goes on where its dialler stands.
        ForgottenResumes = "forgotten-resumes",
        /// A node is taken for dead when one dial is refused where it listens.
        OneRefusal = "one-refusal",
        /// For a socket too many the oldest without a handshake makes room, whatever its source.
        OldestOut = "oldest-out",
        /// What was reserved for a value that is withdrawn stays reserved.
        RecantKept = "recant-kept",
        /// What has left a buffer is not given back to its sender's account.
        DrainedKept = "drained-kept",
    }

    thread_local! {
        static AWAKE: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Wakes this bug, and no other, in all machines of this thread.
    pub fn choose(bug: Option<Bug>) {
        AWAKE.set(bug);
    }

    pub(crate) fn is(bug: Bug) -> bool {
        AWAKE.get() == Some(bug)
    }
}
