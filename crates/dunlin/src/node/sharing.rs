//! Ends of a name that are shared by several nodes.
//!
//! The node that declares such an end first keeps it, and hands out its handles under a second name, over
//! ordinary channels. The name service refuses later declarations, and their nodes then ask under that name.
//! `docs/claim.md` describes handles at several nodes.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use dunlin_core::__rt::WeakShared;
use dunlin_core::{Call, Callee, End, Pairing, Portable, Receiver, Sender, Shared, alt, future};
use dunlin_proto::wire::Face;
use tokio::sync::oneshot;

use super::error::NameError;
use super::name::{split, word};
use super::state::Driver;
use super::{Acceptor, Client, Declared, Guest, Kind, Named, Naming, Server};
use crate::world::{self, Timer};

/// How long a request for a handle waits before it checks whether a node still has the end.
const ASK: Duration = Duration::from_secs(1);

/// The previous keeper of the end may hold the second name for a moment.
const AGAIN: Duration = Duration::from_millis(50);
const TRIES: u32 = 40;

/// Stands for an end with handles at many nodes, in [`Naming`].
#[derive(Debug)]
pub struct Many<E>(PhantomData<E>);

macro_rules! shared {
    ($many:ident: $($end:ident),*; $once:ident: $($face:ident),*) => {
        $(impl<'a, T> Naming<'a, $end<T>> {
            /// The end is shared: each node that declares it so gets a handle, a [`Shared`] end. The other
            /// end may [require](Self::expects) that.
            ///
            /// The end itself stays with the node that declared it first, also after that node has dropped
            /// its handle. If that node leaves or is lost, the handles elsewhere fail with
            /// [`NodeLost`](dunlin_core::Why::NodeLost), and the end can be declared anew.
            pub fn $many(self) -> Naming<'a, Many<$end<T>>>
            where
                T: Portable,
            {
                let Naming { driver, name, options, policy, made, .. } = self.shared_here();
                Naming { driver, name, options, policy, made, declare: Many::declare }
            }
        })*
        $(impl<B: Pairing> Naming<'_, $face<B>> {
            /// The face is to be shared: the other side may [require](Self::expects) that. It is declared
            /// once, since a face moves to the node that claims it, and its name does not move along. Its
            /// handles are made where it is ([`End::share`]), and may go anywhere in messages. A second
            /// declaration fails with [`NameError::Shared`]. For clients at several nodes there are
            /// [acceptors](super::Node::acceptor).
            pub fn $once(self) -> Self {
                self.shared_here()
            }
        })*
    };
}

shared!(shared: Sender, Receiver; shared: Client, Server);

impl<E: Kind> Naming<'_, E> {
    /// For a caller that shares the end by itself.
    pub(crate) fn shared_here(mut self) -> Self {
        self.options.shared = true;
        self
    }
}

impl<E: Kind<End: End>> Kind for Many<E> {
    type End = Shared<E::End>;
}

impl<E> Declared for Many<E>
where
    E: Declared<End: End + Send + 'static> + 'static,
    Shared<E::End>: Portable,
    WeakShared<E::End>: Send,
{
    fn declare(naming: Naming<'_, Self>) -> Named<'_, (Self::End, u64)> {
        Box::pin(async move {
            let Naming { driver, name, options, policy, made, .. } = naming;
            let handles = beside(&name, word(options.face));
            loop {
                let (name_alone, policy) = (name.clone(), policy.clone());
                let alone = Naming { driver, name: name_alone, options, policy, made, declare: E::declare };
                match E::declare(alone).await {
                    Ok((end, number)) => {
                        let handle = end.share();
                        keep(driver, handles, number, handle.downgrade()).await?;
                        return Ok((handle, number));
                    }
                    Err(NameError::Shared { .. }) => {}
                    Err(error) => return Err(error),
                }
                let asked = ask(driver, &handles).await.map_err(|error| match error {
                    // The error names the end that was declared, not the second name.
                    NameError::Mismatch { difference, holder, address, .. } => {
                        NameError::Mismatch { name: name.clone(), difference, holder, address }
                    }
                    error => error,
                });
                if let Some(handle) = asked? {
                    return Ok((handle, 0));
                }
            }
        })
    }
}

/// The second name, under which handles are handed out.
fn beside(name: &str, what: &str) -> String {
    let (address, bare) = split(name);
    let handles = format!("dunlin.handles.{what}.{bare}");
    match address {
        Some(address) => format!("{address}/{handles}"),
        None => handles,
    }
}

/// Hands out handles of the end for as long as it is declared.
async fn keep<E>(driver: &Arc<Driver>, handles: String, number: u64, handle: WeakShared<E>) -> Result<(), NameError>
where
    E: End + Send + 'static,
    Shared<E>: Portable,
    WeakShared<E>: Send,
{
    let over = driver.with_hub_now(|hub, _| Some(hub.when_over(number))).ok_or(NameError::Left)?;
    // The second name is declared at this node, even if another node was asked for the first one.
    let bare = split(&handles).1.to_owned();
    let mut tries = 0;
    let guests = loop {
        match Naming::<Acceptor<Call<(), Shared<E>>>>::new(driver, &bare, Face::Acceptor).reserved().await {
            Err(NameError::Refused { .. }) if tries < TRIES => {
                tries += 1;
                Timer::after(AGAIN).await;
            }
            guests => break guests?,
        }
    };
    // The task ends with the end, or with the node.
    world::spawn_own(hand_out(guests, handle, over));
    Ok(())
}

async fn hand_out<E>(
    mut guests: Receiver<Guest<Callee<(), Shared<E>>>>,
    handle: WeakShared<E>,
    mut over: oneshot::Receiver<()>,
) where
    E: End + Send + 'static,
    Shared<E>: Portable,
    WeakShared<E>: Send,
{
    loop {
        let guest = alt! { biased;
            _ = future(&mut over) => return,
            guest = guests.recv() => guest,
        };
        let (Ok(guest), Some(handle)) = (guest, handle.upgrade()) else { return };
        let mut callee = guest.into_face();
        world::spawn_own(async move {
            if let Ok(asked) = callee.accept().await {
                // The asking node may be gone: then the handle is dropped.
                let _ = asked.reply(handle);
            }
        });
    }
}

/// Asks the keeper of the end for a handle. `None`: no node answers, so the end may be free now.
async fn ask<E>(driver: &Arc<Driver>, handles: &str) -> Result<Option<Shared<E>>, NameError>
where
    E: End + Send + 'static,
    Shared<E>: Portable,
{
    let mut keeper = Naming::<Client<Call<(), Shared<E>>>>::new(driver, handles, Face::Client).reserved().await?;
    match world::within(ASK, keeper.call(())).await {
        Some(Ok(handle)) => Ok(Some(handle)),
        Some(Err(_)) | None => Ok(None),
    }
}
