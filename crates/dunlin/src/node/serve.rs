//! The tasks of a node beside its sockets: accepting, and finding or serving the application's names.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dunlin_proto::id::NodeId;

use super::builder::BoxListener;
use super::driver::Driver;
use super::network::{Networks, is_transient};
use crate::world::Timer;

/// The default addresses of name services: each application takes the first that no other has.
const PORTS: std::ops::Range<u16> = 7400..7416;
/// So long a node waits before it looks for a name service again.
const AGAIN: Duration = Duration::from_millis(100);

/// So often a node asks somebody who listens at such an address.
const ASKS: u32 = 3;

/// Accepts sockets for as long as the node lives.
pub(crate) async fn accept(driver: Weak<Driver>, mut listener: BoxListener) {
    loop {
        match listener.accept().await {
            Ok(socket) => match driver.upgrade() {
                Some(driver) => driver.accepted(socket),
                None => return,
            },
            Err(error) if is_transient(&error) => Timer::after(Duration::from_millis(20)).await,
            Err(_) => return,
        }
    }
}

/// Sees to it that there is a name service, for as long as the node lives.
pub(crate) async fn names(driver: Arc<Driver>, networks: Networks, address: Option<String>) {
    let addresses = match address {
        Some(address) => vec![address],
        None => PORTS.map(|port| format!("127.0.0.1:{port}")).collect(),
    };
    let lost = driver.names_lost();
    for again in [false].into_iter().chain(std::iter::repeat(true)) {
        match find_or_serve(&driver, &networks, &addresses).await {
            // The address leads to this node itself, which listens there already.
            Found::At(node) if node == driver.me() => return driver.with_hub_now(|hub, cx| hub.serve(cx, again)),
            Found::At(node) => driver.with_hub_now(|hub, cx| hub.use_names_of(cx, node)),
            Found::Here(listener) => {
                driver.with_hub_now(|hub, cx| hub.serve(cx, again));
                return accept(Arc::downgrade(&driver), listener).await;
            }
        }
        lost.notified().await;
    }
}

enum Found {
    At(NodeId),
    Here(BoxListener),
}

async fn find_or_serve(driver: &Arc<Driver>, networks: &Networks, addresses: &[String]) -> Found {
    loop {
        for address in addresses {
            if let Some(node) = ask(driver, address).await {
                return Found::At(node);
            }
        }
        // Two may come this far at once: the first address that is free decides, and who does not get it asks there again.
        for address in addresses.iter().filter(|address| is_local(address)) {
            match networks.listen(address).await {
                Ok(listener) => return Found::Here(listener),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    // Once may not do: if its socket was lost just then, two would serve the same names.
                    for _ in 0..ASKS {
                        if let Some(node) = ask(driver, address).await {
                            return Found::At(node);
                        }
                        Timer::after(AGAIN).await;
                    }
                    // Another application's.
                }
                Err(_) => {}
            }
        }
        Timer::after(AGAIN).await;
    }
}

async fn ask(driver: &Arc<Driver>, address: &str) -> Option<NodeId> {
    let answer = driver.with_hub_now(|hub, cx| Some(hub.ask(cx, address.to_owned())))?;
    answer.await.ok()?.ok()
}

/// Whether a node may serve the application's names there unasked.
fn is_local(address: &str) -> bool {
    let tcp = address.strip_prefix("tcp:").unwrap_or(address);
    crate::world::is_simulated()
        || ["memory:", "unix:"].iter().any(|scheme| address.starts_with(scheme))
        || ["127.", "localhost:", "[::1]:", ":"].iter().any(|host| tcp.starts_with(host))
}
