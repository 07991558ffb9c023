//! Counts which faults have struck which states of the protocol.

use std::fmt;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A socket is cut, at any byte; both sides notice sooner or later.
    Cut,
    /// A socket is cut, and at least one side is never notified.
    HalfOpen,
    /// One direction between two nodes stands still for a while.
    Stall,
    /// What is sent in one direction between two nodes vanishes.
    Vanish,
    /// What is sent in one direction between two nodes vanishes, all of it or all after the handshakes, and
    /// their sockets stay up.
    Deaf,
    /// The same, from the first large piece of each socket on.
    Large,
    /// A live node refuses all dials, for less than the least time between refusals that count.
    Refuses,
    /// A dial fails.
    DialFails,
    /// A socket is accepted much later than it was made.
    LateAccept,
    /// Both sides dial at once.
    Crossed,
    /// A node stops for good, without a goodbye.
    Crash,
    /// A node is started again while its old life was only paused, and the old life returns.
    Stale,
    /// A node leaves in good order.
    Leave,
    /// A node does nothing for a while.
    Slow,
    /// A socket accepts no more bytes.
    Full,
}

impl Fault {
    pub(crate) const ALL: [Self; 15] = [
        Self::Cut,
        Self::HalfOpen,
        Self::Stall,
        Self::Vanish,
        Self::Deaf,
        Self::Large,
        Self::Refuses,
        Self::DialFails,
        Self::LateAccept,
        Self::Crossed,
        Self::Crash,
        Self::Stale,
        Self::Leave,
        Self::Slow,
        Self::Full,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::HalfOpen => "half-open",
            Self::Stall => "stall",
            Self::Vanish => "vanish",
            Self::Deaf => "deaf",
            Self::Large => "large vanish",
            Self::Refuses => "refuses",
            Self::DialFails => "dial fails",
            Self::LateAccept => "late accept",
            Self::Crossed => "crossed dials",
            Self::Crash => "crash",
            Self::Stale => "stale life",
            Self::Leave => "leave",
            Self::Slow => "slow node",
            Self::Full => "full buffer",
        }
    }
}

/// The state of the protocol between the two nodes when the fault struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// No connection, and none requested.
    Idle,
    /// A first socket is being dialled.
    Dialling,
    /// Carried by the first socket of its life.
    Up,
    /// Its socket is lost.
    Lost,
    /// Carried by a later socket of its life.
    Resumed,
    /// A socket whose acceptor waits for the hello.
    Stranger,
    /// A socket whose dialler waits for the answer.
    Greeting,
    /// A socket that carries.
    Carries,
    /// A firm offer that has not arrived.
    OnItsWay,
    /// A value of which a part has arrived.
    InPieces,
    /// A firm offer that waits at the home.
    Firm,
    /// A choice's offer.
    Tentative,
    /// A choice's offer that the home has asked for.
    Asked,
    /// A choice's offer whose value is granted.
    Reserved,
    /// A value in an extended receive.
    Held,
    /// A taken value whose sender does not know it yet.
    Taken,
    /// A withdrawal that has not been answered.
    Withdrawing,
    /// A value sent on a credit that has not arrived.
    Sent,
    /// An end in a message that has no outcome.
    Packed,
    /// An end that has arrived and is not used.
    Resting,
    /// An end that was given away and is not known to be in use.
    Lent,
    /// A sender that has announced itself to its home.
    Taking,
    /// A sender that asks its sponsor where the home is.
    Asking,
    /// A sender that waits until all it has sent has arrived.
    Draining,
    /// A home that moves away.
    Leaving,
    /// A receiver that has asked for its home.
    Fetching,
    /// A receiver whose values are on their way.
    Filling,
}

impl Met {
    const ALL: [Self; 27] = [
        Self::Idle,
        Self::Dialling,
        Self::Up,
        Self::Lost,
        Self::Resumed,
        Self::Stranger,
        Self::Greeting,
        Self::Carries,
        Self::OnItsWay,
        Self::InPieces,
        Self::Firm,
        Self::Tentative,
        Self::Asked,
        Self::Reserved,
        Self::Held,
        Self::Taken,
        Self::Withdrawing,
        Self::Sent,
        Self::Packed,
        Self::Resting,
        Self::Lent,
        Self::Taking,
        Self::Asking,
        Self::Draining,
        Self::Leaving,
        Self::Fetching,
        Self::Filling,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Dialling => "dialling",
            Self::Up => "up",
            Self::Lost => "lost",
            Self::Resumed => "resumed",
            Self::Stranger => "stranger",
            Self::Greeting => "greeting",
            Self::Carries => "carries",
            Self::OnItsWay => "on its way",
            Self::InPieces => "in pieces",
            Self::Firm => "firm",
            Self::Tentative => "tentative",
            Self::Asked => "asked",
            Self::Reserved => "reserved",
            Self::Held => "held",
            Self::Taken => "taken",
            Self::Withdrawing => "withdrawing",
            Self::Sent => "sent",
            Self::Packed => "packed",
            Self::Resting => "resting",
            Self::Lent => "lent",
            Self::Taking => "taking",
            Self::Asking => "asking",
            Self::Draining => "draining",
            Self::Leaving => "leaving",
            Self::Fetching => "fetching",
            Self::Filling => "filling",
        }
    }
}

/// Cells that no run can reach, and why.
fn impossible(fault: Fault, met: Met) -> bool {
    match fault {
        // A dial belongs to a connection without a socket, and a socket that is not accepted carries nothing.
        Fault::DialFails | Fault::LateAccept => matches!(met, Met::Stranger | Met::Greeting | Met::Carries),
        // Only a connection's socket can be full: hello and answer are smaller than every buffer.
        Fault::Full => matches!(met, Met::Idle | Met::Dialling | Met::Lost | Met::Stranger | Met::Greeting),
        _ => false,
    }
}

/// Counts of the cells covered, and of what happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    cells: [[u64; Met::ALL.len()]; Fault::ALL.len()],
    /// Events of all machines.
    pub events: u64,
    /// Values offered or sent.
    pub offers: u64,
    /// Values that were taken.
    pub taken: u64,
    /// Lives of connections that ended.
    pub deaths: u64,
    /// Sockets that resumed a connection.
    pub resumed: u64,
    /// Connections that another node began to relay, counted at both sides.
    pub relayed: u64,
    /// Lives that ended because dials were refused.
    pub died: u64,
    /// Earlier lives that learned that they were replaced.
    pub replaced: u64,
    /// Channels with ends that travel whose receiver retired them.
    pub retired: u64,
    /// Messages that a peer without a key has sent in the name of a node.
    pub thefts: u64,
    /// Floods of such messages, and of sockets that send nothing.
    pub floods: u64,
    /// Messages for mailboxes, and signals with a number, that have arrived.
    pub items: u64,
    /// Watches of processes that were told.
    pub told: u64,
    /// Messages for which a mailbox had no room.
    pub full: u64,
    /// Calls of processes that have ended otherwise than by being given up.
    pub calls: u64,
    /// The most bytes that a node kept for others, where values are held.
    pub held: u64,
}

impl Coverage {
    pub(crate) fn met(&mut self, fault: Fault, met: Met) {
        self.cells[fault as usize][met as usize] += 1;
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (row, others) in self.cells.iter_mut().zip(&other.cells) {
            row.iter_mut().zip(others).for_each(|(cell, more)| *cell += more);
        }
        self.events += other.events;
        self.offers += other.offers;
        self.taken += other.taken;
        self.deaths += other.deaths;
        self.resumed += other.resumed;
        self.relayed += other.relayed;
        self.died += other.died;
        self.replaced += other.replaced;
        self.retired += other.retired;
        self.thefts += other.thefts;
        self.floods += other.floods;
        self.items += other.items;
        self.told += other.told;
        self.full += other.full;
        self.calls += other.calls;
        self.held = self.held.max(other.held);
    }

    /// The counts as a JSON object.
    pub fn json(&self) -> String {
        let rows: Vec<String> = Fault::ALL
            .into_iter()
            .map(|fault| {
                let cells = Met::ALL.into_iter().map(|met| (met, self.cells[fault as usize][met as usize]));
                let cells: Vec<String> = cells.map(|(met, count)| format!("\"{}\":{count}", met.name())).collect();
                format!("\"{}\":{{{}}}", fault.name(), cells.join(","))
            })
            .collect();
        format!(
            "{{\"events\":{},\"offers\":{},\"taken\":{},\"deaths\":{},\"resumed\":{},\"relayed\":{},\"died\":{},\"replaced\":{},\"retired\":{},\"thefts\":{},\"floods\":{},\"items\":{},\"told\":{},\"full\":{},\"calls\":{},\"met\":{{{}}}}}",
            self.events,
            self.offers,
            self.taken,
            self.deaths,
            self.resumed,
            self.relayed,
            self.died,
            self.replaced,
            self.retired,
            self.thefts,
            self.floods,
            self.items,
            self.told,
            self.full,
            self.calls,
            rows.join(",")
        )
    }

    /// The cells that should have been covered and were not, as `fault x state`.
    pub fn missing(&self) -> Vec<String> {
        let cells = Fault::ALL.into_iter().flat_map(|fault| Met::ALL.into_iter().map(move |met| (fault, met)));
        cells
            .filter(|(fault, met)| !impossible(*fault, *met) && self.cells[*fault as usize][*met as usize] == 0)
            .map(|(fault, met)| format!("{} x {}", fault.name(), met.name()))
            .collect()
    }
}

impl fmt::Display for Coverage {
    /// A table: faults down, states across (`-` for impossible cells).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} events, {} values offered or sent, {} taken, {} lives of connections ended, {} of them by refusals, {} times resumed, {} relayed, {} replaced, {} retired, {} thefts tried, {} floods, {} items of processes, {} watches told, {} times no room, {} calls ended",
            self.events,
            self.offers,
            self.taken,
            self.deaths,
            self.died,
            self.resumed,
            self.relayed,
            self.replaced,
            self.retired,
            self.thefts,
            self.floods,
            self.items,
            self.told,
            self.full,
            self.calls
        )?;
        for states in [&Met::ALL[..8], &Met::ALL[8..18], &Met::ALL[18..]] {
            write!(f, "\n{:<14}", "")?;
            states.iter().try_for_each(|met| write!(f, "{:>12}", met.name()))?;
            writeln!(f)?;
            for fault in Fault::ALL {
                write!(f, "{:<14}", fault.name())?;
                for met in states {
                    match self.cells[fault as usize][*met as usize] {
                        0 if impossible(fault, *met) => write!(f, "{:>12}", "-")?,
                        count => write!(f, "{count:>12}")?,
                    }
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
