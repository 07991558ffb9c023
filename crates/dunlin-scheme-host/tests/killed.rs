//! Processes that are killed at the moment at which a channel has a value for them.

use dunlin::{channel_with, fifo, mailbox};
use dunlin_scheme_host::{ChannelEnd, ProcessNumber, Program, Value};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// On one thread: the sender kills the receiver before that is polled.
#[tokio::test]
async fn value_for_a_process_that_is_killed_stays_in_the_channel() -> Result {
    let program = Program::new();
    let (tx, rx) = channel_with::<Value>(fifo(1));
    let mut rx = rx.share();
    program.define("out", &tx.into_end())?;
    program.define("in", &rx.clone().into_end())?;
    let (address, mut began) = mailbox::<ProcessNumber>();
    program.define("rust", &program.address(address))?;
    let victim = program.spawn("test", "(! rust (self)) (channel-receive in)")?;
    program.define("victim", &began.recv().await?)?;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    program.spawn("test", "(begin (channel-send out 1) (kill victim))")?.await?;
    assert!(victim.await.is_err());
    assert_eq!(rx.try_recv(), Ok(Value::Integer(1)));
    Ok(())
}
