//! Processes of one program on two workers.

use std::time::Duration;

use dunlin::mailbox;
use dunlin_scheme_host::Program;
use rustix::time::{ClockId, clock_gettime};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The time for which all threads have had a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Counted in time of the processor, which a busy machine does not stretch: two workers compute while the
/// process sleeps for 5 ms, and until it has its turn.
#[test]
fn timer_beside_fifty_loops_that_never_wait_is_at_most_10_ms_late() -> Result {
    dunlin::__rt::block_on_workers(Some(2), async {
        let program = Program::new();
        let (address, mut mailbox) = mailbox::<u32>();
        program.define("rust", &program.address(address))?;
        for _ in 0..50 {
            program.spawn("loop", "(let spin ((n 0)) (spin (+ n 1)))")?;
        }
        program.spawn("ticks", "(let tick ((n 101)) (sleep 0.005) (! rust n) (if (> n 1) (tick (- n 1))))")?;
        mailbox.recv().await?;
        let mut spent = Vec::new();
        for _ in 0..100 {
            let before = processor_time();
            mailbox.recv().await?;
            spent.push(processor_time() - before);
        }
        spent.sort();
        // The system may take a worker from the process in the middle of a turn: not in one tick of ten.
        assert!(spent[90] <= 2 * Duration::from_millis(5 + 10), "{spent:?}");
        Ok(())
    })
}

#[test]
fn processes_on_two_workers_share_a_library() -> Result {
    dunlin::__rt::block_on_workers(Some(2), async {
        let program = Program::new();
        let (address, mut bodies) = mailbox::<u32>();
        program.define("rust", &program.address(address))?;
        let library = "(define-library (a) (export x) (import (dunlin))
            (begin (eval '(! rust 1)) (define x (let loop ((n 3000)) (if (= n 0) (self) (loop (- n 1)))))))";
        program.spawn("library", library)?.await?;
        let start = |_| program.spawn("user", "(import (a)) (list (pair? (list x)) x)");
        let users = (0..100).map(start).collect::<std::result::Result<Vec<_>, _>>()?;
        let mut values = std::collections::BTreeSet::new();
        for user in users {
            values.insert(user.await?.to_string());
        }
        assert_eq!(values.len(), 1, "{values:?}");
        assert_eq!(bodies.recv().await?, 1);
        assert!(bodies.is_empty(), "the body ran more than once");
        Ok(())
    })
}

#[test]
fn processes_on_two_workers_read_each_character_of_a_port_once() -> Result {
    dunlin::__rt::block_on_workers(Some(2), async {
        let program = Program::new();
        // The process that opens the port ends before any other reads.
        program.spawn("port", "(define in (open-input-string (make-string 20000 #\\a)))")?.await?;
        let text = "(let read ((n 0)) (if (eof-object? (read-char in)) n (read (+ n 1))))";
        let readers = [0; 4].map(|_| program.spawn("reader", text));
        let mut read = 0;
        for reader in readers {
            read += reader?.await?.to_string().parse::<u32>()?;
        }
        assert_eq!(read, 20_000);
        Ok(())
    })
}
