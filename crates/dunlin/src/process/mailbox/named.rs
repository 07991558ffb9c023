//! Mailboxes by name: how a node gets a first address of another node's mailbox.
//!
//! A named mailbox is an acceptor whose clients each ask once, and get the address. The clients' channel is
//! gone after that.

use std::sync::Arc;

use dunlin_core::{Call, Callee, Portable, Receiver, alt, future};
use tokio::sync::oneshot;

use super::address::Address;
use super::bound::Bound;
use super::receive::Mailbox;
use super::{mailbox_with, queue::Shared};
use crate::Error;
use crate::node::{Guest, NameError, Node};
use crate::world;

impl Node {
    /// An unbounded mailbox of this name, of which other nodes get the [address](Self::address). The name is
    /// free again soon after the mailbox is dropped.
    ///
    /// # Errors
    /// [`NameError`], as of [`acceptor`](Self::acceptor).
    ///
    /// # Cancel safety
    /// If it is dropped while it is awaited, the declaration is withdrawn.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// # let names = "memory:mailbox-example";
    /// let here = Node::builder().app("tides").names(names).listen("memory:").join().await?;
    /// let there = Node::builder().app("tides").names(names).listen("memory:").join().await?;
    ///
    /// let mut mailbox = here.mailbox::<String>("log").await?;
    /// let address = there.address::<String>("log").await?;
    /// address.send("high water".to_owned())?; // Ok: the connection has it
    /// assert_eq!(mailbox.recv().await?, "high water");
    /// # there.leave().await?;
    /// # here.leave().await
    /// # }).unwrap();
    /// ```
    pub async fn mailbox<M: Portable>(&self, name: &str) -> Result<Mailbox<M>, NameError> {
        self.mailbox_with(name, Bound::Unbounded).await
    }

    /// A mailbox with this bound and name: see [`mailbox`](Self::mailbox). What other nodes send beyond the
    /// bound is dropped as the bound says, and reported as an [event](Self::events) of this node.
    ///
    /// # Errors
    /// As of [`mailbox`](Self::mailbox).
    ///
    /// # Cancel safety
    /// As of [`mailbox`](Self::mailbox).
    pub async fn mailbox_with<M: Portable>(&self, name: &str, bound: Bound) -> Result<Mailbox<M>, NameError> {
        let guests = self.acceptor::<Call<(), Address<M>>>(name).await?;
        let (address, mailbox) = mailbox_with(bound);
        let closed = mailbox.shared().when_closed();
        world::spawn_own(hand_out(guests, address, closed));
        Ok(mailbox)
    }

    /// The address of the mailbox of this name. Waits until a node has one.
    ///
    /// # Errors
    /// [`NameError`], as of [`client`](Self::client); an error of the question for the address if the mailbox
    /// is dropped before it has answered.
    ///
    /// # Cancel safety
    /// If it is dropped while it is awaited, the declaration is withdrawn.
    pub async fn address<M: Portable>(&self, name: &str) -> Result<Address<M>, Error> {
        let mut asks = self.client::<Call<(), Address<M>>>(name).await?;
        Ok(asks.call(()).await?)
    }
}

/// Hands out the address until the mailbox is dropped, or the node ends.
async fn hand_out<M: Portable>(
    mut guests: Receiver<Guest<Callee<(), Address<M>>>>,
    address: Address<M>,
    mut closed: oneshot::Receiver<()>,
) {
    loop {
        let guest = alt! { biased;
            _ = future(&mut closed) => return,
            guest = guests.recv() => guest,
        };
        let Ok(guest) = guest else { return };
        let (mut callee, address) = (guest.into_face(), address.clone());
        world::spawn_own(async move {
            if let Ok(asked) = callee.accept().await {
                // The asking node may be gone.
                let _ = asked.reply(address);
            }
        });
    }
}

impl<M> Mailbox<M> {
    fn shared(&self) -> &Arc<Shared<M>> {
        &self.shared
    }
}
