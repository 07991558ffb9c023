//! A web server: files, CGI programs and statistics over HTTP/1.1, with a process for each connection.
//!
//! ```text
//!   acceptor ─▶ connection (one each) ─▶ log ─▶ file
//!                   │ files: in place, or by the pool
//!                   └ CGI: a program for each request, killed with its group
//! ```
//!
//! Run it: `cargo run --release --example webserver -- --root DIRECTORY`. Linux only.

#[cfg(target_os = "linux")]
pub(crate) mod command;
#[cfg(target_os = "linux")]
pub(crate) mod web;

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("the web server needs Linux");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::process::ExitCode;

    use dunlin::prelude::*;
    use tokio::signal::unix::{SignalKind, signal};

    use super::command::{HELP, parse, warning};
    use super::web::server::{Server, Settings};

    pub(crate) fn main() -> ExitCode {
        let (address, settings) = match parse(std::env::args().skip(1)) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            Err(text) => {
                eprintln!("webserver: {text}\n\n{HELP}");
                return ExitCode::from(2);
            }
        };
        match dunlin::block_on(run(&address, settings)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("webserver: {error}");
                ExitCode::FAILURE
            }
        }
    }

    async fn run(address: &str, settings: Settings) -> Result {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        if let Some(text) = warning(files, settings.limits.connections_max) {
            eprintln!("webserver: {text}");
        }
        let server = Server::start(dunlin::io::tcp::listen(address).await?, settings)?;
        println!("serving at http://{}/, with at most {files} open files", server.address);
        alt! {
            _ = future(interrupt.recv()) => {}
            _ = future(terminate.recv()) => {}
        }
        Ok(server.stop().await?)
    }
}
