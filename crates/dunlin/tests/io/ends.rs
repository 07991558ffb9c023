//! Connections as channels.

use std::io::ErrorKind;

use dunlin::io::{Bytes, Ends};
use dunlin::prelude::*;

use super::{large, pairs, read_all};

#[test]
fn connection_carries_pieces_and_ends_both_ways() {
    dunlin::block_on(async {
        for (here, there) in pairs().await {
            let (mut here, mut there) = (here.into_ends(), there.into_ends());
            let (sent, received) = par!(
                async {
                    here.outgoing.send(large()).await.unwrap();
                    drop(here.outgoing);
                },
                async {
                    let mut all = Vec::new();
                    while let Ok(piece) = there.incoming.recv().await {
                        all.extend_from_slice(&piece);
                    }
                    all
                }
            );
            let () = sent;
            assert!(received == large());
            // The other direction stays open until its own end.
            there.outgoing.send(Bytes::from("krill")).await.unwrap();
            drop(there.outgoing);
            assert_eq!(here.incoming.recv().await.unwrap(), "krill");
            assert!(here.incoming.recv().await.unwrap_err().is_closed());
            here.process.await.unwrap().unwrap();
            there.process.await.unwrap().unwrap();
        }
    });
}

#[test]
fn connection_is_not_read_after_its_receiver_is_dropped() {
    dunlin::block_on(async {
        for (here, mut there) in pairs().await {
            let Ends { outgoing, incoming, process } = here.into_ends();
            drop((incoming, outgoing));
            process.await.unwrap().unwrap();
            assert!(there.read(1).await.unwrap().is_empty());
        }
    });
}

#[test]
fn error_of_the_connection_poisons_the_sender() {
    dunlin::block_on(async {
        for (here, there) in pairs().await {
            let Ends { mut outgoing, incoming, process } = here.into_ends();
            drop(incoming);
            drop(there);
            let error = loop {
                if let Err(error) = outgoing.send(large()).await {
                    break error;
                }
            };
            assert!(!error.is_closed(), "it is no orderly end: {error}");
            let error = process.await.unwrap().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
    });
}

#[test]
fn poison_ends_the_connection_and_its_reason_is_kept() {
    dunlin::block_on(async {
        for (n, (here, mut there)) in pairs().await.into_iter().enumerate() {
            let Ends { outgoing, mut incoming, process } = here.into_ends();
            outgoing.poison("no more krill");
            assert!(incoming.recv().await.unwrap_err().to_string().contains("no more krill"));
            assert!(process.await.unwrap().unwrap_err().to_string().contains("no more krill"));
            // TCP reports a reset.
            match (n, read_all(&mut there).await) {
                (0, read) => assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset),
                (_, read) => assert_eq!(read.unwrap(), b""),
            }
        }
    });
}

#[test]
fn reset_by_the_peer_poisons_the_receiver() {
    dunlin::block_on(async {
        let (here, there) = pairs().await.swap_remove(0);
        let (mut here, there) = (here.into_ends(), there.into_ends());
        there.outgoing.poison("a reset");
        let error = here.incoming.recv().await.unwrap_err();
        assert!(!error.is_closed(), "it is no orderly end: {error}");
    });
}

/// The descriptor and its process stay.
#[cfg(feature = "net")]
#[test]
fn ends_of_a_connection_work_at_another_node() {
    use super::support::{carry, nodes, run};
    run(async {
        let [a, b] = nodes("ends_of_a_connection").await;
        for (n, (here, mut there)) in pairs().await.into_iter().enumerate() {
            let Ends { outgoing, incoming, process } = here.into_ends();
            let mut outgoing = carry(outgoing, &a, &b, &format!("outgoing {n}")).await?;
            let mut incoming = carry(incoming, &a, &b, &format!("incoming {n}")).await?;
            outgoing.send(Bytes::from("krill")).await?;
            assert_eq!(there.read(4096).await?, "krill");
            there.write_all(&mut Bytes::from("squid")).await?;
            assert_eq!(incoming.recv().await?, "squid");
            drop(outgoing);
            assert!(there.read(1).await?.is_empty());
            drop(there);
            assert!(incoming.recv().await.unwrap_err().is_closed());
            process.await?.unwrap();
        }
        Ok(())
    });
}
