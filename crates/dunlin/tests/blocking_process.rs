//! Functions in processes of their own. A program rather than a test of the harness, since each call starts
//! it again.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
#[path = "support/runs.rs"]
mod runs;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::process::Command;

    use dunlin::blocking::{ProcessError, blocking_process};
    use dunlin::prelude::*;

    use super::runs::runs;

    #[dunlin::remote]
    fn sum(numbers: Vec<u64>, more: u64) -> u64 {
        numbers.iter().sum::<u64>() + more
    }

    #[dunlin::remote]
    fn panics(with: String) {
        panic!("no more {with}")
    }

    #[dunlin::remote]
    fn exits(code: i32) -> u8 {
        std::process::exit(code)
    }

    /// Writes its process id to a file, and never ends by itself.
    #[dunlin::remote]
    fn hangs(file: String) {
        let mut member = Command::new("sleep").arg("1000").spawn().unwrap();
        let text = format!("{} {}", std::process::id(), member.id());
        std::fs::write(format!("{file}.part"), text).unwrap();
        std::fs::rename(format!("{file}.part"), file).unwrap();
        member.wait().unwrap();
    }

    /// Starts one more process, from within one.
    #[dunlin::remote]
    fn nested(n: u64) -> u64 {
        dunlin::block_on(async { blocking_process(sum(vec![n], 1)).await.unwrap().unwrap() })
    }

    /// Whether a program that it starts also runs as such a process: it is this program, which would then
    /// print nothing.
    #[dunlin::remote]
    fn starts_the_program() -> String {
        let output = Command::new(std::env::current_exe().unwrap()).arg("--hello").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn file(name: &str) -> String {
        std::env::temp_dir().join(format!("dunlin-{name}-{}", std::process::id())).display().to_string()
    }

    async fn pids(file: &str) -> [u32; 2] {
        loop {
            if let Ok(text) = std::fs::read_to_string(file) {
                std::fs::remove_file(file).unwrap();
                let pids: Vec<u32> = text.split(' ').map(|pid| pid.parse().unwrap()).collect();
                return [pids[0], pids[1]];
            }
            tokio::task::yield_now().await;
        }
    }

    async fn until_gone(pids: [u32; 2]) {
        while pids.iter().any(|pid| runs(*pid)) {
            tokio::task::yield_now().await;
        }
    }

    #[dunlin::remote]
    fn is_not_listed(n: u64) -> u64 {
        n
    }

    #[dunlin::main(remote = [sum, panics, exits, hangs, nested, starts_the_program])]
    pub(crate) async fn main() -> Result {
        match std::env::args().nth(1).as_deref() {
            Some("--hello") => {
                println!("hello");
                return Ok(());
            }
            // Ends while its process hangs.
            Some("--dies") => {
                let file = std::env::args().nth(2).unwrap();
                let _call = blocking_process(hangs(file.clone()));
                while !std::path::Path::new(&file).exists() {
                    tokio::task::yield_now().await;
                }
                std::process::abort();
            }
            _ => {}
        }

        assert_eq!(blocking_process(sum(vec![1, 2, 3], 4)).await??, 10);
        let large: Vec<u64> = (0..1_000_000).collect();
        let expected: u64 = large.iter().sum();
        assert_eq!(blocking_process(sum(large, 0)).await??, expected);
        println!("output comes back ok");

        let refused = blocking_process(is_not_listed(7)).await?.unwrap_err();
        assert!(matches!(refused, ProcessError::NotListed(_)), "{refused}");
        assert!(refused.to_string().contains("linux::is_not_listed at crates/dunlin/tests"), "{refused}");
        println!("a function that is not listed is refused ok");

        let panicked = blocking_process(panics("krill".to_owned())).await?;
        assert!(matches!(&panicked, Err(ProcessError::Panicked(text)) if text == "no more krill"), "{panicked:?}");
        let exited = blocking_process(exits(7)).await?;
        assert!(matches!(&exited, Err(ProcessError::Exited(Some(status))) if status.code() == Some(7)), "{exited:?}");
        println!("panics and exits are told ok");

        for round in 0..20 {
            let file = file(&format!("hangs-{round}"));
            let call = blocking_process(hangs(file.clone()));
            let pids = pids(&file).await;
            let ended = call.terminate().await;
            assert!(matches!(ended, Ended::Terminated(Err(ProcessError::Killed))), "{ended:?}");
            until_gone(pids).await;
        }
        println!("a process that is asked to stop is killed with its group ok");

        let file = file("dies");
        let mut program = Command::new(std::env::current_exe()?);
        let mut program = program.args(["--dies", &file]).spawn()?;
        let pids = pids_when_dead(&file, &mut program).await;
        until_gone(pids).await;
        println!("a process ends with the program that has started it ok");

        assert_eq!(blocking_process(nested(41)).await??, 42);
        assert_eq!(blocking_process(starts_the_program()).await??, "hello\n");
        println!("a process may start others ok");
        Ok(())
    }

    async fn pids_when_dead(file: &str, program: &mut std::process::Child) -> [u32; 2] {
        assert!(!program.wait().unwrap().success(), "it has aborted");
        pids(file).await
    }
}
