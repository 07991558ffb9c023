//! What a stop request acts on: bells, sockets that are shut down, and groups of processes that are killed.
//! Unix only.
//!
//! A bell becomes readable when the call is asked to stop, and stays so. A wait for a descriptor polls both,
//! so it ends with whichever comes first.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The descriptors that a stop request acts on.
#[derive(Default)]
pub(super) struct Bells {
    bell: Option<Arc<Bell>>,
    sockets: Vec<(u64, OwnedFd)>,
    /// Leaders of groups. A leader is reaped only after it was taken out.
    #[cfg(target_os = "linux")]
    groups: Vec<rustix::process::Pid>,
    next_ticket: u64,
    rung: bool,
}

impl Bells {
    /// Rings, shuts sockets down, and kills. Does not block.
    pub(super) fn ring(&mut self) {
        self.rung = true;
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        for (_, socket) in &self.sockets {
            shut_down(socket);
        }
        #[cfg(target_os = "linux")]
        self.groups.iter().for_each(|leader| drop(kill_group(*leader)));
    }

    /// This group is killed when the call is asked.
    #[cfg(target_os = "linux")]
    pub(super) fn add_group(&mut self, leader: rustix::process::Pid) {
        if self.rung {
            let _ = kill_group(leader);
        }
        self.groups.push(leader);
    }

    /// From now on the leader may be reaped.
    #[cfg(target_os = "linux")]
    pub(super) fn remove_group(&mut self, leader: rustix::process::Pid) {
        self.groups.retain(|other| *other != leader);
    }

    /// The bell. After a stop request it may be silent: the call checks the request before it waits.
    pub(super) fn bell(&mut self) -> io::Result<Arc<Bell>> {
        if let Some(bell) = &self.bell {
            return Ok(bell.clone());
        }
        Ok(self.bell.insert(Arc::new(Bell::new()?)).clone())
    }

    pub(super) fn add_socket(&mut self, socket: OwnedFd) -> u64 {
        if self.rung {
            shut_down(&socket);
        }
        self.next_ticket += 1;
        self.sockets.push((self.next_ticket, socket));
        self.next_ticket
    }

    pub(super) fn remove_socket(&mut self, ticket: u64) -> Option<OwnedFd> {
        let place = self.sockets.iter().position(|(other, _)| *other == ticket)?;
        Some(self.sockets.swap_remove(place).1)
    }
}

/// Kills a group whose leader has not been reaped. `Ok(false)`: other code has reaped it, so the number may
/// belong to another process.
#[cfg(target_os = "linux")]
pub(crate) fn kill_group(leader: rustix::process::Pid) -> io::Result<bool> {
    use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(leader), look) {
        Err(rustix::io::Errno::CHILD) => return Ok(false),
        Err(error) => return Err(error.into()),
        Ok(_) => {}
    }
    match kill_process_group(leader, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn shut_down(socket: &OwnedFd) {
    // A descriptor that is not connected, or no socket at all, is left as it is: the call then checks by
    // itself.
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// Readable from when it has been rung.
pub(super) struct Bell {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    event: OwnedFd,
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pair: (std::os::unix::net::UnixStream, std::os::unix::net::UnixStream),
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Bell {
    fn new() -> io::Result<Self> {
        use rustix::event::EventfdFlags;
        Ok(Self { event: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    fn ring(&self) {
        // It fails only if it has been rung 2^64 times.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Bell {
    fn new() -> io::Result<Self> {
        let pair = std::os::unix::net::UnixStream::pair()?;
        pair.0.set_nonblocking(true)?;
        Ok(Self { pair })
    }

    fn ring(&self) {
        // It fails only if it has been rung before.
        let _ = rustix::io::write(&self.pair.0, &[1]);
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.pair.1.as_fd()
    }
}
