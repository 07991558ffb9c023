//! The command line.

use super::web::farm::{self, Numbers};
use super::web::limits::Limits;
use super::web::server::Settings;

pub(crate) const HELP: &str = "\
Usage: webserver --root DIRECTORY [--listen ADDRESS] [--cgi DIRECTORY] [--log FILE] [--farm [NUMBERS]]

  --root DIRECTORY   what is served; paths lead nowhere else, links neither
  --listen ADDRESS   host:port, 127.0.0.1:8080 if it is not given; port 0 is any free one
  --cgi DIRECTORY    programs for /cgi-bin/NAME; without it there are none
  --log FILE         the access log, to which lines are appended
  --farm [NUMBERS]   a fixed number of readers, file workers and CGI workers instead of a process for each
                     connection: 128,256,32 if none are given; idle connections hold readers

/stats.html shows what the server has done. SIGINT and SIGTERM stop it when the requests under way have ended.";

/// The address and the settings; `None` to print the help.
pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<(String, Settings)>, String> {
    let (mut root, mut cgi, mut log, mut address) = (None, None, None, "127.0.0.1:8080".to_owned());
    let mut farm = None;
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
pub(crate) fn warning(files: u64, connections_max: usize) -> Option<String> {
    (files < connections_max as u64).then(|| {
        format!(
            "the system allows {files} open files, and the server {connections_max} connections: raise the limit \
             (ulimit -n) for many connections; beyond it, clients wait"
        )
    })
}
