//! The tasks of a node beside its sockets: accepting, and finding or serving the application's names.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use dunlin_proto::Source;
use dunlin_proto::id::NodeId;

use super::error::is_busy;
use super::events::{Limit, NodeEvent};
use super::files;
use super::listen::{BoxListener, NAMES_PORTS};
#[cfg(unix)]
use super::own::{Mark, Own};
use super::state::Driver;
use crate::net::{Networks, is_transient};
use crate::world::{self, Timer};

/// How long a node waits before it looks for a name service again.
const AGAIN: Duration = Duration::from_millis(100);

/// How often a node that serves names looks for another one at an earlier address.
const LOOK: Duration = Duration::from_secs(5);

/// A name service that was lost sooner than this was of no use: the next search waits first, longer each
/// time, up to this long.
const BRIEF: Duration = Duration::from_secs(1);

/// The first of those waits.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// How often a node asks the listener at such an address.
const ASKS: u32 = 3;

/// How long a listener rests after the system has refused it a socket.
const REST: Duration = Duration::from_millis(20);

/// Accepts sockets for as long as the node lives.
pub(crate) async fn accept(driver: Weak<Driver>, mut listener: BoxListener) {
    // The lack of files was reported, and no socket has been accepted since.
    let mut is_said = false;
    loop {
        let accepted = listener.accept().await;
        let Some(driver) = driver.upgrade() else { return };
        match accepted {
            Ok(socket) => {
                is_said = false;
                driver.accepted(socket);
                // Without this a burst has more files open than it has places.
                let closes_first = driver.has_many_to_close();
                drop(driver);
                if closes_first {
                    give_way().await;
                }
            }
            Err(error) if is_transient(&error) => {
                if let Some(why) = files::out_of(&error)
                    && !std::mem::replace(&mut is_said, true)
                {
                    let limit = NodeEvent::Limit(Limit::Files { at: listener.address(), why });
                    driver.with_hub_now(|hub, _| hub.refuse(limit, Source::Unknown));
                }
                drop(driver);
                Timer::after(REST).await;
            }
            Err(_) => return,
        }
    }
}

/// Lets the woken tasks run.
async fn give_way() {
    let mut given = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        world::wake_later(cx.waker());
        Poll::Pending
    })
    .await;
}

/// Accepts sockets until `end` is ready. `None`: the listener is broken, or the node has ended.
async fn accept_until<T>(end: impl Future<Output = T>, driver: Weak<Driver>, listener: BoxListener) -> Option<T> {
    let mut end = pin!(end);
    let mut accepting = pin!(accept(driver, listener));
    poll_fn(|cx| match end.as_mut().poll(cx) {
        Poll::Ready(end) => Poll::Ready(Some(end)),
        Poll::Pending => accepting.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// A node's settings for the name service.
pub(crate) struct Service {
    /// Its address.
    pub(crate) address: Option<String>,
    /// Whether this node may be the service.
    pub(crate) may_serve: bool,
    /// The node that is to be the service.
    pub(crate) node: Option<String>,
}

/// Keeps a name service available for as long as the node lives: serves the names, or finds a service if this
/// node may not serve them.
pub(crate) async fn names(driver: Arc<Driver>, networks: Networks, mut service: Service) {
    let own = OwnServices { looks_at_default_ports: service.address.is_none() && !world::is_simulated() };
    let addresses = match service.address.take() {
        Some(address) => vec![address],
        None => NAMES_PORTS.map(default_address).collect(),
    };
    let lost = driver.names_lost();
    let application = driver.log.application();
    let mut pause = Duration::ZERO;
    for again in [false].into_iter().chain(std::iter::repeat(true)) {
        let found = find_or_serve(&driver, &networks, &addresses, &service, own).await;
        let (Found::At(_, at) | Found::Here(_, at)) = found;
        let (before, found_at) = (&addresses[..at], addresses[at].clone());
        driver.with_hub_now(|hub, _| hub.names_are_at(found_at));
        match found {
            // The address leads to this node itself, which listens there already.
            Found::At(node, _) if node == driver.me() => {
                tracing::info!(target: "dunlin::node", application, "serving the names");
                driver.with_hub_now(|hub, cx| hub.serve(cx, again));
                let _mark = own.mark(application, &addresses[at], driver.me());
                let other = another(&driver, before, &own).await;
                driver.with_hub_now(|hub, cx| hub.cede(cx, other));
            }
            Found::At(node, _) => {
                tracing::info!(target: "dunlin::node", application, peer = %node, "using the names of this peer");
                driver.with_hub_now(|hub, cx| hub.use_names_of(cx, node));
            }
            Found::Here(listener, _) => {
                tracing::info!(target: "dunlin::node", application, address = listener.address(), "serving the names");
                driver.with_hub_now(|hub, cx| hub.serve(cx, again));
                let _mark = own.mark(application, &addresses[at], driver.me());
                let other = another(&driver, before, &own);
                let Some(other) = accept_until(other, Arc::downgrade(&driver), listener).await else {
                    return;
                };
                driver.with_hub_now(|hub, cx| hub.cede(cx, other));
            }
        }
        let since = world::now();
        lost.notified().await;
        // Without the pause, a service that is found and lost at once would be looked for in a busy loop.
        pause = if world::now() - since < BRIEF { (2 * pause).clamp(PAUSE_MIN, BRIEF) } else { Duration::ZERO };
        if !pause.is_zero() {
            Timer::after(pause).await;
        }
    }
}

/// The node that serves the names, and at which of the addresses.
enum Found {
    At(NodeId, usize),
    Here(BoxListener, usize),
}

/// The default address of a name service at one of the ports.
fn default_address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// The name services that run as this user: at the default ports those of any user may listen.
#[derive(Clone, Copy)]
struct OwnServices {
    #[cfg_attr(not(unix), expect(dead_code, reason = "names are left to any service"))]
    looks_at_default_ports: bool,
}

#[cfg(unix)]
impl OwnServices {
    /// Until the mark is dropped, it identifies this name service as the user's to the user's other ones.
    fn mark(self, application: &str, address: &str, node: NodeId) -> Option<Mark> {
        let is_default = |port| address == default_address(port);
        if world::is_simulated() || !NAMES_PORTS.clone().any(is_default) {
            return None;
        }
        let marked = Own::of_user().mark(application, address, node);
        if let Err(why) = &marked {
            tracing::warn!(
                target: "dunlin::node", application, address, %why,
                "cannot mark this name service as one of this user: set XDG_RUNTIME_DIR to a folder that the user owns"
            );
        }
        marked.ok()
    }

    /// Whether names may be left to this node. A configured address is trusted whatever node is there.
    fn trusts(self, address: &str, node: NodeId) -> bool {
        self.trusts_by(&Own::of_user(), address, node)
    }

    fn trusts_by(self, own: &Own, address: &str, node: NodeId) -> bool {
        !self.looks_at_default_ports || own.has(address, node)
    }

    /// The application of the name service that this user runs at this address, if known.
    fn application_at(self, address: &str) -> Option<String> {
        if self.looks_at_default_ports { Own::of_user().application_at(address) } else { None }
    }
}

/// Without unix's owners of files names are left to any service.
#[cfg(not(unix))]
impl OwnServices {
    fn mark(self, _: &str, _: &str, _: NodeId) -> Option<std::convert::Infallible> {
        None
    }

    fn trusts(self, _: &str, _: NodeId) -> bool {
        true
    }

    fn application_at(self, _: &str) -> Option<String> {
        None
    }
}

/// Waits until another node serves the names at one of these addresses: two parts of a network have met
/// again, or a stalled server is back.
async fn another(driver: &Arc<Driver>, addresses: &[String], own: &OwnServices) -> NodeId {
    if addresses.is_empty() {
        return std::future::pending().await;
    }
    loop {
        Timer::after(LOOK).await;
        for address in addresses {
            match ask(driver, address).await {
                Ok(node) if node != driver.me() && own.trusts(address, node) => return node,
                _ => {}
            }
        }
    }
}

async fn find_or_serve(
    driver: &Arc<Driver>,
    networks: &Networks,
    addresses: &[String],
    service: &Service,
    own: OwnServices,
) -> Found {
    let application = driver.log.application();
    let can_serve = |address: &str| service.may_serve && is_local(address);
    let mut said = String::new();
    loop {
        for (at, address) in addresses.iter().enumerate() {
            match ask(driver, address).await {
                Ok(node) => return Found::At(node, at),
                // Of several addresses most have no listener.
                Err(why) if addresses.len() == 1 && !can_serve(address) && why != said => {
                    let next = service.node.as_ref().map_or_else(
                        || {
                            "Start the node that serves the names, or give its address: names = \"host:port\""
                                .to_owned()
                        },
                        |node| format!("Start the name service: `dunlin node {node}`"),
                    );
                    tracing::warn!(
                        target: "dunlin::node", application, address, why,
                        "the name service cannot be reached; this node retries, and declared ends wait. {next}"
                    );
                    said = why;
                }
                Err(_) => {}
            }
        }
        // Two nodes may get here at once: the first free address decides, and the other node asks there
        // again.
        for (at, address) in addresses.iter().enumerate().filter(|(_, address)| can_serve(address)) {
            match listen_or_ask(driver, networks, address).await {
                Taken::Free(listener) => return Found::Here(listener, at),
                Taken::By(node) => return Found::At(node, at),
                Taken::Unusable => {}
                Taken::Unknown { why, was_busy } => {
                    // This application's name service, which has no room or is stopped: another one at the
                    // next port would split the network. Otherwise it is another application's, or no name
                    // service.
                    let is_here = own.application_at(address).map_or(was_busy, |its| its == application);
                    if !is_here {
                        continue;
                    }
                    if why != said {
                        tracing::warn!(
                            target: "dunlin::node", application, address, why,
                            "the name service does not admit this node; this node retries, opens no other name \
                             service, and declared ends wait. If this lasts, the log of the name service names the \
                             limit that was reached; a stopped name service (SIGSTOP) must be continued or killed"
                        );
                        said = why;
                    }
                    break;
                }
            }
        }
        Timer::after(AGAIN).await;
    }
}

/// The state of an address at which this node may serve the names.
enum Taken {
    Free(BoxListener),
    By(NodeId),
    /// No listener can be opened there.
    Unusable,
    /// Something listens there and does not answer as a name service: why, and whether it is a node without
    /// room.
    Unknown {
        why: String,
        was_busy: bool,
    },
}

async fn listen_or_ask(driver: &Arc<Driver>, networks: &Networks, address: &str) -> Taken {
    let (mut why, mut was_busy) = (String::new(), false);
    // One attempt may not be enough: if its socket was lost just then, two would serve the same names; and
    // the listener may end meanwhile.
    for _ in 0..ASKS {
        match networks.listen(address).await {
            Ok(listener) => return Taken::Free(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(_) => return Taken::Unusable,
        }
        let asked = world::now();
        match ask(driver, address).await {
            Ok(node) => return Taken::By(node),
            Err(refused) => why = refused,
        }
        was_busy |= is_busy(&why);
        // A listener that was silent for this long stays silent the next time.
        if world::now() - asked > AGAIN {
            break;
        }
        Timer::after(AGAIN).await;
    }
    Taken::Unknown { why, was_busy }
}

/// The node at this address, or why there is none.
async fn ask(driver: &Arc<Driver>, address: &str) -> Result<NodeId, String> {
    let left = || "this node has left".to_owned();
    let answer = driver.with_hub_now(|hub, cx| Some(hub.ask(cx, address.to_owned()))).ok_or_else(left)?;
    answer.await.unwrap_or_else(|_| Err(left()))
}

/// Whether a node may serve the application's names at this address unasked.
fn is_local(address: &str) -> bool {
    let tcp = address.strip_prefix("tcp://").or_else(|| address.strip_prefix("tcp:")).unwrap_or(address);
    crate::world::is_simulated()
        || ["memory:", "unix:"].iter().any(|scheme| address.starts_with(scheme))
        || ["127.", "localhost:", "[::1]:", ":"].iter().any(|host| tcp.starts_with(host))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_left_to_a_service_of_another_user_at_a_default_port() {
        let folder = std::env::temp_dir().join(format!("dunlin-trusts-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let user = rustix::process::geteuid().as_raw();
        let (mine, anothers) = (Own::of(&folder, user), Own::of(&folder, user + 1));
        let address = default_address(7403);
        let mark = mine.mark("weather", &address, NodeId(7)).unwrap();
        let at_default = OwnServices { looks_at_default_ports: true };
        let configured = OwnServices { looks_at_default_ports: false };
        assert!(at_default.trusts_by(&mine, &address, NodeId(7)));
        assert!(!at_default.trusts_by(&mine, &address, NodeId(8)), "another node than the one that wrote it");
        assert!(!at_default.trusts_by(&anothers, &address, NodeId(7)), "the folder and the file are another user's");
        assert!(configured.trusts_by(&anothers, &address, NodeId(7)), "whichever is at a configured address");
        drop(mark);
        assert!(!at_default.trusts_by(&mine, &address, NodeId(7)), "it has gone");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
