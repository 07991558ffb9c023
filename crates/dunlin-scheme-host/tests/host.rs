//! Scheme and Rust processes that link, monitor, end and send to each other.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::supervisor::Supervisor;
use dunlin::{Bound, Exit, ExitReason, Pid, block_on, link, mailbox, mailbox_with, monitor, spawn, spawn_linked};
use dunlin_scheme_host::{Error, Failure, ProcessNumber, Program, Value};
use serde::{Deserialize, Serialize};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn symbol(name: &str) -> Value {
    Value::Symbol(name.into())
}

/// A program in which these definitions have been evaluated.
async fn program(definitions: &str) -> Result<Program> {
    let program = Program::new();
    program.spawn("definitions", definitions)?.await?;
    Ok(program)
}

/// Runs a test as a process, since links belong to one.
fn as_process(test: impl Future<Output = Result> + Send + 'static) -> Result {
    block_on(async { spawn(test).await? })
}

#[test]
fn process_ends_with_its_value_or_with_what_it_raised() -> Result {
    block_on(async {
        let program = program("(define (double n) (* 2 n))").await?;
        assert_eq!(program.spawn("test", "(define four (double 2)) (double four)")?.await?, Value::Integer(8));
        assert_eq!(program.spawn("test", "double")?.await?, Value::Unspecified);
        let exit = program.spawn("test", "\n(double 'x)")?.await.unwrap_err();
        let ExitReason::Error(text) = &exit.reason else { panic!("{exit:?}") };
        assert!(text.contains("expected") && text.contains("definitions:1:"), "{text}");
        let exit = program.spawn("test", "(raise '(krill 7))")?.await.unwrap_err();
        assert_eq!(exit.payload::<Value>(), Some(&Value::List(vec![symbol("krill"), Value::Integer(7)])));
        assert!(matches!(program.spawn("test", "(double"), Err(Error::Syntax(_))));
        Ok(())
    })
}

#[test]
fn rust_sees_the_end_of_a_process_that_scheme_spawned() -> Result {
    as_process(async {
        let program = program("(define (wait) (raise (?)))").await?;
        let (address, mut mailbox) = mailbox::<ProcessNumber>();
        program.define("rust", &program.address(address))?;
        let parent = program.spawn("test", "(define child (spawn wait)) (! rust child) (?)")?;
        let child = mailbox.recv().await?;
        let down = monitor(parent.pid());
        let (_, mut exits) = dunlin::mailbox::<Exit>();
        exits.exits()?;
        link(parent.pid(), Pid::current().unwrap())?;
        // The child is linked to its parent in Scheme; both ends reach Rust.
        program.spawn("test", "(full-link child)")?.await?;
        assert!(program.send(child, &"stop")?);
        assert!(program.send(ProcessNumber(1 << 30), &1).is_ok_and(|sent| !sent));
        parent.pid().kill();
        assert_eq!(exits.recv().await?.reason, ExitReason::Killed);
        assert_eq!(down.await.reason, ExitReason::Killed);
        Ok(())
    })
}

#[test]
fn exit_of_a_linked_body_ends_its_parent() -> Result {
    block_on(async {
        let program = program("").await?;
        let body = program.body("test", "(error \"no krill\" 7)")?;
        let parent = spawn(async move {
            spawn_linked(body).unwrap();
            pending::<()>().await
        });
        let exit = parent.await.unwrap_err();
        assert!(matches!(&exit.reason, ExitReason::Error(text) if text.contains("no krill")), "{exit:?}");
        Ok(())
    })
}

#[test]
fn exit_of_rust_is_raised_where_the_process_waits_next() -> Result {
    let cases = [(None, "killed"), (Some(Ok("no krill")), "(exit no krill)"), (Some(Err(Value::Integer(7))), "7")];
    for (how, expected) in cases {
        as_process(async move {
            let program = program(
                "(define (told) (guard (e ((error-object? e)
                (list (error-object-kind e) (string->symbol (error-object-message e)))) (#t e)) (?)))",
            )
            .await?;
            let (stop, mut stopped) = mailbox::<()>();
            let is_killed = how.is_none();
            let rust = spawn(async move {
                let _ = stopped.recv().await;
                let _ = match how {
                    None => pending().await,
                    Some(Ok(text)) => dunlin::exit(text).await,
                    Some(Err(value)) => dunlin::exit_with(value).await,
                };
            });
            program.define("rust", &program.pid(rust.pid()))?;
            let (linked, mut has_linked) = mailbox::<String>();
            program.define("linked", &program.address(linked))?;
            let process = program.spawn("test", "(inbound-link rust) (! linked \"yes\") (told)")?;
            has_linked.recv().await?;
            if is_killed {
                assert!(rust.pid().kill());
            } else {
                stop.send(())?;
            }
            assert_eq!(process.await?.to_string(), expected);
            // One that has ended: at once.
            assert_eq!(program.spawn("test", "(inbound-link rust) (told)")?.await?, symbol("no-process"));
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn exit_comes_before_a_message_that_arrived_after_it() -> Result {
    as_process(async {
        let program = program("(define (count n) (if (> n 0) (count (- n 1))))").await?;
        let rust = spawn(pending::<()>());
        program.define("rust", &program.pid(rust.pid()))?;
        let (linked, mut has_linked) = mailbox::<ProcessNumber>();
        program.define("linked", &program.address(linked))?;
        // Both arrive while it counts, or while it waits.
        let text = "(inbound-link rust) (! linked (self)) (count 3000000) (guard (e (#t (list 'exit e))) (?))";
        let process = program.spawn("test", text)?;
        let number = has_linked.recv().await?;
        rust.pid().kill();
        let _ = rust.await;
        program.send(number, &symbol("message"))?;
        assert_eq!(process.await?.to_string(), "(exit killed)");
        Ok(())
    })
}

#[test]
fn exit_of_scheme_reaches_a_process_of_rust_that_scheme_links() -> Result {
    block_on(async {
        let program = program("").await?;
        let rust = spawn(pending::<()>());
        program.define("rust", &program.pid(rust.pid()))?;
        let scheme = program.spawn("test", "(outbound-link rust) (raise '(krill 7))")?;
        let (exit, origin) = (rust.await.unwrap_err(), scheme.pid());
        assert_eq!((exit.origin(), exit.payload::<Value>().unwrap().to_string()), (origin, "(krill 7)".into()));
        let rust = spawn(pending::<()>());
        program.define("rust", &program.pid(rust.pid()))?;
        program.spawn("test", "(kill rust)")?.await?;
        assert_eq!(rust.await.unwrap_err().reason, ExitReason::Killed);
        Ok(())
    })
}

#[test]
fn kill_ends_a_process_that_never_waits_and_its_scheme_links_hear_it() -> Result {
    block_on(async {
        let program = program("(define (forever) (forever)) (define busy #f)").await?;
        let busy = program.body("test", "(forever)")?;
        program.define("busy", &busy.number())?;
        let busy = spawn(busy);
        let watcher = program.spawn("test", "(inbound-link busy) (guard (e (#t e)) (?))")?;
        // Another process has its turns meanwhile.
        assert_eq!(program.spawn("test", "(sleep .01) 'after")?.await?, symbol("after"));
        assert!(busy.pid().kill());
        assert_eq!((busy.await.unwrap_err().reason, watcher.await?), (ExitReason::Killed, symbol("killed")));
        Ok(())
    })
}

#[test]
fn body_that_is_dropped_has_ended() -> Result {
    block_on(async {
        let program = program("").await?;
        let body = program.body("test", "(display 1)")?;
        let number = body.number();
        assert!(program.send(number, &1)?);
        drop(body);
        assert!(!program.send(number, &1)?);
        Ok(())
    })
}

#[test]
fn supervisor_restarts_a_process_of_scheme() -> Result {
    static STARTS: AtomicU32 = AtomicU32::new(0);

    async fn worker(program: &mut Program) -> std::result::Result<Value, Failure> {
        STARTS.fetch_add(1, Ordering::SeqCst);
        program.body("worker", "(! rust (self)) (raise (?))").unwrap().await
    }
    block_on(async {
        let program = program("").await?;
        let (address, mut mailbox) = mailbox::<ProcessNumber>();
        program.define("rust", &program.address(address))?;
        let tree = Supervisor::one_for_one().child("worker", program.clone(), worker).spawn();
        for start in 1..=3 {
            let worker = mailbox.recv().await?;
            assert_eq!(STARTS.load(Ordering::SeqCst), start);
            program.send(worker, &"broken")?;
        }
        drop(tree);
        Ok(())
    })
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Request {
    Add(i32, i32),
    Ask { from: ProcessNumber, tag: Value },
}

#[test]
fn mailbox_of_rust_takes_what_fits_and_counts_what_does_not() -> Result {
    block_on(async {
        let program = program("").await?;
        let (address, mut mailbox) = mailbox::<Request>();
        program.define("rust", &program.address(address))?;
        let text = "(! rust '(add 1 2)) (! rust '(add 1)) (! rust car) (! rust 7)
            (define tag (make-tag))
            (! rust `(ask (from . ,(self)) (tag . ,tag)))
            (equal? (list tag 'yes) (?))";
        let process = program.spawn("test", text)?;
        assert_eq!(mailbox.recv().await?, Request::Add(1, 2));
        let Request::Ask { from, tag } = mailbox.recv().await? else { panic!("it asks") };
        assert_eq!(program.dropped(), 3);
        program.send(from, &(tag, symbol("yes")))?;
        assert_eq!(process.await?, Value::Bool(true));
        // One that is closed takes everything, as a process does that has ended.
        drop(mailbox);
        program.spawn("test", "(! rust '(add 1 2))")?.await?;
        assert_eq!(program.dropped(), 3);
        let (address, _full) = mailbox_with::<u8>(Bound::reject(1));
        program.define("rust", &program.address(address))?;
        program.spawn("test", "(! rust 1) (! rust 2)")?.await?;
        assert_eq!(program.dropped(), 4);
        Ok(())
    })
}

#[test]
fn processes_run_on_all_workers_and_print_in_the_order_of_their_turns() -> Result {
    block_on(async {
        let program =
            program("(define (ring next n) (if (> n 0) (begin (! next (- (?) 1)) (ring next (- n 1)))))").await?;
        let printed = Arc::new(Mutex::new(String::new()));
        let kept = printed.clone();
        program.set_console(move |text| kept.lock().unwrap().push_str(text));
        let text = "(define me (self))
            (define (start n next) (if (= n 0) next (start (- n 1) (spawn (lambda () (ring next 20))))))
            (define first (start 50 me))
            (define (rounds n last) (if (= n 0) last (begin (! first last) (display n) (rounds (- n 1) (?)))))
            (rounds 20 1000)";
        assert_eq!(program.spawn("test", text)?.await?, Value::Integer(0));
        let expected: String = (1..=20).rev().map(|n| n.to_string()).collect();
        assert_eq!(*printed.lock().unwrap(), expected);
        Ok(())
    })
}

#[tokio::test(start_paused = true)]
async fn timers_follow_the_clock_of_the_runtime() -> Result {
    let program = program("").await?;
    let began = tokio::time::Instant::now();
    let value = program.spawn("test", "(list (? 3600 'late) (begin (sleep 1800) 'slept))")?.await?;
    assert_eq!(value.to_string(), "(late slept)");
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(5400) && took < Duration::from_secs(5401), "{took:?}");
    Ok(())
}

#[test]
fn program_forgets_processes_that_have_ended() -> Result {
    block_on(async {
        let program = Program::new();
        program.spawn("test", "(define child (spawn (lambda () (?)))) (kill child)")?.await?;
        drop(program.body("test", "1")?);
        assert!(program.spawn("test", "(raise 1)")?.await.is_err());
        let waiting = program.spawn("test", "(?)")?;
        // The child's task ends by itself.
        while !format!("{program:?}").contains("processes: 1,") {
            tokio::task::yield_now().await;
        }
        waiting.pid().kill();
        let _ = waiting.await;
        assert!(format!("{program:?}").contains("processes: 0,"), "{program:?}");
        Ok(())
    })
}

#[test]
fn process_of_rust_is_one_pid_in_scheme() -> Result {
    block_on(async {
        let program = Program::new();
        let (one, two) = (spawn(pending::<()>()), spawn(pending::<()>()));
        assert_eq!(program.pid(one.pid()), program.pid(one.pid()));
        assert_ne!(program.pid(one.pid()), program.pid(two.pid()));
        Ok(())
    })
}

#[test]
fn link_outside_of_a_process_is_raised() -> Result {
    block_on(async {
        let program = program("").await?;
        let (address, _mailbox) = mailbox::<u8>();
        program.define("rust", &program.address(address))?;
        let value = program.spawn("test", "(inbound-link rust) (guard (e (#t (error-object-kind e))) (?))")?.await?;
        assert_eq!(value, symbol("exit"));
        // A body that runs in no process.
        let rust = spawn(pending::<()>());
        program.define("rust", &program.pid(rust.pid()))?;
        let body = program.body("test", "(inbound-link rust) (guard (e (#t (error-object-kind e))) (?))")?;
        assert_eq!(body.await?, symbol("exit"));
        Ok(())
    })
}

#[test]
fn normal_end_of_rust_raises_nothing() -> Result {
    block_on(async {
        let program = program("").await?;
        let (stop, mut stopped) = mailbox::<()>();
        let rust = spawn(async move { stopped.recv().await.is_ok() });
        program.define("rust", &program.pid(rust.pid()))?;
        let (linked, mut has_linked) = mailbox::<ProcessNumber>();
        program.define("linked", &program.address(linked))?;
        let process = program.spawn("test", "(inbound-link rust) (! linked (self)) (?)")?;
        let number = has_linked.recv().await?;
        stop.send(())?;
        assert!(rust.await?);
        program.send(number, &symbol("message"))?;
        assert_eq!(process.await?, symbol("message"));
        Ok(())
    })
}

#[tokio::test]
async fn paused_process_ends_at_once_when_it_is_killed_and_holds_up_no_other() -> Result {
    let program = Program::new();
    let (address, mut mailbox) = mailbox::<u32>();
    program.define("rust", &program.address(address))?;
    // The fuel of its first turn is that of 500 seconds.
    program.set_fuel_rate(std::num::NonZero::new(1));
    let forever = "(begin (! rust 1) (let forever () (forever)))";
    let (by_rust, by_scheme) = (program.body("test", forever)?, program.body("test", forever)?);
    program.define("victim", &by_scheme.number())?;
    let (by_rust, by_scheme) = (dunlin::spawn(by_rust), dunlin::spawn(by_scheme));
    assert_eq!((mailbox.recv().await?, mailbox.recv().await?), (1, 1));
    program.spawn("test", "(kill victim)")?.await?;
    assert!(by_scheme.await?.is_err());
    by_rust.pid().kill();
    assert!(by_rust.await.is_err());
    Ok(())
}

const LONG: &str = "(define a (expt 7 60000)) (define b (expt 3 90000))";

#[tokio::test]
async fn long_operation_is_computed_on_the_pool() -> Result {
    let program = Program::new();
    program.spawn("test", LONG)?.await?;
    // The only worker is free meanwhile: more calls of the pool run than there are workers.
    let text = "(let ((q (quotient a b))) (and (<= (* q b) a) (< a (* (+ q 1) b))))";
    let processes = [0; 4].map(|_| program.spawn("test", text));
    for process in processes {
        assert_eq!(process?.await?, Value::Bool(true));
    }
    let computing = program.spawn("test", "(number->string (gcd a b))")?;
    tokio::task::yield_now().await;
    computing.pid().kill();
    assert!(computing.await.is_err());
    Ok(())
}
