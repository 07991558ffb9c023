//! Monitors: they report once how a process has ended.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use dunlin_core::__rt::{ChoiceCx, keep};
use dunlin_core::Branch;
use dunlin_core::waits::{Doing, Watch as WaitRecord};

use super::core::Core;
use super::down::{Down, MonitorId};
use super::exit::Exit;
#[cfg(feature = "net")]
use super::far;
use super::mailbox::{Mailbox, Notices};
use super::pid::Pid;
use super::signal::{Effect, Signal};
use super::watch::{Roused, Watch, Watcher};
use crate::lock::lock;

/// Watches a process: the handle is a future, and a branch of a choice, whose output is the process's exit.
///
/// It reports every end, also a normal one, and exactly once, whatever races with it. If the process has
/// ended before, the exit is [`ExitReason::NoSuchProcess`](crate::ExitReason::NoSuchProcess), at once. The
/// process does not notice. Code outside of every process may monitor, too. Dropping the handle ends the
/// monitor.
///
/// The process may be one of another node. If the connection with that node is lost for good, the exit is
/// [`ExitReason::NodeLost`](crate::ExitReason::NodeLost), and the process may run on; if the node leaves,
/// [`ExitReason::NodeLeft`](crate::ExitReason::NodeLeft). A connection that resumes reports nothing.
///
/// The exit is reported when the process has dropped all it held. It is in no order with messages: for that,
/// use [`monitor_into`].
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::{ExitReason, monitor};
/// # dunlin::block_on(async {
/// let worker = spawn(std::future::pending::<()>());
/// let mut down = monitor(worker.pid());
/// alt! {
///     exit = &mut down => panic!("{exit}"),
///     _ = sleep(Duration::from_millis(1)) => {}
/// }
/// worker.pid().kill();
/// assert_eq!(down.await.reason, ExitReason::Killed);
/// assert_eq!(monitor(worker.pid()).await.reason, ExitReason::NoSuchProcess);
/// # });
/// ```
///
/// # Source
/// Monitors of Erlang.
#[track_caller]
pub fn monitor(pid: Pid) -> Monitor {
    let slot = Arc::new(Slot::default());
    let id = watch(pid, slot.clone());
    Monitor { pid, slot, id, made: Location::caller(), record: WaitRecord::default() }
}

/// Watches a process, and puts its exit into a mailbox: behind all that the process has sent there itself.
///
/// The message is made of a [`Down`]. As of [`monitor`], it arrives exactly once. A bounded mailbox takes it
/// even if it is full. Dropping the handle ends the monitor, and no message of it is received after that, not
/// even one that is in the mailbox and has not been received.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::{Down, mailbox, monitor_into};
///
/// #[derive(Debug)]
/// enum Msg {
///     Word(&'static str),
///     Down(Down),
/// }
/// impl From<Down> for Msg {
///     fn from(down: Down) -> Self {
///         Self::Down(down)
///     }
/// }
/// # dunlin::block_on(async {
/// let (address, mut mailbox) = mailbox::<Msg>();
/// let worker = spawn(async move { address.send(Msg::Word("krill")) });
/// let monitor = monitor_into(worker.pid(), &mailbox);
/// assert!(matches!(mailbox.recv().await?, Msg::Word("krill")));
/// let Msg::Down(down) = mailbox.recv().await? else { unreachable!() };
/// assert_eq!((down.monitor, down.exit.pid), (monitor.id(), worker.pid()));
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub fn monitor_into<M: From<Down> + Send + 'static>(pid: Pid, mailbox: &Mailbox<M>) -> MonitorInto {
    let monitor = MonitorId::new();
    let alive = Arc::new(AtomicBool::new(true));
    let watcher = ForMailbox { monitor, alive: alive.clone(), mailbox: mailbox.notices() };
    MonitorInto { pid, id: watch(pid, Arc::new(watcher)), monitor, alive }
}

/// The number of a monitor, at the process or, for one of another node, at the node of this program.
type Number = u64;

/// Adds a monitor, or gives it the exit at once.
fn watch(pid: Pid, watcher: Watcher) -> Option<Number> {
    #[cfg(feature = "net")]
    if pid.is_far() {
        return far::out::watch(pid, watcher, None);
    }
    let Some(core) = Core::of(pid) else {
        watcher.down(&Exit::no_such_process(pid)).wake();
        return None;
    };
    match core.apply(Signal::Watch { watcher }) {
        Effect::Watched(id) => Some(id),
        Effect::WatchedEnd(exit, watcher) => {
            watcher.down(&exit).wake();
            None
        }
        _ => None,
    }
}

fn unwatch(pid: Pid, id: Option<Number>) {
    let Some(id) = id else { return };
    #[cfg(feature = "net")]
    if pid.is_far() {
        return far::out::unwatch(pid, id);
    }
    if let Some(core) = Core::of(pid) {
        drop(core.apply(Signal::Unwatch { id }));
    }
}

/// Where a monitor finds the exit.
#[derive(Default)]
struct Slot(Mutex<Reported>);

#[derive(Default)]
struct Reported {
    exit: Option<Exit>,
    waker: Option<Waker>,
}

impl Watch for Slot {
    fn down(&self, exit: &Exit) -> Roused {
        let mut reported = lock(&self.0);
        reported.exit = Some(exit.clone());
        Roused::of(reported.waker.take())
    }
}

/// A process that is watched: made by [`monitor`].
///
/// # Cancel safety
/// Awaiting through `&mut` loses nothing. Once the exit has been reported, the handle keeps it, and returns
/// it again.
///
/// # Waits
/// An awaiting process has a line in the [wait records](crate::waits): for which process, and since when.
#[must_use = "a monitor ends when its handle is dropped"]
pub struct Monitor {
    pid: Pid,
    slot: Arc<Slot>,
    /// `None`: the process had ended before.
    id: Option<Number>,
    made: &'static Location<'static>,
    record: WaitRecord,
}

impl Monitor {
    /// The process that it watches.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    fn is_reported(&self) -> bool {
        lock(&self.slot.0).exit.is_some()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Monitor").field(&self.pid).finish()
    }
}

impl Future for Monitor {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Exit> {
        let this = &mut *self;
        let polled = {
            let mut reported = lock(&this.slot.0);
            match &reported.exit {
                Some(exit) => Poll::Ready(exit.clone()),
                None => {
                    if !reported.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                        reported.waker = Some(keep(cx.waker()));
                    }
                    Poll::Pending
                }
            }
        };
        this.record.note(polled, Doing::Exit, this.pid.into(), this.made)
    }
}

impl Branch for Monitor {
    type Output = Exit;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Exit> {
        choice.poll_foreign(self.is_reported(), || self.poll(cx))
    }

    fn unchosen(&self) {
        self.record.end();
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        unwatch(self.pid, self.id);
    }
}

/// Puts the exit into a mailbox.
struct ForMailbox<M> {
    monitor: MonitorId,
    alive: Arc<AtomicBool>,
    mailbox: Notices<M>,
}

impl<M: From<Down> + Send> Watch for ForMailbox<M> {
    fn down(&self, exit: &Exit) -> Roused {
        let down = Down { exit: exit.clone(), monitor: self.monitor };
        self.mailbox.down(down, M::from, self.alive.clone())
    }
}

/// A process that is watched for a mailbox: made by [`monitor_into`].
#[must_use = "a monitor ends when its handle is dropped: keep it, or `detach` it"]
#[derive(Debug)]
pub struct MonitorInto {
    pid: Pid,
    id: Option<Number>,
    monitor: MonitorId,
    alive: Arc<AtomicBool>,
}

impl MonitorInto {
    /// The process that it watches.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Which monitor it is: its [`Down`] has the same id.
    pub fn id(&self) -> MonitorId {
        self.monitor
    }

    /// Keeps the monitor until the process ends, without a handle.
    pub fn detach(mut self) {
        self.id = None;
        // A new flag: that of the monitor stays true.
        self.alive = Arc::default();
    }
}

impl Drop for MonitorInto {
    fn drop(&mut self) {
        self.alive.store(false, Ordering::Release);
        unwatch(self.pid, self.id);
    }
}
