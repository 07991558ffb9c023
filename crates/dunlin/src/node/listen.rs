//! Where a node listens without a configured address and port: the first free port from 7500, on loopback or
//! at the address of the default route.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;

use super::error::NodeError;
use crate::config::{Setting, default_route};
use crate::net::{Listener, Networks};
use crate::world;

/// The default ports of name services, on loopback: each application takes the first that no other has.
pub const NAMES_PORTS: Range<u16> = 7400..7416;

/// The ports of nodes without a configured one: each takes the first that is free.
pub const LISTEN_PORTS: Range<u16> = 7500..8500;

pub(super) type BoxListener = Box<dyn Listener>;

/// Listens at these addresses; if there are none, at the first free port of loopback.
pub(super) async fn listen(networks: &Networks, said: &Setting<Vec<String>>) -> Result<Vec<BoxListener>, NodeError> {
    let failed =
        |address: &str, error| NodeError::Listen { address: address.to_owned(), origin: said.origin.clone(), error };
    let mut listeners = Vec::new();
    if said.value.is_empty() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        listeners.push(first_free(networks, loopback).await.map_err(|error| failed("127.0.0.1", error))?);
    }
    for address in &said.value {
        let listener = match default_route(address) {
            // Simulated hosts have one address each.
            Some(port) if !world::is_simulated() => match (default_address(), port) {
                (Ok(host), Some(port)) => networks.listen(&SocketAddr::new(host, port).to_string()).await,
                (Ok(host), None) => first_free(networks, host).await,
                (Err(error), _) => Err(error),
            },
            _ => networks.listen(address).await,
        };
        listeners.push(listener.map_err(|error| failed(address, error))?);
    }
    Ok(listeners)
}

/// The address of the name service, if it is set to that of the default route: with the first port of name
/// services, unless a port is set.
pub(super) fn names(said: Option<String>) -> io::Result<Option<String>> {
    match said.as_deref().and_then(default_route) {
        Some(port) if !world::is_simulated() => {
            let port = port.unwrap_or(NAMES_PORTS.start);
            Ok(Some(SocketAddr::new(default_address()?, port).to_string()))
        }
        _ => Ok(said),
    }
}

async fn first_free(networks: &Networks, host: IpAddr) -> io::Result<BoxListener> {
    // In a simulation every node has ports of its own, and finding a free one costs nothing.
    if world::is_simulated() {
        return networks.listen(&SocketAddr::new(host, 0).to_string()).await;
    }
    for port in LISTEN_PORTS {
        match networks.listen(&SocketAddr::new(host, port).to_string()).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            listening => return listening,
        }
    }
    let (first, last) = (LISTEN_PORTS.start, LISTEN_PORTS.end - 1);
    let what = format!(
        "cannot listen on {host}: the ports {first} to {last} are all taken; give an address with a port, or port 0 \
         for any free port"
    );
    Err(io::Error::new(io::ErrorKind::AddrInUse, what))
}

/// The address of this machine that the default route begins at: IPv4's if there is one, otherwise IPv6's.
fn default_address() -> io::Result<IpAddr> {
    // Addresses for documentation. Connecting a UDP socket sends nothing: the system only picks the route.
    let far = [
        (IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::new(192, 0, 2, 1))),
        (IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))),
    ];
    let mut failed = None;
    for (any, far) in far {
        let picked = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect((far, 9))?;
            socket.local_addr()
        });
        match picked {
            Ok(address) => return Ok(address.ip()),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let error = failed.expect("two were tried");
    let what =
        format!("this machine has no default route ({error}); give one of its addresses instead of `default-route`");
    Err(io::Error::new(error.kind(), what))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::config::Origin;
    use crate::net::{BoxFuture, Listener, Memory, Network, Socket};

    /// A machine with this many ports taken, from the first on.
    struct Machine {
        taken: usize,
        asked: AtomicUsize,
    }

    impl Network for Machine {
        fn scheme(&self) -> &'static str {
            "tcp"
        }

        fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
            Memory.dial(address)
        }

        fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
            Box::pin(async move {
                if self.asked.fetch_add(1, Ordering::Relaxed) < self.taken {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                Memory.listen(address).await
            })
        }
    }

    fn listening(taken: usize) -> Result<String, String> {
        let networks = Networks::default().with(Machine { taken, asked: AtomicUsize::new(0) });
        let said = Setting { value: Vec::new(), origin: Origin::Default };
        let listeners = crate::block_on(listen(&networks, &said)).map_err(|error| error.to_string())?;
        Ok(listeners[0].address())
    }

    #[test]
    fn the_first_free_port_from_7500_is_taken() {
        assert_eq!(listening(0).unwrap(), "127.0.0.1:7500");
        assert_eq!(listening(3).unwrap(), "127.0.0.1:7503");
        assert_eq!(listening(999).unwrap(), "127.0.0.1:8499");
    }

    #[test]
    fn listen_error_reports_all_default_ports_taken() {
        let told = "cannot listen on 127.0.0.1: the ports 7500 to 8499 are all taken; give an address with a port, or \
                    port 0 for any free port";
        assert_eq!(listening(1000).unwrap_err(), told);
    }
}
