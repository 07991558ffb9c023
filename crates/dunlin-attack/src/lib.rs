//! Attacks on nodes from plain sockets.
//!
//! Each file in `tests/` is one kind of attack. Beside each attack stands its *honest twin*: the same shape
//! of load from a peer that keeps to the protocol, which has to pass. A node under attack is one of dunlin's,
//! with its defaults, on TCP; the attackers are [`Peer`]s, which write the protocol by hand and may send any
//! bytes. `SECURITY.md` lists what is defended.

mod key;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, ConnectionId, Incarnation, Life, NodeId, Ticket};
use dunlin_proto::identity::{Identity, confirm, prove, proven_by, sign_hello};
use dunlin_proto::wire::handshake::{Answer, Bound, Hello, Proof, Resume, Welcome};
use dunlin_proto::wire::{
    Declaration, Expected, Face, Frame, FromHome, Head, Memory, Names, Relay, Status, ToHome, VERSIONS, codec,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub use key::{Key, life};

/// Runs a test on two workers, for at most four minutes. The limit of open files is raised as far as the
/// process may raise it.
///
/// # Panics
/// The test hangs.
pub fn run(test: impl Future<Output = ()>) {
    allow_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("the system gives threads");
    // On a quiet machine no test takes longer than 40 s.
    let limit = Duration::from_secs(240);
    runtime.block_on(async { tokio::time::timeout(limit, test).await.expect("the test hangs") });
}

/// Like [`run`], with no other such test of this process beside it, because the test measures the whole
/// process. The four minutes do not include the wait for the others.
///
/// # Panics
/// The test hangs.
pub fn run_alone(test: impl Future<Output = ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(test);
}

/// Declares that this test opens this many files, or needs a node that may. On most systems a process begins
/// with 1,024, and may raise that itself up to a hard limit.
///
/// # Panics
/// The hard limit is lower.
pub fn needs_files(count: u64) {
    let allowed = allow_files();
    assert!(
        allowed.is_none_or(|allowed| allowed >= count),
        "this test needs {count} open files, and the hard limit is {allowed:?}: raise it (`ulimit -Hn`, `LimitNOFILE` of \
         systemd, `--ulimit nofile` of docker)"
    );
}

/// Raises the limit of open files as far as this process may, and returns it. `None`: there is no limit.
#[cfg(unix)]
fn allow_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Some systems refuse more than their own maximum, though no hard limit shows it: then the limit stays.
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    if is_raised { maximum } else { current }
}

#[cfg(not(unix))]
fn allow_files() -> Option<u64> {
    None
}

/// A plain socket from an address of this host's loopback network to a node.
///
/// # Errors
/// Those of the system.
pub async fn dial(from: [u8; 4], to: &str) -> io::Result<TcpStream> {
    let to: SocketAddr = to.parse().map_err(io::Error::other)?;
    let socket = TcpSocket::new_v4()?;
    // Without this, each write after a small first one would wait for its acknowledgement.
    socket.set_nodelay(true)?;
    socket.bind(SocketAddr::new(IpAddr::from(from), 0))?;
    socket.connect(to).await
}

/// Encodes these frames.
pub fn bytes_of(frames: &[Frame]) -> BytesMut {
    let mut out = BytesMut::new();
    for frame in frames {
        if let Some(tail) = codec::encode(frame, &mut out) {
            out.extend_from_slice(&tail);
        }
    }
    out
}

/// One face of a name, of a peer that does not describe its messages.
pub fn face(face: Face) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

/// Declares this face of a name, whose channel has this number at the peer.
pub fn declare(number: u64, name: &str, channel: ChannelId, face: &Declaration) -> Frame {
    let (name, face) = (name.to_owned(), face.clone());
    Frame::Names(Names::Declare { number, name, channel, face, status: Status::New })
}

/// Offers a value, in pieces of 16 KiB.
///
/// # Panics
/// The value is empty; no message is.
pub fn offer(channel: ChannelId, ticket: Ticket, value: &Bytes) -> Vec<Frame> {
    const PIECE: usize = 16 << 10;
    let mut pieces = (0..value.len()).step_by(PIECE).map(|at| value.slice(at..value.len().min(at + PIECE)));
    let (head, total) = (Head::Offer(ticket), value.len() as u64);
    let first = pieces.next().expect("every message has a byte");
    let mut frames = vec![Frame::ToHome(channel, ToHome::Value { head, total, first })];
    frames.extend(pieces.map(|piece| Frame::More(channel, piece)));
    frames
}

/// A message that is a sender: its channel, the lives given as its home and its sponsor, and the numbers of
/// its message and of its moves.
pub fn sender_on_its_way(channel: ChannelId, [home, sponsor]: [Life; 2], trip: u64, transfer: u64) -> Bytes {
    const SENDER_ON: u8 = 0x10;
    const ENCODING: u8 = 1;
    const EPOCH: u64 = 1;
    let mut out = BytesMut::new();
    out.put_slice(&[1, SENDER_ON]);
    out.put_u128(channel.0);
    out.put_u8(ENCODING);
    [trip, transfer, EPOCH].into_iter().for_each(|number| out.put_u64(number));
    for node in [home, sponsor] {
        out.put_u128(node.node.0);
        out.put_u8(1);
        out.put_slice(b"\x0b127.0.0.9:9");
    }
    let first_of_the_ends = 0;
    out.put_u8(first_of_the_ends);
    out.freeze()
}

/// The hello of a peer whose life is made by [`life`]: addressed to the node `wanted`, or to any node if that
/// is zero.
pub fn hello(application: &str, me: Life, wanted: Life) -> Hello {
    Hello {
        versions: VERSIONS,
        application: application.to_owned(),
        me,
        wanted: wanted.node,
        met: wanted.incarnation,
        attempt: u64::from(wanted.node != NodeId(0)),
        resume: Resume { connection: ConnectionId(0), run: 0, seen: 0 },
        addresses: Vec::new(),
        bound: Bound::default(),
        key: Key::of(me.node).key(),
        nonce: 1,
        signature: Bytes::new(),
    }
}

/// Bytes of memory that this process has in use, and their peak since [`forget_peak`].
///
/// # Panics
/// The system does not report it.
#[cfg(target_os = "linux")]
pub fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system reports it");
    let kilobytes = |key: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix("kB")?.trim().parse().ok())
    };
    let bytes = |key| kilobytes(key).expect("the system reports it") << 10;
    (bytes("VmRSS:"), bytes("VmHWM:"))
}

/// Resets the peak of [`resident`] to what is in use now.
///
/// # Panics
/// The system does not allow it.
#[cfg(target_os = "linux")]
pub fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("a process may do that to itself");
}

/// Addresses any node.
pub const ANY: Life = Life { node: NodeId(0), incarnation: Incarnation(0) };

/// A peer that speaks the protocol by hand.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    arrived: BytesMut,
    /// What both sides sent in the handshake.
    handshake: Option<(Hello, Answer)>,
}

impl Peer {
    /// Dials, and sends and reads nothing.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn dial(from: [u8; 4], to: &str) -> io::Result<Self> {
        Ok(Self { stream: dial(from, to).await?, arrived: BytesMut::new(), handshake: None })
    }

    /// Identifies the node at an address. When this returns, the node has forgotten the socket.
    ///
    /// # Errors
    /// Those of the system; the node closed the socket, or refuses.
    pub async fn who_is(from: [u8; 4], to: &str, application: &str, me: Life) -> io::Result<Life> {
        let mut peer = Self::dial(from, to).await?;
        let there = peer.greet(&hello(application, me, ANY)).await?.me;
        peer.close().await;
        Ok(there)
    }

    /// Shuts the socket down for writing, and waits until the node has closed it, which the node does once it
    /// has forgotten the socket.
    async fn close(mut self) {
        // If that fails, the socket is closed already.
        let _ = self.stream.shutdown().await;
        while self.read().await.is_ok() {}
    }

    /// Waits for a node that dials this peer, whose life is made by [`life`], and welcomes it. Meanwhile it
    /// answers sockets that only request its identity.
    ///
    /// # Errors
    /// Those of the system; the socket that arrives is not a node's.
    pub async fn accept(at: &TcpListener, me: Life) -> io::Result<Self> {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
        loop {
            let (stream, _) = at.accept().await?;
            stream.set_nodelay(true)?;
            let mut peer = Self { stream, arrived: BytesMut::new(), handshake: None };
            let hello = loop {
                match Hello::decode(&mut peer.arrived).map_err(io::Error::other)? {
                    Some(hello) => break hello,
                    None => peer.read().await?,
                }
            };
            let connection = ConnectionId(CONNECTIONS.fetch_add(1, Ordering::Relaxed).into());
            let welcome = Answer::Welcome(Welcome {
                version: VERSIONS.1,
                me,
                resume: Resume { connection, run: 1, seen: 0 },
                addresses: Vec::new(),
                bound: Bound::default(),
                nonce: 1,
                proof: Proof::default(),
            });
            let answer = prove(&Key::of(me.node), &hello.encode(), welcome);
            peer.stream.write_all(&answer.encode()).await?;
            if hello.wanted == me.node {
                peer.handshake = Some((hello, answer));
                return Ok(peer);
            }
        }
    }

    /// Asks which node is at an address, dials it again, and shakes hands.
    ///
    /// # Errors
    /// Those of the system; the node closed the socket, or refuses.
    pub async fn meet(from: [u8; 4], to: &str, application: &str, me: Life) -> io::Result<Self> {
        static ATTEMPTS: AtomicU64 = AtomicU64::new(1);
        let there = Self::who_is(from, to, application, me).await?;
        // Each attempt has a later number, also for a peer that returns.
        let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        Self::join(from, to, &Hello { attempt, ..hello(application, me, there) }, Duration::ZERO).await
    }

    /// Dials the node that is known to be there, and shakes hands. Delays its messages as a link with a
    /// round-trip time of `link` would.
    ///
    /// # Errors
    /// Those of the system; the node closed the socket, or refuses.
    pub async fn join(from: [u8; 4], to: &str, hello: &Hello, link: Duration) -> io::Result<Self> {
        let mut peer = Self::dial(from, to).await?;
        tokio::time::sleep(link / 2).await;
        peer.greet(hello).await?;
        tokio::time::sleep(link).await;
        peer.confirm(&Key::of(hello.me.node)).await?;
        Ok(peer)
    }

    /// The life of the side that dialled: this peer, or the node that it has accepted.
    ///
    /// # Panics
    /// There has been no handshake.
    pub fn me(&self) -> Life {
        self.handshake.as_ref().expect("there has been a handshake").0.me
    }

    /// Sends the first frame behind `Welcome`, signed with this key.
    ///
    /// # Errors
    /// Those of the system; there is no `Welcome`.
    pub async fn confirm(&mut self, key: &Key) -> io::Result<()> {
        let (hello, answer) = self.handshake.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let first = confirm(key, &hello.encode(), answer);
        self.say(&[first]).await
    }

    /// Sends `Hello`, signed by the node that it names, and receives `Welcome`, which has to prove the node's
    /// id.
    ///
    /// # Errors
    /// Those of the system; the node closed the socket, or refuses, or proves nothing.
    pub async fn greet(&mut self, hello: &Hello) -> io::Result<Welcome> {
        self.greet_as(hello, &Key::of(hello.me.node)).await
    }

    /// Like [`greet`](Self::greet), signed with this key: the peer may not have the key of the node whose
    /// name it uses.
    ///
    /// # Errors
    /// Those of [`greet`](Self::greet).
    pub async fn greet_as(&mut self, hello: &Hello, key: &Key) -> io::Result<Welcome> {
        let hello = sign_hello(key, hello.clone());
        self.stream.write_all(&hello.encode()).await?;
        loop {
            match Answer::decode(&mut self.arrived).map_err(io::Error::other)? {
                Some(answer @ Answer::Welcome(_)) => {
                    let by = proven_by(key, &hello.encode(), &answer);
                    let Answer::Welcome(welcome) = answer.clone() else { continue };
                    if by != Some(welcome.me.node) {
                        return Err(io::Error::other("the welcome is not proved"));
                    }
                    self.handshake = Some((hello, answer));
                    return Ok(welcome);
                }
                Some(Answer::Refused(why) | Answer::Over(why, _)) => return Err(io::Error::other(why)),
                None => self.read().await?,
            }
        }
    }

    /// Writes frames.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn say(&mut self, frames: &[Frame]) -> io::Result<()> {
        self.stream.write_all(&bytes_of(frames)).await
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// Those of the system.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends a frame of a channel that does not exist, and waits for the node's first frame behind the
    /// handshake. The node sends that only on a socket that it has adopted, so it has received the peer's
    /// handshake. The frame is still to be [read](Self::hear).
    ///
    /// # Errors
    /// Those of the system; the node closed the socket.
    pub async fn is_taken_up(&mut self) -> io::Result<()> {
        self.say(&[Frame::ToHome(ChannelId(0), ToHome::Drain)]).await?;
        while self.arrived.is_empty() {
            self.read().await?;
        }
        Ok(())
    }

    /// The next frame.
    ///
    /// # Errors
    /// Those of the system; the node closed the socket.
    pub async fn hear(&mut self) -> io::Result<Frame> {
        loop {
            if let codec::Next::Frame { head, body } = codec::next(&self.arrived).map_err(io::Error::other)? {
                let mut frame = self.arrived.split_to(head + body).freeze();
                return codec::decode(frame[0], frame.split_off(head)).map_err(io::Error::other);
            }
            self.read().await?;
        }
    }

    /// The next frame of a conversation: no heartbeat, no acknowledgement, no credit of the connection, no
    /// request for help with other nodes, nor what the node has relayed to them (the node may look for an
    /// earlier peer that has left or is silent).
    ///
    /// # Errors
    /// Those of [`hear`](Self::hear).
    pub async fn hear_word(&mut self) -> io::Result<Frame> {
        loop {
            match self.hear().await? {
                Frame::Heartbeat | Frame::Ack { .. } => {}
                Frame::Memory(Memory::Credit(_)) => {}
                Frame::Relay(Relay::AskDial { .. } | Relay::To { .. }) => {}
                Frame::Relay(Relay::Bytes { .. } | Relay::End { .. }) => {}
                frame => return Ok(frame),
            }
        }
    }

    /// Like [`hear_word`](Self::hear_word), without a time limit: meanwhile the peer sends heartbeats.
    ///
    /// # Errors
    /// Those of [`hear`](Self::hear).
    pub async fn hear_at_last(&mut self) -> io::Result<Frame> {
        loop {
            match tokio::time::timeout(Duration::from_millis(100), self.hear_word()).await {
                Ok(frame) => return frame,
                Err(_) => self.say(&[Frame::Heartbeat]).await?,
            }
        }
    }

    /// Declares a sender, and attaches it to the receiver of that name, which is at this node.
    ///
    /// # Errors
    /// Those of [`hear`](Self::hear); the node answers otherwise.
    pub async fn attach(&mut self, number: u64, name: &str) -> io::Result<ChannelId> {
        let face = face(Face::Sender);
        self.say(&[declare(number, name, ChannelId(number.into()), &face)]).await?;
        let channel = match self.hear_at_last().await? {
            Frame::Names(Names::Found { channel, .. }) => channel,
            other => return Err(io::Error::other(format!("{name} is not found: {other:?}"))),
        };
        self.say(&[Frame::ToHome(channel, ToHome::Attach(face))]).await?;
        match self.hear_at_last().await? {
            Frame::FromHome(_, FromHome::Attached(_)) => Ok(channel),
            other => Err(io::Error::other(format!("{name} is not there: {other:?}"))),
        }
    }

    /// Reads and discards up to 512 bytes that have arrived, and returns their number; `None` if there are
    /// none.
    pub fn heard(&mut self) -> Option<io::Result<usize>> {
        let mut bytes = [0; 512];
        match self.stream.try_read(&mut bytes) {
            Ok(0) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => Some(Ok(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Err(error)),
        }
    }

    async fn read(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.arrived).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
