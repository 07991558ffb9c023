//! Runs Scheme files: `cargo run -p dunlin-scheme --example run -- FILE...`

use std::process::ExitCode;

use dunlin_scheme::{Error, Scheme};

fn main() -> ExitCode {
    let mut scheme = Scheme::new();
    for path in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::FAILURE;
            }
        };
        let result = scheme.eval(&path, &text);
        print!("{}", scheme.take_output());
        match result {
            Ok(_) => {}
            Err(Error::Exit(code)) => return ExitCode::from(code),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
