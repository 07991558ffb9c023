//! Ends of dunlin's channels, as ends of Scheme.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use dunlin::{Choice, OwnedClaim, Receiver, RecvError, SendError, Sender, Shared, Why};
use dunlin_scheme::{End, EndKind, Refusal, Value, from_value, value_of};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::machine::lock;

/// An end of a channel that Scheme can have: a [`Sender`], a [`Receiver`], or a [`Shared`] one.
///
/// A channel that Scheme made has values of the type [`Value`].
///
/// # Examples
/// ```
/// use dunlin::{Receiver, channel};
/// use dunlin_scheme_host::{ChannelEnd, End, Program, Value};
///
/// # dunlin::block_on(async {
/// let program = Program::new();
/// // From Rust to Scheme: the first process that uses it holds it.
/// let (mut tx, rx) = channel::<(String, u32)>();
/// program.define("numbers", &rx.into_end())?;
/// let doubler = program.spawn("doubler", "(* 2 (cadr (channel-receive numbers)))")?;
/// tx.send(("krill".to_owned(), 21)).await?;
/// assert_eq!(doubler.await?, Value::Integer(42));
/// // From Scheme to Rust: with a message, or as the value of a process.
/// let maker = program.spawn("maker", "
///     (define-values (out in) (make-channel))
///     (spawn (lambda () (channel-send out '(1 2))))
///     in")?;
/// let Value::End(end) = maker.await? else { panic!("an end") };
/// let mut numbers = Receiver::<Value>::from_end(&end)?;
/// assert_eq!(numbers.recv().await?.to_string(), "(1 2)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait ChannelEnd: Sized {
    /// Makes it an end that Scheme can have.
    fn into_end(self) -> End;

    /// Takes the end back. A shared end stays where it is, too; any other one is in Rust from now on, and
    /// Scheme processes that use it raise an error of the kind `end`.
    ///
    /// # Errors
    /// [`EndError`], and the end stays as it was.
    fn from_end(end: &End) -> Result<Self, EndError>;
}

/// Why an end of Scheme is not the one that was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndError {
    /// It is the other end, has other values, or one is shared and the other is not.
    OtherType,
    /// It was taken already, or is in use.
    Gone,
}

impl std::fmt::Display for EndError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OtherType => "the end of a channel has another type than the one that was asked for",
            Self::Gone => "the end of a channel was taken already, or an operation uses it",
        })
    }
}

impl std::error::Error for EndError {}

/// What an [`End`] holds, unless an operation has taken it out.
pub(crate) struct Cell(Mutex<Option<Box<dyn Hold>>>);

impl Cell {
    /// Takes the end for an operation; a shared one stays, too.
    pub(crate) fn take(end: &End) -> Option<Box<dyn Hold>> {
        take_out(&mut lock(&end.get::<Self>()?.0))
    }

    /// Puts the end back after the operation.
    pub(crate) fn put(end: &End, hold: Box<dyn Hold>) {
        if let Some(Self(held)) = end.get::<Self>()
            && !end.is_shared()
        {
            *lock(held) = Some(hold);
        }
    }
}

fn take_out(held: &mut Option<Box<dyn Hold>>) -> Option<Box<dyn Hold>> {
    held.as_ref()?.another().or_else(|| held.take())
}

/// An end of Scheme that holds this.
pub(crate) fn end_of(hold: Box<dyn Hold>) -> End {
    let (kind, is_shared) = hold.kind();
    End::new(kind, is_shared, Arc::new(Cell(Mutex::new(Some(hold)))))
}

/// What a branch of a choice ends with.
pub(crate) enum Chosen {
    Value(Value),
    Ended,
    Failed(Refusal),
    Claimed(Box<dyn Hold>),
    /// No branch was possible at once.
    Skipped,
}

/// A future without a type of its own.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An end of any type, with what its operations need.
pub(crate) trait Hold: Any + Send {
    fn kind(&self) -> (EndKind, bool);

    /// Another handle, of a shared end.
    fn another(&self) -> Option<Box<dyn Hold>>;

    /// Gets what is to be sent.
    fn load(&mut self, _message: Value) -> Result<(), Refusal> {
        Err(other("this end does not send"))
    }

    /// Adds a receive, or a send of what was loaded, to a choice.
    fn offer<'a>(&'a mut self, choice: Choice<'a, Chosen>) -> Choice<'a, Chosen>;

    /// Adds a claim of a shared end to a choice.
    fn claim<'a>(&'a mut self, choice: Choice<'a, Chosen>) -> Choice<'a, Chosen>;

    /// After a choice: whether what was loaded was sent all the same. Nothing is loaded any more.
    fn settle(&mut self) -> Boxed<'_, Option<Chosen>> {
        Box::pin(async { None })
    }

    /// A shared end in place of this one; a claimed end comes back as it is.
    fn share(self: Box<Self>) -> Result<Box<dyn Hold>, Box<dyn Hold>>;

    fn retire(&mut self) -> Boxed<'_, Result<(), Refusal>>;

    fn poison(&self, reason: &str);
}

pub(crate) fn other(message: &str) -> Refusal {
    Refusal { kind: "channel", message: message.to_owned(), detail: None }
}

fn poisoned(reason: &dunlin::Reason) -> Refusal {
    Refusal {
        kind: "poison",
        message: "the channel was poisoned:".to_owned(),
        detail: Some(reason.as_str().to_owned()),
    }
}

fn not_sent<T>(error: &SendError<T>) -> Refusal {
    match error.why() {
        Some(Why::Closed) => Refusal { kind: "closed", message: "the channel has ended".to_owned(), detail: None },
        Some(Why::Poisoned(reason)) => poisoned(reason),
        _ => other(&error.to_string()),
    }
}

fn received<M: Serialize + 'static>(result: Result<M, RecvError>) -> Chosen {
    match result {
        Ok(message) => match into_value(message) {
            Ok(value) => Chosen::Value(value),
            Err(error) => Chosen::Failed(other(&format!("what was received is no data: {error}"))),
        },
        Err(RecvError::Closed) => Chosen::Ended,
        Err(RecvError::Poisoned(reason)) => Chosen::Failed(poisoned(&reason)),
        Err(error) => Chosen::Failed(other(&error.to_string())),
    }
}

fn sent<T>(result: Result<(), SendError<T>>) -> Chosen {
    match result {
        Ok(()) => Chosen::Value(Value::Unspecified),
        Err(error) => Chosen::Failed(not_sent(&error)),
    }
}

/// Data of a message. A message that is a value is not copied.
fn into_value<M: Serialize + 'static>(message: M) -> Result<Value, dunlin_scheme::ValueError> {
    let mut message = Some(message);
    if let Some(value) = (&mut message as &mut dyn Any).downcast_mut::<Option<Value>>() {
        return Ok(value.take().unwrap_or(Value::Unspecified));
    }
    message.as_ref().map_or(Ok(Value::Unspecified), value_of)
}

/// A message of data.
fn from_data<M: DeserializeOwned + 'static>(value: Value) -> Result<M, Refusal> {
    let mut value = Some(value);
    if let Some(message) = (&mut value as &mut dyn Any).downcast_mut::<Option<M>>()
        && let Some(message) = message.take()
    {
        return Ok(message);
    }
    from_value(value.unwrap_or(Value::Unspecified)).map_err(|error| Refusal {
        kind: "type",
        message: format!("not sent: {error}"),
        detail: None,
    })
}

/// An end as Scheme has it.
enum Held<E: dunlin::End> {
    Own(E),
    Claimed(OwnedClaim<E>),
    Shared(Shared<E>),
}

impl<E: dunlin::End> Held<E> {
    fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    fn into_own(self) -> Option<E> {
        if let Self::Own(end) = self { Some(end) } else { None }
    }

    fn into_shared(self) -> Option<Shared<E>> {
        if let Self::Shared(end) = self { Some(end) } else { None }
    }
}

/// What senders and receivers do alike: no trait has these methods of both.
macro_rules! alike {
    () => {
        fn another(&self) -> Option<Box<dyn Hold>> {
            let Held::Shared(end) = &self.held else { return None };
            Some(Box::new(Self::new(Held::Shared(end.clone()))))
        }

        fn claim<'a>(&'a mut self, choice: Choice<'a, Chosen>) -> Choice<'a, Chosen> {
            let Held::Shared(end) = &mut self.held else { return choice };
            choice.on(end.claim(), |result| match result {
                Ok(claim) => Chosen::Claimed(Box::new(Self::new(Held::Claimed(claim.into_owned())))),
                Err(error) => Chosen::Failed(other(&error.to_string())),
            })
        }

        fn share(self: Box<Self>) -> Result<Box<dyn Hold>, Box<dyn Hold>> {
            match self.held {
                Held::Own(end) => Ok(Box::new(Self::new(Held::Shared(end.share())))),
                Held::Claimed(_) => Err(self),
                Held::Shared(_) => Ok(self),
            }
        }

        fn retire(&mut self) -> Boxed<'_, Result<(), Refusal>> {
            Box::pin(async {
                match &mut self.held {
                    Held::Own(end) => end.retire(),
                    Held::Claimed(end) => end.retire(),
                    Held::Shared(end) => return end.retire().await.map_err(|error| other(&error.to_string())),
                }
                Ok(())
            })
        }

        fn poison(&self, reason: &str) {
            match &self.held {
                Held::Own(end) => end.poison(reason),
                Held::Claimed(end) => end.poison(reason),
                Held::Shared(end) => end.poison(reason),
            }
        }
    };
}

struct Out<M> {
    held: Held<Sender<M>>,
    slot: Option<M>,
    is_loaded: bool,
}

impl<M> Out<M> {
    fn new(held: Held<Sender<M>>) -> Self {
        Self { held, slot: None, is_loaded: false }
    }
}

impl<M: DeserializeOwned + Send + 'static> Hold for Out<M> {
    alike!();

    fn kind(&self) -> (EndKind, bool) {
        (EndKind::Sender, self.held.is_shared())
    }

    fn load(&mut self, message: Value) -> Result<(), Refusal> {
        self.slot = Some(from_data(message)?);
        self.is_loaded = true;
        Ok(())
    }

    fn offer<'a>(&'a mut self, choice: Choice<'a, Chosen>) -> Choice<'a, Chosen> {
        match &mut self.held {
            Held::Own(end) => choice.on(end.send_from(&mut self.slot), sent),
            Held::Claimed(end) => choice.on(end.send_from(&mut self.slot), sent),
            Held::Shared(end) => choice.on(end.send_from(&mut self.slot), sent),
        }
    }

    fn settle(&mut self) -> Boxed<'_, Option<Chosen>> {
        Box::pin(async {
            if !std::mem::take(&mut self.is_loaded) {
                return None;
            }
            let settled = match &mut self.held {
                Held::Own(end) => end.settle(&mut self.slot).await,
                Held::Claimed(end) => end.settle(&mut self.slot).await,
                Held::Shared(end) => end.settle(&mut self.slot).await,
            };
            let is_back = self.slot.take().is_some();
            match settled {
                Err(error) => Some(Chosen::Failed(not_sent(&error))),
                Ok(()) if is_back => None,
                Ok(()) => Some(Chosen::Value(Value::Unspecified)),
            }
        })
    }
}

struct In<M> {
    held: Held<Receiver<M>>,
}

impl<M> In<M> {
    fn new(held: Held<Receiver<M>>) -> Self {
        Self { held }
    }
}

impl<M: Serialize + Send + 'static> Hold for In<M> {
    alike!();

    fn kind(&self) -> (EndKind, bool) {
        (EndKind::Receiver, self.held.is_shared())
    }

    fn offer<'a>(&'a mut self, choice: Choice<'a, Chosen>) -> Choice<'a, Chosen> {
        match &mut self.held {
            Held::Own(end) => choice.on(end.recv(), received),
            Held::Claimed(end) => choice.on(end.recv(), received),
            Held::Shared(end) => choice.on(end.recv(), received),
        }
    }
}

/// Takes what an end holds, if it has this type and fits; a shared end keeps a handle.
fn taken<H: Hold>(end: &End, fits: impl FnOnce(&H) -> bool) -> Result<Box<H>, EndError> {
    let Some(Cell(held)) = end.get::<Cell>() else { return Err(EndError::OtherType) };
    let mut held = lock(held);
    let hold: &dyn Any = &**held.as_ref().ok_or(EndError::Gone)?;
    if !hold.downcast_ref().is_some_and(fits) {
        return Err(EndError::OtherType);
    }
    let hold: Box<dyn Any> = take_out(&mut held).ok_or(EndError::Gone)?;
    hold.downcast().map_err(|_| EndError::OtherType)
}

impl<M: DeserializeOwned + Send + 'static> ChannelEnd for Sender<M> {
    fn into_end(self) -> End {
        end_of(Box::new(Out::new(Held::Own(self))))
    }

    fn from_end(end: &End) -> Result<Self, EndError> {
        taken(end, |end: &Out<M>| end.held.is_own())?.held.into_own().ok_or(EndError::OtherType)
    }
}

impl<M: DeserializeOwned + Send + 'static> ChannelEnd for Shared<Sender<M>> {
    fn into_end(self) -> End {
        end_of(Box::new(Out::new(Held::Shared(self))))
    }

    fn from_end(end: &End) -> Result<Self, EndError> {
        taken(end, |end: &Out<M>| end.held.is_shared())?.held.into_shared().ok_or(EndError::OtherType)
    }
}

impl<M: Serialize + Send + 'static> ChannelEnd for Receiver<M> {
    fn into_end(self) -> End {
        end_of(Box::new(In::new(Held::Own(self))))
    }

    fn from_end(end: &End) -> Result<Self, EndError> {
        taken(end, |end: &In<M>| end.held.is_own())?.held.into_own().ok_or(EndError::OtherType)
    }
}

impl<M: Serialize + Send + 'static> ChannelEnd for Shared<Receiver<M>> {
    fn into_end(self) -> End {
        end_of(Box::new(In::new(Held::Shared(self))))
    }

    fn from_end(end: &End) -> Result<Self, EndError> {
        taken(end, |end: &In<M>| end.held.is_shared())?.held.into_shared().ok_or(EndError::OtherType)
    }
}
