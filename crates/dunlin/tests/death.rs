//! The nodes of a host notice a process that is killed without a warning long before the grace period ends:
//! dials to its address are refused. A proxy that refuses shows nothing about the node behind it.
#![cfg(feature = "net")]

#[path = "support/actor.rs"]
#[expect(dead_code, reason = "all processes here are killed")]
mod actor;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actor::{Actor, say};
#[cfg(unix)]
use dunlin::net::Unix;
use dunlin::net::{BoxFuture, Listener, Network, Socket, Source, Tcp};
use dunlin::node::{ConnectionState, Down};
use dunlin::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The requirement of the issue; the grace period, at its default here, is 15 s.
const SOON: Duration = Duration::from_secs(2);

#[test]
#[ignore = "what the processes of the other tests run"]
fn a_role() {
    let Some((role, knows)) = actor::role() else { return };
    let [application, names, listen] = &knows[..] else { panic!("{knows:?}") };
    dunlin::block_on(async {
        let node = Node::builder().app(application).names(names).serve_names(false).listen(listen).join().await?;
        match role.as_str() {
            "receives" => {
                let mut rx = node.receiver::<u64>("numbers").await?;
                assert_eq!(rx.recv().await?, 1);
                say("received");
                std::future::pending::<Result>().await
            }
            "sends" => {
                let mut tx = node.sender::<u64>("numbers").await?;
                tx.send(1).await?;
                say("sent");
                std::future::pending::<Result>().await
            }
            _ => panic!("there is no role {role}"),
        }
    })
    .unwrap();
}

/// A network that notes when a node has reached another one: a socket that the node dialled was answered, and
/// the node has handled the answer. Refusals at an address where the node was not reached show nothing.
struct Reaches<N>(N, watch::Sender<bool>);

impl<N: Network> Reaches<N> {
    fn noting<'a>(
        &'a self,
        dialling: BoxFuture<'a, io::Result<Box<dyn Socket>>>,
    ) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let dialled = Dialled { socket: dialling.await?, answered: false, reached: self.1.clone() };
            Ok(Box::new(dialled) as Box<dyn Socket>)
        })
    }
}

impl<N: Network> Network for Reaches<N> {
    fn scheme(&self) -> &'static str {
        self.0.scheme()
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        self.noting(self.0.dial(address))
    }

    fn dial_elsewhere<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        self.noting(self.0.dial_elsewhere(address))
    }

    fn is_local(&self, address: &str) -> bool {
        self.0.is_local(address)
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        self.0.listen(address)
    }
}

struct Dialled {
    socket: Box<dyn Socket>,
    answered: bool,
    reached: watch::Sender<bool>,
}

impl Dialled {
    /// The node closes the socket or writes to it: after the answer, this shows that it has handled the
    /// answer.
    fn goes_on(&self) {
        if self.answered {
            self.reached.send_replace(true);
        }
    }
}

impl Drop for Dialled {
    fn drop(&mut self) {
        self.goes_on();
    }
}

impl AsyncRead for Dialled {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        self.answered |= buf.filled().len() > before;
        read
    }
}

impl AsyncWrite for Dialled {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.goes_on();
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.goes_on();
        Pin::new(&mut self.socket).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl Socket for Dialled {
    fn peer(&self) -> String {
        self.socket.peer()
    }

    fn is_local(&self) -> bool {
        self.socket.is_local()
    }

    fn host(&self) -> Option<String> {
        self.socket.host()
    }

    fn source(&self) -> Source {
        self.socket.source()
    }
}

type Reached = watch::Receiver<bool>;

/// Waits until the survivor has reached the other node, which may be alive for some milliseconds only.
async fn reached(reached: &mut Reached) {
    let waited = tokio::time::timeout(Duration::from_secs(60), reached.wait_for(|reached| *reached)).await;
    waited.expect("it dials where the other one listens").unwrap();
}

/// A node of this process, the notes of its network, its application and the names that it serves.
async fn survivor(test: &str, listen: &str) -> Result<(Node, Reached, String, String)> {
    let application = format!("death {test} {}", std::process::id());
    let names = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let (tell, reached) = watch::channel(false);
    let builder = Node::builder().app(&application).names(&names).listen(listen).network(Reaches(Tcp, tell));
    Ok((builder.join().await?, reached, application, names))
}

/// Kills the process, and returns how long `lost` takes from then on.
async fn kill(actor: Actor, lost: impl Future<Output = ()>) -> Duration {
    let began = Instant::now();
    tokio::task::spawn_blocking(|| drop(actor)).await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), lost).await.expect("it is noticed");
    began.elapsed()
}

async fn noticed(test: &str, listen: &str) -> Result {
    // The survivor dials, since it has the sender...
    let (node, mut has_reached, application, names) = survivor(&format!("{test} sends"), listen).await?;
    let mut states = node.connections();
    let receives = Actor::start(&[], "receives", &[&application, &names, listen]);
    let mut tx = node.sender::<u64>("numbers").await?;
    tx.send(1).await?;
    let (receives, heard) = tokio::task::spawn_blocking(move || {
        let heard = receives.hear();
        (receives, heard)
    })
    .await
    .unwrap();
    assert_eq!(heard, "received");
    reached(&mut has_reached).await;
    let took = kill(receives, async {
        let error = tx.send(2).await.unwrap_err();
        assert!(!matches!(error, SendError::NotTaken { why: Why::TimedOut, .. }), "{error}");
    })
    .await;
    assert!(took < SOON, "{test}: the sender has noticed after {took:?}");
    let why = loop {
        if let (_, ConnectionState::Down(why)) = states.recv().await? {
            break why;
        }
    };
    assert!(matches!(why, Down::Died(_)), "{test}: {why}");
    println!("{test}: the sender has noticed after {took:?}: {why}");
    node.leave().await?;

    // ... or it is dialled, since it has the receiver.
    let (node, mut has_reached, application, names) = survivor(&format!("{test} receives"), listen).await?;
    let sends = Actor::start(&[], "sends", &[&application, &names, listen]);
    let mut rx = node.receiver::<u64>("numbers").await?;
    assert_eq!(rx.recv().await?, 1);
    reached(&mut has_reached).await;
    let took = kill(sends, async { assert_eq!(rx.recv().await, Err(RecvError::NodeLost)) }).await;
    assert!(took < SOON, "{test}: the receiver has noticed after {took:?}");
    println!("{test}: the receiver has noticed after {took:?}");
    node.leave().await
}

#[test]
fn a_process_that_was_killed_is_noticed_on_loopback() {
    dunlin::block_on(noticed("tcp", "127.0.0.1:0")).unwrap();
}

#[cfg(unix)]
#[test]
fn a_process_that_was_killed_is_noticed_on_unix_sockets() {
    dunlin::block_on(async {
        // Each node listens at a path of its own.
        let folder = std::env::temp_dir().join(format!("dunlin-death-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let (here, there) = (folder.join("a"), folder.join("b"));
        let (here, there) = (format!("unix:{}", here.display()), format!("unix:{}", there.display()));
        let application = format!("death unix {}", std::process::id());
        let names = format!("unix:{}", folder.join("names").display());
        let (tell, mut has_reached) = watch::channel(false);
        let builder = Node::builder().app(&application).names(&names).listen(&here).network(Reaches(Unix, tell));
        let node = builder.join().await?;
        let sends = Actor::start(&[], "sends", &[&application, &names, &there]);
        let mut rx = node.receiver::<u64>("numbers").await?;
        assert_eq!(rx.recv().await?, 1);
        reached(&mut has_reached).await;
        let took = kill(sends, async { assert_eq!(rx.recv().await, Err(RecvError::NodeLost)) }).await;
        assert!(took < SOON, "the receiver has noticed after {took:?}");
        node.leave().await?;
        std::fs::remove_dir_all(&folder)?;
        Ok::<_, Error>(())
    })
    .unwrap();
}

/// TCP at ports of proxies, which a node advertises. Notes refused dials.
struct Proxied(watch::Sender<Vec<Instant>>);

impl Network for Proxied {
    fn scheme(&self) -> &'static str {
        "proxied"
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let dialled = Tcp.dial(address).await;
            if dialled.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                self.0.send_modify(|refused| refused.push(Instant::now()));
            }
            dialled
        })
    }

    fn listen<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

/// A proxy of the node that listens at `to`.
struct Proxy {
    port: std::net::SocketAddr,
    to: String,
    runs: JoinHandle<()>,
}

impl Proxy {
    fn new(listener: TcpListener, to: &str) -> Self {
        let (port, to) = (listener.local_addr().unwrap(), to.to_owned());
        let leads = to.clone();
        let runs = tokio::spawn(async move {
            // The links end with this task.
            let mut links = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let mut far = TcpStream::connect(&leads).await.unwrap();
                links.spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
            }
        });
        Self { port, to, runs }
    }

    /// Ends its sockets; its port then refuses.
    async fn stop(&mut self) {
        self.runs.abort();
        (&mut self.runs).await.unwrap_err();
    }

    async fn start(self) -> Self {
        Self::new(TcpListener::bind(self.port).await.unwrap(), &self.to)
    }
}

#[test]
fn a_proxy_that_refuses_for_a_while_goes_unnoticed() {
    // At an address where a node itself listens, such refusals would prove its end: many times over, since by
    // default a second passes between two of them.
    const OUTAGE: Duration = Duration::from_secs(5);
    dunlin::block_on(async {
        let builder = || {
            let builder = Node::builder().app("death proxied").names("memory:names-of-proxied").relay(false);
            builder.listen("127.0.0.1:0").grace(Duration::from_secs(60))
        };
        // It would relay to a node that cannot be dialled for more than a moment.
        let names =
            Node::builder().app("death proxied").names("memory:names-of-proxied").listen("memory:").relay(false);
        let names = names.join().await?;
        let _served = names.receiver::<u64>("nothing").await?;
        let (told, mut refused) = watch::channel(Vec::new());
        let ports = [TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?];
        let advertised = ports.each_ref().map(|port| format!("proxied:{}", port.local_addr().unwrap()));
        let receiver =
            builder().advertise(&advertised[0]).network(Proxied(watch::channel(Vec::new()).0)).join().await?;
        let sender = builder().advertise(&advertised[1]).network(Proxied(told)).join().await?;
        let [to_receiver, to_sender] = ports;
        let mut proxies =
            [Proxy::new(to_receiver, &receiver.listening()[0]), Proxy::new(to_sender, &sender.listening()[0])];

        let mut rx = receiver.receiver::<u64>("values").await?;
        let mut tx = sender.sender::<u64>("values").await?;
        let (sent, received) = par!(tx.send(1), rx.recv());
        sent?;
        assert_eq!(received?, 1);
        let mut states = [sender.connections(), receiver.connections()];
        for proxy in &mut proxies {
            proxy.stop().await;
        }
        let (sent, received) = par!(tx.send(2), async {
            let often = |at: &Vec<Instant>| at.len() > 5 && at[at.len() - 1] - at[0] > OUTAGE;
            let waited = tokio::time::timeout(Duration::from_secs(30), refused.wait_for(often)).await;
            let at = waited.expect("it dials again and again").unwrap().clone();
            println!(
                "dials were refused {:?} after the first",
                at.iter().map(|later| *later - at[0]).collect::<Vec<_>>()
            );
            for proxy in proxies {
                proxy.start().await;
            }
            rx.recv().await
        });
        sent?;
        assert_eq!(received?, 2);
        for (states, other) in states.iter_mut().zip([receiver.me(), sender.me()]) {
            loop {
                match states.recv().await? {
                    (peer, ConnectionState::Down(why)) if peer == other => panic!("{why}"),
                    (peer, ConnectionState::Resumed) if peer == other => break,
                    _ => {}
                }
            }
        }
        let (sender, receiver) = par!(sender.leave(), receiver.leave());
        sender.and(receiver)?;
        names.leave().await
    })
    .unwrap();
}
