//! Places for one reply.
//!
//! A reply needs neither a queue nor a policy, so its place is a lock around it. Only a place that leaves the
//! program is a channel: it becomes one when its end is first asked for, and what waits at the place waits at
//! that channel from then on.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use crate::channel::policy::fifo;
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::error::{RecvError, SendError};
use crate::handle::Handle;
use crate::lock::Lock;
use crate::waits::{Doing, Pid, Watch};
use crate::wake::{keep, wake};

/// Makes a place for a reply, and what waits for it.
#[track_caller]
pub fn reply<A>() -> (Reply<A>, Answer<A>) {
    let place = Arc::new(Place(Lock::new(Held::Open(None))));
    let way = Way::Place { place: place.clone(), made: Location::caller(), watch: Watch::default() };
    (Reply { place: Some(place), sender: OnceLock::new() }, Answer { way })
}

/// The same as a channel from the beginning: for a request that may leave the program.
#[track_caller]
pub(crate) fn channel_reply<A>() -> (Reply<A>, Answer<A>) {
    channel_reply_at(Location::caller())
}

/// The same, as made at this place in the source.
pub(crate) fn channel_reply_at<A>(made: &'static Location<'static>) -> (Reply<A>, Answer<A>) {
    let (sender, answers) = crate::channel::ends(&fifo(1), made);
    (Reply::over(sender), Answer { way: Way::Channel(answers) })
}

/// Where the reply is put. The place for the reply and what waits for it have one each.
struct Place<A>(Lock<Held<A>>);

enum Held<A> {
    /// No reply yet.
    Open(Option<Waker>),
    Filled(A),
    /// The place has become a channel: only one that leaves the program does.
    #[cfg_attr(not(feature = "serde"), allow(dead_code, reason = "nothing leaves the program"))]
    Moved(Receiver<A>),
    /// The reply was taken, or one of the two sides has gone.
    Closed,
}

impl<A> Place<A> {
    /// `Err`: nothing waits for it.
    fn put<T>(&self, value: T, held: impl FnOnce(T) -> Held<A>) -> Result<(), T> {
        let mut g = self.0.lock();
        if matches!(*g, Held::Closed) {
            return Err(value);
        }
        let old = std::mem::replace(&mut *g, held(value));
        drop(g);
        if let Held::Open(Some(waker)) = old {
            wake(waker);
        }
        Ok(())
    }

    /// Takes what was put there; `None`: nothing was, and the waker is kept.
    fn take(&self, waker: Option<&Waker>) -> Option<Held<A>> {
        let mut g = self.0.lock();
        if let Held::Open(kept) = &mut *g {
            let old = match waker {
                Some(waker) if kept.as_ref().is_none_or(|kept| !kept.will_wake(waker)) => kept.replace(keep(waker)),
                _ => None,
            };
            drop(g);
            drop(old);
            return None;
        }
        Some(std::mem::replace(&mut *g, Held::Closed))
    }

    fn close(&self) {
        let held = std::mem::replace(&mut *self.0.lock(), Held::Closed);
        drop(held);
    }
}

/// Waits for the reply, and takes it. Dropping it refuses the reply.
pub struct Answer<A> {
    way: Way<A>,
}

enum Way<A> {
    Place { place: Arc<Place<A>>, made: &'static Location<'static>, watch: Watch },
    Channel(Receiver<A>),
}

impl<A> Answer<A> {
    /// The reply, if it has come.
    pub fn take(&mut self) -> Option<A> {
        if let Way::Place { place, .. } = &self.way {
            match place.take(None)? {
                Held::Filled(answer) => return Some(answer),
                Held::Moved(answers) => self.way = Way::Channel(answers),
                Held::Open(_) | Held::Closed => return None,
            }
        }
        match &mut self.way {
            Way::Channel(answers) => answers.try_recv().ok(),
            Way::Place { .. } => None,
        }
    }
}

impl<A> Answer<A> {
    /// No process waits any more; the answer lives on.
    pub(crate) fn unwatch(&self) {
        match &self.way {
            Way::Place { watch, .. } => watch.end(),
            Way::Channel(answers) => answers.chan().unwatch(Handle::END),
        }
    }
}

// No reply in it is pinned.
impl<A> Unpin for Answer<A> {}

impl<A> Future for Answer<A> {
    type Output = Result<A, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let answers = match &mut self.way {
                Way::Channel(answers) => return answers.chan().poll_take::<false>(Handle::END, true, cx),
                Way::Place { place, made, watch } => {
                    let polled = place.take(Some(cx.waker())).map_or(Poll::Pending, Poll::Ready);
                    match std::task::ready!(watch.note(polled, Doing::Receive, Pid::OUTSIDE, made)) {
                        Held::Filled(answer) => return Poll::Ready(Ok(answer)),
                        Held::Moved(answers) => answers,
                        Held::Open(_) | Held::Closed => return Poll::Ready(Err(RecvError::Closed)),
                    }
                }
            };
            self.way = Way::Channel(answers);
        }
    }
}

impl<A> Drop for Answer<A> {
    fn drop(&mut self) {
        if let Way::Place { place, .. } = &self.way {
            place.close();
        }
    }
}

impl<A> fmt::Debug for Answer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

/// The place for one reply.
///
/// If it is dropped without a reply, the call fails with [`CallError::NoReply`](crate::CallError::NoReply).
#[must_use = "dropped without a reply, the call fails"]
pub struct Reply<A> {
    /// `None`: it was a channel from the beginning, or the reply was sent.
    place: Option<Arc<Place<A>>>,
    sender: OnceLock<Sender<A>>,
}

impl<A> Reply<A> {
    pub(crate) fn over(sender: Sender<A>) -> Self {
        Self { place: None, sender: OnceLock::from(sender) }
    }

    /// The place as a channel.
    #[cfg(feature = "serde")]
    pub(crate) fn sender(&self) -> &Sender<A> {
        self.sender.get_or_init(|| {
            let (sender, answers) = crate::channel::ends(&fifo(1), Location::caller());
            // If nothing waits for the reply, its receiver is dropped here, and the channel is closed.
            drop(self.place.as_ref().map(|place| place.put(answers, Held::Moved)));
            sender
        })
    }

    #[cfg(feature = "serde")]
    pub(crate) fn into_inner(mut self) -> Sender<A> {
        self.sender();
        self.place = None;
        self.sender.take().unwrap_or_else(|| unreachable!("it was made a channel"))
    }

    /// Replies; never waits.
    ///
    /// # Errors
    /// The answer, if the caller has gone.
    pub fn send(mut self, answer: A) -> Result<(), A> {
        // Taken in any case, so that the drop does not close it.
        match (self.sender.take(), self.place.take()) {
            (Some(mut sender), _) => sender.try_send(answer).map_err(SendError::into_value),
            (None, Some(place)) => place.put(answer, Held::Filled),
            (None, None) => Err(answer),
        }
    }
}

impl<A> Drop for Reply<A> {
    fn drop(&mut self) {
        // A place that has become a channel holds its receiver until the answer is next polled, and the other
        // end may have been given away.
        if self.sender.get().is_none()
            && let Some(place) = &self.place
        {
            // (Nothing waits, where there is an error.)
            let _ = place.put((), |()| Held::Closed);
        }
    }
}

impl<A> fmt::Debug for Reply<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::pin::pin;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Polls once.
    fn poll<A>(answer: &mut Answer<A>, wakes: &Arc<Wakes>) -> Poll<Result<A, RecvError>> {
        pin!(answer).poll(&mut Context::from_waker(&wakes.clone().into()))
    }

    #[test]
    fn a_reply_wakes_what_waits_for_it_once_and_so_does_its_drop() {
        let wakes = Arc::<Wakes>::default();
        let (place, mut answer) = reply();
        assert!(poll(&mut answer, &wakes).is_pending() && poll(&mut answer, &wakes).is_pending());
        assert_eq!(place.send(7), Ok(()));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&mut answer, &wakes), Poll::Ready(Ok(7)));

        let (place, mut answer) = reply::<u8>();
        assert!(poll(&mut answer, &wakes).is_pending());
        drop(place);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
        assert_eq!(poll(&mut answer, &wakes), Poll::Ready(Err(RecvError::Closed)));
    }

    #[test]
    fn the_last_waker_is_woken() {
        let (first, last) = (Arc::<Wakes>::default(), Arc::<Wakes>::default());
        let (place, mut answer) = reply();
        assert!(poll(&mut answer, &first).is_pending() && poll(&mut answer, &last).is_pending());
        assert_eq!(place.send(7), Ok(()));
        assert_eq!((first.0.load(Ordering::Relaxed), last.0.load(Ordering::Relaxed)), (0, 1));
    }

    #[test]
    fn a_reply_that_nothing_waits_for_comes_back_and_one_that_was_put_is_dropped_with_the_answer() {
        let value = Rc::new(());
        let (place, answer) = reply();
        drop(answer);
        assert!(place.send(value.clone()).is_err());
        let (place, answer) = reply();
        assert_eq!(place.send(value.clone()), Ok(()));
        assert_eq!(Rc::strong_count(&value), 2);
        drop(answer);
        assert_eq!(Rc::strong_count(&value), 1);
        let (place, mut answer) = reply();
        assert_eq!(answer.take(), None);
        assert_eq!(place.send(7), Ok(()));
        assert_eq!((answer.take(), answer.take()), (Some(7), None));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_place_that_becomes_a_channel_takes_what_waits_with_it() {
        let wakes = Arc::<Wakes>::default();
        for waits in [false, true] {
            for whole in [false, true] {
                let (place, mut answer) = reply();
                assert!(!waits || poll(&mut answer, &wakes).is_pending());
                place.sender();
                let before = wakes.0.load(Ordering::Relaxed);
                assert!(!waits || poll(&mut answer, &wakes).is_pending());
                match whole {
                    false => assert_eq!(place.send(7), Ok(())),
                    true => assert!(place.into_inner().try_send(7).is_ok()),
                }
                assert_eq!(wakes.0.load(Ordering::Relaxed) - before, u32::from(waits));
                assert_eq!(poll(&mut answer, &wakes), Poll::Ready(Ok(7)));
            }
        }
        let (place, mut answer) = reply::<u8>();
        place.sender();
        drop(place);
        assert_eq!(poll(&mut answer, &wakes), Poll::Ready(Err(RecvError::Closed)));
        // An agent has taken the channel's end, and the place is dropped before the answer is polled again.
        let (place, mut answer) = reply::<u8>();
        assert!(poll(&mut answer, &wakes).is_pending());
        let another = place.sender().chan().clone();
        assert!(another.move_sender());
        drop(place);
        assert_eq!(poll(&mut answer, &wakes), Poll::Pending);
        another.sender_gone();
        assert_eq!(poll(&mut answer, &wakes), Poll::Ready(Err(RecvError::Closed)));
        let (place, answer) = reply();
        drop(answer);
        place.sender();
        assert_eq!(place.send(7), Err(7));
    }
}
