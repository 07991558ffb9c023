//! The output of a program under `#[dunlin::main]` or `block_on`: suspected deadlocks, its waits on SIGQUIT,
//! and the error that `main` returns.
//!
//! Each program is an OS process: this one, started again with a name in its environment. It has no test
//! harness, whose threads might hold ends.

#[cfg(not(unix))]
fn main() {}

#[cfg(unix)]
fn main() {
    match std::env::var(programs::VARIABLE) {
        Ok(name) => programs::run(&name),
        Err(_) => tests::all(),
    }
}

#[cfg(unix)]
mod programs {
    use std::io::{BufRead, Write};
    use std::process::{ExitCode, Termination};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use dunlin::prelude::*;

    pub(crate) const VARIABLE: &str = "WATCHDOG_PROGRAM";

    /// How long the event that ends a program's waits takes: many times the watchdog's patience here.
    const LONG: Duration = Duration::from_millis(1200);

    pub(crate) fn run(name: &str) {
        let code = match name {
            "crosswise" => crosswise(),
            "main_only" => main_only(),
            "branches" => branches(),
            "shared" => shared(),
            "asked" => asked(),
            "busy" => busy(),
            "unread" => unread(),
            "fails" => fails::main(),
            "fails_in_a_box" => fails_in_a_box::main(),
            "thread" => innocent(thread()),
            "blocking_call" => innocent(blocking_call()),
            "timer" => innocent(timer()),
            "timer_of_a_branch" => innocent(timer_of_a_branch()),
            "deadline" => innocent(deadline()),
            "foreign_future" => innocent(foreign_future()),
            "foreign_task" => innocent(foreign_task()),
            "computes" => innocent(computes()),
            "listens" => innocent(listens()),
            "node" => innocent(node()),
            "signal" => innocent(signal()),
            _ => panic!("no program {name}"),
        };
        std::process::exit(i32::from(format!("{:?}", code.report()) != format!("{:?}", ExitCode::SUCCESS)));
    }

    // ---- deadlocks

    fn crosswise() -> ExitCode {
        dunlin::block_on(async {
            let ((mut ask, mut asked), (mut answer, mut answered)) = (channel::<u8>(), channel::<u8>());
            let left = dunlin::spawn_named("left", async move {
                asked.recv().await?;
                answer.send(1).await?;
                Ok::<_, Error>(())
            });
            let right = spawn(async move {
                answered.recv().await?;
                ask.send(1).await?;
                Ok::<_, Error>(())
            });
            drop((left.await, right.await));
        });
        ExitCode::SUCCESS
    }

    fn main_only() -> ExitCode {
        dunlin::block_on(async {
            let (_tx, mut rx) = channel::<u8>();
            // An ended timer counts no more.
            sleep(Duration::from_millis(1)).await;
            let _ = rx.recv().within(Duration::from_millis(1)).await;
            drop(rx.recv().await);
        });
        ExitCode::SUCCESS
    }

    fn branches() -> ExitCode {
        dunlin::block_on(async {
            let ((mut tx, mut rx), (mut ty, mut ry)) = (channel::<u8>(), channel::<u8>());
            let nested = async {
                par!(async { drop((rx.recv().await, ty.send(1).await)) }, std::future::pending::<()>());
            };
            par!(nested, async {
                let mut slot = Some(1);
                // The barrier's other party never arrives.
                let (mut barrier, _absent) = (barrier(), ());
                let other = barrier.enrol();
                alt! {
                    v = ry.recv() => drop(v),
                    _ = barrier.sync() => {}
                    sent = tx.send_from(&mut slot), if false => drop(sent),
                }
                drop(other);
            });
        });
        ExitCode::SUCCESS
    }

    fn shared() -> ExitCode {
        dunlin::block_on(async {
            let scope = Scope::new();
            let (tx, mut rx) = channel::<u8>();
            let mut first = tx.share();
            let mut second = first.clone();
            let (mut claims, mut has_claimed) = channel();
            scope.fork(async move {
                let claimed = first.claim().await;
                claims.send(()).await.unwrap();
                std::future::pending::<()>().await;
                drop(claimed);
            });
            has_claimed.recv().await.unwrap();
            scope.fork(async move { drop(second.claim().await) });
            drop(scope.fork(async move { rx.recv().await }).await);
        });
        ExitCode::SUCCESS
    }

    // ---- no deadlocks: something invisible to dunlin ends the wait

    fn innocent(end: impl Future<Output = ()>) -> ExitCode {
        dunlin::block_on(end);
        println!("done");
        ExitCode::SUCCESS
    }

    async fn thread() {
        let (mut tx, mut rx) = channel::<u8>();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(LONG);
            tx.send(1).wait()
        });
        assert_eq!(rx.recv().await, Ok(1));
        thread.join().unwrap().unwrap();
    }

    async fn blocking_call() {
        let (mut tx, mut rx) = channel::<u8>();
        let call = blocking(move |_| {
            std::thread::sleep(LONG);
            tx.send(1).wait()
        });
        assert_eq!(rx.recv().await, Ok(1));
        call.await.unwrap().unwrap();
    }

    async fn timer() {
        let (mut tx, mut rx) = channel::<u8>();
        spawn(async move {
            tokio::time::sleep(LONG).await;
            tx.send(1).await
        });
        assert_eq!(rx.recv().await, Ok(1));
    }

    async fn timer_of_a_branch() {
        let (mut tx, mut rx) = channel::<u8>();
        let (sent, received) = par!(
            async {
                par!(tokio::time::sleep(LONG));
                tx.send(1).await
            },
            rx.recv(),
        );
        assert_eq!((sent, received), (Ok(()), Ok(1)));
    }

    async fn deadline() {
        let (_tx, mut rx) = channel::<u8>();
        let mut timer = Timer::after(LONG);
        assert!(matches!(rx.recv().within(LONG).await, Err(dunlin::RecvError::TimedOut)));
        alt! {
            v = rx.recv() => panic!("{v:?}"),
            _ = &mut timer => {}
        }
    }

    async fn foreign_future() {
        let (_tx, mut rx) = channel::<u8>();
        alt! {
            v = rx.recv() => panic!("{v:?}"),
            _ = future(tokio::time::sleep(LONG)) => {}
        }
    }

    async fn foreign_task() {
        let (mut tx, mut rx) = channel::<u8>();
        tokio::spawn(async move {
            tokio::time::sleep(LONG).await;
            tx.send(1).await
        });
        assert_eq!(rx.recv().await, Ok(1));
    }

    async fn computes() {
        let (mut tx, mut rx) = channel::<u8>();
        spawn(async move {
            let began = Instant::now();
            while began.elapsed() < LONG {
                std::hint::spin_loop();
            }
            tx.send(1).await
        });
        assert_eq!(rx.recv().await, Ok(1));
    }

    async fn listens() {
        let (mut tx, mut rx) = channel::<u8>();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        spawn(async move {
            let (_socket, _) = listener.accept().await.unwrap();
            tx.send(1).await
        });
        let mut child = std::process::Command::new("bash")
            .args(["-c", &format!("sleep {}; exec 3<>/dev/tcp/127.0.0.1/{}", LONG.as_secs_f32(), to.port())])
            .spawn()
            .unwrap();
        assert_eq!(rx.recv().await, Ok(1));
        child.wait().unwrap();
    }

    /// Only its peers could end this wait: the test stops it.
    async fn node() {
        let _node =
            Node::builder().app("watchdog").listen("memory:watchdog").names("memory:watchdog").join().await.unwrap();
        let (_tx, mut rx) = channel::<u8>();
        drop(rx.recv().await);
    }

    async fn signal() {
        let (_tx, mut rx) = channel::<u8>();
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::user_defined1()).unwrap();
        let me = std::process::id();
        let mut child = std::process::Command::new("bash")
            .args(["-c", &format!("sleep {}; kill -USR1 {me}", LONG.as_secs_f32())])
            .spawn()
            .unwrap();
        alt! {
            v = rx.recv() => panic!("{v:?}"),
            _ = future(terminate.recv()) => {}
        }
        child.wait().unwrap();
    }

    // ---- SIGQUIT

    fn asked() -> ExitCode {
        dunlin::block_on(async {
            let (mut tx, mut rx) = channel::<String>();
            spawn(async move { rx.recv().await });
            let (_never, mut silent) = channel::<u8>();
            let reader = dunlin::spawn_named("patient", async move { silent.recv().await });
            tokio::task::yield_now().await;
            println!("ready");
            let line = blocking(|_| std::io::stdin().lock().lines().next().unwrap().unwrap()).await.unwrap();
            tx.send(line.clone()).await.unwrap();
            reader.cancel();
            println!("went on with {line}");
        });
        ExitCode::SUCCESS
    }

    #[dunlin::main(workers = 1)]
    async fn busy() -> ExitCode {
        static STOP: AtomicBool = AtomicBool::new(false);
        let (_tx, mut rx) = channel::<u8>();
        spawn(async {
            println!("ready");
            while !STOP.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        drop(rx.recv().await);
        ExitCode::SUCCESS
    }

    /// Its stderr accepts nothing: the clock keeps running.
    fn unread() -> ExitCode {
        std::thread::spawn(|| drop(std::io::stderr().write_all(&[b'.'; 1 << 20])));
        dunlin::block_on(async {
            println!("ready");
            blocking(|_| std::io::stdin().lock().lines().next().unwrap().unwrap()).await.unwrap();
        });
        let until = Instant::now() + Duration::from_secs(10);
        for _ in 0..50 {
            let tick = dunlin::waits::tick();
            while dunlin::waits::tick() == tick {
                assert!(Instant::now() < until, "the clock stands still");
                std::thread::yield_now();
            }
        }
        ExitCode::SUCCESS
    }

    // ---- errors

    mod fails {
        use dunlin::prelude::*;

        #[dunlin::main]
        pub async fn main() -> Result {
            let missing = std::io::Error::other("no herring");
            let market = std::io::Error::new(std::io::ErrorKind::NotFound, Wrapped(missing));
            Err(Error::other(Wrapped(market)))
        }

        #[derive(Debug)]
        struct Wrapped(std::io::Error);

        impl std::fmt::Display for Wrapped {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the market is closed")
            }
        }

        impl std::error::Error for Wrapped {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
    }

    mod fails_in_a_box {
        #[dunlin::main]
        pub async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            Err("the market is closed".into())
        }
    }
}

#[cfg(unix)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::programs::VARIABLE;

    fn command(program: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(VARIABLE, program).env("DUNLIN_WATCHDOG", "0.1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(program: &str) -> Child {
        command(program).spawn().unwrap()
    }

    /// The lines of its errors up to one that contains `last`.
    fn errors_until(child: &mut Child, last: &str) -> String {
        let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
        let mut text = String::new();
        loop {
            let line = lines.next().unwrap_or_else(|| panic!("it has ended without {last:?}:\n{text}")).unwrap();
            text += &line;
            text += "\n";
            if line.contains(last) {
                return text;
            }
        }
    }

    fn ready(child: &mut Child) {
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
    }

    fn quit(child: &Child) {
        let killed = Command::new("bash").args(["-c", &format!("kill -QUIT {}", child.id())]).status();
        assert!(killed.unwrap().success());
    }

    pub(crate) fn all() {
        // Without this limit the test would wait for a silent program for ever.
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(120));
            eprintln!("a program has not printed the expected text within two minutes");
            std::process::exit(1);
        });
        // It blocks for two seconds beside the others.
        let unset = std::thread::spawn(a_deadlock_is_suspected_after_two_seconds_without_the_variable);
        if cfg!(all(debug_assertions, target_os = "linux")) {
            deadlocks_are_suspected();
            no_deadlock_is_suspected_where_something_else_may_end_a_wait();
        }
        waits_are_printed_on_request_and_the_program_goes_on();
        waits_are_printed_while_all_workers_are_busy();
        errors_of_main_are_printed_with_their_causes();
        errors_that_cannot_be_printed_do_no_harm();
        if unset.join().is_err() {
            std::process::exit(1);
        }
    }

    fn a_deadlock_is_suspected_after_two_seconds_without_the_variable() {
        if cfg!(not(all(debug_assertions, target_os = "linux"))) {
            return;
        }
        let began = Instant::now();
        let mut child = command("main_only").env_remove("DUNLIN_WATCHDOG").spawn().unwrap();
        let text = errors_until(&mut child, "DUNLIN_WATCHDOG=off");
        let took = began.elapsed();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(text.starts_with("dunlin: suspected deadlock: for 2s nothing has run"), "{text}");
        assert!((Duration::from_secs(2)..Duration::from_secs(10)).contains(&took), "after {took:?}: {text}");
        println!("a_deadlock_is_suspected_after_two_seconds_without_the_variable ok");
    }

    fn deadlocks_are_suspected() {
        let deadlocks: [(&str, &[&str]); 4] = [
            ("crosswise", &["#1 waits", "for receive on", "#1 is left, started at", "for exit of #1"]),
            ("main_only", &["outside waits", "for receive", "the body of `main`"]),
            (
                "shared",
                &["for claim on", "for exit of", "for receive on", "#1 was started at", "and does not wait in dunlin"],
            ),
            ("branches", &["a barrier", "1 of 2 there", "is a branch of the par! at"]),
        ];
        let children: Vec<_> = deadlocks.iter().map(|(program, _)| start(program)).collect();
        for ((program, lines), mut child) in deadlocks.iter().zip(children) {
            let text = errors_until(&mut child, "DUNLIN_WATCHDOG=off");
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(text.starts_with("dunlin: suspected deadlock"), "{program}: {text}");
            assert!(text.contains("tests/watchdog.rs"), "{program}: {text}");
            for line in *lines {
                assert!(text.contains(line), "{program} lacks {line:?}: {text}");
            }
        }
        println!("deadlocks_are_suspected ok");
    }

    fn no_deadlock_is_suspected_where_something_else_may_end_a_wait() {
        let programs = [
            "thread",
            "blocking_call",
            "timer",
            "timer_of_a_branch",
            "deadline",
            "foreign_future",
            "foreign_task",
            "computes",
            "listens",
            "signal",
        ];
        // It has waited as long as the others when these have ended.
        let mut node = start("node");
        let children = programs.map(start);
        for (program, child) in programs.iter().zip(children) {
            let output = child.wait_with_output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n", "{program}: {errors}");
            assert!(!errors.contains("suspected"), "{program}: {errors}");
        }
        node.kill().unwrap();
        let output = node.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        println!("no_deadlock_is_suspected_where_something_else_may_end_a_wait ok");
    }

    fn waits_are_printed_on_request_and_the_program_goes_on() {
        let mut child = start("asked");
        ready(&mut child);
        for _ in 0..2 {
            quit(&child);
            let text = errors_until(&mut child, "end of the waits");
            assert!(text.contains("for receive on") && text.contains("is patient, started at"), "{text}");
        }
        child.stdin.take().unwrap().write_all(b"herring\n").unwrap();
        let mut rest = String::new();
        child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "went on with herring\n");
        assert!(child.wait().unwrap().success());
        println!("waits_are_printed_on_request_and_the_program_goes_on ok");
    }

    fn waits_are_printed_while_all_workers_are_busy() {
        let mut child = start("busy");
        ready(&mut child);
        quit(&child);
        let text = errors_until(&mut child, "end of the waits");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(text.contains("outside waits") && text.contains("runs, or waits outside dunlin"), "{text}");
        println!("waits_are_printed_while_all_workers_are_busy ok");
    }

    fn errors_of_main_are_printed_with_their_causes() {
        let failing = [
            ("fails", "Error: the market is closed\n  caused by: no herring\n"),
            ("fails_in_a_box", "Error: the market is closed\n"),
        ];
        for (program, expected) in failing {
            let output = start(program).wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stderr), expected, "{program}");
            assert_eq!(output.status.code(), Some(1), "{program}");
        }
        println!("errors_of_main_are_printed_with_their_causes ok");
    }

    fn errors_that_cannot_be_printed_do_no_harm() {
        for closed in [true, false] {
            let mut child = start("unread");
            // Otherwise the pipe fills, since nothing reads it.
            let pipe = child.stderr.take().filter(|_| !closed);
            ready(&mut child);
            quit(&child);
            child.stdin.take().unwrap().write_all(b"herring\n").unwrap();
            let status = child.wait().unwrap();
            assert!(status.success(), "closed: {closed}, {status}");
            drop(pipe);
        }
        let mut child = start("fails");
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(1));
        println!("errors_that_cannot_be_printed_do_no_harm ok");
    }
}
