//! A panic caused by a caller of dunlin names a line of the caller, not one of dunlin.

use std::future::IntoFuture;
use std::panic::{self, AssertUnwindSafe};
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::{Context, Waker};

use dunlin::blocks::{farm, pipeline};
use dunlin::prelude::*;
use dunlin::{ClaimError, Par, send_to_any};
use futures_util::Sink;

/// File and text of the last panic.
static LAST: Mutex<Option<(String, String)>> = Mutex::new(None);

type Guilty = Box<dyn FnOnce()>;

/// The place of the panic of `guilty`, and its text.
fn blamed(guilty: impl FnOnce()) -> (String, String) {
    let result = panic::catch_unwind(AssertUnwindSafe(guilty));
    assert!(result.is_err(), "it did not panic");
    LAST.lock().unwrap().take().unwrap()
}

async fn off() -> u8 {
    let (_tx, mut rx) = channel::<u8>();
    alt! {
        value = rx.recv(), if false => value.unwrap(),
    }
}

#[test]
fn a_panic_names_the_line_of_its_cause() {
    panic::set_hook(Box::new(|panic| {
        let place = panic.location().unwrap().file().to_owned();
        let text = panic.payload().downcast_ref::<String>().cloned();
        let text =
            text.or_else(|| panic.payload().downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        *LAST.lock().unwrap() = Some((place, text));
    }));
    let here = file!();
    let inside = |guilty: fn()| move || dunlin::block_on(async move { guilty() });
    let guilty: [(&str, Guilty); 14] = [
        ("spawn", Box::new(|| drop(spawn(async {})))),
        ("spawn_named", Box::new(|| drop(dunlin::spawn_named("krill", async {})))),
        ("fork", Box::new(|| drop(Scope::new().fork(async {})))),
        ("place", Box::new(|| drop(Scope::new().on(Place::current())))),
        ("blocking", Box::new(|| drop(blocking(|_| {})))),
        ("block_on", Box::new(inside(|| dunlin::block_on(async {})))),
        ("wait", Box::new(inside(|| drop(channel::<u8>().1.recv().wait())))),
        ("fifo", Box::new(|| drop(fifo(0)))),
        ("alt", Box::new(|| assert!(dunlin::block_on(off()) > 0))),
        ("send_to_any", Box::new(|| drop(send_to_any::<u8, dunlin::NoPoison>(&mut None, &mut [])))),
        ("farm", Box::new(|| drop(farm(channel::<u8>().1, channel().0, 0, async |n| n)))),
        (
            "pipeline",
            Box::new(|| {
                let (tx, rx) = channel::<u8>();
                drop(pipeline(rx, tx, [0; 0], |_, _, _| async {}));
            }),
        ),
        ("interval", Box::new(|| drop(interval(Duration::ZERO)))),
        (
            "start_send",
            Box::new(|| {
                let (tx, _rx) = channel::<u8>();
                let mut sink = std::pin::pin!(tx.into_sink());
                for value in 0..2 {
                    drop(sink.as_mut().start_send(value));
                }
            }),
        ),
    ];
    let found: Vec<_> = guilty.into_iter().map(|(name, guilty)| (name, blamed(guilty))).collect();

    // The standard library gives no line for a poll: there the text names the place where the choice was made
    // or awaited.
    let (_, choice) = blamed(|| {
        dunlin::block_on(async {
            let choice: Choice<'_, Result<u8, ClaimError>> = Choice::fair();
            drop(choice.await);
        });
    });
    let poll = |future: Pin<&mut dyn Future<Output = ()>>| future.poll(&mut Context::from_waker(Waker::noop()));
    let (_, timer) = blamed(|| assert!(poll(pin!(sleep(Duration::from_secs(1)))).is_pending()));
    #[cfg(feature = "net")]
    let joins = [
        blamed(|| {
            let join = async { drop(Node::builder().no_config().app("blame").join().await) };
            assert!(poll(pin!(join)).is_pending());
        }),
        blamed(|| {
            let join = async { drop(Node::join("blame").await) };
            assert!(poll(pin!(join)).is_pending());
        }),
    ];

    // Only the text shows that it was polled again.
    fn again<F: Future>(future: F) {
        let (mut cx, mut future) = (Context::from_waker(Waker::noop()), pin!(future));
        assert!(future.as_mut().poll(&mut cx).is_ready());
        drop(future.poll(&mut cx));
    }
    let (_, posted) = blamed(|| again(channel_with(fifo(1)).0.send_nowait(7)));
    let (_, done) = blamed(|| {
        let (_, mut ended) = channel::<u8>();
        again(Choice::fair().on(ended.recv(), drop).into_future());
    });
    let (_, list) = blamed(|| again([std::future::ready(1)].into_iter().collect::<Par<_>>()));
    drop(panic::take_hook());
    let begins = ["spawn", "spawn_named", "fork", "blocking"];
    for (name, (place, text)) in found {
        assert_eq!(place, here, "{name}: {text}");
        assert!(
            !begins.contains(&name) || text.contains(" outside of a tokio runtime: use `#[dunlin::main]`"),
            "{text}"
        );
    }
    assert!(choice.contains(here) && choice.contains("every branch is off"), "{choice}");
    assert!(timer.starts_with(here) && timer.contains("outside of a tokio runtime"), "{timer}");
    #[cfg(feature = "net")]
    for (_, join) in joins {
        assert!(join.starts_with(here) && join.contains("outside of a tokio runtime"), "{join}");
    }
    for (text, what) in [(posted, "a post that"), (done, "a choice that"), (list, "a `par!` that")] {
        assert!(text.contains(what) && text.contains("was polled again"), "{text}");
    }
}

/// The same for ends with names: of a channel, of a bundle, of a bundle's guest, and the guests of an
/// acceptor.
#[cfg(feature = "net")]
#[test]
fn the_wait_at_a_named_end_names_the_line_of_its_declaration() {
    #[derive(Bundle)]
    struct Till {
        pay: ToServer<u32>,
    }

    let names = "memory:names-of-blame";
    let join = || Node::builder().no_config().app("blame").names(names).listen("memory:").join();
    /// The line where the channel of `waits` was made, once `waits` waits.
    async fn line_of(waits: Process<()>) -> String {
        let line = loop {
            let wait = dunlin::waits::snapshot().into_iter().find(|wait| wait.who == waits.pid());
            match wait {
                Some(wait) => break wait.to_string(),
                None => tokio::task::yield_now().await,
            }
        };
        waits.cancel();
        line
    }

    let outcome: Result = dunlin::block_on(async move {
        let node = join().await?;
        let at = |line: u32| format!("{}:{line}:", file!());
        let mut found = Vec::new();

        let (line, mut rx) = (line!(), node.receiver::<u32>("readings").await?);
        found.push((line, line_of(spawn(async move { drop(rx.recv().await) })).await));
        let (line, mut tx) = (line!(), node.sender::<u32>("values").await?);
        found.push((line, line_of(spawn(async move { drop(tx.send(7).await) })).await));
        let (line, rx) = (line!(), node.receiver::<u32>("shared").shared().await?);
        found.push((line, line_of(spawn(async move { drop(rx.clone().recv().await) })).await));
        let (line, mut client) = (line!(), node.client::<Till>("till").await?);
        found.push((line, line_of(spawn(async move { drop(client.pay.send(7).await) })).await));
        let (line, mut server) = (line!(), node.server::<Till>("other till").await?);
        found.push((line, line_of(spawn(async move { drop(server.pay.recv().await) })).await));
        let (line, mut guests) = (line!(), node.acceptor::<Till>("desk").await?);
        let _client = node.client::<Till>("desk").await?;
        let mut guest = guests.recv().await?.into_face();
        found.push((line, line_of(spawn(async move { drop(guest.pay.recv().await) })).await));
        found.push((line, line_of(spawn(async move { drop(guests.recv().await) })).await));

        for (line, told) in found {
            assert!(told.contains(&at(line)), "line {line}: {told}");
        }
        Ok(())
    });
    outcome.unwrap();
}
