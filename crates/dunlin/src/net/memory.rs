//! Sockets inside one program.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;

use super::{BoxFuture, Listener, Named, Network, Socket, Source};

/// The bytes written and not yet read, in each direction: about as many as a kernel holds for a loopback
/// socket.
const PIPE_BYTES: usize = 64 * 1024;

/// Dialled sockets that wait to be accepted.
const BACKLOG: usize = 128;

/// The listeners of this program.
static LISTENING: LazyLock<Mutex<HashMap<String, mpsc::Sender<DuplexStream>>>> = LazyLock::new(Mutex::default);

/// Memory: for tests, and for several nodes in one program. An address is any name; all of the program's
/// nodes share them.
///
/// The empty name selects a free one. A pipe holds 64 KiB in each direction; a writer waits while it is full.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory;

impl Network for Memory {
    fn scheme(&self) -> &'static str {
        "memory"
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let refused = || {
                io::Error::new(
                    io::ErrorKind::ConnectionRefused,
                    format!("cannot connect to `memory:{address}`: no node of this program listens there"),
                )
            };
            let backlog = listening().get(address).cloned().ok_or_else(refused)?;
            let (here, there) = duplex(PIPE_BYTES);
            backlog.send(there).await.map_err(|_| refused())?;
            Ok(Box::new(Named {
                stream: here,
                peer: format!("memory:{address}"),
                is_local: true,
                host: None,
                identity: None,
                source: Source::Unknown,
            }) as Box<dyn Socket>)
        })
    }

    fn is_local(&self, _: &str) -> bool {
        true
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let (backlog, dialled) = mpsc::channel(BACKLOG);
            let mut listening = listening();
            let name = if address.is_empty() { free_name(&listening) } else { address.to_owned() };
            match listening.entry(name.clone()) {
                Entry::Vacant(free) => free.insert(backlog),
                Entry::Occupied(_) => {
                    return Err(io::Error::new(
                        io::ErrorKind::AddrInUse,
                        format!(
                            "cannot listen on `memory:{name}`: another node of this program has the name; choose \
                             another name (none takes a free one)"
                        ),
                    ));
                }
            };
            Ok(Box::new(MemoryListener { name, dialled, accepted: 0 }) as Box<dyn Listener>)
        })
    }
}

struct MemoryListener {
    name: String,
    dialled: mpsc::Receiver<DuplexStream>,
    accepted: u64,
}

impl Listener for MemoryListener {
    fn accept<'a>(&'a mut self) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            // The other half is in the table while this one exists.
            let Some(stream) = self.dialled.recv().await else { return Err(io::ErrorKind::NotConnected.into()) };
            self.accepted += 1;
            let peer = format!("memory:{}#{}", self.name, self.accepted);
            Ok(Box::new(Named { stream, peer, is_local: true, host: None, identity: None, source: Source::Unknown })
                as Box<dyn Socket>)
        })
    }

    fn address(&self) -> String {
        self.name.clone()
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        listening().remove(&self.name);
    }
}

fn listening() -> MutexGuard<'static, HashMap<String, mpsc::Sender<DuplexStream>>> {
    // No code that can panic half-way runs under this lock.
    LISTENING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn free_name<T>(taken: &HashMap<String, T>) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    loop {
        let name = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        if !taken.contains_key(&name) {
            return name;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::contract;

    #[test]
    fn a_dialled_socket_is_accepted_and_carries_bytes_both_ways() {
        crate::block_on(async {
            contract::echoes(&Memory, "memory-echo").await;
            assert_ne!(contract::echoes(&Memory, "").await, "");
        });
    }

    #[test]
    fn listen_error_reports_memory_name_in_use() {
        let error = crate::block_on(contract::is_in_use(&Memory, "memory-in-use"));
        assert!(error.contains("`memory:memory-in-use`") && error.contains("choose another name"), "{error}");
    }

    #[test]
    fn a_dropped_listener_refuses_and_frees_its_name() {
        crate::block_on(async {
            contract::refuses_when_dropped(&Memory, "memory-dropped").await;
            contract::echoes(&Memory, "memory-dropped").await;
        });
    }

    #[test]
    fn dial_error_reports_unknown_memory_name() {
        let error = crate::block_on(Memory.dial("memory-unknown")).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains("`memory:memory-unknown`"), "{error}");
    }
}
