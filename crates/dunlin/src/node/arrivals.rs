//! What arrives over a socket for ends that need no bridge: words for halves with links, and replies.
//!
//! The task of the socket collects it where the node is locked, and passes it on where nothing is. A bridge
//! does not work while words for its half are on their way (`bridge/linked.rs`), and gets those that the half
//! refuses before everything that it has been told since.

use std::sync::Arc;
use std::task::Wake;

use super::codec::catch;
use super::id::Half;
use super::state::{Delivery, Driver, Linked, State, Stretched, Told};

/// What has arrived over a socket for ends that need no bridge now. It is passed on where nothing is locked.
#[derive(Default)]
pub(super) struct Arrivals {
    batch: u64,
    words: Vec<Arrived>,
    deliveries: Vec<Delivery>,
}

/// A word for a half whose agent stands by.
struct Arrived {
    half: Half,
    linked: Arc<dyn Linked>,
    /// `None`: it has been passed on.
    told: Option<Told>,
}

impl Arrivals {
    /// Another batch arrives; all others have been passed on.
    pub(super) fn begin(&mut self, state: &mut State) {
        state.batches += 1;
        self.batch = state.batches;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty() && self.deliveries.is_empty()
    }

    pub(super) fn deliver(&mut self, deliveries: impl IntoIterator<Item = Delivery>) {
        self.deliveries.extend(deliveries);
    }

    /// Passes everything on. Nothing is locked.
    pub(super) fn pass_on(&mut self, driver: &Driver) {
        if !self.words.is_empty() {
            let mut refused = None;
            // A drop of what a send has left behind may panic: the next word follows.
            while catch(|| self.pass_words_on(&mut refused)).is_err() {}
            if let Some(refused) = refused {
                self.tell_bridges(refused, driver);
            }
            self.words.iter().for_each(|word| word.linked.ends(self.batch));
            let _ = catch(|| self.words.clear());
        }
        self.deliveries.drain(..).for_each(Delivery::run);
    }

    /// Passes the words on up to one that is [refused](Linked::hear).
    fn pass_words_on(&mut self, refused: &mut Option<usize>) {
        for (index, word) in self.words.iter_mut().enumerate() {
            let Some(told) = word.told.take() else { continue };
            if let Err(told) = word.linked.hear(told) {
                word.told = Some(told);
                *refused = Some(index);
                return;
            }
        }
    }

    /// The words from this one on go through their bridges, so that each half gets its own in their order.
    #[cold]
    fn tell_bridges(&mut self, from: usize, driver: &Driver) {
        let mut state = driver.locked();
        for Arrived { half, linked, told } in self.words[from..].iter_mut().rev() {
            let Some(told) = told.take() else { continue };
            match state.stretched.get_mut(half) {
                // It comes before everything that the half has been told since the batch began.
                Some(stretched) if stretched.is(linked) => stretched.tell_first(told),
                // Another half may have its place meanwhile.
                _ => state.garbage.push(Box::new(told)),
            }
        }
    }
}

impl Stretched {
    fn tell_first(&mut self, told: Told) {
        self.told.push_front(told);
        self.waker.wake_by_ref();
    }

    /// Whether its agent stands by as this half.
    fn is(&self, linked: &Arc<dyn Linked>) -> bool {
        self.linked.as_ref().is_some_and(|own| Arc::ptr_eq(own, linked))
    }

    /// Tells this with the words of a batch, if it needs no bridge and nothing comes before it.
    fn tell_beside(&mut self, half: Half, told: Told, arrivals: &mut Arrivals) -> Result<(), Told> {
        let linked = self.linked.as_ref().filter(|_| self.bridge.is_some() && self.told.is_empty());
        match linked.filter(|linked| linked.begins(arrivals.batch)) {
            Some(linked) => {
                arrivals.words.push(Arrived { half, linked: linked.clone(), told: Some(told) });
                Ok(())
            }
            None => Err(told),
        }
    }
}

impl State {
    /// As [`tell`](Self::tell). `arrivals`: what is passed on next, to which this is added if it needs no
    /// bridge.
    pub(super) fn tell_beside(&mut self, half: Half, told: Told, arrivals: Option<&mut Arrivals>) {
        let Some(stretched) = self.stretched.get_mut(&half) else { return self.garbage.push(Box::new(told)) };
        let told = match arrivals {
            Some(arrivals) => stretched.tell_beside(half, told, arrivals),
            None => Err(told),
        };
        if let Err(told) = told {
            stretched.tell(told);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, OnceLock, Weak};
    use std::task::{Context, Poll};

    use dunlin_core::carrier::WordSink;
    use dunlin_core::remote::Word;
    use dunlin_core::waits::ChannelId as CoreId;
    use dunlin_proto::id::{ChannelId, Contact, Ticket};
    use dunlin_proto::wire::Which;
    use dunlin_proto::{HomeHears, ProxyHears};

    use super::super::bridge::link::{MachineLink, Machines};
    use super::super::bridge::linked::LinkedHalf;
    use super::super::codec::Encoding;
    use super::super::far;
    use super::super::state::{Bridge, Says};
    use super::*;
    use crate::lock::lock;

    const HALF: Half = (ChannelId(7), Which::Sender);

    /// What a half has heard, and through what.
    #[derive(Debug, PartialEq)]
    enum Heard {
        InQueue(Ticket),
        ByBridge(Ticket),
        ConnectionLost,
    }

    type Record = Arc<Mutex<Vec<Heard>>>;

    /// The queue of a half that refuses this word.
    struct Queue {
        refused: Ticket,
        record: Record,
    }

    impl WordSink for Queue {
        fn hear(&self, word: Word) -> Result<(), Word> {
            match word {
                Word::Withdrawn { ticket } if ticket != self.refused => {
                    lock(&self.record).push(Heard::InQueue(ticket));
                    Ok(())
                }
                word => Err(word),
            }
        }
    }

    struct Recorder {
        record: Record,
        linked: Arc<OnceLock<Arc<dyn Linked>>>,
    }

    impl Bridge for Recorder {
        fn which(&self) -> Which {
            HALF.1
        }

        fn core(&self) -> Option<(CoreId, Encoding)> {
            None
        }

        fn rests(&self) -> bool {
            false
        }

        fn poll(&mut self, _: &mut Context<'_>, _: &Says<'_>) -> Poll<()> {
            Poll::Pending
        }

        fn linked(&self) -> Option<Arc<dyn Linked>> {
            self.linked.get().cloned()
        }

        fn hear_home(&mut self, heard: ProxyHears, _: &Says<'_>) {
            let ProxyHears::Withdrawn(ticket) = heard else { panic!("{heard:?}") };
            lock(&self.record).push(Heard::ByBridge(ticket));
        }

        fn hear_sender(&mut self, _: Contact, heard: HomeHears, _: &Says<'_>) {
            panic!("{heard:?}");
        }

        fn connection_lost(&mut self, _: &Says<'_>) {
            lock(&self.record).push(Heard::ConnectionLost);
        }

        fn poison(&mut self, text: &str) {
            panic!("{text}");
        }

        fn fail(&mut self, text: &str, _: &Says<'_>) {
            panic!("{text}");
        }
    }

    /// A node, and a half whose queue refuses this word.
    fn linked(refused: Ticket) -> (Arc<Driver>, Record) {
        let (driver, record, linked) = (far::driver(), Record::default(), Arc::<OnceLock<_>>::default());
        let bridge = Recorder { record: record.clone(), linked: linked.clone() };
        let waker = driver.with(|state, _| {
            driver.stretch(state, HALF.0, None, Box::new(bridge));
            state.waker_of(HALF).unwrap()
        });
        let node = Arc::downgrade(&driver.guarded) as Weak<dyn Machines>;
        let link = MachineLink::new(node, Arc::downgrade(&driver), HALF, waker, Encoding::Cbor, None);
        let queue = Queue { refused, record: record.clone() };
        assert!(linked.set(LinkedHalf::new(Arc::new(queue), link, false)).is_ok());
        driver.work(&driver.bell, false);
        (driver, record)
    }

    /// These words have arrived.
    fn arrive(driver: &Arc<Driver>, tickets: &[Ticket]) -> Arrivals {
        let mut arrivals = Arrivals::default();
        driver.with(|state, _| {
            arrivals.begin(state);
            for ticket in tickets {
                state.tell_beside(HALF, Told::Proxy(ProxyHears::Withdrawn(*ticket)), Some(&mut arrivals));
            }
        });
        arrivals
    }

    #[test]
    fn bridge_works_after_the_words_that_came_before() {
        let (driver, record) = linked(9);
        let mut arrivals = arrive(&driver, &[1, 2]);
        driver.with(|state, _| state.tell(HALF, Told::ConnectionLost));
        driver.work(&driver.bell, false);
        assert!(lock(&record).is_empty() && driver.with(|state, _| state.is_at_work()));
        // Another socket carries the connection now.
        assert!(arrive(&driver, &[3]).is_empty());
        arrivals.pass_on(&driver);
        driver.work(&driver.bell, false);
        let expected = [Heard::InQueue(1), Heard::InQueue(2), Heard::ConnectionLost, Heard::ByBridge(3)];
        assert_eq!(*lock(&record), expected);
        assert!(!driver.with(|state, _| state.is_at_work()));
    }

    #[test]
    fn words_from_a_refused_one_on_reach_the_bridge_before_what_it_was_told_since() {
        let (driver, record) = linked(2);
        let mut arrivals = arrive(&driver, &[1, 2, 3]);
        driver.with(|state, _| state.tell(HALF, Told::ConnectionLost));
        arrivals.pass_on(&driver);
        driver.work(&driver.bell, false);
        let expected = [Heard::InQueue(1), Heard::ByBridge(2), Heard::ByBridge(3), Heard::ConnectionLost];
        assert_eq!(*lock(&record), expected);
        assert!(arrivals.is_empty());
    }

    #[test]
    fn word_behind_what_the_bridge_was_told_goes_through_the_bridge() {
        let (driver, record) = linked(9);
        driver.with(|state, _| state.tell(HALF, Told::ConnectionLost));
        assert!(arrive(&driver, &[1]).is_empty());
        driver.work(&driver.bell, false);
        assert_eq!(*lock(&record), [Heard::ConnectionLost, Heard::ByBridge(1)]);
    }

    #[test]
    fn half_that_another_batch_is_on_its_way_to_hears_through_its_bridge() {
        let (driver, record) = linked(9);
        let mut arrivals = arrive(&driver, &[1]);
        assert!(arrive(&driver, &[2]).is_empty());
        arrivals.pass_on(&driver);
        driver.work(&driver.bell, false);
        assert_eq!(*lock(&record), [Heard::InQueue(1), Heard::ByBridge(2)]);
    }
}
