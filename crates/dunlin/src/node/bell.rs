//! How tasks of a node are woken, and learn which channels need work.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Wake, Waker};

use super::id::Half;
use super::watch::Watch;
use crate::lock::lock;

/// A task that can be woken from anywhere, and remembers that it was; and the channels that it has to work
/// on.
#[derive(Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    /// It was rung since [`take_news`](Self::take_news), also while the task [attended](Self::attend).
    has_news: AtomicBool,
    sleep: Mutex<Sleep>,
    /// An end has taken the waker, and the task has not run since. It changes only under that lock.
    is_called: AtomicBool,
    /// Users' code may keep the task.
    is_at_work: AtomicBool,
    /// What the task serves, if that is a socket.
    socket: OnceLock<Socket>,
    stirred: Mutex<VecDeque<Half>>,
    /// How many channels that has. It changes only under that lock.
    waiting: AtomicUsize,
    /// No task looks at those any more. It is set under that lock.
    closed: AtomicBool,
}

/// The socket that a bell's task serves.
struct Socket {
    /// The number of its node.
    node: u64,
    writes: Weak<dyn Writes>,
    watch: Arc<Watch>,
}

/// How the task of a bell waits.
#[derive(Default)]
struct Sleep {
    waker: Option<Waker>,
    /// The sockets that the task writes beside its own when it runs, and the wakers of their tasks.
    companions: Vec<(Weak<dyn Writes>, Waker)>,
}

/// A socket that another socket's task can write.
pub(super) trait Writes: Send + Sync {
    /// Writes what there is to write. If that is not all that the socket needs, wakes its task.
    fn write_beside(&self, waker: Waker);
}

thread_local! {
    /// The bell that the ends on this thread rang last, and its node.
    static LAST: RefCell<(u64, Weak<Bell>)> = const { RefCell::new((0, Weak::new())) };
}

impl Bell {
    pub(crate) fn ring(&self) {
        // Not within the lock: the woken task may wait again at once.
        if let Some(waker) = self.take_waker() {
            waker.wake();
        }
    }

    /// Rings for an end, and has the task watched: users' code may block the thread that is to run it.
    fn ring_for_end(&self) {
        self.ring();
        if let Some(socket) = self.socket.get() {
            socket.watch.begin();
        }
    }

    /// A waker that rings.
    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::new(Rings(self.clone())))
    }

    /// Rings, and returns the waker of the task if it waits.
    fn take_waker(&self) -> Option<Waker> {
        self.has_news.store(true, Ordering::Release);
        if self.rung.swap(true, Ordering::AcqRel) { None } else { lock(&self.sleep).waker.take() }
    }

    /// As [`ring_for_end`](Self::ring_for_end), but returns the waker of the task if it waits. The caller
    /// must wake it.
    ///
    /// If ends on this thread have rung for the task of another socket of the node, which has not run since,
    /// that task writes this one's socket too, and `None` is returned. For a second task that becomes ready,
    /// a runtime wakes another thread, which costs more than the write.
    fn ring_later(self: &Arc<Self>) -> Option<Waker> {
        let mut waker = Some(self.take_waker()?);
        if let Some(Socket { node, writes, watch }) = self.socket.get() {
            if let Some(looker) = watch.begin_later() {
                waker = waker.map(|waker| Waker::from(Arc::new(Both(waker, looker.clone()))));
            }
            // (Without it, at the end of the thread, the task is woken.)
            let _ = LAST.try_with(|last| {
                let (last_node, last) = &mut *last.borrow_mut();
                if std::ptr::eq(last.as_ptr(), &raw const **self) {
                    return;
                }
                // (Nodes may run in different runtimes, of which one may end.)
                let called = if last_node == node { last.upgrade() } else { None };
                if let Some(called) = called {
                    called.take_along(writes, &mut waker);
                }
                if waker.is_some() {
                    (*last_node, *last) = (*node, Arc::downgrade(self));
                }
            });
        }
        if waker.is_some() {
            // The caller wakes the task, so it runs.
            let _sleep = lock(&self.sleep);
            self.is_called.store(!self.is_closed(), Ordering::Release);
        }
        waker
    }

    /// Takes the waker if the task is about to run. A channel may be locked.
    fn take_along(&self, socket: &Weak<dyn Writes>, waker: &mut Option<Waker>) {
        let mut sleep = lock(&self.sleep);
        if self.is_called.load(Ordering::Acquire) && !self.is_at_work.load(Ordering::Acquire) {
            sleep.companions.extend(waker.take().map(|waker| (socket.clone(), waker)));
        }
    }

    /// Whether users' code may keep the task from here on.
    pub(super) fn works(&self, is_at_work: bool) {
        self.is_at_work.store(is_at_work, Ordering::Release);
    }

    pub(super) fn serves(&self, node: u64, writes: Weak<dyn Writes>, watch: Arc<Watch>) {
        let _ = self.socket.set(Socket { node, writes, watch });
    }

    /// Whether the task has been woken, and has neither run nor ended since.
    pub(super) fn is_due(&self) -> bool {
        self.rung.load(Ordering::Acquire) && !self.is_waiting() && !self.is_closed()
    }

    /// Whether the task has looked at the bell since it was last called, and waits.
    pub(super) fn is_waiting(&self) -> bool {
        lock(&self.sleep).waker.is_some()
    }

    /// Writes the sockets that the task was given since it last ran. The task calls this when it runs, and
    /// before it runs users' code.
    pub(super) fn write_companions(&self) {
        if self.is_called.load(Ordering::Acquire) {
            self.write_last_companions();
        }
    }

    /// The same, when the task has ended: from then on it is given none.
    pub(super) fn write_last_companions(&self) {
        let mut sleep = lock(&self.sleep);
        self.is_called.store(false, Ordering::Release);
        let companions = std::mem::take(&mut sleep.companions);
        drop(sleep);
        for (socket, waker) in companions {
            if let Some(socket) = socket.upgrade() {
                socket.write_beside(waker);
            }
        }
    }

    /// Whether the bell has rung since the last call; if not, the task will be woken.
    pub(super) fn poll_rung(&self, cx: &Context<'_>) -> bool {
        if self.rung.swap(false, Ordering::AcqRel) {
            return true;
        }
        let mut sleep = lock(&self.sleep);
        if !sleep.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            sleep.waker = Some(cx.waker().clone());
        }
        drop(sleep);
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// The task is running, and looks at everything once more before it waits: it needs no waking until
    /// [`depart`](Self::depart).
    pub(super) fn attend(&self) {
        self.rung.store(true, Ordering::Release);
    }

    /// Whatever arrives from now on wakes the task. The task still has to look at what did not wake it.
    pub(super) fn depart(&self) {
        self.rung.swap(false, Ordering::AcqRel);
    }

    /// Whether the bell has rung since the last call, whatever the task did meanwhile. A ring after
    /// [`depart`](Self::depart) wakes the task as well.
    pub(super) fn take_news(&self) -> bool {
        self.has_news() && self.has_news.swap(false, Ordering::AcqRel)
    }

    /// Whether [`take_news`](Self::take_news) would return true.
    pub(super) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    /// This channel needs work. `false`: not here any more. The caller then has to ring the bell.
    fn stir(&self, half: Half) -> bool {
        let mut stirred = lock(&self.stirred);
        let is_open = !self.is_closed();
        if is_open {
            stirred.push_back(half);
            self.waiting.store(stirred.len(), Ordering::Release);
        }
        is_open
    }

    /// How many channels need work. A task that has called [`depart`](Self::depart) sees all of them but
    /// those whose ring wakes it.
    pub(super) fn stirred(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// The next of them.
    pub(super) fn next(&self) -> Option<Half> {
        let mut stirred = lock(&self.stirred);
        let next = stirred.pop_front();
        self.waiting.store(stirred.len(), Ordering::Release);
        next
    }

    /// No task looks here any more. Returns the channels that are left.
    pub(super) fn close(&self) -> VecDeque<Half> {
        let mut stirred = lock(&self.stirred);
        self.closed.store(true, Ordering::Release);
        self.waiting.store(0, Ordering::Release);
        std::mem::take(&mut *stirred)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// How an end, and what arrives for it, finds the task that works on its channel.
pub(crate) struct EndWaker {
    half: Half,
    /// The bell of the task that works on channels that no socket carries.
    common: Weak<Bell>,
    /// A task is going to work on it.
    stirred: AtomicBool,
    /// The task of the socket that carries the end's connection.
    carrier: Mutex<Option<Arc<Bell>>>,
}

impl EndWaker {
    pub(super) fn new(half: Half, common: Weak<Bell>) -> Arc<Self> {
        Arc::new(Self { half, common, stirred: AtomicBool::new(false), carrier: Mutex::new(None) })
    }

    /// Whether a task is going to work on it.
    pub(super) fn is_stirred(&self) -> bool {
        self.stirred.load(Ordering::SeqCst)
    }

    /// Work on it begins: whatever arrives from now on needs more work.
    pub(super) fn heed(&self) {
        self.stirred.store(false, Ordering::SeqCst);
    }

    /// From now on this socket carries it.
    pub(super) fn carried_by(&self, bell: Option<Arc<Bell>>) {
        *lock(&self.carrier) = bell;
    }

    /// Rings for the task that carries the end's connection, which then does what the machine requires.
    /// Returns its waker if it waits: the caller must wake it.
    pub(super) fn ring_carrier(&self) -> Option<Waker> {
        if let Some(bell) = lock(&self.carrier).as_ref().filter(|bell| !bell.is_closed()) {
            return bell.ring_later();
        }
        self.common.upgrade().map(|bell| bell.waker())
    }

    /// Lists the channel elsewhere: no task looks any more where it was listed.
    pub(super) fn list_anew(&self) {
        if let Some(bell) = lock(&self.carrier).as_ref().filter(|bell| bell.stir(self.half)) {
            return bell.ring_for_end();
        }
        if let Some(bell) = self.common.upgrade() {
            bell.stir(self.half);
            bell.ring();
        }
    }
}

impl Wake for EndWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.stirred.swap(true, Ordering::SeqCst) {
            self.list_anew();
        }
    }
}

/// Wakes two tasks.
struct Both(Waker, Waker);

impl Wake for Both {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
        self.1.wake_by_ref();
    }
}

/// Rings a bell.
struct Rings(Arc<Bell>);

impl Wake for Rings {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// A socket that counts how often it was written by another one's task.
    #[derive(Default)]
    struct Socket {
        written: AtomicU32,
    }

    impl Writes for Socket {
        fn write_beside(&self, waker: Waker) {
            self.written.fetch_add(1, Ordering::Relaxed);
            waker.wake();
        }
    }

    #[derive(Default)]
    struct Task(AtomicU32);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The bell of a waiting task of this node.
    fn waiting(node: u64) -> (Arc<Bell>, Arc<Socket>, Arc<Task>) {
        let (bell, socket, task) = (Arc::<Bell>::default(), Arc::<Socket>::default(), Arc::<Task>::default());
        let watch = Arc::new(Watch::new(Waker::noop().clone()));
        bell.serves(node, Arc::downgrade(&socket) as Weak<dyn Writes>, watch);
        wait(&bell, &task);
        (bell, socket, task)
    }

    fn wait(bell: &Bell, task: &Arc<Task>) {
        bell.poll_rung(&Context::from_waker(&Waker::from(task.clone())));
    }

    #[test]
    fn task_that_is_about_to_run_writes_the_sockets_rung_for_after_its_own() {
        let (first, _own, _) = waiting(1);
        let (second, socket, task) = waiting(1);
        assert!(first.ring_later().is_some());
        assert!(second.ring_later().is_none() && second.ring_later().is_none());
        assert_eq!(socket.written.load(Ordering::Relaxed), 0);
        first.write_companions();
        first.write_companions();
        assert_eq!((socket.written.load(Ordering::Relaxed), task.0.load(Ordering::Relaxed)), (1, 1));
        // The first task has run: it is not about to. (The second one looks, and then waits.)
        wait(&second, &task);
        wait(&second, &task);
        assert!(second.ring_later().is_some());
    }

    /// Another thread, which rang for it last, rings for a third one.
    #[test]
    fn task_whose_socket_another_task_writes_takes_none_along() {
        let (first, _first, _) = waiting(1);
        let (second, _second, task) = waiting(1);
        let (third, _third, _) = waiting(1);
        let last = Arc::downgrade(&second);
        assert!(first.ring_later().is_some() && second.ring_later().is_none());
        LAST.set((1, last.clone()));
        assert!(third.ring_later().is_some());
        first.write_companions();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn task_that_may_not_run_soon_takes_no_socket_along() {
        // Another node's.
        let (first, _own, _) = waiting(1);
        assert!(first.ring_later().is_some());
        assert!(waiting(2).0.ring_later().is_some());
        // One that users' code may keep.
        let (first, _own, _) = waiting(1);
        assert!(first.ring_later().is_some());
        first.works(true);
        assert!(waiting(1).0.ring_later().is_some());
        // One that has ended: before it was rung for, and after.
        let (first, _own, _) = waiting(1);
        first.close();
        first.ring_later();
        assert!(waiting(1).0.ring_later().is_some());
        let (first, _own, _) = waiting(1);
        let (second, socket, _) = waiting(1);
        assert!(first.ring_later().is_some() && second.ring_later().is_none());
        first.close();
        first.write_last_companions();
        assert_eq!(socket.written.load(Ordering::Relaxed), 1);
    }
}
