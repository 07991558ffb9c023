//! Values as bytes: a link's part of an offer, and values encoded or decoded without the lock.

use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::Bytes;

use super::value::Source;
use crate::channel::erased::Erased;
use crate::channel::words::{Link, ReadPlaces, Terms};
use crate::choice::decision::{Branching, Reserver};
use crate::error::Why;

/// Encodes the value at this place into at most this many bytes. Pending: an end in it has an unsettled
/// operation, and the waker is woken once that is settled.
///
/// # Safety
/// A value of the channel's type is there.
pub(crate) type Encode = unsafe fn(*const (), Terms, u64, &Waker) -> Poll<Result<Bytes, Why>>;

/// Decodes a value. The flag: the value may keep the bytes, which keep no large buffer alive for it.
pub(crate) type Decode = fn(&Bytes, Terms, bool) -> Result<Erased, Why>;

/// The data of a channel's half for the link that joins it to the other half.
pub(crate) struct Remote {
    pub(super) link: Arc<dyn Link>,
    pub(super) terms: Terms,
    pub(super) encode: Encode,
    pub(super) decode: Decode,
    /// The only offer, if it takes the place of one in the queue.
    pub(crate) slot: Slot,
    /// The bytes of the offer that is being made.
    pub(super) encoded: Option<Bytes>,
    /// The value that a receive has decoded, while it looks again.
    pub(super) decoded: Option<Reading>,
    /// Values that were taken and whose sends are no longer polled. The end's next operation, or its drop,
    /// drops them.
    pub(super) spent: Vec<Erased>,
    /// How many values have been decoded: each read has its own number.
    pub(super) reads: u64,
    /// The home has announced how it takes values; until then nothing is offered.
    pub(super) is_open: bool,
    /// The home has announced that its receiver is gone.
    pub(crate) receiver_gone: bool,
    /// Some of its values have places for replies in them.
    pub(crate) has_places: bool,
}

impl Remote {
    pub(crate) fn new(link: Arc<dyn Link>, terms: Terms, encode: Encode, decode: Decode) -> Self {
        Self {
            link,
            terms,
            encode,
            decode,
            slot: Slot::Empty,
            encoded: None,
            decoded: None,
            spent: Vec::new(),
            reads: 0,
            is_open: false,
            receiver_gone: false,
            has_places: false,
        }
    }

    /// Whether an agent takes over where the link cannot continue.
    pub(super) fn has_agent(&self) -> bool {
        self.terms.is_message
    }

    /// Takes the bytes of the value being sent.
    pub(super) fn take_bytes(&mut self) -> Option<Bytes> {
        self.encoded.take()
    }

    /// The state of bytes that the read with number `mark`, if any, decodes. `Err`: a new read with this
    /// number must decode them.
    pub(super) fn stand(&mut self, mark: Option<u64>, own: Branching<'_>) -> Result<Stand, u64> {
        if let Some(decoded) = self.decoded.as_mut().filter(|decoded| mark == Some(decoded.number)) {
            match decoded.value.take() {
                Some(Err(why)) => return Ok(Stand::Unreadable(why)),
                value => decoded.value = value,
            }
            return Ok(Stand::Here);
        }
        if mark.is_some() {
            return Ok(Stand::ByOther);
        }
        // A choice is closed while it decodes. Otherwise another party could decide it, and the decoding
        // would be wasted.
        if own.is_some_and(|(decision, _)| !decision.close_now()) {
            return Ok(Stand::ChoiceGone);
        }
        let number = self.reads;
        self.reads += 1;
        Err(number)
    }

    pub(super) fn reading(&self, ticket: u64, number: u64, bytes: Bytes) -> Reading {
        Reading {
            ticket,
            number,
            bytes,
            is_apart: false,
            decode: self.decode,
            terms: self.terms,
            request: None,
            places: None,
            value: None,
        }
    }

    /// The same for an offer.
    pub(super) fn reading_of_offer(&self, ticket: u64, number: u64, bytes: Bytes) -> Reading {
        let has_places = self.has_places && bytes.first().is_some_and(|count| *count > 0);
        let mut reading = self.reading(ticket, number, bytes);
        reading.request = has_places.then(|| self.link.clone());
        reading
    }

    /// Takes the value, if the read with this number has decoded it. `far`: it is of this offer of the
    /// sending half.
    pub(super) fn take_decoded(&mut self, mark: Option<u64>, far: Option<u64>) -> Option<Erased> {
        let decoded = self.decoded.as_mut().filter(|decoded| mark == Some(decoded.number))?;
        far.into_iter().for_each(|far| decoded.is_taken(far));
        decoded.value.take().and_then(Result::ok)
    }
}

/// The only offer of a channel, and not a choice's: its data in addition to the value and the waker in the
/// channel's slots.
pub(crate) enum Slot {
    Empty,
    /// At the sending half: the offer has been sent to the home.
    Out {
        ticket: u64,
        /// The receiver elsewhere has returned the value, which is still here.
        taken: bool,
    },
    /// At the home: the offer `number` of the sending half.
    In {
        ticket: u64,
        number: u64,
        value: Bytes,
        /// They keep no large buffer alive for it.
        is_apart: bool,
        /// The number of the read that decodes the value.
        read: Option<u64>,
    },
}

/// What encodes a send through the slot.
pub(crate) struct ForSlot {
    pub(crate) encode: Encode,
    pub(crate) terms: Terms,
    /// Values have had places for replies in them: they are encoded by this link.
    pub(crate) link: Option<Arc<dyn Link>>,
}

/// A link's data of one offer, if any. Boxed, because most offers belong to channels without a link, and are
/// moved often.
pub(super) struct Linked(Option<Box<OfLink>>);

pub(super) struct OfLink {
    /// The bytes of the value.
    pub(super) encoded: Option<Bytes>,
    /// The value from a pool, while its offer is reserved or has been sent.
    pub(super) value: Option<Erased>,
    /// A request that waits until the owner of the offer has encoded the value, or its choice is open again.
    pub(super) request: Option<Request>,
    /// At the home: the number of the read that decodes the value.
    pub(super) read: Option<u64>,
}

/// What an offer is requested for.
pub(super) enum Request {
    /// A receiver requests it by this number.
    Reserve(u64, Arc<dyn Reserver>),
    /// The buffer of the home has a place for it.
    Place,
}

impl Linked {
    pub(super) const NOTHING: Self = Self(None);

    pub(super) fn make(&mut self) -> &mut OfLink {
        self.0.get_or_insert_with(|| Box::new(OfLink { encoded: None, value: None, request: None, read: None }))
    }

    pub(super) fn encoded(encoded: Option<Bytes>) -> Self {
        let mut linked = Self::NOTHING;
        encoded.into_iter().for_each(|encoded| linked.make().encoded = Some(encoded));
        linked
    }

    pub(super) fn read(&self) -> Option<u64> {
        self.0.as_ref()?.read
    }

    /// Ends the read that decodes the value, if there is one.
    pub(super) fn forget_read(&mut self) {
        self.0.iter_mut().for_each(|linked| linked.read = None);
    }

    pub(super) fn bytes(&self) -> Option<&Bytes> {
        self.0.as_ref()?.encoded.as_ref()
    }

    pub(super) fn has_bytes(&self) -> bool {
        self.bytes().is_some()
    }

    pub(super) fn take_encoded(&mut self) -> Option<Bytes> {
        self.0.as_mut()?.encoded.take()
    }

    pub(super) fn take_value(&mut self) -> Option<Erased> {
        self.0.as_mut()?.value.take()
    }

    pub(super) fn has_request(&self) -> bool {
        self.0.as_ref().is_some_and(|linked| linked.request.is_some())
    }

    pub(super) fn take_request(&mut self) -> Option<Request> {
        self.0.as_mut()?.request.take()
    }
}

/// A value to encode, or one already encoded.
pub(crate) struct Encoding {
    pub(super) from: From,
    pub(super) encode: Encode,
    pub(super) terms: Terms,
    pub(super) bytes_max: u64,
    pub(super) bytes: Option<Result<Bytes, Why>>,
}

/// Where the value to encode is.
pub(super) enum From {
    /// Where its send keeps it.
    Source,
    /// Here, taken out of the offer with this ticket.
    Offer(u64, Erased),
}

impl Encoding {
    /// Whether the value is where its send keeps it, and not out of an offer.
    pub(crate) fn is_of_source(&self) -> bool {
        matches!(self.from, From::Source)
    }

    /// A value that has been encoded.
    pub(crate) fn done(encode: Encode, terms: Terms, bytes: Bytes) -> Self {
        Self { from: From::Source, encode, terms, bytes_max: terms.value_max, bytes: Some(Ok(bytes)) }
    }

    pub(crate) fn into_bytes(self) -> Option<Bytes> {
        self.bytes.and_then(Result::ok)
    }

    /// `false`: an end in the value has an unsettled operation. The waker is woken when it is time to encode
    /// again.
    pub(crate) fn encode(&mut self, source: &Source<'_>, waker: &Waker) -> bool {
        let value = match (&self.from, source) {
            (From::Offer(_, value), _) => Some(value.at().cast_const()),
            (From::Source, Source::Slot(slot)) => slot.at(),
            (From::Source, Source::Far(value)) => value.as_ref().map(|value| value.at().cast_const()),
            (From::Source, Source::Pool(_)) => None,
        };
        let Some(value) = value else { return true };
        // SAFETY: an offer and a slot of the channel have a value of its type.
        let encoded = unsafe { (self.encode)(value, self.terms, self.bytes_max, waker) };
        let Poll::Ready(bytes) = encoded else { return false };
        self.bytes = Some(bytes);
        true
    }
}

/// The ticket of values in the buffer: no offer has it.
pub(super) const BUFFERED: u64 = 0;

/// A value that a receive decodes, or has decoded, from the offer with this ticket or from the
/// [buffer](BUFFERED).
pub(crate) struct Reading {
    pub(super) ticket: u64,
    pub(super) number: u64,
    pub(super) bytes: Bytes,
    /// They keep no large buffer alive for it.
    pub(super) is_apart: bool,
    pub(super) decode: Decode,
    pub(super) terms: Terms,
    /// It has places for replies in it, which this link accepts.
    request: Option<Arc<dyn Link>>,
    places: Option<ReadPlaces>,
    pub(super) value: Option<Result<Erased, Why>>,
}

impl Reading {
    /// Decodes the value, unless it has been decoded.
    pub(crate) fn decode(&mut self) {
        if self.value.is_some() {
            return;
        }
        self.value = Some(match &self.request {
            None => (self.decode)(&self.bytes, self.terms, self.is_apart),
            Some(_) => self.decode_request(),
        });
    }

    #[inline(never)]
    fn decode_request(&mut self) -> Result<Erased, Why> {
        let mut value = Err(Why::Unsendable("the message is empty".into()));
        let mut read = |bytes: &Bytes| {
            value = (self.decode)(bytes, self.terms, self.is_apart);
            value.as_ref().map(drop).map_err(Clone::clone)
        };
        self.places = self.request.as_ref().map(|link| link.read_request(&self.bytes, &mut read)).transpose()?;
        value
    }

    /// The offer `far` of the sending half is taken with this value.
    pub(super) fn is_taken(&mut self, far: u64) {
        if let (Some(link), Some(places)) = (&self.request, self.places.take()) {
            link.takes(far, places);
        }
    }

    /// The value is not taken. Returns the waker to wake.
    pub(super) fn is_not_taken(&mut self) -> Option<Waker> {
        self.request.as_ref()?.takes_not(self.places.take()?)
    }

    /// The value, decoded.
    pub(crate) fn into_value(self) -> Option<Result<Erased, Why>> {
        self.value
    }

    pub(crate) fn is_readable(&self) -> bool {
        matches!(self.value, Some(Ok(_)))
    }
}

/// The state of the value that a receive would take.
pub(super) enum Stand {
    /// It is available, or has just been decoded.
    Here,
    /// It must be decoded first.
    ToDecode(Box<Reading>),
    /// Another receive decodes it.
    ByOther,
    /// It cannot be decoded.
    Unreadable(Why),
    /// The receive's own choice has been decided for another branch, so decoding would be useless.
    ChoiceGone,
}
