//! TCP.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::Semaphore;

use super::{BoxFuture, Listener, Named, Network, Socket, Source, explain};
use crate::tcp::listen;

/// The most bytes that the kernel takes before it has sent them.
///
/// Bytes in the kernel cannot be overtaken: a heartbeat or an ack written now queues behind all of them. By
/// default, the kernel takes megabytes when the network is slow. This bounds only bytes *not sent*: the
/// network carries as much in flight as it can, so throughput does not suffer as long as the node writes
/// again while this much is being sent (1 ms at 1 Gbit/s).
#[cfg(any(target_os = "android", target_os = "linux"))]
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// TCP: addresses are `host:port`, with an IPv6 address in brackets: `[::1]:7500`.
///
/// Listening at `:port` listens on loopback, where only this machine reaches it. A wider range must be
/// requested, by an address of this machine or by `0.0.0.0:port` or `[::]:port`, which mean all of them. The
/// listener then also returns one of these two as its address, which no other machine can dial: advertise an
/// address of this machine. Port 0 selects a free one.
///
/// Small writes are sent at once (`TCP_NODELAY`). On Linux the kernel takes at most 128 KiB that it has not
/// sent (`TCP_NOTSENT_LOWAT`), so that urgent frames do not queue behind megabytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Tcp {
    pub(crate) const SCHEME: &'static str = "tcp";
}

impl Network for Tcp {
    fn scheme(&self) -> &'static str {
        Self::SCHEME
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let target = parse(address)?;
            let dialled = async {
                let stream = TcpStream::connect(target).await?;
                let peer = stream.peer_addr()?;
                socket(stream, peer)
            };
            dialled.await.map_err(|error| explain(&error, format_args!("cannot connect to `{address}`")))
        })
    }

    fn dial_elsewhere<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let target = parse(address)?;
            let found: Vec<SocketAddr> = in_turn(&LOOKUPS, lookup_host(target)).await?.collect();
            let elsewhere: Vec<SocketAddr> = found.iter().filter(|found| !is_here(found.ip())).copied().collect();
            if elsewhere.is_empty() && !found.is_empty() {
                return Err(super::is_here(address));
            }
            let dialled = async {
                let stream = TcpStream::connect(&elsewhere[..]).await?;
                let peer = stream.peer_addr()?;
                socket(stream, peer)
            };
            dialled.await.map_err(|error| explain(&error, format_args!("cannot connect to `{address}`")))
        })
    }

    fn is_local(&self, address: &str) -> bool {
        parse(address).is_ok_and(|(host, _)| host == "localhost" || host.parse().is_ok_and(is_here))
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let (host, port) = parse(address)?;
            let listener = listen((host, port)).await.map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => io::Error::new(
                    error.kind(),
                    format!(
                        "cannot listen on `{address}`: another program, or another node of this one, has port {port}; \
                         end that one, or choose another port (0 takes any free one)"
                    ),
                ),
                io::ErrorKind::AddrNotAvailable => explain(
                    &error,
                    format_args!("cannot listen on `{address}`, which is not an address of this machine"),
                ),
                io::ErrorKind::PermissionDenied => explain(
                    &error,
                    format_args!("cannot listen on `{address}`, ports below 1024 may need special rights"),
                ),
                _ => explain(&error, format_args!("cannot listen on `{address}`")),
            })?;
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }
}

impl Listener for TcpListener {
    fn accept<'a>(&'a mut self) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let (stream, peer) = Self::accept(self).await?;
            // A socket that ended while it waited can refuse its options. The listener itself is not
            // affected.
            socket(stream, peer).map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))
        })
    }

    fn address(&self) -> String {
        // A bound socket has an address.
        self.local_addr().map_or_else(|error| error.to_string(), |address| address.to_string())
    }
}

/// How many tasks at once look up names received from other nodes: a lookup may occupy a thread for seconds.
const LOOKUPS_MAX: usize = 4;
static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_MAX);

/// Looks up a name once it has its turn.
async fn in_turn<T>(turns: &Semaphore, lookup: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let _turn = turns.acquire().await.map_err(io::Error::other)?;
    lookup.await
}

/// An unspecified address is dialled on this host.
fn is_here(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback() || ip.is_unspecified()
}

/// Whether it is a TCP address.
pub(crate) fn is_tcp(address: &str) -> bool {
    let prefixed = address.split_once(':').filter(|(scheme, _)| *scheme == Tcp::SCHEME);
    parse(prefixed.map_or(address, |(_, rest)| rest)).is_ok()
}

/// Host and port of an address; no host is loopback.
fn parse(address: &str) -> io::Result<(&str, u16)> {
    let split = || {
        let address = address.strip_prefix("//").unwrap_or(address);
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|inside| inside.contains(':'))?,
            None if host.contains([':', '/']) => return None,
            None if host.is_empty() => "127.0.0.1",
            None => host,
        };
        Some((host, port))
    };
    split().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("invalid address `{address}`: write host:port, with an IPv6 address in brackets: [::1]:7500"),
        )
    })
}

fn socket(stream: TcpStream, peer: SocketAddr) -> io::Result<Box<dyn Socket>> {
    stream.set_nodelay(true)?;
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    // From one address of this host to the same one.
    let is_local = peer.ip().is_loopback() || stream.local_addr().is_ok_and(|here| here.ip() == peer.ip());
    let host = match peer.ip().to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    Ok(Box::new(Named {
        stream,
        peer: peer.to_string(),
        is_local,
        host: Some(host),
        identity: None,
        source: Source::of(peer.ip()),
    }))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::net::contract;

    #[test]
    fn names_are_looked_up_four_at_a_time() {
        let turns = Semaphore::const_new(LOOKUPS_MAX);
        let (begun, answers) = (Cell::new(0), Semaphore::const_new(0));
        let lookup = async || {
            begun.set(begun.get() + 1);
            answers.acquire().await.map_err(io::Error::other)?.forget();
            Ok(())
        };
        type Lookup<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>;
        let mut lookups: Vec<Lookup<'_>> = Vec::new();
        lookups.extend((0..10).map(|_| Box::pin(in_turn(&turns, lookup())) as Lookup<'_>));
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = |lookups: &mut Vec<Lookup<'_>>| lookups.retain_mut(|it| it.as_mut().poll(&mut cx).is_pending());
        poll(&mut lookups);
        assert_eq!((begun.get(), lookups.len()), (4, 10));
        // Each answered lookup lets another one begin.
        for answered in 1..=10 {
            answers.add_permits(1);
            poll(&mut lookups);
            poll(&mut lookups);
            assert_eq!((begun.get(), lookups.len()), ((4 + answered).min(10), 10 - answered));
        }
    }

    #[test]
    fn a_dialled_socket_is_accepted_and_carries_bytes_both_ways() {
        crate::block_on(async {
            for address in ["127.0.0.1:0", "localhost:0", ":0", "//127.0.0.1:0"] {
                contract::echoes(&Tcp, address).await;
            }
        });
    }

    #[test]
    fn ipv6_addresses_are_in_brackets() {
        crate::block_on(async {
            if TcpListener::bind("[::1]:0").await.is_err() {
                eprintln!("SKIPPED: this machine has no IPv6");
                return;
            }
            let address = contract::echoes(&Tcp, "[::1]:0").await;
            assert!(address.starts_with("[::1]:"), "{address}");
        });
    }

    #[test]
    fn listen_address_without_host_is_loopback() {
        let listener = crate::block_on(Tcp.listen(":0")).unwrap();
        assert!(listener.address().starts_with("127.0.0.1:"), "{}", listener.address());
        assert!(!listener.address().ends_with(":0"));
    }

    #[test]
    fn listen_error_reports_tcp_port_in_use() {
        crate::block_on(async {
            let error = contract::is_in_use(&Tcp, "127.0.0.1:0").await;
            let port = error.split('`').nth(1).unwrap();
            assert!(port.starts_with("127.0.0.1:") && error.contains("choose another port"), "{error}");
        });
    }

    #[test]
    fn an_address_of_another_machine_cannot_be_listened_on() {
        // 192.0.2.0/24 is for documentation.
        let error = crate::block_on(Tcp.listen("192.0.2.1:0")).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        assert!(error.to_string().contains("`192.0.2.1:0`, which is not an address of this machine"), "{error}");
    }

    #[test]
    fn a_dropped_listener_refuses() {
        crate::block_on(contract::refuses_when_dropped(&Tcp, "127.0.0.1:0"));
    }

    #[test]
    fn an_unknown_host_is_named() {
        // RFC 6761: this name has no address anywhere.
        let error = crate::block_on(Tcp.dial("krill.invalid:7500")).err().unwrap();
        assert!(error.to_string().contains("`krill.invalid:7500`"), "{error}");
    }

    #[test]
    fn dial_refuses_malformed_tcp_address() {
        for address in
            ["", "host", "host:", "host:70000", "::1:7500", "[::1]", "[host]:1", "quic:host:1", "/a:1", "[::1:1"]
        {
            let error = crate::block_on(Tcp.dial(address)).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{address}");
            assert!(error.to_string().contains("write host:port"), "{error}");
        }
        assert_eq!(parse("[fe80::1]:1").unwrap(), ("fe80::1", 1));
    }

    /// The kernel's figures vary; the test checks that the bound is one of them.
    #[cfg(target_os = "linux")]
    #[test]
    fn kernel_buffers_few_bytes_that_it_cannot_send() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        async fn accepted_unread(bounded: bool) -> usize {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let here = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut there, peer) = listener.accept().await.unwrap();
            let mut here = if bounded {
                socket(here, peer).unwrap()
            } else {
                Box::new(Named {
                    stream: here,
                    peer: String::new(),
                    is_local: true,
                    host: None,
                    identity: None,
                    source: Source::Unknown,
                }) as Box<dyn Socket>
            };
            let (chunk, mut count) = ([7; 16 * 1024], 0);
            loop {
                let mut write = std::pin::pin!(here.write(&chunk));
                match std::future::poll_fn(|cx| std::task::Poll::Ready(write.as_mut().poll(cx))).await {
                    std::task::Poll::Ready(written) => count += written.unwrap(),
                    std::task::Poll::Pending => break,
                }
            }
            // After the read, writing continues: the wake-up was not lost.
            let drain = tokio::spawn(async move {
                let mut all = Vec::new();
                there.read_to_end(&mut all).await.unwrap();
                all.len()
            });
            here.write_all(&vec![7; 8 << 20]).await.unwrap();
            drop(here);
            assert_eq!(drain.await.unwrap(), count + (8 << 20));
            count
        }
        crate::block_on(async {
            let (bounded, unbounded) = (accepted_unread(true).await, accepted_unread(false).await);
            eprintln!("accepted, unread: {bounded} bytes with the bound, {unbounded} without");
            assert!(bounded < unbounded, "{bounded} {unbounded}");
        });
    }
}
