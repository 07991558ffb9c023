//! The networks that connections use: a [`Network`] dials and listens, and returns [`Socket`]s.
//!
//! The prefix of an address names its network. [`Networks`] holds the kinds that a node knows:
//!
//! | address | network |
//! |---|---|
//! | `host:port`, `10.0.0.7:7500`, `[::1]:7500`, or with the prefix `tcp:` or `tcp://` | [`Tcp`] |
//! | `unix:/run/dunlin/a.sock` | [`Unix`], where the system has them |
//! | `memory:name` | [`Memory`]: inside one program |

pub mod contract;
mod memory;
mod tcp;
#[cfg(unix)]
mod unix;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use tokio::io::{AsyncRead, AsyncWrite};

pub use dunlin_proto::Source;
pub use dunlin_proto::source::RelaySource;
pub use memory::Memory;
pub use tcp::Tcp;
pub(crate) use tcp::is_tcp;
#[cfg(unix)]
pub use unix::Unix;

/// A future whose type is not named.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A future whose code is compiled with this crate, if the function that calls this is not generic. The code
/// of an `async fn` is compiled with the crate that polls it, together with everything it calls: all of the
/// node in every user's program.
pub(crate) fn compiled_here<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}

/// A kind of network.
///
/// Addresses are passed and returned without the prefix: [`Networks`] removes and adds it.
pub trait Network: Send + Sync + 'static {
    /// The prefix of this network's addresses, without the colon.
    fn scheme(&self) -> &'static str;

    /// Opens a socket to the listener at `address`.
    ///
    /// # Errors
    /// Those of the system; their text names the address. [`io::ErrorKind::InvalidInput`] if it is not an
    /// address of this network.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing behind, but the listener may have accepted a socket that ends at once.
    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>>;

    /// As [`dial`](Self::dial), but refuses to dial this host: for an address that this node has received
    /// over a network. Default: dials addresses that are not [local](Self::is_local). A network where a name
    /// can stand for this host must check the addresses behind the name.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if it is on this host; else those of [`dial`](Self::dial).
    ///
    /// # Cancel safety
    /// As [`dial`](Self::dial).
    fn dial_elsewhere<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        if self.is_local(address) {
            return Box::pin(async move { Err(is_here(address)) });
        }
        self.dial(address)
    }

    /// Whether `address` is on this host, or in this program, whatever host it is used on. This host itself
    /// reports a refusal there: two in succession show that the node that listened there has ended. Elsewhere
    /// some time must lie between them ([`refused`](crate::node::NodeBuilder::refused)). Default: no.
    fn is_local(&self, address: &str) -> bool {
        let _ = address;
        false
    }

    /// Listens at `address`, until the listener is dropped.
    ///
    /// # Errors
    /// Those of the system; their text names the address and the remedy. [`io::ErrorKind::AddrInUse`] if
    /// another listener is there; [`io::ErrorKind::InvalidInput`] if it is not an address of this network.
    ///
    /// # Cancel safety
    /// Dropped, it does not listen.
    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>>;
}

/// Accepts sockets at one address. Dropped, it refuses them.
pub trait Listener: Send {
    /// Waits for the next socket.
    ///
    /// # Errors
    /// Those of the system. [`is_transient`] tells after which of them to call this again.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it has accepted nothing.
    fn accept<'a>(&'a mut self) -> BoxFuture<'a, io::Result<Box<dyn Socket>>>;

    /// The address that other nodes dial: with the chosen port, if a free one was requested.
    fn address(&self) -> String;
}

/// A stream of bytes in both directions.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {
    /// The address of the other end, for display. It cannot be dialled.
    fn peer(&self) -> String;

    /// Whether the other end is on this host, or in this program. Default: no.
    fn is_local(&self) -> bool {
        false
    }

    /// The host at the other end, as written in an address: a node that this one asks to dial back for the
    /// other end dials there. Default: unknown, as in a network without hosts.
    fn host(&self) -> Option<String> {
        None
    }

    /// What the network itself has verified about the other end, for the node's
    /// [`authorize`](crate::node::NodeBuilder::authorize). Default: nothing.
    fn identity(&self) -> Option<PeerIdentity> {
        None
    }

    /// The source that a node counts the socket for, when one of its tables is full: see [`Source`]. Default:
    /// unknown, and all such sockets are one source.
    fn source(&self) -> Source {
        Source::Unknown
    }
}

/// What a network has verified of the other end of a socket, by its own means: not a claim by that end
/// itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerIdentity {
    /// A process of this host, as reported by the kernel (`SO_PEERCRED`): of a unix socket.
    Process {
        /// The effective user of the process.
        uid: u32,
        /// Its effective group.
        gid: u32,
        /// Its number. `None`: the system does not report it.
        pid: Option<i32>,
    },
    /// A name that the other end has proved, such as the subject of its certificate: in a network with keys
    /// of its own, such as one over TLS.
    Name(String),
}

/// Whether a socket's source is in this network. The source of an IPv6 host is its first 64 bits: a trusted
/// host stands for all hosts that share them.
pub(crate) fn is_in(source: Source, network: &IpNet) -> bool {
    match source {
        Source::V4(address) => network.contains(&IpAddr::from(address)),
        Source::V6(first) => {
            let mut address = [0; 16];
            address[..8].copy_from_slice(&first);
            let source = Ipv6Net::new(address.into(), 64).expect("64 is at most 128");
            matches!(network, IpNet::V6(network) if network.contains(&source) || source.contains(network))
        }
        _ => false,
    }
}

/// Whether a listener is still usable after `accept` failed with this error.
///
/// Some of these errors concern only the socket that was to be accepted: it ended too early, or a firewall
/// dropped it. Others mean that the system has run out of something (open files, memory) until it is
/// released. So wait some ten milliseconds before the next `accept`: the socket still waits, and a loop
/// without a pause would spin. After any other error the listener is of no more use.
///
/// # Examples
/// ```
/// use dunlin::net::is_transient;
/// use std::io;
///
/// assert!(is_transient(&io::ErrorKind::ConnectionAborted.into()));
/// assert!(!is_transient(&io::ErrorKind::InvalidInput.into()));
/// # #[cfg(target_os = "linux")]
/// assert!(is_transient(&io::Error::from_raw_os_error(24))); // EMFILE: too many open files
/// ```
pub fn is_transient(error: &io::Error) -> bool {
    // Linux's accept also reports network errors of the new socket: the codes of accept(2), "Error handling".
    #[cfg(unix)]
    const CODES: &[i32] = &[
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOBUFS,
        libc::ENOMEM,
        libc::EPERM,
        libc::EPROTO,
        libc::ENOPROTOOPT,
        libc::EOPNOTSUPP,
        libc::ENETDOWN,
        libc::ENETUNREACH,
        libc::EHOSTDOWN,
        libc::EHOSTUNREACH,
        #[cfg(target_os = "linux")]
        libc::ENONET,
    ];
    /// WSAEMFILE, WSAENOBUFS.
    #[cfg(not(unix))]
    const CODES: &[i32] = &[10024, 10055];

    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::TimedOut
            | io::ErrorKind::WouldBlock
    ) || error.raw_os_error().is_some_and(|code| CODES.contains(&code))
}

/// The kinds of networks that a node knows, distinguished by the prefix of an address.
///
/// An address without one of their prefixes belongs to TCP.
///
/// # Examples
/// ```
/// use dunlin::net::Networks;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # dunlin::block_on(async {
/// let networks = Networks::default();
/// let mut listener = networks.listen("memory:krill").await?;
/// assert_eq!(listener.address(), "memory:krill");
///
/// let mut here = networks.dial("memory:krill").await?;
/// let mut there = listener.accept().await?;
/// here.write_all(b"hello").await?;
/// let mut heard = [0; 5];
/// there.read_exact(&mut heard).await?;
/// assert_eq!(&heard, b"hello");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct Networks {
    known: Vec<Arc<dyn Network>>,
}

impl Networks {
    /// Adds a kind of network, replacing one with the same prefix.
    #[must_use]
    pub fn with(mut self, network: impl Network) -> Self {
        self.known.retain(|known| known.scheme() != network.scheme());
        self.known.push(Arc::new(network));
        self
    }

    /// Only this network, as in a simulation: for all addresses, if its prefix is TCP's.
    #[cfg(feature = "sim")]
    pub(crate) fn only(network: impl Network) -> Self {
        Self { known: vec![Arc::new(network)] }
    }

    /// Opens a socket to the listener at `address`: see [`Network::dial`].
    ///
    /// # Errors
    /// See there.
    pub fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let (network, rest) = self.pick(address)?;
            network.dial(rest).await
        })
    }

    /// As [`dial`](Self::dial), but refuses to dial this host: see [`Network::dial_elsewhere`].
    ///
    /// # Errors
    /// See there.
    pub fn dial_elsewhere<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let (network, rest) = self.pick(address)?;
            network.dial_elsewhere(rest).await
        })
    }

    /// Whether the address is on this host: see [`Network::is_local`]. An address of an unknown network is
    /// not.
    pub fn is_local(&self, address: &str) -> bool {
        self.pick(address).is_ok_and(|(network, rest)| network.is_local(rest))
    }

    /// Listens at `address`: see [`Network::listen`]. The listener's address has the prefix.
    ///
    /// # Errors
    /// See there.
    pub fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let (network, rest) = self.pick(address)?;
            let listener = network.listen(rest).await?;
            // Only TCP's addresses have no prefix.
            let scheme = network.scheme();
            Ok(if scheme == Tcp::SCHEME {
                listener
            } else {
                Box::new(Prefixed { scheme, listener }) as Box<dyn Listener>
            })
        })
    }

    /// The network of an address, and the address without the prefix.
    fn pick<'a>(&self, address: &'a str) -> io::Result<(&dyn Network, &'a str)> {
        let find = |scheme| self.known.iter().find(|known| known.scheme() == scheme);
        if let Some((scheme, rest)) = address.split_once(':')
            && let Some(network) = find(scheme)
        {
            return Ok((&**network, rest));
        }
        // `default` includes it, and `with` only replaces.
        find(Tcp::SCHEME).map(|network| (&**network, address)).ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, format!("no network is known for the address `{address}`"))
        })
    }
}

/// All kinds that this crate has and the system supports.
impl Default for Networks {
    fn default() -> Self {
        let networks = Self { known: Vec::new() }.with(Tcp).with(Memory);
        #[cfg(unix)]
        let networks = networks.with(Unix);
        networks
    }
}

impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.iter().map(|network| network.scheme())).finish()
    }
}

/// A listener whose address has its network's prefix.
struct Prefixed {
    scheme: &'static str,
    listener: Box<dyn Listener>,
}

impl Listener for Prefixed {
    fn accept<'a>(&'a mut self) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        self.listener.accept()
    }

    fn address(&self) -> String {
        format!("{}:{}", self.scheme, self.listener.address())
    }
}

/// A tokio socket, with the address of its other end.
struct Named<S> {
    stream: S,
    peer: String,
    is_local: bool,
    host: Option<String>,
    identity: Option<PeerIdentity>,
    source: Source,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for Named<S> {
    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn is_local(&self) -> bool {
        self.is_local
    }

    fn host(&self) -> Option<String> {
        self.host.clone()
    }

    fn identity(&self) -> Option<PeerIdentity> {
        self.identity.clone()
    }

    fn source(&self) -> Source {
        self.source
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Named<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

/// Forwards all methods: vectored writes above all, which save the node a copy.
impl<S: AsyncWrite + Unpin> AsyncWrite for Named<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> std::task::Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// An address received over a network must not lead to the host that dials it.
fn is_here(address: &str) -> io::Error {
    let what = format!(
        "`{address}` leads to the dialling host itself, and was received over a network. If the node that listens \
         there is on another host, set listen = \"default-route\" there; if it is on this host, set dial_local = true \
         here"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

/// The error, with the operation that failed; its kind stays.
fn explain(error: &io::Error, tried: impl fmt::Display) -> io::Error {
    io::Error::new(error.kind(), format!("{tried}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_picks_its_network_by_prefix() {
        let networks = Networks::default();
        for (address, scheme, rest) in [
            ("localhost:7500", "tcp", "localhost:7500"),
            ("tcp:memory:7500", "tcp", "memory:7500"),
            ("[::1]:7500", "tcp", "[::1]:7500"),
            ("memory:a:b", "memory", "a:b"),
            #[cfg(unix)]
            ("unix:/a:b", "unix", "/a:b"),
            ("quic:host:1", "tcp", "quic:host:1"),
            ("", "tcp", ""),
        ] {
            let (network, found) = networks.pick(address).unwrap();
            assert_eq!((network.scheme(), found), (scheme, rest), "{address}");
        }
    }

    #[test]
    fn loopback_unix_sockets_and_memory_are_local() {
        let networks = Networks::default();
        for (address, is_local) in [
            ("127.0.0.1:7500", true),
            ("tcp://127.1.2.3:7500", true),
            ("localhost:7500", true),
            ("[::1]:7500", true),
            (":7500", true),
            ("0.0.0.0:7500", true),
            ("memory:a", true),
            #[cfg(unix)]
            ("unix:/a", true),
            ("192.0.2.1:7500", false),
            ("[2001:db8::1]:7500", false),
            ("localhost.example:7500", false),
            ("nothing", false),
        ] {
            assert_eq!(networks.is_local(address), is_local, "{address}");
        }
    }

    #[test]
    fn dial_elsewhere_refuses_addresses_of_this_host() {
        let networks = Networks::default();
        for address in [
            "127.0.0.1:7500",
            // Looked up, as any name is.
            "localhost:7500",
            "[::ffff:127.0.0.1]:7500",
            "0.0.0.0:7500",
            "memory:krill",
            #[cfg(unix)]
            "unix:/krill",
        ] {
            let error = crate::block_on(networks.dial_elsewhere(address)).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{address}: {error}");
            let error = error.to_string();
            let (elsewhere, here) =
                (error.find("listen = \"default-route\""), error.find("set dial_local = true here"));
            assert!(elsewhere.is_some() && elsewhere < here, "{error}");
        }
    }

    #[test]
    fn a_source_is_in_the_networks_that_have_its_address() {
        let v4 = Source::V4([10, 1, 2, 3]);
        // The source of an IPv6 host is its /64.
        let v6 = Source::V6([0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 2]);
        for (source, network, is_inside) in [
            (v4, "10.1.2.3/32", true),
            (v4, "10.1.2.4/32", false),
            (v4, "10.0.0.0/8", true),
            (v4, "0.0.0.0/0", true),
            (v4, "::/0", false),
            (v6, "2001:db8:1:2::/64", true),
            (v6, "2001:db8:1:3::/64", false),
            (v6, "2001:db8::/32", true),
            (v6, "2001:db9::/32", false),
            (v6, "::/0", true),
            (v6, "0.0.0.0/0", false),
            // One address of the /64 stands for all of it.
            (v6, "2001:db8:1:2::7/128", true),
            (v6, "2001:db8:1:2:8000::/65", true),
            (v6, "2001:db8:1:3::7/128", false),
            (Source::User(0), "0.0.0.0/0", false),
            (Source::User(0), "::/0", false),
            (Source::Unknown, "::/0", false),
        ] {
            assert_eq!(is_in(source, &network.parse().unwrap()), is_inside, "{source:?} in {network}");
        }
    }

    #[test]
    fn a_network_replaces_the_one_with_its_prefix() {
        struct Other;
        impl Network for Other {
            fn scheme(&self) -> &'static str {
                "memory"
            }
            fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
                Box::pin(async move { Err(io::Error::other(format!("other {address}"))) })
            }
            fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
                Memory.listen(address)
            }
        }
        let networks = Networks::default().with(Other);
        assert_eq!(format!("{networks:?}").matches("memory").count(), 1);
        let error = crate::block_on(networks.dial("memory:x")).err().unwrap();
        assert_eq!(error.to_string(), "other x");
    }
}
