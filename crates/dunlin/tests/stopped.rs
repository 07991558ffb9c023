//! A receiver that has stopped delays its own sender, no other, and keeps a bounded amount of memory. Each
//! test measures the whole process.
#![cfg(all(feature = "net", target_os = "linux"))]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dunlin::prelude::*;

const MIB: usize = 1 << 20;

/// One test at a time, so that each measures itself.
static ALONE: Mutex<()> = Mutex::new(());

fn run<F: Future<Output = Result>>(test: impl FnOnce() -> F) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = Duration::from_secs(120);
    dunlin::block_on(async { tokio::time::timeout(limit, test()).await.expect("the test hangs") }).unwrap();
}

/// No heartbeat wakes them, so nothing moves without a cause.
async fn nodes(test: &str, listen: &str) -> Result<[Node; 2]> {
    let node = || {
        let builder = Node::builder().app(test).names(&format!("memory:names-of-{test}")).listen(listen);
        builder.heartbeat(Duration::from_secs(600)).join()
    };
    Ok([node().await?, node().await?])
}

/// The resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn blob(n: usize) -> Bytes {
    Bytes::from(vec![n as u8; MIB])
}

#[test]
fn a_stopped_receiver_stalls_no_other_and_holds_little_memory() {
    run(|| async {
        let [a, b] = nodes("stopped", "127.0.0.1:0").await?;
        // Rendezvous and queues whose receivers have stopped: each sender has sent all that it could, and now
        // waits.
        let mut stopped = Vec::new();
        for n in 0..8 {
            let name = format!("stopped {n}");
            let naming = b.receiver::<Bytes>(&name);
            let rx = if n % 2 == 0 { naming.await? } else { naming.policy(fifo(2)).await? };
            let mut tx = a.sender::<Bytes>(&name).await?;
            let (told, mut filled) = channel();
            let sending = spawn(async move {
                if n % 2 == 1 {
                    tx.send(blob(1)).await?;
                    tx.send(blob(2)).await?;
                }
                drop(told);
                tx.send(blob(3)).await
            });
            assert_eq!(filled.recv().await, Err::<(), _>(RecvError::Closed));
            stopped.push((rx, sending));
        }
        let mut rx = b.receiver::<Bytes>("moving").await?;
        let mut tx = a.sender::<Bytes>("moving").await?;
        let before = resident();
        let mut most = before;
        for n in 0..200 {
            let (sent, received) = par!(tx.send(blob(n)), rx.recv());
            sent?;
            assert_eq!(received?, blob(n));
            most = most.max(resident());
        }
        println!("{} MiB before, {} MiB at most", before / MIB, most / MIB);
        assert!(most < before + 64 * MIB, "{} MiB before, {} MiB at most", before / MIB, most / MIB);
        // Each waiting sender still waits, and nothing of it is lost.
        for (n, (mut rx, sending)) in stopped.into_iter().enumerate() {
            for expected in if n % 2 == 0 { 3..=3 } else { 1..=3 } {
                assert_eq!(rx.recv().await?, blob(expected));
            }
            sending.await??;
        }
        Ok(())
    });
}

#[test]
fn transfers_in_both_directions_complete_with_full_buffers() {
    run(|| async {
        // Small buffers: each side has to read before the other can write again.
        let [a, b] = nodes("both", "memory:").await?;
        let mut transfers = Vec::new();
        for (from, to) in [(&a, &b), (&b, &a)] {
            for n in 0..4 {
                let name = format!("{n} of {}", from.me());
                let mut rx = to.receiver::<Bytes>(&name).policy(fifo(4)).await?;
                let mut tx = from.sender::<Bytes>(&name).await?;
                transfers.push(spawn(async move {
                    for n in 0..25 {
                        tx.send(blob(n)).await?;
                    }
                    Ok::<_, Error>(())
                }));
                transfers.push(spawn(async move {
                    for n in 0..25 {
                        assert_eq!(rx.recv().await?, blob(n));
                    }
                    Ok::<_, Error>(())
                }));
            }
        }
        for transfer in transfers {
            transfer.await??;
        }
        Ok(())
    });
}
