//! Bundles: several channels with two faces, the client's and the server's.
//!
//! `#[derive(Bundle)]` makes the faces; the types here define what a field becomes on each face.

use std::marker::PhantomData;

use crate::call::{Callee, Caller, call_with};
use crate::channel::factory::ChannelFactory;
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::share::{End, Shared};

/// A type with a client's side and a server's side.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a channel, and cannot be a field of a bundle",
    label = "a field is `ToServer<T>`, `ToClient<T>`, `Call<Q, A>`, or a bundle",
    note = "messages of this type go to the server over `ToServer<{Self}>`, and to the client over `ToClient<{Self}>`",
    note = "a struct of channels needs `#[derive(Bundle)]`"
)]
pub trait Pairing {
    /// The client's side.
    type Client;
    /// The server's side.
    type Server;
    /// Makes both sides, with channels from the factory.
    #[track_caller]
    fn pair(factory: &ChannelFactory) -> (Self::Client, Self::Server);
}

/// A struct of channels, by `#[derive(Bundle)]`.
pub trait Bundle: Pairing {}

/// A channel that carries `T` to the server.
#[derive(Debug)]
pub struct ToServer<T>(PhantomData<T>);

/// A channel that carries `T` to the client.
#[derive(Debug)]
pub struct ToClient<T>(PhantomData<T>);

/// A call channel: requests `Q` to the server, replies `A` back.
#[derive(Debug)]
pub struct Call<Q, A>(PhantomData<(Q, A)>);

/// `B` reversed: the client has its server's side.
#[derive(Debug)]
pub struct Flip<B>(PhantomData<B>);

/// `B` with a shared client's side: clients hold a [`Shared`] of its face, which is claimed whole.
#[derive(Debug)]
pub struct Share<B>(PhantomData<B>);

impl<T> Pairing for ToServer<T> {
    type Client = Sender<T>;
    type Server = Receiver<T>;

    fn pair(factory: &ChannelFactory) -> (Sender<T>, Receiver<T>) {
        factory.channel()
    }
}

impl<T> Pairing for ToClient<T> {
    type Client = Receiver<T>;
    type Server = Sender<T>;

    fn pair(factory: &ChannelFactory) -> (Receiver<T>, Sender<T>) {
        let (sender, receiver) = factory.channel();
        (receiver, sender)
    }
}

impl<Q, A> Pairing for Call<Q, A> {
    type Client = Caller<Q, A>;
    type Server = Callee<Q, A>;

    fn pair(factory: &ChannelFactory) -> (Caller<Q, A>, Callee<Q, A>) {
        call_with(factory.policy(), factory.made())
    }
}

impl<B: Pairing> Pairing for Flip<B> {
    type Client = B::Server;
    type Server = B::Client;

    fn pair(factory: &ChannelFactory) -> (B::Server, B::Client) {
        let (client, server) = B::pair(factory);
        (server, client)
    }
}

impl<B: Pairing> Pairing for Share<B>
where
    B::Client: End,
{
    type Client = Shared<B::Client>;
    type Server = B::Server;

    fn pair(factory: &ChannelFactory) -> (Shared<B::Client>, B::Server) {
        let (client, server) = B::pair(factory);
        (client.share(), server)
    }
}

/// Determines whether `T` is a [`Pairing`], as a constant: `IS_PAIRING` of this type if it is, else that of
/// [`NoPairing`].
#[doc(hidden)]
#[derive(Debug)]
pub struct Probe<T: ?Sized>(PhantomData<T>);

impl<T: Pairing + ?Sized> Probe<T> {
    /// `T` is a [`Pairing`].
    pub const IS_PAIRING: bool = true;
}

/// See [`Probe`].
#[doc(hidden)]
pub trait NoPairing {
    /// `T` is not a [`Pairing`].
    const IS_PAIRING: bool = false;
}

impl<T: ?Sized> NoPairing for Probe<T> {}

/// The two sides of any type: those of its [`Pairing`], or [`NotAChannel`] if it is none; the error is then
/// reported elsewhere.
#[doc(hidden)]
pub trait Sides<const IS_PAIRING: bool> {
    /// The client's side.
    type Client;
    /// The server's side.
    type Server;
    /// Makes both sides.
    #[track_caller]
    fn pair(factory: &ChannelFactory) -> (Self::Client, Self::Server);
}

impl<T: Pairing + ?Sized> Sides<true> for T {
    type Client = T::Client;
    type Server = T::Server;

    fn pair(factory: &ChannelFactory) -> (T::Client, T::Server) {
        <T as Pairing>::pair(factory)
    }
}

impl<T: ?Sized> Sides<false> for T {
    type Client = NotAChannel;
    type Server = NotAChannel;

    fn pair(_: &ChannelFactory) -> (NotAChannel, NotAChannel) {
        (NotAChannel, NotAChannel)
    }
}

/// The end of a field that is not a [`Pairing`]: a program with such a field does not compile.
#[doc(hidden)]
#[derive(Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NotAChannel;

/// Compiles for a [`Pairing`].
#[doc(hidden)]
pub fn is_pairing<T: Pairing + ?Sized>() {}
