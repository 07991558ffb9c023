//! The [`Mobile`] implementations: how each kind of end moves in a message.

use std::any::TypeId;
use std::panic::Location;
use std::sync::Arc;

use serde::de::VariantAccess;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Portable;
use super::agents::{Agent, Value};
use super::carrier::{self, Another, EndKind, Keeps, MakesAgent, Mobile, Place, PolicyNote, SharedEnd};
use crate::agent::{Inlet, Lone, LoneOutlet, Outlet};
use crate::barrier::Barrier;
use crate::broadcast::{Broadcast, Joiner};
use crate::call::{Callee, Caller};
use crate::channel::MayPoison;
use crate::channel::policy::{Policy, fifo, rendezvous};
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::state::Chan;
use crate::error::Why;
use crate::reply::Reply;
use crate::share::Shared;
use crate::share::far::Lend;
use crate::waits::ChannelId;

impl<T: Portable, P: 'static> Mobile for Sender<T, P> {
    const MESSAGES: &'static [&'static str] = &["message"];

    fn trace<'de, A: VariantAccess<'de>>(index: u32, access: A) -> Result<(), A::Error> {
        match index {
            0 => access.newtype_variant::<T>().map(drop),
            _ => access.unit_variant(),
        }
    }

    fn kind() -> EndKind {
        EndKind::Sender { may_poison: may_poison::<P>() }
    }

    fn place(&self) -> Option<Place> {
        Some(Place::Sending(address(self.chan())))
    }

    fn channel(&self) -> Option<ChannelId> {
        Some(self.id())
    }

    fn policy(&self) -> Option<PolicyNote> {
        None
    }

    fn is_stretched(&self) -> bool {
        self.chan().is_stretched(true)
    }

    fn leaves(&self) {
        self.chan().leaves();
    }

    fn is_busy(&self) -> bool {
        self.chan().is_busy()
    }

    #[cfg(feature = "link")]
    fn unsettled(&self) -> Option<carrier::Unsettled> {
        let chan = self.chan().clone();
        let is_unsettled = chan.poll_rest(std::task::Waker::noop()).is_pending();
        is_unsettled.then(|| Box::new(move |waker: &std::task::Waker| chan.poll_rest(waker)) as carrier::Unsettled)
    }

    fn into_agent(self) -> Agent {
        Agent::Inlet(Inlet::new(self).into())
    }

    fn lend(&self, keeps: &Keeps) -> Option<MakesAgent> {
        let (chan, keeps) = (self.chan().clone(), keeps.clone());
        Some(Box::new(move || {
            if let Some(why) = chan.why_no_send() {
                // An agent beside the end would live as long as the channel.
                let (there, here) = crate::channel::ends::<T, MayPoison, MayPoison>(&rendezvous(), Location::caller());
                if let Why::Poisoned(reason) = why {
                    here.chan().poison_surely(reason);
                }
                return Agent::Inlet(Inlet::new(there).into());
            }
            let lone = Lone::beside(chan.clone(), keeps);
            Agent::Inlet(Inlet::lone_of(chan, lone).into())
        }))
    }

    fn adopt(_: &Policy) -> (Self, Agent) {
        // The policy is the receiver's.
        let (here, there) = crate::channel::ends::<T, P, MayPoison>(&rendezvous(), Location::caller());
        (here, Agent::Outlet(Outlet::new(there).into()))
    }

    fn another(&self) -> Another<Self> {
        Box::new(self.another())
    }

    fn is_several(&self) -> bool {
        self.chan().sender_is_several()
    }

    fn alone(self) -> Option<Self> {
        self.alone()
    }
}

impl<T: Portable, P: 'static> Mobile for Receiver<T, P> {
    const MESSAGES: &'static [&'static str] = &["message"];

    fn trace<'de, A: VariantAccess<'de>>(index: u32, access: A) -> Result<(), A::Error> {
        match index {
            0 => access.newtype_variant::<T>().map(drop),
            _ => access.unit_variant(),
        }
    }

    fn kind() -> EndKind {
        EndKind::Receiver { may_poison: may_poison::<P>() }
    }

    fn place(&self) -> Option<Place> {
        Some(Place::Receiving(address(self.chan())))
    }

    fn channel(&self) -> Option<ChannelId> {
        Some(self.id())
    }

    fn policy(&self) -> Option<PolicyNote> {
        self.chan().policy().and_then(|policy| PolicyNote::of(&policy))
    }

    fn is_stretched(&self) -> bool {
        self.chan().is_stretched(false)
    }

    fn leaves(&self) {
        self.chan().leaves();
    }

    fn is_busy(&self) -> bool {
        self.chan().is_busy()
    }

    fn into_agent(self) -> Agent {
        Agent::Outlet(Outlet::new(self).into())
    }

    fn lend(&self, keeps: &Keeps) -> Option<MakesAgent> {
        let (chan, keeps) = (self.chan().clone(), keeps.clone());
        Some(Box::new(move || {
            if let Some(reason) = chan.with_queue(|queue, _, _| queue.poison_reason().cloned()) {
                let (there, here) = crate::channel::ends::<T, MayPoison, MayPoison>(&rendezvous(), Location::caller());
                there.chan().poison_surely(reason);
                return Agent::Outlet(Outlet::new(here).into());
            }
            let lone = Lone::beside(chan.clone(), keeps);
            Agent::Outlet(LoneOutlet::of(chan, lone).into())
        }))
    }

    fn adopt(policy: &Policy) -> (Self, Agent) {
        let (there, here) = crate::channel::ends::<T, MayPoison, P>(policy, Location::caller());
        (here, Agent::Inlet(Inlet::of_coming(there).into()))
    }

    fn another(&self) -> Another<Self> {
        Box::new(self.another())
    }

    fn is_several(&self) -> bool {
        self.chan().receiver_is_several()
    }

    fn alone(self) -> Option<Self> {
        self.alone()
    }
}

impl<E: Lend> Mobile for Shared<E> {
    const MESSAGES: &'static [&'static str] = &["end"];

    fn trace<'de, A: VariantAccess<'de>>(index: u32, access: A) -> Result<(), A::Error> {
        match index {
            0 => access.newtype_variant::<E>().map(drop),
            _ => access.unit_variant(),
        }
    }

    fn kind() -> EndKind {
        E::KIND
    }

    fn place(&self) -> Option<Place> {
        Some(Place::Handle(self.record().index()))
    }

    // A face of a bundle has several channels.
    fn channel(&self) -> Option<ChannelId> {
        None
    }

    fn policy(&self) -> Option<PolicyNote> {
        None
    }

    fn is_stretched(&self) -> bool {
        self.is_kept_beside()
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn into_agent(self) -> Agent {
        Agent::Several(self.into_agents())
    }

    fn unshared(self) -> Result<Value, Self> {
        self.into_end().map(Value::new)
    }

    fn adopt(_: &Policy) -> (Self, Agent) {
        let (handle, agents) = Self::adopt();
        (handle, Agent::Several(agents))
    }

    fn shared_end(&self) -> Option<SharedEnd> {
        Some(self.shared_end())
    }

    fn has_number(&self, number: u128, is_here: bool) {
        self.has_number(number, is_here);
    }

    fn brought_by(&self, carrier: u64) {
        self.brought_by(carrier);
    }

    fn carrier(&self) -> Option<u64> {
        self.carrier()
    }

    fn another(&self) -> Another<Self> {
        let another = self.another();
        Box::new(|| Some(another()))
    }

    // It may have several holders, so two values are just two handles.
    fn is_several(&self) -> bool {
        false
    }

    fn alone(self) -> Option<Self> {
        Some(self)
    }
}

impl Mobile for Barrier {
    const MESSAGES: &'static [&'static str] = &[];

    fn trace<'de, A: VariantAccess<'de>>(_: u32, access: A) -> Result<(), A::Error> {
        access.unit_variant()
    }

    fn kind() -> EndKind {
        EndKind::Barrier
    }

    fn place(&self) -> Option<Place> {
        Some(Place::Handle(self.number()))
    }

    fn channel(&self) -> Option<ChannelId> {
        None
    }

    fn policy(&self) -> Option<PolicyNote> {
        None
    }

    fn is_stretched(&self) -> bool {
        false
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn into_agent(self) -> Agent {
        Agent::Several(self.into_agents())
    }

    fn adopt(_: &Policy) -> (Self, Agent) {
        let (enrolment, agents) = Self::adopt();
        (enrolment, Agent::Several(agents))
    }

    fn shared_end(&self) -> Option<SharedEnd> {
        Some(self.shared_end())
    }

    fn has_number(&self, number: u128, _: bool) {
        self.has_number(number);
    }

    fn another(&self) -> Another<Self> {
        Box::new(self.another())
    }

    // Several parties may be enrolled, so two values are just two enrolments.
    fn is_several(&self) -> bool {
        false
    }

    fn alone(self) -> Option<Self> {
        Some(self)
    }
}

impl<T: Portable> Mobile for Broadcast<T> {
    const MESSAGES: &'static [&'static str] = &["message"];

    fn trace<'de, A: VariantAccess<'de>>(index: u32, access: A) -> Result<(), A::Error> {
        match index {
            0 => access.newtype_variant::<T>().map(drop),
            _ => access.unit_variant(),
        }
    }

    fn kind() -> EndKind {
        EndKind::Broadcast
    }

    fn place(&self) -> Option<Place> {
        Some(Place::Sending(self.address()))
    }

    // It has one for each receiver that has joined.
    fn channel(&self) -> Option<ChannelId> {
        None
    }

    fn policy(&self) -> Option<PolicyNote> {
        PolicyNote::of(self.policy())
    }

    fn is_stretched(&self) -> bool {
        false
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn into_agent(self) -> Agent {
        Agent::Several(self.into_agents())
    }

    fn adopt(policy: &Policy) -> (Self, Agent) {
        let (broadcast, agents) = Self::adopt(policy);
        (broadcast, Agent::Several(agents))
    }

    fn another(&self) -> Another<Self> {
        Box::new(self.another())
    }

    fn is_several(&self) -> bool {
        self.is_several()
    }

    fn alone(self) -> Option<Self> {
        self.alone()
    }
}

impl<T: Portable, P: 'static> Mobile for Joiner<T, P> {
    const MESSAGES: &'static [&'static str] = &["message"];

    fn trace<'de, A: VariantAccess<'de>>(index: u32, access: A) -> Result<(), A::Error> {
        match index {
            0 => access.newtype_variant::<T>().map(drop),
            _ => access.unit_variant(),
        }
    }

    fn kind() -> EndKind {
        EndKind::Joiner { may_poison: may_poison::<P>() }
    }

    // It may have several holders, so two values are just two joiners.
    fn place(&self) -> Option<Place> {
        None
    }

    fn channel(&self) -> Option<ChannelId> {
        None
    }

    fn policy(&self) -> Option<PolicyNote> {
        PolicyNote::of(self.policy())
    }

    fn is_stretched(&self) -> bool {
        false
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn into_agent(self) -> Agent {
        Agent::Several(self.into_agents())
    }

    fn adopt(policy: &Policy) -> (Self, Agent) {
        let (joiner, agents) = Self::adopt(policy);
        (joiner, Agent::Several(agents))
    }

    fn brought_by(&self, carrier: u64) {
        self.brought_by(carrier);
    }

    fn carrier(&self) -> Option<u64> {
        self.carrier()
    }

    fn another(&self) -> Another<Self> {
        Box::new(self.another())
    }

    fn is_several(&self) -> bool {
        false
    }

    fn alone(self) -> Option<Self> {
        Some(self)
    }
}

/// An end that wraps another one: it moves as that does.
macro_rules! moves_as {
    ($(<$($parameter:ident $message:literal),*> $end:ty: $kind:expr, $inner:ident, $adopt:expr;)*) => { $(
        impl<$($parameter: Portable),*> Mobile for $end {
            const MESSAGES: &'static [&'static str] = &[$($message),*];

            fn trace<'de, V: VariantAccess<'de>>(index: u32, access: V) -> Result<(), V::Error> {
                $(if Self::MESSAGES.get(index as usize) == Some(&$message) {
                    return access.newtype_variant::<$parameter>().map(drop);
                })*
                access.unit_variant()
            }

            fn kind() -> EndKind {
                $kind
            }

            fn place(&self) -> Option<Place> {
                self.$inner().place()
            }

            fn channel(&self) -> Option<ChannelId> {
                self.$inner().channel()
            }

            fn policy(&self) -> Option<PolicyNote> {
                self.$inner().policy()
            }

            fn is_stretched(&self) -> bool {
                self.$inner().is_stretched()
            }

            fn leaves(&self) {
                Mobile::leaves(self.$inner());
            }

            fn is_busy(&self) -> bool {
                self.$inner().is_busy()
            }

            fn another(&self) -> Another<Self> {
                let another = self.$inner().another();
                Box::new(|| another().map(Self::over))
            }

            fn is_several(&self) -> bool {
                self.$inner().is_several()
            }

            fn alone(self) -> Option<Self> {
                self.into_inner().alone().map(Self::over)
            }

            fn into_agent(self) -> Agent {
                self.into_inner().into_agent()
            }

            fn lend(&self, keeps: &Keeps) -> Option<MakesAgent> {
                // A place for a reply is consumed by the reply.
                if $kind == EndKind::Reply { None } else { self.$inner().lend(keeps) }
            }

            fn adopt(policy: &Policy) -> (Self, Agent) {
                let (inner, agent) = $adopt(policy);
                (Self::over(inner), agent)
            }
        }
    )* };
}

moves_as! {
    <Q "request", A "reply"> Caller<Q, A>: EndKind::Caller, requests, Mobile::adopt;
    <Q "request", A "reply"> Callee<Q, A>: EndKind::Callee, asked, Mobile::adopt;
    <A "reply"> Reply<A>: EndKind::Reply, sender, adopt_slot;
}

/// The slot of a reply is where the reply is sent, because that must not wait.
fn adopt_slot<A: Portable>(_: &Policy) -> (Sender<A>, Agent) {
    let (here, slot) = crate::channel::ends(&fifo(1), Location::caller());
    (here, Agent::slot(slot))
}

fn may_poison<P: 'static>() -> bool {
    TypeId::of::<P>() == TypeId::of::<MayPoison>()
}

fn address<T>(chan: &Arc<Chan<T>>) -> usize {
    Arc::as_ptr(chan).addr()
}

macro_rules! travels {
    ($(<$($parameter:ident),*> $end:ty where { $($bounds:tt)* })*) => { $(
        impl<$($parameter),*> Serialize for $end
        where
            $($bounds)*
        {
            /// Stages the end with the carrier, and writes its number.
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                carrier::write(self, serializer)
            }
        }

        impl<'de, $($parameter),*> Deserialize<'de> for $end
        where
            $($bounds)*
        {
            /// Reads the end's number, and takes it from the carrier.
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                carrier::read(deserializer)
            }
        }
    )* };
}

// The bounds name `Portable` and not its supertraits, so that errors name it too.
travels! {
    <T, P> Sender<T, P> where { T: Portable, P: 'static }
    <T, P> Receiver<T, P> where { T: Portable, P: 'static }
    <E> Shared<E> where { E: Lend }
    <> Barrier where {}
    <T> Broadcast<T> where { T: Portable }
    <T, P> Joiner<T, P> where { T: Portable, P: 'static }
    <Q, A> Caller<Q, A> where { Q: Portable, A: Portable }
    <Q, A> Callee<Q, A> where { Q: Portable, A: Portable }
    <A> Reply<A> where { A: Portable }
}
