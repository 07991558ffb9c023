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
pub(crate) mod linux {
    use std::process::ExitCode;

    use dunlin::io::signal;
    use dunlin::prelude::*;

    use super::web::farm::{self, Numbers};
    use super::web::limits::{Limits, descriptors};
    use super::web::server::{Server, Settings};

    const HELP: &str = include_str!("help.txt");

    pub(crate) fn main() -> ExitCode {
        let (address, settings) = match parse(std::env::args().skip(1)) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            Err(text) => {
                eprint!("webserver: {text}\n\n{HELP}");
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

    /// The address and the settings; `None` to print the help.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<(String, Settings)>, String> {
        let (mut root, mut cgi, mut log, mut farm) = (None, None, None, None);
        let mut address = "127.0.0.1:8080".to_owned();
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match &*argument {
                "--help" | "-h" => return Ok(None),
                "--root" => root = Some(value()?.into()),
                "--cgi" => cgi = Some(value()?.into()),
                "--log" => log = Some(value()?.into()),
                "--listen" => address = value()?,
                "--farm" => {
                    let numbers = arguments.next_if(|next| !next.starts_with('-'));
                    farm = Some(numbers.map_or(Ok(farm::NUMBERS), |numbers| read_numbers(&numbers))?);
                }
                _ => return Err(format!("unknown argument {argument}")),
            }
        }
        let root = root.ok_or("--root is missing")?;
        Ok(Some((address, Settings { root, cgi, log, limits: Limits::default(), farm })))
    }

    fn read_numbers(text: &str) -> Result<Numbers, String> {
        let numbers: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[readers, files, programs]) if readers > 0 && files > 0 && programs > 0 => {
                Ok(Numbers { readers, files, programs })
            }
            _ => Err(format!("--farm takes three positive numbers, such as 128,256,32, not {text}")),
        }
    }

    /// What to print if the system allows fewer open files than the server has connections.
    pub(crate) fn warning(files: u64, connections: usize) -> Option<String> {
        let text = format!("{files} open files (ulimit -n) are too few for {connections} connections: some will wait");
        (files < connections as u64).then_some(text)
    }

    async fn run(address: &str, settings: Settings) -> Result {
        let files = descriptors();
        let (mut interrupt, mut terminate) = (signal::ctrl_c()?, signal::terminate()?);
        if let Some(text) = warning(files, settings.limits.connections_max) {
            eprintln!("webserver: {text}");
        }
        let listener = dunlin::io::tcp::listen(address).await;
        let listener = listener.map_err(|error| Error::other(format!("cannot listen at {address}: {error}")))?;
        let server = Server::start(listener, settings)?;
        println!("serving at http://{}/, with at most {files} open files", server.address);
        alt! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(server.stop().await?)
    }
}
