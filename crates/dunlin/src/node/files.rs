//! How many files a process may have open: each socket is one.

use std::io;

use dunlin_proto::Config;

/// Leaves room for others: otherwise one host could take all files of this process with sockets that wait, or
/// with connections. Three quarters are for connections and an eighth for handshakes, which sources share;
/// the rest is for sockets that are dialled, and the program's own.
pub(super) fn share(config: &mut Config) {
    if let Some(files) = allowed() {
        config.peers_max = config.peers_max.min(files - files / 4).max(1);
        config.strangers_max = config.strangers_max.min(files / 8).max(1);
    }
}

/// How many files this process may have open.
#[cfg(unix)]
fn allowed() -> Option<usize> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok())
}

#[cfg(not(unix))]
fn allowed() -> Option<usize> {
    None
}

/// If this error means that no more files can be open: which limit that is, and what to do.
#[cfg(unix)]
pub(super) fn out_of(error: &io::Error) -> Option<String> {
    match error.raw_os_error()? {
        libc::EMFILE => {
            let limit = allowed().map_or_else(|| "as many".to_owned(), |limit| limit.to_string());
            Some(format!(
                "{error}: this process has {limit} files open, which is its limit. Raise the limit (`ulimit -n`, \
                 `LimitNOFILE` of systemd): each connection takes one file"
            ))
        }
        libc::ENFILE => Some(format!(
            "{error}: this host has reached its limit of open files. Raise the limit (`fs.file-max` on Linux), or \
             find the process that has them open"
        )),
        _ => None,
    }
}

#[cfg(not(unix))]
pub(super) fn out_of(error: &io::Error) -> Option<String> {
    // WSAEMFILE.
    (error.raw_os_error() == Some(10024)).then(|| format!("{error}: this process has reached its limit of sockets"))
}
