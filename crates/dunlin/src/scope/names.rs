//! The names of a scope: each stands for a channel, or a bundle, whose two faces are joined in any order.
//!
//! The first join makes the channel and leaves its other face in the table, so operations on an end whose
//! other face is not joined wait as on any channel. A face is taken alone, once, or shared: then the table
//! keeps a weak handle from which others are made, so that the channel ends when the last of its holders has
//! left.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
#[cfg(not(feature = "net"))]
use std::marker::PhantomData;
use std::pin::Pin;
#[cfg(feature = "net")]
use std::sync::Arc;

use dunlin_core::__rt::WeakShared;
use dunlin_core::{ChannelFactory, End, NoPoison, Pairing, Policy, Receiver, Sender, Shared, ToServer};

use super::error::{At, ScopeError};
use crate::face::{ClientFace, ServerFace};

/// Joined as the sending end of a channel.
#[derive(Debug)]
pub struct AsSender;
/// Joined as the receiving end of a channel.
#[derive(Debug)]
pub struct AsReceiver;
/// Joined as the client's face of a bundle.
#[derive(Debug)]
pub struct AsClient;
/// Joined as the server's face of a bundle.
#[derive(Debug)]
pub struct AsServer;

/// What a name stands for.
#[derive(Clone)]
pub struct What {
    id: TypeId,
    is_channel: bool,
    text: fn() -> String,
}

impl What {
    pub(super) fn channel<T: 'static>() -> Self {
        let text = || format!("a channel of `{}`", type_name::<T>());
        Self { id: TypeId::of::<ToServer<T>>(), is_channel: true, text }
    }

    pub(super) fn bundle<B: 'static>() -> Self {
        Self { id: TypeId::of::<B>(), is_channel: false, text: || format!("the bundle `{}`", type_name::<B>()) }
    }

    pub(super) fn text(&self) -> String {
        (self.text)()
    }
}

impl fmt::Debug for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// The state of one face of a name.
pub enum Seat<E> {
    /// It is not joined.
    Free(E),
    Alone(At),
    /// A `WeakShared<E>`: in a box, as not every `E` can be shared.
    Shared(Box<dyn Any + Send>, At),
    /// It cannot be joined any more.
    Closed,
}

impl<E> Seat<E> {
    fn close(&mut self) -> Option<E> {
        match std::mem::replace(self, Self::Closed) {
            Self::Free(end) => Some(end),
            _ => None,
        }
    }

    fn is_free(&self) -> bool {
        matches!(self, Self::Free(_))
    }
}

/// Both faces of a name.
pub struct Faces<C, S> {
    client: Seat<C>,
    server: Seat<S>,
}

impl<E> fmt::Debug for Seat<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free(_) => "Free",
            Self::Alone(_) => "Alone",
            Self::Shared(..) => "Shared",
            Self::Closed => "Closed",
        })
    }
}

impl<C, S> fmt::Debug for Faces<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faces").field("client", &self.client).field("server", &self.server).finish()
    }
}

/// [`Faces`] of whatever type.
trait AnyFaces: Any + Send {
    fn as_any(&mut self) -> &mut dyn Any;
    /// Whether the sender's or client's, and the receiver's or server's, has not been joined.
    fn free(&self) -> (bool, bool);
    /// The unjoined ends, to be dropped.
    fn close(&mut self) -> Box<dyn Any + Send>;
}

impl<C: Send + 'static, S: Send + 'static> AnyFaces for Faces<C, S> {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn free(&self) -> (bool, bool) {
        (self.client.is_free(), self.server.is_free())
    }

    fn close(&mut self) -> Box<dyn Any + Send> {
        Box::new((self.client.close(), self.server.close()))
    }
}

/// The state of one name.
struct Entry {
    what: What,
    declared: At,
    policy: Option<(Policy, At)>,
    /// Made when the first face is joined here.
    faces: Option<Box<dyn AnyFaces>>,
}

impl Entry {
    fn new(what: What, declared: At) -> Self {
        Self { what, declared, policy: None, faces: None }
    }

    fn check(&self, name: &str, what: &What, at: At) -> Result<(), ScopeError> {
        if self.what.id == what.id {
            return Ok(());
        }
        Err(ScopeError::Type {
            name: name.to_owned(),
            declared: self.what.text(),
            declared_at: self.declared,
            wanted: what.text(),
            wanted_at: at,
        })
    }

    /// `false`: the policy was set elsewhere. The same place may declare it often, as each of several
    /// processes does.
    fn set_policy(&mut self, policy: &(Policy, At)) -> Result<bool, At> {
        match &self.policy {
            None => {
                self.policy = Some(policy.clone());
                Ok(true)
            }
            Some((_, at)) if *at == policy.1 => Ok(false),
            Some((_, at)) => Err(*at),
        }
    }
}

/// From this, further handles of an end that a node gave are made. Locked while the node is asked.
#[cfg(feature = "net")]
type AskedSeat = tokio::sync::Mutex<Option<Box<dyn Any + Send>>>;

/// The names of one scope.
#[derive(Default)]
pub(super) struct Names {
    entries: HashMap<String, Entry>,
    /// The ends that a node gave and several share here, by name and face.
    #[cfg(feature = "net")]
    asked: HashMap<(String, &'static str), Arc<AskedSeat>>,
    closed: bool,
}

impl Names {
    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Declares what a name stands for. The channel or bundle is made when it is first joined.
    pub(super) fn declare(&mut self, name: &str, what: What, policy: Option<Policy>, at: At) -> Result<(), ScopeError> {
        let entry = self.entries.entry(name.to_owned()).or_insert_with(|| Entry::new(what.clone(), at));
        entry.check(name, &what, at)?;
        let Some(policy) = policy else { return Ok(()) };
        let late = entry.faces.is_some() && entry.policy.is_none();
        let declared_at = match entry.set_policy(&(policy, at)) {
            Ok(_) if !late => return Ok(()),
            Ok(_) => None,
            Err(at) => Some(at),
        };
        Err(ScopeError::Policy { name: name.to_owned(), declared_at, wanted_at: at })
    }

    /// Joins a face of a name, which is made if there is none.
    pub(super) fn join<E: FromScope<K>, K>(&mut self, wanted: &Wanted) -> Result<E, ScopeError> {
        if self.closed {
            return Err(ScopeError::Finished);
        }
        let Wanted { name, policy, at, .. } = wanted;
        let what = E::what();
        let entry = self.entries.entry(name.clone()).or_insert_with(|| Entry::new(what.clone(), at));
        entry.check(name, &what, at)?;
        let mut new_policy = false;
        if let Some(policy) = policy {
            new_policy = entry.set_policy(policy).map_err(|declared| ScopeError::Policy {
                name: name.clone(),
                declared_at: Some(declared),
                wanted_at: policy.1,
            })?;
        }
        let declared = entry.declared;
        let existed = entry.faces.is_some();
        let faces = entry.faces.get_or_insert_with(|| {
            let policy = entry.policy.as_ref().map_or_else(Policy::default, |(policy, _)| policy.clone());
            let (client, server) = E::Of::pair(&ChannelFactory::new(policy).made_at(declared));
            Box::new(Faces { client: Seat::Free(client), server: Seat::Free(server) })
        });
        let faces = faces.as_any().downcast_mut().expect("the faces of one name are of the type it stands for");
        let seat = E::seat(faces);
        if new_policy
            && existed
            && let Some((policy, wanted_at)) = &entry.policy
        {
            // The other face was joined before it was declared.
            let is_set = matches!(&*seat, Seat::Free(end) if E::set_policy(end, policy));
            if !is_set {
                let wanted_at = *wanted_at;
                entry.policy = None;
                return Err(ScopeError::Policy { name: name.clone(), declared_at: None, wanted_at });
            }
        }
        E::take(seat, at).map_err(|refusal| refusal.of(name, E::FACE, at))
    }

    /// What a node needs to know of the name: the policy.
    #[cfg(feature = "net")]
    fn policy(&self, wanted: &Wanted) -> Policy {
        let declared = self.entries.get(&wanted.name).and_then(|entry| entry.policy.as_ref());
        declared.or(wanted.policy.as_ref()).map_or_else(Policy::default, |(policy, _)| policy.clone())
    }

    /// Requests an end from a node. A shared end is requested once.
    #[cfg(feature = "net")]
    pub(super) fn ask<E: FromScope<K>, K>(
        &mut self,
        node: crate::node::Node,
        wanted: &Wanted,
        ask: Ask<E::End>,
    ) -> Asked<E> {
        let (name, asking) = (wanted.name.clone(), ask(node, wanted.name.clone(), self.policy(wanted), E::SHARED));
        if !E::SHARED {
            return Box::pin(async { asking.await.map(E::of) });
        }
        let seat = self.asked.entry((name.clone(), E::FACE)).or_default().clone();
        Box::pin(async move {
            let mut seat = seat.lock().await;
            if let Some(weak) = &*seat {
                return E::again(&**weak).ok_or(ScopeError::Left { name, face: E::FACE });
            }
            let end = E::of(asking.await?);
            *seat = end.weak();
            Ok(end)
        })
    }

    /// What is requested from a node must be what was declared here.
    #[cfg(feature = "net")]
    pub(super) fn check(&self, wanted: &Wanted, what: &What) -> Result<(), ScopeError> {
        self.entries.get(&wanted.name).map_or(Ok(()), |entry| entry.check(&wanted.name, what, wanted.at))
    }

    /// Closes the table to joins. The caller drops the unjoined ends, outside the lock.
    pub(super) fn close(&mut self) -> Vec<Box<dyn Any + Send>> {
        self.closed = true;
        self.entries.values_mut().filter_map(|entry| entry.faces.as_mut()).map(|faces| faces.close()).collect()
    }

    pub(super) fn waiting(&self) -> Vec<WaitingName> {
        let mut waiting: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(name, entry)| {
                let channel = entry.what.is_channel;
                let missing = match entry.faces.as_ref()?.free() {
                    (true, false) if channel => "sender",
                    (true, false) => "client",
                    (false, true) if channel => "receiver",
                    (false, true) => "server",
                    _ => return None,
                };
                Some(WaitingName { name: name.clone(), missing, carries: entry.what.text(), declared: entry.declared })
            })
            .collect();
        waiting.sort_by(|a, b| a.name.cmp(&b.name));
        waiting
    }
}

/// A name of which one end has been joined, and the other not: see [`Scope::waiting`](super::Scope::waiting).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingName {
    /// The name.
    pub name: String,
    /// Which end is not joined: `sender`, `receiver`, `client` or `server`.
    pub missing: &'static str,
    /// What the name stands for.
    pub carries: String,
    /// Where it was declared first.
    pub declared: At,
}

impl fmt::Display for WaitingName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {} ({}), has no {}", self.name, self.carries, self.declared, self.missing)
    }
}

/// Why a seat could not be taken.
pub enum Refusal {
    /// It is held.
    Taken(At, bool),
    /// All its holders have left.
    Left,
    /// The scope is finished.
    Closed,
}

impl Refusal {
    fn of(self, name: &str, face: &'static str, wanted_at: At) -> ScopeError {
        let name = name.to_owned();
        match self {
            Self::Taken(joined_at, shared) => ScopeError::Taken { name, face, joined_at, shared, wanted_at },
            Self::Left => ScopeError::Left { name, face },
            Self::Closed => ScopeError::Finished,
        }
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refusal")
    }
}

impl<E> Seat<E> {
    fn take_alone(&mut self, at: At) -> Result<E, Refusal> {
        match self {
            Self::Free(_) => match std::mem::replace(self, Self::Alone(at)) {
                Self::Free(end) => Ok(end),
                _ => Err(Refusal::Closed),
            },
            Self::Alone(at) => Err(Refusal::Taken(at, false)),
            Self::Shared(_, at) => Err(Refusal::Taken(at, true)),
            Self::Closed => Err(Refusal::Closed),
        }
    }
}

impl<E: End<Link: Send + Sync> + Send + 'static> Seat<E> {
    fn take_shared(&mut self, at: At) -> Result<Shared<E>, Refusal> {
        if let Self::Shared(weak, _) = self {
            let weak = weak.downcast_ref::<WeakShared<E>>();
            return weak.and_then(WeakShared::upgrade).ok_or(Refusal::Left);
        }
        let shared = self.take_alone(at)?.share();
        *self = Self::Shared(Box::new(shared.downgrade()), at);
        Ok(shared)
    }
}

/// An end that can be joined under a name of a scope, as `K`.
///
/// A `Sender<T>`, `Sender<T, NoPoison>` or `Shared<Sender<T>>` can be joined as a sender, and the same of
/// receivers; a face of a bundle, or a `Shared` one, as a client or server.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be joined here",
    label = "the attribute does not give this type",
    note = "`#[sender(..)]` gives a `Sender<T>`, a `Sender<T, NoPoison>` or a `Shared<Sender<T>>`; `#[receiver(..)]` the same of receivers",
    note = "`#[client(..)]` and `#[server(..)]` give a face of a `#[derive(Bundle)]`, an end of a `Call`, or a `Shared` of one",
    note = "the messages must be `Send` and own what they hold"
)]
pub trait FromScope<K>: Sized + Send + 'static {
    /// The channel or bundle that has the two faces.
    type Of: Pairing<Client: Send + 'static, Server: Send + 'static> + 'static;
    /// The face.
    type End: Send + 'static;
    /// The face's word.
    const FACE: &'static str;
    /// Whether others may join it too.
    const SHARED: bool;
    #[doc(hidden)]
    fn what() -> What;
    #[doc(hidden)]
    fn seat(faces: &mut FacesOf<Self::Of>) -> &mut Seat<Self::End>;
    #[doc(hidden)]
    fn take(seat: &mut Seat<Self::End>, at: At) -> Result<Self, Refusal>;
    /// Makes it of an end that a node gave.
    #[doc(hidden)]
    fn of(end: Self::End) -> Self;
    /// If the end is shared: a weak handle from which others are made.
    #[doc(hidden)]
    fn weak(&self) -> Option<Box<dyn Any + Send>> {
        None
    }
    /// Another handle, unless all holders have left.
    #[doc(hidden)]
    fn again(_weak: &(dyn Any + Send)) -> Option<Self> {
        None
    }
    /// Sets a policy that becomes known after the other face was joined.
    #[doc(hidden)]
    fn set_policy(_end: &Self::End, _policy: &Policy) -> bool {
        false
    }
}

/// The items that only a shared end has.
macro_rules! sharing {
    (false, $raw:ty) => {};
    (true, $raw:ty) => {
        fn weak(&self) -> Option<Box<dyn Any + Send>> {
            Some(Box::new(self.downgrade()))
        }

        fn again(weak: &(dyn Any + Send)) -> Option<Self> {
            weak.downcast_ref::<WeakShared<$raw>>()?.upgrade()
        }
    };
}

type FacesOf<B> = Faces<<B as Pairing>::Client, <B as Pairing>::Server>;

macro_rules! joins_channel {
    ($($end:ty, $kind:ty, $raw:ty, $face:literal, $seat:ident, $shared:tt, $take:ident, |$it:ident| $of:expr;)*) => { $(
        impl<T: Send + 'static> FromScope<$kind> for $end {
            type Of = ToServer<T>;
            type End = $raw;
            const FACE: &'static str = $face;
            const SHARED: bool = $shared;

            fn what() -> What {
                What::channel::<T>()
            }

            fn seat(faces: &mut FacesOf<ToServer<T>>) -> &mut Seat<$raw> {
                &mut faces.$seat
            }

            fn take(seat: &mut Seat<$raw>, at: At) -> Result<Self, Refusal> {
                seat.$take(at).map(Self::from)
            }

            fn of($it: $raw) -> Self {
                $of
            }

            sharing!($shared, $raw);

            fn set_policy(end: &$raw, policy: &Policy) -> bool {
                end.set_policy(policy)
            }
        }
    )* };
}

joins_channel! {
    Sender<T>, AsSender, Sender<T>, "sender", client, false, take_alone, |end| end;
    Sender<T, NoPoison>, AsSender, Sender<T>, "sender", client, false, take_alone, |end| end.no_poison();
    Shared<Sender<T>>, AsSender, Sender<T>, "sender", client, true, take_shared, |end| end.share();
    Receiver<T>, AsReceiver, Receiver<T>, "receiver", server, false, take_alone, |end| end;
    Receiver<T, NoPoison>, AsReceiver, Receiver<T>, "receiver", server, false, take_alone, |end| end.no_poison();
    Shared<Receiver<T>>, AsReceiver, Receiver<T>, "receiver", server, true, take_shared, |end| end.share();
}

macro_rules! joins_face {
    ($($face_trait:ident, $kind:ty, $face:literal, $seat:ident, $side:ident, $other:ident;)*) => { $(
        impl<F> FromScope<$kind> for F
        where
            F: $face_trait<Bundle: Pairing<$side = F, $other: Send + 'static> + 'static> + Send + 'static,
        {
            type Of = F::Bundle;
            type End = F;
            const FACE: &'static str = $face;
            const SHARED: bool = false;

            fn what() -> What {
                What::bundle::<F::Bundle>()
            }

            fn seat(faces: &mut FacesOf<F::Bundle>) -> &mut Seat<F> {
                &mut faces.$seat
            }

            fn take(seat: &mut Seat<F>, at: At) -> Result<Self, Refusal> {
                seat.take_alone(at)
            }

            fn of(end: F) -> Self {
                end
            }
        }

        impl<F> FromScope<$kind> for Shared<F>
        where
            F: $face_trait<Bundle: Pairing<$side = F, $other: Send + 'static> + 'static>
                + End<Link: Send + Sync>
                + Send
                + 'static,
        {
            type Of = F::Bundle;
            type End = F;
            const FACE: &'static str = $face;
            const SHARED: bool = true;

            fn what() -> What {
                What::bundle::<F::Bundle>()
            }

            fn seat(faces: &mut FacesOf<F::Bundle>) -> &mut Seat<F> {
                &mut faces.$seat
            }

            fn take(seat: &mut Seat<F>, at: At) -> Result<Self, Refusal> {
                seat.take_shared(at)
            }

            fn of(end: F) -> Self {
                end.share()
            }

            sharing!(true, F);
        }
    )* };
}

joins_face! {
    ClientFace, AsClient, "client", client, Client, Server;
    ServerFace, AsServer, "server", server, Server, Client;
}

/// A join request, apart from its type.
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) policy: Option<(Policy, At)>,
    pub(super) at: At,
}

/// What a [`Join`](super::Join) resolves with.
pub type Joining<E> = Pin<Box<dyn Future<Output = Result<E, ScopeError>> + Send>>;

/// The outcome of a join.
pub(super) enum Joined<E> {
    Here(E),
    #[cfg_attr(not(feature = "net"), expect(dead_code, reason = "there are no nodes"))]
    There(Asked<E>),
}

/// The end, or the node's reason.
pub(crate) type Asked<E> = Pin<Box<dyn Future<Output = Result<E, ScopeError>> + Send>>;

/// How a node is asked for an end of this name and policy, and whether it is shared.
#[cfg(feature = "net")]
pub(crate) type Ask<E> = fn(crate::node::Node, String, dunlin_core::Policy, bool) -> Asked<E>;

/// There are no nodes.
#[cfg(not(feature = "net"))]
pub(crate) type Ask<E> = PhantomData<fn() -> E>;
