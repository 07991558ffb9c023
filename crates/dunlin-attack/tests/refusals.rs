//! Refused newcomers: each is counted and an event, and the log has one line for each source, whatever their
//! number.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::node::{Limit, NodeEvent};
use dunlin::prelude::*;
use dunlin_attack::{Peer, dial, hello, life, needs_files, run};
use tokio::net::TcpStream;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

const FLOODERS: [[u8; 4]; 2] = [[127, 0, 0, 2], [127, 0, 0, 3]];
const OTHER: [u8; 4] = [127, 0, 0, 4];

/// How many sockets without a finished handshake a node keeps.
const STRANGERS_MAX: u64 = 1024;

/// This many above the limit, which the node refuses.
const REFUSED: u64 = 200;

/// Longer than a socket may take for its handshake.
const QUIET: Duration = Duration::from_secs(6);

/// Warnings of nodes, as a subscriber receives them.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{}={value:?};", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("dunlin") && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().expect("no test panics within").push(fields.0);
    }
}

/// Fills the places of sockets that have not shaken hands, from two addresses in turn, and opens more.
#[test]
fn refused_newcomers_are_counted_and_logged_once_for_each_source() {
    // A node whose process may open fewer files has fewer places.
    needs_files(8 * STRANGERS_MAX);
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).expect("it is the only test here");
    run(async {
        let names = "memory:names-of-refusals";
        let node = Node::builder().app("refusals").names(names).listen("127.0.0.1:0").join().await.expect("it joins");
        let address = node.addresses()[0].clone();
        let there = Peer::who_is(OTHER, &address, "refusals", life(1)).await.expect("there is room");
        let mut events = node.events();
        let mut held: Vec<TcpStream> = Vec::new();
        let mut open = async |count: u64| {
            for n in 0..count {
                held.push(dial(FLOODERS[(n % 2) as usize], &address).await.expect("the system has a socket"));
            }
        };
        // The twin: as long as there are places, the node refuses no peer, and admits newcomers.
        open(STRANGERS_MAX / 2).await;
        let mut joined = Vec::new();
        for n in 0..10 {
            let hello = hello("refusals", life(10 + n), there);
            joined.push(Peer::join(OTHER, &address, &hello, Duration::ZERO).await.expect("there is room"));
        }
        for peer in &mut joined {
            // The node sends nothing before it has read the last message of the handshake.
            peer.hear().await.expect("the connection stays");
        }
        assert_eq!(node.refusals().handshakes, 0);

        open(STRANGERS_MAX / 2 + REFUSED).await;
        let mut before = 0;
        loop {
            let mut told = 0;
            while told < REFUSED
                && let Ok(event) = tokio::time::timeout(QUIET, events.recv()).await
            {
                if let NodeEvent::Limit(Limit::Handshakes { from }) = event.expect("the node lives") {
                    assert!(from.contains("127.0.0.2") || from.contains("127.0.0.3"), "{from}");
                    told += 1;
                }
            }
            let counted = node.refusals().handshakes - before;
            assert!(counted <= REFUSED, "{counted}");
            if told == REFUSED {
                break;
            }
            // The machine is slow: the first sockets timed out before the last were open. The node has
            // dropped all, so the test repeats.
            before += counted;
            open(STRANGERS_MAX + REFUSED).await;
        }
        // A newcomer of another address is still admitted, and every joined peer stays.
        let hello = hello("refusals", life(2), there);
        Peer::join(OTHER, &address, &hello, Duration::ZERO).await.expect("there is room");
        // (A newcomer takes the place of a socket that sends nothing.)
        let all = node.refusals().handshakes;
        // The node writes the rest of the log before its leave returns.
        drop((joined, held));
        // (The peers no longer acknowledge anything.)
        let _ = node.leave().await;
        let lines = log.0.lock().expect("no test panics within").clone();
        let refused: Vec<&String> = lines.iter().filter(|line| line.contains(" as busy: ")).collect();
        assert_eq!(refused.len(), FLOODERS.len(), "{lines:#?}");
        let count = lines.iter().find(|line| line.contains("more refusals"));
        let more = format!("{} more refusals", all - FLOODERS.len() as u64);
        assert!(count.is_some_and(|line| line.contains(&more)), "{lines:#?}");
    });
}
