//! Bundles: several channels with two faces, the client's and the server's.
//!
//! `#[derive(Bundle)]` makes the faces; the types here say what a field becomes on each.

use std::marker::PhantomData;

use crate::call::{Callee, Caller, call_with};
use crate::channel::factory::ChannelFactory;
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::share::{End, Shared};

/// What has a client's side and a server's side.
pub trait Pairing {
    /// The client's side.
    type Client;
    /// The server's side.
    type Server;
    /// Makes both sides, with channels of the factory.
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

/// `B` turned round: the client has its server's side.
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
