//! Loom: the phase word of a blocking call. The crate `dunlin` does not build under loom, because tokio does
//! not, so this test compiles the file again with loom's atomics.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_blocking`
#![cfg(loom)]
#![allow(unreachable_pub)] // as in the crate

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU8, Ordering};
}
mod loom_support;
#[path = "../../dunlin/src/blocking/phase.rs"]
mod phase;

use std::sync::Arc;

use loom_support::{model, spawn};
use phase::{Asked, Phase, Word};

/// A call: its word, and its body, which exactly one party may take. Loom reports concurrent or unordered
/// accesses.
struct Call {
    word: Word,
    body: loom::cell::UnsafeCell<u32>,
}

// SAFETY: loom's cell checks what these tests are about, that no two threads access the body at once.
unsafe impl Sync for Call {}
// SAFETY: as above.
unsafe impl Send for Call {}

impl Call {
    fn new() -> Arc<Self> {
        Arc::new(Self { word: Word::new(), body: loom::cell::UnsafeCell::new(1) })
    }

    /// Takes the body, which must still be present.
    fn take(&self) {
        // SAFETY: loom checks that no other thread is here.
        let was = self.body.with_mut(|body| unsafe { std::mem::replace(&mut *body, 0) });
        assert_eq!(was, 1, "the body is taken once");
    }
}

/// Whether a call ran, whether one of its checks saw the question, and its final phase.
#[derive(Debug, PartialEq)]
enum Ran {
    Never,
    Returned { saw: bool, committed: bool, phase: Phase },
}

/// A pool thread: begins the call, checks `looks` times, may announce that it is finishing, and returns.
fn run(call: &Call, looks: usize, finishes: bool) -> Ran {
    if !call.word.start() {
        return Ran::Never;
    }
    call.take();
    let mut saw = (0..looks).any(|_| call.word.heed());
    let committed = finishes && call.word.finish();
    saw |= finishes && !committed;
    assert!(!saw || call.word.heed(), "a question that was seen stays");
    Ran::Returned { saw, committed, phase: call.word.over() }
}

fn asker(call: &Call) -> Asked {
    let asked = call.word.ask();
    if asked == Asked::NotStarted {
        call.take();
    }
    asked
}

fn check(ran: &Ran, asked: &[Asked]) {
    let first = asked.iter().filter(|asked| **asked == Asked::First).count();
    let never = asked.iter().filter(|asked| **asked == Asked::NotStarted).count();
    match ran {
        Ran::Never => assert_eq!((never, first), (1, 0), "one party has kept it from starting"),
        Ran::Returned { saw, committed, phase } => {
            assert_eq!(never, 0, "a call that has begun was not kept from it");
            assert!(first <= 1 && !(*saw && *committed));
            let expected = match (first, saw, committed) {
                (1, true, false) => Phase::Heeded,
                (1, false, false) => Phase::Asked,
                (0, false, true) => Phase::Finishing,
                (0, false, false) => Phase::Running,
                impossible => panic!("{impossible:?}"),
            };
            assert_eq!(*phase, expected);
            assert!(asked.iter().all(|asked| *asked != Asked::Finishing || *committed));
        }
    }
}

/// A question at each moment of a call that checks and returns: its final phase reflects what both sides have
/// seen.
#[test]
fn question_races_with_start_look_and_return() {
    model(|| {
        let call = Call::new();
        let runner = spawn({
            let call = call.clone();
            move || run(&call, 2, false)
        });
        let asked = asker(&call);
        check(&runner.join(), &[asked]);
    });
}

/// The same with a call that commits to finishing.
#[test]
fn question_races_with_finishing() {
    model(|| {
        let call = Call::new();
        let runner = spawn({
            let call = call.clone();
            move || run(&call, 1, true)
        });
        let asked = asker(&call);
        check(&runner.join(), &[asked]);
    });
}

/// A handle asks while the runtime ends: one of them keeps the call from starting, or is the first to ask.
#[test]
fn two_questions_race() {
    model(|| {
        let call = Call::new();
        let runner = spawn({
            let call = call.clone();
            move || run(&call, 1, false)
        });
        let other = spawn({
            let call = call.clone();
            move || asker(&call)
        });
        let asked = asker(&call);
        check(&runner.join(), &[asked, other.join()]);
    });
}

/// The pool refuses a call while its handle asks: the body has one owner.
#[test]
fn refusal_races_with_question() {
    model(|| {
        let call = Call::new();
        let refuser = spawn({
            let call = call.clone();
            move || {
                let refused = call.word.refuse();
                if refused {
                    call.take();
                }
                refused
            }
        });
        let asked = asker(&call);
        assert_eq!(asked, if refuser.join() { Asked::Again } else { Asked::NotStarted });
        assert_eq!(call.word.get(), Phase::Never);
    });
}
