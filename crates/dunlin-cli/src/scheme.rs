//! `dunlin scheme`: runs a Scheme program.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use dunlin_scheme::{Error, FILE_BYTES_MAX, Scheme};
use dunlin_scheme_host::LocalChannels;
use dunlin_terminal::failure::{Failure, exit};
use dunlin_terminal::output::{self, printable};

/// Options of `dunlin scheme`.
#[derive(Args, Debug)]
pub struct Options {
    /// Read and compile the program without running it
    #[arg(long)]
    check: bool,
    /// The program; `-` is standard input. `(import (a b))` reads `a/b.sld` beside it
    #[arg(value_name = "FILE")]
    file: OsString,
    /// What `(command-line)` returns after the program's name
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs the program. The exit code is 0, that of `(exit code)`, 1 for a program that fails, or 2 without a
/// program.
pub fn run(options: &Options) -> ExitCode {
    match play(options) {
        Ok(code) if code != 0 => ExitCode::from(code),
        result => exit(result.map(drop)),
    }
}

fn play(options: &Options) -> Result<u8, Failure> {
    let name = if options.file == "-" { "(standard input)".into() } else { options.file.to_string_lossy() };
    let name = printable(&name);
    let bytes = read(&options.file).map_err(|error| Failure::Line(format!("{name}: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        Failure::Failed(format!("{name}:{}: the text is not UTF-8", line + 1))
    })?;
    // The first line of a script names its interpreter; a comment of the same length keeps all positions.
    let text = if text.starts_with("#!/") || text.starts_with("#! ") { text.replacen("#!", ";;", 1) } else { text };
    let mut scheme = Scheme::new();
    let folder = if options.file == "-" { None } else { Path::new(&options.file).parent() };
    let folder = folder.unwrap_or(Path::new("")).to_owned();
    scheme.set_files(move |path| source(&folder.join(path)));
    if options.check {
        return scheme.load(&name, &text).map(|()| 0).map_err(|error| Failure::Failed(error.explain(&name, &text)));
    }
    scheme.set_channels(LocalChannels::default());
    scheme.set_arguments(std::iter::once(&*name).chain(options.arguments.iter().map(String::as_str)));
    scheme.set_console(|text| output::write(text.as_bytes()));
    scheme.set_failure_log(|process, error| {
        let lines: Vec<String> = error.to_string().lines().map(printable).collect();
        output::complain(format!("process {process}: {}", lines.join("\n")));
    });
    match scheme.run_text(&name, &text) {
        Ok(()) => Ok(0),
        Err(Error::Exit(code)) => Ok(code),
        Err(error) => Err(Failure::Failed(error.explain(&name, &text))),
    }
}

/// The text of a file that a program includes, or that has a library: at most as long as the machine takes.
pub(crate) fn source(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    // To open a pipe would wait for its other side.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    // One byte more, so that a longer file is refused.
    File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the text is not UTF-8"))
}

fn read(file: &OsString) -> io::Result<Vec<u8>> {
    if file != "-" {
        return fs::read(file);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}
