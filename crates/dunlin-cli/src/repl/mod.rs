//! `dunlin repl`: reads forms, evaluates them and prints their values.

mod entries;
mod terminal;

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use dunlin_scheme::{Error, Interrupter, Scheme};
use dunlin_scheme_host::LocalChannels;
use dunlin_terminal::failure::{Failure, Signal, exit};
use dunlin_terminal::output::{self, printable};
use tokio::signal::unix::{SignalKind, signal};

use entries::{Entries, Entry};

/// Options of `dunlin repl`.
#[derive(Args, Debug)]
#[command(after_help = "Ctrl-C interrupts an evaluation, Ctrl-D leaves. An entry ends with the line that closes its \
                        last parenthesis. If input or output is not a terminal, no prompt is printed.")]
pub struct Options {}

/// Evaluates what is entered. The exit code is 0 at the end of the input, or that of `(exit code)`.
pub fn run(_: &Options) -> ExitCode {
    match play() {
        Ok(code) if code != 0 => ExitCode::from(code),
        result => exit(result.map(drop)),
    }
}

fn play() -> Result<u8, Failure> {
    let mut entries = Entries::open().map_err(Failure::failed)?;
    let mut session = Session::new();
    let exits = !entries.is_terminal();
    let interrupter = session.scheme.interrupter();
    interrupt_at_signals(interrupter, session.is_evaluating.clone(), exits)
        .map_err(|error| Failure::failed(format_args!("cannot register for signals: {error}")))?;
    if entries.is_terminal() {
        output::write(format!("dunlin {} Scheme. Ctrl-D leaves.\n", env!("CARGO_PKG_VERSION")).as_bytes());
    }
    for number in 1_u64.. {
        let name = format!("(entry {number})");
        if entries.is_terminal() {
            start_line(&session.is_line_open);
        }
        match entries.next(|| session.names()).map_err(Failure::failed)? {
            Entry::End => break,
            Entry::NotUtf8 { line } => output::complain(format_args!("error: {name}:{line}: the text is not UTF-8")),
            Entry::Text(text) => {
                if let Some(code) = session.evaluate(&name, &text) {
                    return Ok(code);
                }
            }
        }
        output::is_written()?;
    }
    Ok(0)
}

/// A machine, and what it has printed and replaced.
struct Session {
    scheme: Scheme,
    is_evaluating: Arc<AtomicBool>,
    is_line_open: Arc<AtomicBool>,
    /// The standard names that no entry has defined.
    standard: HashSet<String>,
}

impl Session {
    fn new() -> Self {
        let mut scheme = Scheme::new();
        scheme.set_channels(LocalChannels::default());
        scheme.set_arguments(["repl"]);
        // Libraries and included files are those of the current folder.
        scheme.set_files(|path| crate::scheme::source(path.as_ref()));
        let is_line_open = Arc::new(AtomicBool::new(false));
        let printed = is_line_open.clone();
        scheme.set_console(move |text| {
            printed.store(!text.ends_with('\n'), Ordering::Relaxed);
            output::write(text.as_bytes());
        });
        let fresh = is_line_open.clone();
        scheme.set_failure_log(move |process, error| {
            let lines: Vec<String> = error.to_string().lines().map(printable).collect();
            start_line(&fresh);
            output::complain(format_args!("process {process}: {}", lines.join("\n")));
        });
        let standard = scheme.globals().into_iter().collect();
        Self { scheme, is_evaluating: Arc::default(), is_line_open, standard }
    }

    /// All names that mean something, for completion.
    fn names(&self) -> Vec<String> {
        let mut names = self.scheme.globals();
        names.extend(self.scheme.syntax_names());
        names
    }

    /// Evaluates the forms of an entry up to the first that fails. Returns the exit code if one of them
    /// exits.
    fn evaluate(&mut self, name: &str, text: &str) -> Option<u8> {
        let Self { scheme, is_evaluating, is_line_open, .. } = self;
        let mut code = None;
        is_evaluating.store(true, Ordering::SeqCst);
        scheme.eval_each(name, text, |result, _| {
            match result {
                Ok(value) if value == "#<unspecified>" => {}
                Ok(value) => {
                    start_line(is_line_open);
                    output::write(format!("{value}\n").as_bytes());
                }
                Err(error) => {
                    start_line(is_line_open);
                    match error {
                        Error::Exit(exit) => code = Some(exit),
                        Error::Interrupted => output::complain("interrupted"),
                        error => output::complain(format_args!("error: {}", error.explain(name, text))),
                    }
                    return ControlFlow::Break(());
                }
            }
            if output::is_written().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        is_evaluating.store(false, Ordering::SeqCst);
        self.note_replaced();
        code
    }

    /// Says which standard names the entry has defined; for standard procedures and libraries they mean what
    /// they did.
    fn note_replaced(&mut self) {
        for name in self.scheme.defined() {
            if self.standard.remove(&name) {
                let name = printable(&name);
                output::complain(format_args!("note: {name} hides the standard {name} from what is entered"));
            }
        }
    }
}

/// Ends the line that the program has printed a part of.
fn start_line(is_open: &AtomicBool) {
    if is_open.swap(false, Ordering::Relaxed) {
        output::write(b"\n");
    }
}

/// Makes SIGINT interrupt the evaluation. Without one it ends this process if `exits`.
fn interrupt_at_signals(interrupter: Interrupter, is_evaluating: Arc<AtomicBool>, exits: bool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut interrupts = {
        let _entered = runtime.enter();
        signal(SignalKind::interrupt())?
    };
    let wait = async move {
        while interrupts.recv().await.is_some() {
            if is_evaluating.load(Ordering::SeqCst) {
                interrupter.interrupt();
            } else if exits {
                std::process::exit(Signal::Interrupt.code().into());
            }
        }
    };
    // (The thread ends with this process.)
    std::thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(wait))?;
    Ok(())
}
