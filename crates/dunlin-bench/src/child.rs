//! Runs one participant as a child process, reads its figure, limits its time, and ends it with Ctrl-C.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

/// The running child. It is here so that the Ctrl-C handler and the watchdog can end it: a signal to this
/// process alone would leave it running.
static RUNNING: Mutex<Option<Child>> = Mutex::new(None);

fn running() -> MutexGuard<'static, Option<Child>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes Ctrl-C end the running child and then this process, with the customary code 130.
pub(crate) fn end_with_ctrl_c() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        // Held until the exit, so that the main thread does not take the death of its child for an error and
        // continue.
        let mut child = running();
        if let Some(child) = child.as_mut() {
            // The child may have ended already.
            let _ = child.kill();
        }
        eprintln!("\ninterrupted");
        std::process::exit(130);
    })
    .context("cannot watch for Ctrl-C")
}

/// Runs `command` and reads the one number that it prints.
pub(crate) fn figure(command: &mut Command) -> anyhow::Result<f64> {
    let text = output(command)?;
    let figure: f64 = text.trim().parse().with_context(|| format!("{command:?} printed {text:?}, not a number"))?;
    if !figure.is_finite() || figure <= 0.0 {
        bail!("{command:?} printed {figure}, which is no figure of anything");
    }
    Ok(figure)
}

/// Runs `command` to its end and returns its standard output.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let mut stdout = {
        let mut slot = running();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let stdout = child.stdout.take().context("the child has no standard output")?;
        *slot = Some(child);
        stdout
    };
    let mut text = String::new();
    let read = with_watchdog(|| stdout.read_to_string(&mut text));
    let child = running().take();
    let status = child.context("nobody else takes the child away")?.wait()?;
    read.with_context(|| format!("reading from {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(text)
}

/// Runs `read`, and kills the child if that takes too long: a lost wake-up must not block the whole run.
fn with_watchdog(read: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
    let (ended, watchdog_ended) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        if watchdog_ended.recv_timeout(RUN_MAX) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a run took longer than {RUN_MAX:?} and was killed");
            if let Some(child) = running().as_mut() {
                // The child may have ended already.
                let _ = child.kill();
            }
        }
    });
    let result = read();
    drop(ended);
    // The watchdog never panics; if it did, the child has ended nevertheless.
    let _ = watchdog.join();
    result
}

/// The slowest run, a ring of a million, takes a few seconds; this leaves room for a very busy machine.
const RUN_MAX: Duration = Duration::from_secs(180);

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    // One test, because there is only one slot for the running child.
    #[test]
    fn only_a_positive_number_from_a_successful_child_is_a_figure() {
        let figure = |script: &str| super::figure(Command::new("sh").args(["-c", script]));
        assert_eq!(figure("echo 12.5").ok(), Some(12.5));
        assert!(figure("echo twelve").is_err());
        assert!(figure("echo nan").is_err());
        assert!(figure("echo 0").is_err());
        assert!(figure("echo 12.5; exit 3").is_err());
        assert!(super::figure(&mut Command::new("/no/such/program")).is_err());
    }
}
