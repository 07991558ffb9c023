//! A process: one allocation for its state word, its future or output, and who waits for its end.
//!
//! Three kinds of references, all counted in the [state word](State): [`Ready`], the right to poll it, of which there is one at most, in a queue or
//! with the worker that polls it; [`Handle`], the right to its output, of which there is one at most; and wakers. Wakers may
//! outlive the process: they then find that it is done.

use std::cell::UnsafeCell;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

use super::list::Links;
use super::pool::Pool;
use super::state::{Begin, Pause, State, Wake};
use crate::world::NoOutput;

/// What does not depend on the type of the future.
#[repr(C)]
pub(super) struct Header {
    state: State,
    kind: &'static Kind,
    pool: Arc<Pool>,
    pub(super) links: UnsafeCell<Links>,
    joiner: UnsafeCell<Option<Waker>>,
}

/// What depends on it. All of them take a pointer to a `Whole<F>` of the `F` that they were made for.
struct Kind {
    /// Polls the future; `true`: it has ended, and the output is in its place. Needs the right to poll.
    poll: unsafe fn(NonNull<Header>, &mut Context<'_>) -> bool,
    /// Drops the future in place of a poll.
    cancel: unsafe fn(NonNull<Header>),
    /// Moves the output to where the pointer says, which is a `Result<F::Output, NoOutput>`. Needs the right to the output.
    take_output: unsafe fn(NonNull<Header>, *mut ()),
    /// Drops the output. Needs the right to it.
    drop_output: unsafe fn(NonNull<Header>),
    free: unsafe fn(NonNull<Header>),
}

#[repr(C)]
struct Whole<F: Future> {
    // The first, so that a pointer to the whole is one to the header.
    header: Header,
    stage: UnsafeCell<Stage<F>>,
}

enum Stage<F: Future> {
    Running(F),
    Ended(Result<F::Output, NoOutput>),
    Taken,
}

impl<F: Future> Whole<F> {
    const KIND: Kind = Kind {
        poll: Self::poll,
        cancel: Self::cancel,
        take_output: Self::take_output,
        drop_output: Self::drop_output,
        free: Self::free,
    };

    /// # Safety
    /// `header` points to a `Whole<F>` that is not freed before `'a` ends, and the caller has the right to poll or the right
    /// to the output, which nobody else uses during `'a`.
    unsafe fn stage<'a>(header: NonNull<Header>) -> &'a mut Stage<F> {
        // SAFETY: by the caller; and whoever has those rights is the only one to use the stage.
        unsafe { &mut *header.cast::<Self>().as_ref().stage.get() }
    }

    unsafe fn poll(header: NonNull<Header>, cx: &mut Context<'_>) -> bool {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the caller has the right to poll.
            let Stage::Running(future) = (unsafe { Self::stage(header) }) else { unreachable!("it has not ended") };
            // SAFETY: the future is in the allocation that it stays in until it is dropped there.
            unsafe { Pin::new_unchecked(future) }.poll(cx)
        }));
        let ended = match polled {
            Ok(Poll::Pending) => return false,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => Err(NoOutput::Panicked(panic)),
        };
        // What a destructor of the future's panics with after it has ended concerns nobody; the output is set all the same.
        // SAFETY: the caller has the right to poll.
        let _ = catch_unwind(AssertUnwindSafe(|| unsafe { *Self::stage(header) = Stage::Ended(ended) }));
        true
    }

    unsafe fn cancel(header: NonNull<Header>) {
        // SAFETY: the caller has the right to poll.
        let stage = || unsafe { Self::stage(header) };
        let dropped = catch_unwind(AssertUnwindSafe(|| *stage() = Stage::Taken));
        *stage() = Stage::Ended(Err(dropped.map_or_else(NoOutput::Panicked, |()| NoOutput::Cancelled)));
    }

    unsafe fn take_output(header: NonNull<Header>, to: *mut ()) {
        // SAFETY: the caller has the right to the output.
        let stage = std::mem::replace(unsafe { Self::stage(header) }, Stage::Taken);
        let Stage::Ended(output) = stage else { panic!("a process was awaited after it had given its exit") };
        // SAFETY: `to` points to a place for this type, by the contract of `Kind::take_output`.
        unsafe { to.cast::<Result<F::Output, NoOutput>>().write(output) };
    }

    unsafe fn drop_output(header: NonNull<Header>) {
        // Nobody is left to hear of a panic in its destructor.
        // SAFETY: the caller has the right to the output.
        let _ = catch_unwind(AssertUnwindSafe(|| unsafe { *Self::stage(header) = Stage::Taken }));
    }

    unsafe fn free(header: NonNull<Header>) {
        // SAFETY: it was made by `Box::new` in `make`, and the caller has given up the last reference.
        let whole = unsafe { Box::from_raw(header.cast::<Self>().as_ptr()) };
        // There is nothing left in it but a waker of the joiner's, whose destructor's panics concern nobody here.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(whole)));
    }
}

/// Makes a process, which is ready to be polled.
pub(super) fn make<F>(pool: Arc<Pool>, future: F) -> (Ready, Handle<F::Output>)
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let whole = Box::new(Whole {
        header: Header {
            state: State::new(),
            kind: &Whole::<F>::KIND,
            pool,
            links: UnsafeCell::new(Links::default()),
            joiner: UnsafeCell::new(None),
        },
        stage: UnsafeCell::new(Stage::Running(future)),
    });
    let header = NonNull::from(Box::leak(whole)).cast::<Header>();
    (Ready(header), Handle { header, output: PhantomData })
}

/// The header behind a reference.
///
/// # Safety
/// The caller has a reference to the process, for `'a`.
unsafe fn at<'a>(header: NonNull<Header>) -> &'a Header {
    // SAFETY: a process is not freed while there is a reference.
    unsafe { header.as_ref() }
}

/// Asks a process to end.
///
/// # Safety
/// The caller has a reference to it.
unsafe fn cancel(header: NonNull<Header>) {
    // SAFETY: by the caller.
    if unsafe { at(header) }.state.cancel() {
        super::worker::schedule(Ready(header));
    }
}

/// Gives up a reference.
///
/// # Safety
/// The caller has one, and does not use it again.
unsafe fn release(header: NonNull<Header>) {
    // SAFETY: the caller has a reference.
    let (state, kind) = unsafe { (&at(header).state, at(header).kind) };
    if state.release() {
        // SAFETY: that was the last one.
        unsafe { (kind.free)(header) };
    }
}

/// The right to poll a process, and a reference to it.
pub(super) struct Ready(NonNull<Header>);

// SAFETY: it is used by one thread at a time, and the future is `Send`.
unsafe impl Send for Ready {}

impl Ready {
    fn header(&self) -> &Header {
        // SAFETY: this is a reference to it.
        unsafe { at(self.0) }
    }

    #[inline]
    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.header().pool
    }

    pub(super) fn into_raw(self) -> *mut Header {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// # Safety
    /// It came from `into_raw`, and is used once.
    pub(super) unsafe fn from_raw(raw: *mut Header) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// Polls it, or ends it if it was cancelled. Gives it back if it was woken meanwhile.
    #[inline]
    pub(super) fn run(self) -> Option<Self> {
        let header = self.0;
        let this = ManuallyDrop::new(self);
        let Header { state, kind, pool, .. } = this.header();
        let done = match state.begin() {
            Begin::Poll => {
                // Borrowed: the reference is the poll's own.
                // SAFETY: the functions of `WAKER` are thread-safe, and the pointer is good as long as there are references;
                // a clone makes one.
                let waker =
                    ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(header.as_ptr().cast(), &WAKER)) });
                // SAFETY: a `Ready` is the right to poll, and `kind` came with the header.
                unsafe { (kind.poll)(header, &mut Context::from_waker(&waker)) }
            }
            Begin::Cancel => {
                ManuallyDrop::into_inner(this).end();
                return None;
            }
        };
        if done {
            ManuallyDrop::into_inner(this).finish();
            return None;
        }
        // Once it has to wait, the list keeps it, so that the end of the runtime ends it.
        loop {
            match state.pause() {
                Pause::Parked => return None,
                Pause::Again => return Some(ManuallyDrop::into_inner(this)),
                Pause::Unlisted => {
                    state.list();
                    pool.list.add(header);
                    if pool.is_closed() {
                        // It may be that nobody has asked it to end: so it is polled again, which ends it.
                        state.cancel();
                    }
                }
            }
        }
    }

    /// Ends it without another poll.
    pub(super) fn end(self) {
        // SAFETY: a `Ready` is the right to poll, and `kind` came with the header.
        unsafe { (self.header().kind.cancel)(self.0) };
        self.finish();
    }

    /// It has ended and the output is there.
    fn finish(self) {
        let header = self.header();
        let finished = header.state.finish();
        if finished.joiner {
            // SAFETY: the process has ended while the waker was shared, so the handle does not touch it any more.
            if let Some(joiner) = unsafe { &*header.joiner.get() } {
                // A waker that panics must not end the worker, and with it all processes.
                let _ = catch_unwind(AssertUnwindSafe(|| joiner.wake_by_ref()));
            }
        }
        if !finished.handle {
            // SAFETY: the handle has gone before the end, and left the output to us.
            unsafe { (header.kind.drop_output)(self.0) };
        }
        if header.state.is_listed() {
            header.pool.list.remove(self.0);
            // SAFETY: that was the list's reference.
            unsafe { release(self.0) };
        }
    }

    /// Asks a process that is in the list to end.
    ///
    /// # Safety
    /// The list has a reference to it meanwhile.
    pub(super) unsafe fn cancel(header: NonNull<Header>) -> Option<Self> {
        // SAFETY: by the caller.
        unsafe { at(header) }.state.cancel().then(|| Self(header))
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // SAFETY: it is a reference, and is gone now.
        unsafe { release(self.0) };
    }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(waker_clone, waker_wake, waker_wake_by_ref, waker_drop);

/// # Safety
/// It is the data of a waker of this kind.
unsafe fn header_of(waker: *const ()) -> NonNull<Header> {
    // SAFETY: such wakers are made of pointers to headers only.
    unsafe { NonNull::new_unchecked(waker.cast_mut().cast()) }
}

unsafe fn waker_clone(waker: *const ()) -> RawWaker {
    // SAFETY: a waker is a reference.
    unsafe { at(header_of(waker)) }.state.retain();
    RawWaker::new(waker, &WAKER)
}

unsafe fn waker_wake(waker: *const ()) {
    // SAFETY: a waker is a reference.
    let (header, Header { state, kind, .. }) = unsafe { (header_of(waker), at(header_of(waker))) };
    match state.wake() {
        Wake::Queue => super::worker::schedule(Ready(header)),
        Wake::Nothing => {}
        // SAFETY: that was the last reference.
        Wake::Free => unsafe { (kind.free)(header) },
    }
}

unsafe fn waker_wake_by_ref(waker: *const ()) {
    // SAFETY: a waker is a reference.
    let header = unsafe { header_of(waker) };
    // SAFETY: as above.
    if unsafe { at(header) }.state.wake_by_ref() {
        super::worker::schedule(Ready(header));
    }
}

unsafe fn waker_drop(waker: *const ()) {
    // SAFETY: a waker is a reference, and is gone now.
    unsafe { release(header_of(waker)) };
}

/// The right to the output of a process, and a reference to it.
pub(crate) struct Handle<T> {
    header: NonNull<Header>,
    output: PhantomData<T>,
}

// SAFETY: what it does to the process is thread-safe by the state word, except for the output and the joiner's waker, which
// are used through `&mut` only, and by one side at a time. The output is `Send` by the bound of `make`.
unsafe impl<T: Send> Send for Handle<T> {}
// SAFETY: through `&` only the state word is used.
unsafe impl<T: Send> Sync for Handle<T> {}
impl<T> Unpin for Handle<T> {}

impl<T> Handle<T> {
    fn header(&self) -> &Header {
        // SAFETY: this is a reference to it.
        unsafe { at(self.header) }
    }

    /// Asks the process to end.
    pub(crate) fn abort(&self) {
        // SAFETY: this is a reference to it.
        unsafe { cancel(self.header) };
    }

    /// What can ask it to end without the handle.
    pub(crate) fn canceller(&self) -> Canceller {
        self.header().state.retain();
        Canceller(self.header)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.header().state.is_done()
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, NoOutput>> {
        let header = self.header();
        if !header.state.is_done() && self.wait(cx.waker()) {
            return Poll::Pending;
        }
        let mut output = MaybeUninit::<Result<T, NoOutput>>::uninit();
        // SAFETY: it has ended while the handle lived, so the output is the handle's; and `T` is the future's output by `make`.
        unsafe {
            (header.kind.take_output)(self.header, output.as_mut_ptr().cast());
            Poll::Ready(output.assume_init())
        }
    }

    /// Leaves the waker. `false`: the process has ended.
    fn wait(&self, waker: &Waker) -> bool {
        let Header { state, joiner, .. } = self.header();
        if state.has_joiner() {
            // SAFETY: while it is shared nobody writes it, and only the handle changes that.
            if unsafe { &*joiner.get() }.as_ref().is_some_and(|known| known.will_wake(waker)) {
                return !state.is_done();
            }
            if !state.take_joiner() {
                return false;
            }
        }
        // SAFETY: it is not shared, so it is the handle's.
        let before = unsafe { &mut *joiner.get() }.replace(waker.clone());
        drop(before);
        state.share_joiner()
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        let header = self.header();
        if header.state.drop_handle() {
            // SAFETY: it is not shared any more, so it is the handle's.
            let joiner = unsafe { &mut *header.joiner.get() }.take();
            drop(joiner);
        } else {
            // SAFETY: it has ended while the handle lived, so the output is the handle's.
            unsafe { (header.kind.drop_output)(self.header) };
        }
        // SAFETY: it is a reference, and is gone now.
        unsafe { release(self.header) };
    }
}

/// A reference that can ask a process to end.
pub(crate) struct Canceller(NonNull<Header>);

// SAFETY: only the state word is used.
unsafe impl Send for Canceller {}
// SAFETY: as above.
unsafe impl Sync for Canceller {}

impl Canceller {
    /// Asks the process to end.
    pub(crate) fn abort(&self) {
        // SAFETY: this is a reference to it.
        unsafe { cancel(self.0) };
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        // SAFETY: it is a reference, and is gone now.
        unsafe { release(self.0) };
    }
}
