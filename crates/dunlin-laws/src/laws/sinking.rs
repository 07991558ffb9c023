//! Sinks: senders for code that is written against `Sink`.

use std::future::poll_fn;
use std::pin::Pin;

use dunlin::{RecvError, SendError, Sender, SenderSink, Why};
use futures_sink::Sink;

use crate::counted::Counted;
use crate::kind::{Full, Kind};
use crate::law::{Cx, Law, laws};
use crate::rig::{cut_off, give_way};
use crate::transport::Transport;

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        a_sink_is_flushed_when_its_value_is_received if Kind::waits =>
            "a sink is ready, flushed and closed when its value has been received, or has room; not before";
        a_sink_offers_at_once if Kind::waits =>
            "a waiting receive is woken by a value put into a sink, whether it is flushed or not";
        a_sink_gives_its_value_back if Kind::waits =>
            "when the channel ends, in whatever way, a sink's flush returns the value and the reason, and then the sink is empty";
        a_sink_returns_what_is_refused if |kind| kind.full == Full::Refuses =>
            "a value that the policy refuses is returned by the sink, once";
        a_dropped_sink_takes_its_value_back if |kind| kind.is_open() && kind.waits() =>
            "a sink that is dropped before its last value is received ends the channel without it";
        a_sink_in_pieces if |kind| kind.is_open() && kind.waits() =>
            "however often a sink's flush is dropped and repeated: all values arrive, in order, each once";
        a_sinks_values_are_dropped_once if |kind| kind.is_open() && kind.waits() =>
            "a value in a sink whose channel ends, or that is dropped, is dropped once";
    ]
}

/// The polls of a sink as futures.
struct Sunk<T>(SenderSink<T>);

impl<T> Sunk<T> {
    fn new(tx: Sender<T>) -> Self {
        Self(tx.into_sink())
    }

    fn start_send(&mut self, value: T) -> Result<(), SendError<T>> {
        Pin::new(&mut self.0).start_send(value)
    }

    async fn ready(&mut self) -> Result<(), SendError<T>> {
        poll_fn(|cx| Pin::new(&mut self.0).poll_ready(cx)).await
    }

    async fn flush(&mut self) -> Result<(), SendError<T>> {
        poll_fn(|cx| Pin::new(&mut self.0).poll_flush(cx)).await
    }

    async fn close(&mut self) -> Result<(), SendError<T>> {
        poll_fn(|cx| Pin::new(&mut self.0).poll_close(cx)).await
    }
}

fn a_sink_is_flushed_when_its_value_is_received<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let full = cx.fill(&mut tx);
    let mut sink = Sunk::new(tx);
    assert_eq!(cx.now(sink.flush()), Ok(()), "nothing is in it");
    // A value beyond the room waits until there is room; without a buffer, until it is received.
    let mut expected = full.into_iter();
    for value in 1..=3 {
        assert_eq!(cx.now(sink.ready()), Ok(()));
        assert_eq!(sink.start_send(value), Ok(()));
        let mut wait = match value {
            1 => cx.begin(Box::pin(sink.ready()) as Pin<Box<dyn Future<Output = _>>>),
            2 => cx.begin(Box::pin(sink.flush()) as _),
            _ => cx.begin(Box::pin(sink.close()) as _),
        };
        assert!(!wait.poll(), "value {value} is not received");
        let next = expected.next().unwrap_or(value);
        assert_eq!(cx.now(rx.recv()), Ok(next));
        assert!(wait.is_woken());
        assert_eq!(wait.out(), Ok(()));
        expected = expected.chain([value].into_iter().filter(|_| next != value)).collect::<Vec<_>>().into_iter();
    }
    for value in expected {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed), "it has left");
    assert_eq!(sink.start_send(4), Err(SendError::NotTaken { value: 4, why: Why::Closed }));
}

fn a_sink_offers_at_once<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel::<u32>();
    let mut sink = Sunk::new(tx);
    for value in 0..3 {
        let recv = cx.begin(rx.recv());
        assert_eq!(sink.start_send(value), Ok(()));
        assert!(recv.is_woken(), "the receive is woken before the sink is polled");
        assert_eq!(recv.out(), Ok(value));
        assert_eq!(cx.now(sink.ready()), Ok(()));
    }
}

fn a_sink_gives_its_value_back<X: Transport>(cx: &Cx<'_, X>) {
    for way in 0..3 {
        let (mut tx, rx) = cx.channel();
        cx.fill(&mut tx);
        let mut sink = Sunk::new(tx);
        assert_eq!(sink.start_send(1), Ok(()));
        let flush = cx.begin(sink.flush());
        let mut rx = Some(rx);
        match (way, &rx) {
            (1, Some(rx)) => rx.retire(),
            (2, Some(rx)) => rx.poison("now"),
            _ => drop(rx.take()),
        }
        let why = if way < 2 { Why::Closed } else { Why::Poisoned("now".into()) };
        assert_eq!(flush.out(), Err(SendError::NotTaken { value: 1, why: why.clone() }), "way {way}");
        assert_eq!(cx.now(sink.flush()), Ok(()), "nothing is left in it");
        // `start_send` or the next flush reports the end.
        let error = sink.start_send(2).and_then(|()| cx.now(sink.flush()));
        assert_eq!(error, Err(SendError::NotTaken { value: 2, why }), "way {way}");
    }
}

fn a_sink_returns_what_is_refused<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let full = cx.fill(&mut tx);
    let mut sink = Sunk::new(tx);
    let error = sink.start_send(1).and_then(|()| cx.now(sink.flush()));
    assert_eq!(error, Err(SendError::NotTaken { value: 1, why: Why::Refused }));
    assert_eq!(cx.now(sink.flush()), Ok(()));
    let mut received = full.into_iter();
    assert_eq!(cx.now(rx.recv()).ok(), received.next());
    assert_eq!(sink.start_send(2).and_then(|()| cx.now(sink.close())), Ok(()));
    for value in received.chain([2]) {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
}

fn a_dropped_sink_takes_its_value_back<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let full = cx.fill(&mut tx);
    let mut sink = Sunk::new(tx);
    assert_eq!(sink.start_send(1), Ok(()));
    if cx.below(2) == 0 {
        cx.settle();
    }
    drop(sink);
    cx.settle();
    for value in full {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
}

fn a_sink_in_pieces<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel::<u32>();
    let plans: Vec<(u64, u64)> = (0..16).map(|_| (cx.below(4), cx.below(3))).collect();
    let sender = cx.spawn(async move {
        let mut sink = Sunk::new(tx);
        for (value, (polls, pauses)) in (0..).zip(plans) {
            while cut_off(polls + 1, sink.ready()).await.is_none() {}
            assert_eq!(sink.start_send(value), Ok(()));
            for _ in 0..pauses {
                give_way().await;
                assert!(cut_off(1, sink.flush()).await.is_none_or(|flushed| flushed.is_ok()));
            }
        }
        sink.close().await
    });
    let cuts: Vec<u64> = (0..40).map(|_| cx.below(4)).collect();
    let receiver = cx.spawn(async move {
        let mut got = Vec::new();
        for cut in cuts {
            got.extend(cut_off(cut, rx.recv()).await.and_then(Result::ok));
        }
        while let Ok(value) = rx.recv().await {
            got.push(value);
        }
        got
    });
    cx.settle();
    assert_eq!(sender.out(), Ok(()));
    assert!(receiver.out().into_iter().eq(0..16));
}

fn a_sinks_values_are_dropped_once<X: Transport>(cx: &Cx<'_, X>) {
    let counted = Counted::new();
    let (tx, rx) = cx.channel();
    let mut sink = Sunk::new(tx);
    for _ in 0..cx.kind.room {
        assert!(sink.start_send(counted.clone()).is_ok());
        assert!(cx.now(sink.flush()).is_ok(), "there is room");
    }
    assert!(sink.start_send(counted.clone()).is_ok());
    if cx.below(2) == 0 {
        cx.settle();
    }
    match cx.below(3) {
        0 => {
            drop(rx);
            cx.settle();
            assert!(cx.now(sink.flush()).is_err_and(|error| error.is_closed()));
            drop(sink);
        }
        1 => drop((sink, rx)),
        _ => {
            rx.poison("now");
            drop(sink);
        }
    }
    cx.settle();
    assert_eq!(counted.count(), 1);
}
