//! Signals as branches of a choice.

use std::io::ErrorKind;

use dunlin::io::signal;
use dunlin::prelude::*;
use rustix::process::{Signal, getpid, kill_process};

#[test]
fn signal_is_a_branch_and_is_kept_while_nothing_waits() {
    dunlin::block_on(async {
        for (mut registered, signal) in
            [(signal::ctrl_c().unwrap(), Signal::INT), (signal::terminate().unwrap(), Signal::TERM)]
        {
            let none = registered.recv().within(Duration::from_millis(1)).await.unwrap_err();
            assert_eq!(none.kind(), ErrorKind::TimedOut);
            kill_process(getpid(), signal).unwrap();
            let (mut tx, mut rx) = channel_with(fifo(1));
            tx.send(7).await.unwrap();
            alt! { biased;
                n = rx.recv() => assert_eq!(n, Ok(7)),
                signal = registered.recv() => panic!("{signal:?}"),
            }
            alt! {
                n = rx.recv() => panic!("{n:?}"),
                signal = registered.recv() => signal.unwrap(),
            }
        }
    });
}
