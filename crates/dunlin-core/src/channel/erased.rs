//! Values without their type.
//!
//! The queue of a channel moves values, and never looks into one. So it is compiled once, in this crate, and
//! not for each type of message. A channel and its operations have slots for values of the channel's type;
//! code that does not know the type reaches them as an [`AnySlot`]. In the queue a value is an [`Erased`], or
//! lies in a [`Ring`].
//!
//! A [`Kind`] is what has to be known of a type: how to move a value, and how to drop it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::any::type_name;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};

use crate::wake::each;

/// Values of at most four words stay in line: numbers, strings, lists, `Bytes`, ends.
const WORDS: usize = 4;

type Words = [MaybeUninit<*mut ()>; WORDS];

/// A type of values.
pub(crate) struct Kind {
    layout: Layout,
    /// Drops the value there. `None`: that does nothing.
    drop: Option<unsafe fn(*mut ())>,
    /// For assertions.
    name: fn() -> &'static str,
}

struct KindOf<T>(PhantomData<T>);

impl<T> KindOf<T> {
    const KIND: Kind = Kind {
        layout: Layout::new::<T>(),
        drop: if std::mem::needs_drop::<T>() { Some(Self::drop) } else { None },
        name: type_name::<T>,
    };

    /// # Safety
    /// A value of this type is there, which is not used again.
    unsafe fn drop(value: *mut ()) {
        // SAFETY: the caller's.
        unsafe { value.cast::<T>().drop_in_place() }
    }
}

impl Kind {
    #[inline]
    const fn of<T>() -> &'static Self {
        &KindOf::<T>::KIND
    }

    #[inline]
    const fn is_in_line(&self) -> bool {
        self.layout.size() <= size_of::<Words>() && self.layout.align() <= align_of::<Words>()
    }

    fn is(&self, other: &Self) -> bool {
        (self.name)() == (other.name)()
    }
}

/// A value whose type only the ends of its channel know.
pub(crate) struct Erased {
    /// The value, or a pointer to it. A value may have cells, which change though it is only shared.
    words: UnsafeCell<Words>,
    kind: &'static Kind,
}

// SAFETY: a channel has a slot of the type of its values beside its queue, and an operation that owns erased
// values names that type too. So they are sent only if values of that type may be. (They are not `Sync`: a
// carrier may write a value through a shared reference.)
unsafe impl Send for Erased {}

impl Erased {
    #[inline]
    pub(crate) fn new<T>(value: T) -> Self {
        debug_assert_ne!(type_name::<T>(), type_name::<Self>(), "it has no type already");
        let value = ManuallyDrop::new(value);
        // SAFETY: the value there is not used again.
        unsafe { Self::read(Kind::of::<T>(), (&raw const value).cast()) }
    }

    /// Moves the value there out.
    ///
    /// # Safety
    /// It is of this kind, and is not used again.
    #[inline]
    unsafe fn read(kind: &'static Kind, value: *const ()) -> Self {
        let mut words = [MaybeUninit::uninit(); WORDS];
        let to = if kind.is_in_line() {
            (&raw mut words).cast::<u8>()
        } else {
            // SAFETY: a type of size 0 and great alignment is in no words either, and needs no memory.
            let to = unsafe { memory(kind.layout) };
            words[0].write(to.cast());
            to
        };
        // SAFETY: the caller's; there is room of this layout.
        unsafe { ptr::copy_nonoverlapping(value.cast::<u8>(), to, kind.layout.size()) };
        Self { words: UnsafeCell::new(words), kind }
    }

    /// # Safety
    /// It was made of a `T`.
    #[inline]
    pub(crate) unsafe fn into_value<T>(self) -> T {
        debug_assert!(self.kind.is(Kind::of::<T>()), "a {} is no {}", (self.kind.name)(), type_name::<T>());
        // SAFETY: the caller's.
        self.moved(|at| unsafe { at.cast::<T>().read() })
    }

    /// Where the value is.
    #[inline]
    pub(crate) fn at(&self) -> *mut () {
        let words = self.words.get();
        // SAFETY: the words of a value that is not in line begin with a pointer to it.
        if self.kind.is_in_line() { words.cast() } else { unsafe { words.cast::<*mut ()>().read() } }
    }

    /// Lets the value be moved out by `f`.
    #[inline]
    fn moved<R>(self, f: impl FnOnce(*const ()) -> R) -> R {
        let this = ManuallyDrop::new(self);
        let at = this.at();
        let result = f(at);
        if !this.kind.is_in_line() {
            // SAFETY: `read` has taken this memory, and nothing is in it any more.
            unsafe { free(at.cast(), this.kind.layout) };
        }
        result
    }
}

impl Drop for Erased {
    #[inline]
    fn drop(&mut self) {
        let at = self.at();
        // The memory goes also if the drop of the value panics.
        let _memory = (!self.kind.is_in_line()).then(|| Memory { at: at.cast(), layout: self.kind.layout });
        if let Some(drop) = self.kind.drop {
            // SAFETY: a value of this kind is there.
            unsafe { drop(at) };
        }
    }
}

/// Memory that is given back when this is dropped.
struct Memory {
    at: *mut u8,
    layout: Layout,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was taken with this layout.
        unsafe { free(self.at, self.layout) };
    }
}

/// Takes memory of this layout.
///
/// # Safety
/// It is given back by [`free`] with the same layout.
unsafe fn memory(layout: Layout) -> *mut u8 {
    if layout.size() == 0 {
        return ptr::without_provenance_mut(layout.align());
    }
    // SAFETY: the size is not 0.
    let at = unsafe { alloc(layout) };
    if at.is_null() {
        handle_alloc_error(layout);
    }
    at
}

/// # Safety
/// [`memory`] has returned it for this layout.
unsafe fn free(at: *mut u8, layout: Layout) {
    if layout.size() > 0 {
        // SAFETY: the caller's.
        unsafe { dealloc(at, layout) };
    }
}

/// A place for one value of a channel.
///
/// Code that has only this knows that the slots of a channel, of its operations and of its queue are for
/// values of one type: [`Chan`](super::state::Chan), which knows the type, passes no other slot on.
pub(crate) trait AnySlot {
    fn kind(&self) -> &'static Kind;

    /// The value, if there is one.
    fn at(&self) -> Option<*const ()>;

    /// Takes the value, without its type.
    fn take_erased(&mut self) -> Option<Erased>;

    /// Moves the value, which is there, to this place.
    ///
    /// # Safety
    /// The place has room for a value of this kind.
    unsafe fn move_out(&mut self, to: *mut ());

    /// Moves the value there into the slot.
    ///
    /// # Safety
    /// It is of the type of this slot, and is not used again.
    unsafe fn move_in(&mut self, from: *const ());

    /// The slot itself, an `Option` of the value's type.
    fn slot(&mut self) -> *mut ();

    /// Moves the value, if there is one, to a slot that is empty.
    ///
    /// # Safety
    /// Both are for values of one type.
    unsafe fn move_to(&mut self, to: &mut dyn AnySlot);
}

impl<T> AnySlot for Option<T> {
    fn kind(&self) -> &'static Kind {
        Kind::of::<T>()
    }

    fn at(&self) -> Option<*const ()> {
        self.as_ref().map(|value| ptr::from_ref(value).cast())
    }

    fn take_erased(&mut self) -> Option<Erased> {
        self.take().map(Erased::new)
    }

    unsafe fn move_out(&mut self, to: *mut ()) {
        if let Some(value) = self.take() {
            // SAFETY: the caller's.
            unsafe { to.cast::<T>().write(value) };
        }
    }

    unsafe fn move_in(&mut self, from: *const ()) {
        // SAFETY: the caller's.
        *self = Some(unsafe { from.cast::<T>().read() });
    }

    fn slot(&mut self) -> *mut () {
        ptr::from_mut(self).cast()
    }

    unsafe fn move_to(&mut self, to: &mut dyn AnySlot) {
        debug_assert!(self.kind().is(to.kind()));
        if let Some(value) = self.take() {
            // SAFETY: the caller's: it is an `Option` of this type.
            unsafe { *to.slot().cast::<Self>() = Some(value) };
        }
    }
}

impl dyn AnySlot + '_ {
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.at().is_some()
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<Erased> {
        self.take_erased()
    }

    /// # Safety
    /// The value is of the type of this slot.
    pub(crate) unsafe fn put(&mut self, value: Erased) {
        debug_assert!(value.kind.is(self.kind()), "a {} is no {}", (value.kind.name)(), (self.kind().name)());
        // SAFETY: the caller's.
        value.moved(|at| unsafe { self.move_in(at) });
    }
}

/// A queue of values of one type, which the first of them decides. They lie in it without anything between
/// them.
pub(crate) struct Ring {
    /// `None`: it has had no value.
    kind: Option<&'static Kind>,
    memory: NonNull<u8>,
    /// For how many values it has memory: zero, or a power of two.
    capacity: usize,
    /// Where the first value is.
    first: usize,
    len: usize,
}

// SAFETY: as for `Erased`.
unsafe impl Send for Ring {}

impl Ring {
    pub(crate) const fn new() -> Self {
        Self { kind: None, memory: NonNull::dangling(), capacity: 0, first: 0, len: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of the value with this index, counted from the first, or where it would be.
    fn place(&self, index: usize) -> *mut () {
        let size = self.kind.map_or(0, |kind| kind.layout.size());
        let index = self.first.wrapping_add(index) & self.capacity.wrapping_sub(1);
        self.memory.as_ptr().wrapping_add(index.wrapping_mul(size)).cast()
    }

    /// Makes room for one more value of this kind.
    ///
    /// # Panics
    /// If it is not that of the other values, or there would be too many.
    fn reserve(&mut self, kind: &'static Kind) {
        match self.kind {
            None => self.kind = Some(kind),
            Some(own) => debug_assert!(own.is(kind), "a {} among {}s", (kind.name)(), (own.name)()),
        }
        if self.len == self.capacity {
            self.grow(kind.layout);
        }
    }

    #[cold]
    fn grow(&mut self, value: Layout) {
        let capacity = (self.capacity * 2).max(4);
        let layout = array(value, capacity);
        if value.size() == 0 {
            self.memory = NonNull::new(ptr::without_provenance_mut(value.align())).unwrap_or(NonNull::dangling());
        } else {
            // SAFETY: the size is not 0; the memory was taken with the layout of as many values as fit in
            // now.
            let memory = unsafe {
                match self.capacity {
                    0 => alloc(layout),
                    old => realloc(self.memory.as_ptr(), array(value, old), layout.size()),
                }
            };
            let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
            self.memory = memory;
            // What had gone round the end follows there.
            let (old, base) = (self.capacity, memory.as_ptr());
            // SAFETY: the first `first` places had values, and there are twice as many places now.
            unsafe { ptr::copy_nonoverlapping(base, base.add(old * value.size()), self.first * value.size()) };
        }
        self.capacity = capacity;
    }

    /// Takes the value of a slot in, if it has one, behind all others.
    pub(crate) fn push_from(&mut self, slot: &mut dyn AnySlot) {
        if slot.is_full() {
            self.reserve(slot.kind());
            // SAFETY: this place has room for it.
            unsafe { slot.move_out(self.place(self.len)) };
            self.len += 1;
        }
    }

    pub(crate) fn push_back(&mut self, value: Erased) {
        self.insert(self.len, value);
    }

    /// Puts a value before the one with this index.
    ///
    /// # Panics
    /// If the index is above the length.
    pub(crate) fn insert(&mut self, at: usize, value: Erased) {
        assert!(at <= self.len, "a place behind the last one");
        let kind = value.kind;
        self.reserve(kind);
        if at == self.len {
            self.len += 1;
        } else {
            // Those before it go one place to the front. Values return to places near the front.
            self.first = self.first.wrapping_sub(1) & self.capacity.wrapping_sub(1);
            self.len += 1;
            for index in 0..at {
                // SAFETY: the value behind the free place goes into that place.
                unsafe { self.copy(self.place(index + 1), self.place(index), kind) };
            }
        }
        let to = self.place(at);
        // SAFETY: the place is free.
        value.moved(|from| unsafe { self.copy(from, to, kind) });
    }

    /// # Safety
    /// A value of this kind is at the one place, and none at the other.
    unsafe fn copy(&self, from: *const (), to: *mut (), kind: &Kind) {
        // SAFETY: the caller's.
        unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), kind.layout.size()) };
    }

    /// Moves the first value to a slot. `false`: there is none.
    ///
    /// # Safety
    /// The slot is for values of this type.
    pub(crate) unsafe fn pop_into(&mut self, slot: &mut dyn AnySlot) -> bool {
        if self.len == 0 {
            return false;
        }
        debug_assert!(self.kind.is_some_and(|kind| kind.is(slot.kind())));
        // SAFETY: the caller's; the place counts as free from now on.
        unsafe { slot.move_in(self.place(0)) };
        self.forget_first();
        true
    }

    fn forget_first(&mut self) {
        self.first = self.first.wrapping_add(1) & self.capacity.wrapping_sub(1);
        self.len -= 1;
    }

    pub(crate) fn pop_front(&mut self) -> Option<Erased> {
        let kind = self.kind.filter(|_| self.len > 0)?;
        // SAFETY: a value is there, and the place counts as free from now on.
        let value = unsafe { Erased::read(kind, self.place(0)) };
        self.forget_first();
        Some(value)
    }

    pub(crate) fn pop_back(&mut self) -> Option<Erased> {
        let kind = self.kind.filter(|_| self.len > 0)?;
        self.len -= 1;
        // SAFETY: as above.
        Some(unsafe { Erased::read(kind, self.place(self.len)) })
    }
}

impl Iterator for Ring {
    type Item = Erased;

    fn next(&mut self) -> Option<Erased> {
        self.pop_front()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let Some(kind) = self.kind else { return };
        // The memory goes, and the other values are dropped, also if the drop of one panics.
        let _memory =
            (self.capacity > 0).then(|| Memory { at: self.memory.as_ptr(), layout: array(kind.layout, self.capacity) });
        if kind.drop.is_some() {
            each(self.by_ref(), drop);
        }
    }
}

/// The layout of so many values.
///
/// # Panics
/// If their size overflows, as for a `Vec`.
fn array(value: Layout, count: usize) -> Layout {
    // The size of a type is a multiple of its alignment.
    let size = value.size().checked_mul(count);
    let layout = size.and_then(|size| Layout::from_size_align(size, value.align()).ok());
    layout.expect("capacity overflow")
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::rc::Rc;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    #[repr(align(64))]
    struct Aligned(u8);

    #[derive(Clone, Debug, PartialEq)]
    #[repr(align(64))]
    struct Nothing;

    fn back<T>(value: T) -> T {
        // SAFETY: made of a `T`.
        unsafe { Erased::new(value).into_value() }
    }

    #[test]
    fn values_come_back_in_line_and_boxed() {
        assert_eq!(back(()), ());
        assert_eq!(back(7_u8), 7);
        assert_eq!(back("krill".to_owned()), "krill");
        assert_eq!(back([1_u64, 2, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(back([1_u64, 2, 3, 4, 5]), [1, 2, 3, 4, 5]);
        assert_eq!(back(Aligned(3)), Aligned(3));
        assert_eq!(back(Nothing), Nothing);
        assert_eq!(size_of::<Option<Erased>>(), 5 * size_of::<usize>());
    }

    #[test]
    fn a_value_is_dropped_once() {
        let counted = Rc::new(());
        drop(Erased::new(counted.clone()));
        drop(Erased::new([(); 9].map(|()| counted.clone())));
        assert_eq!(Rc::strong_count(&counted), 1);
        drop(back(counted.clone()));
        drop(back([(); 9].map(|()| counted.clone())));
        assert_eq!(Rc::strong_count(&counted), 1);
    }

    #[test]
    fn a_value_moves_between_slots() {
        let counted = Rc::new(());
        for large in [[0_u64; 2].to_vec(), [0; 9].to_vec()] {
            let mut from = Some((counted.clone(), large.clone(), [0_u64; 9]));
            let mut to = None::<(Rc<()>, Vec<u64>, [u64; 9])>;
            let (from, to): (&mut dyn AnySlot, &mut dyn AnySlot) = (&mut from, &mut to);
            // SAFETY: both are for values of one type.
            unsafe { from.move_to(to) };
            assert!(!from.is_full() && to.is_full());
            // SAFETY: as above.
            unsafe { from.move_to(to) };
            assert!(to.is_full(), "nothing moves from an empty slot");
            let value = to.take().expect("it is full");
            assert!(!to.is_full() && to.take().is_none());
            // SAFETY: the value came from a slot of this type.
            unsafe { from.put(value) };
            assert_eq!(Rc::strong_count(&counted), 2);
            drop(from.take());
            assert_eq!(Rc::strong_count(&counted), 1);
        }
    }

    /// What a ring and a `VecDeque` do alike with the same calls.
    fn alike<T: Clone + PartialEq + std::fmt::Debug>(values: impl Fn(usize) -> T) {
        let (mut ring, mut other) = (Ring::new(), VecDeque::new());
        let mut random = 7_usize;
        for number in 0..if cfg!(miri) { 200 } else { 2_000 } {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = values(number);
            match random >> 60 {
                0..=4 => {
                    let mut slot = Some(value.clone());
                    ring.push_from(&mut slot);
                    assert!(slot.is_none());
                    other.push_back(value);
                }
                5..=6 => {
                    ring.push_back(Erased::new(value.clone()));
                    other.push_back(value);
                }
                7 => {
                    let at = (random >> 8) % (other.len() + 1);
                    ring.insert(at, Erased::new(value.clone()));
                    other.insert(at, value);
                }
                8..=10 => {
                    let mut slot = None::<T>;
                    // SAFETY: the slot is for values of the ring.
                    let popped = unsafe { ring.pop_into(&mut slot) };
                    assert_eq!((popped, slot), (!other.is_empty(), other.pop_front()));
                }
                11..=12 => {
                    // SAFETY: all values are of this type.
                    let popped = ring.pop_front().map(|value| unsafe { value.into_value::<T>() });
                    assert_eq!(popped, other.pop_front());
                }
                _ => {
                    // SAFETY: as above.
                    let popped = ring.pop_back().map(|value| unsafe { value.into_value::<T>() });
                    assert_eq!(popped, other.pop_back());
                }
            }
            assert_eq!((ring.len(), ring.is_empty()), (other.len(), other.is_empty()));
        }
        // SAFETY: as above.
        let rest: Vec<T> = ring.by_ref().map(|value| unsafe { value.into_value() }).collect();
        assert_eq!(rest, Vec::from(other));
    }

    #[test]
    fn a_ring_does_what_a_deque_does() {
        alike(|number| number);
        alike(|number| number.to_string());
        alike(|number| [number; 9]);
        alike(|_| ());
        alike(|number| Aligned(number as u8));
        alike(|_| Nothing);
    }

    #[test]
    fn a_ring_drops_what_is_left_in_it() {
        let counted = Rc::new(());
        let mut ring = Ring::new();
        for _ in 0..9 {
            ring.push_back(Erased::new(counted.clone()));
        }
        drop(ring.pop_front());
        assert_eq!(Rc::strong_count(&counted), 9);
        ring.push_from(&mut None::<Rc<()>>);
        assert_eq!(ring.len(), 8, "nothing comes from an empty slot");
        drop(ring);
        assert_eq!(Rc::strong_count(&counted), 1);
        drop(Ring::new());
    }
}
