//! Reads, writes and closes.

use std::io::ErrorKind;
use std::pin::pin;

use dunlin::io::{Bytes, tcp};
use dunlin::prelude::*;
use dunlin::waits::{self, Doing};

use super::{LARGE, large, pairs, poll, read_all, until_waits};

#[test]
fn connection_reads_written_bytes_then_end_of_stream() {
    dunlin::block_on(async {
        for (mut here, mut there) in pairs().await {
            here.write_all(&mut Bytes::from("krill")).await.unwrap();
            assert_eq!(there.read(3).await.unwrap(), "kri", "at most three bytes");
            assert_eq!(there.read(4096).await.unwrap(), "ll", "what there is");
            here.finish().unwrap();
            here.finish().unwrap();
            assert!(there.read(1).await.unwrap().is_empty());
            // The other direction stays open.
            there.write_all(&mut Bytes::from("squid")).await.unwrap();
            assert_eq!(here.read(4096).await.unwrap(), "squid");
            drop(there);
            assert!(here.read(1).await.unwrap().is_empty());
        }
    });
}

#[test]
fn short_write_to_connection_leaves_unwritten_bytes_in_buffer() {
    dunlin::block_on(async {
        for (mut here, mut there) in pairs().await {
            let mut bytes = large();
            let written = here.write(&mut bytes).await.unwrap();
            assert!(0 < written && written < LARGE);
            assert_eq!(bytes, large()[written..]);
            let (done, read) = par!(
                async {
                    here.write_all(&mut bytes).await.unwrap();
                    here.finish()
                },
                async { read_all(&mut there).await }
            );
            done.unwrap();
            assert!(bytes.is_empty());
            assert!(read.unwrap() == large());
            assert_eq!(here.write(&mut bytes).await.unwrap(), 0, "nothing is written at once");
        }
    });
}

/// Also if another system call has filled it, which tokio does not notice.
#[cfg(unix)]
#[test]
fn connection_is_writable_when_the_system_takes_bytes() {
    dunlin::block_on(async {
        for (mut here, mut there) in pairs().await {
            here.writable().await.unwrap();
            let mut written = 0;
            while let Ok(more) = rustix::io::write(&here, &[7; 65_536]) {
                written += more;
            }
            assert!(poll(&mut here.writable()).is_pending());
            let deadline = here.writable().within(Duration::from_millis(1)).await;
            assert_eq!(deadline.unwrap_err().kind(), ErrorKind::TimedOut);
            let mut read = 0;
            let ((), ()) = par!(async { here.writable().await.unwrap() }, async {
                while read < written {
                    read += there.read(1 << 20).await.unwrap().len();
                }
            });
            rustix::io::write(&here, &[7]).unwrap();
            drop(there);
            // A connection that has failed does not wait either.
            while rustix::io::write(&here, &[7; 65_536]).is_ok() {}
            here.writable().await.unwrap();
        }
    });
}

#[test]
fn unchosen_read_of_connection_consumes_nothing() {
    dunlin::block_on(async {
        for (mut here, mut there) in pairs().await {
            let (mut tx, mut rx) = channel_with(fifo(1));
            tx.send(7).await.unwrap();
            let mut read = here.read(4096);
            assert!(poll(&mut read).is_pending());
            there.write_all(&mut Bytes::from("krill")).await.unwrap();
            alt! { biased;
                n = rx.recv() => assert_eq!(n, Ok(7)),
                piece = &mut read => panic!("{piece:?}"),
            }
            drop(read);
            alt! {
                n = rx.recv() => panic!("{n:?}"),
                piece = here.read(4096) => assert_eq!(piece.unwrap(), "krill"),
            }
        }
    });
}

/// The system's buffer is full: one write waits, and then the choice takes another branch.
#[test]
fn unchosen_write_to_connection_writes_nothing() {
    dunlin::block_on(async {
        for (mut here, mut there) in pairs().await {
            let mut bytes = large();
            while poll(&mut here.write(&mut bytes)).is_ready() {}
            let written = LARGE - bytes.len();
            let (mut tx, mut rx) = channel_with(fifo(1));
            tx.send(7).await.unwrap();
            let mut more = Bytes::from("krill");
            alt! { biased;
                written = here.write(&mut more) => panic!("{written:?}"),
                n = rx.recv() => assert_eq!(n, Ok(7)),
            }
            let timed_out = here.write(&mut more).within(Duration::ZERO).await.unwrap_err();
            assert_eq!((timed_out.kind(), &*more), (ErrorKind::TimedOut, &b"krill"[..]));
            here.finish().unwrap();
            assert_eq!(read_all(&mut there).await.unwrap().len(), written);
        }
    });
}

#[test]
fn both_directions_are_branches_of_one_choice() {
    dunlin::block_on(async {
        for (mut here, mut there) in pairs().await {
            let mut bytes = large();
            let (mut reader, mut writer) = here.split();
            while poll(&mut writer.write(&mut bytes)).is_ready() {}
            there.write_all(&mut Bytes::from("krill")).await.unwrap();
            alt! {
                piece = reader.read(4096) => assert_eq!(piece.unwrap(), "krill"),
                written = writer.write(&mut bytes) => panic!("{written:?}"),
            }
            there.read(64 << 10).await.unwrap();
            while bytes.len() > LARGE / 2 {
                alt! {
                    piece = reader.read(4096) => panic!("{piece:?}"),
                    written = writer.write(&mut bytes) => assert_ne!(written.unwrap(), 0),
                    piece = there.read(64 << 10) => assert!(!piece.unwrap().is_empty()),
                }
            }
        }
    });
}

#[test]
fn operations_have_deadlines_and_are_shown() {
    dunlin::block_on(async {
        for (mut here, mut there) in pairs().await {
            let timed_out = here.read(1).within(Duration::from_millis(1)).await.unwrap_err();
            assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
            let process = spawn(async move { here.read(4096).await.map(|piece| (piece, here)) });
            until_waits(process.pid().into()).await;
            let all = waits::snapshot();
            let line = all.iter().find(|wait| wait.who == process.pid()).unwrap();
            assert_eq!(line.doing, Doing::Ready);
            assert!(line.to_string().contains("connections.rs"), "{line}");
            let pid = process.pid();
            there.write_all(&mut Bytes::from("krill")).await.unwrap();
            let (piece, _here) = process.await.unwrap().unwrap();
            assert_eq!(piece, "krill");
            let process = spawn(async move { there.write_all(&mut large()).await });
            until_waits(process.pid().into()).await;
            let all = waits::snapshot();
            let line = all.iter().find(|wait| wait.who == process.pid()).unwrap();
            assert!(line.to_string().contains("connections.rs"), "{line}");
            assert!(!waits::snapshot().iter().any(|wait| wait.who == pid));
        }
    });
}

#[test]
fn close_waits_for_peer_eof_and_counts_discarded_bytes() {
    dunlin::block_on(async {
        for (mut here, mut there) in pairs().await {
            let mut close = here.close();
            assert!(poll(&mut close).is_pending());
            assert!(there.read(1).await.unwrap().is_empty(), "it has sent the end");
            there.write_all(&mut Bytes::from("krill")).await.unwrap();
            let timed_out = close.within(Duration::from_millis(1)).await;
            assert_eq!(timed_out.unwrap_err().kind(), ErrorKind::TimedOut);
            there.write_all(&mut Bytes::from("squid")).await.unwrap();
            drop(there);
            // The bytes read before the deadline are counted there.
            assert_eq!(here.close().await.unwrap(), 5);
            assert_eq!(here.close().await.unwrap(), 0);
        }
    });
}

#[test]
fn write_to_a_peer_that_has_gone_fails() {
    dunlin::block_on(async {
        for (mut here, there) in pairs().await {
            drop(there);
            let mut bytes = large();
            let error = here.write_all(&mut bytes).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
    });
}

#[test]
fn connect_without_a_listener_is_refused() {
    dunlin::block_on(async {
        let listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let to = listener.address().unwrap().to_string();
        drop(listener);
        assert_eq!(tcp::connect(to).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn addresses_are_those_of_the_sockets() {
    dunlin::block_on(async {
        let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
        let client = tcp::connect(listener.address().unwrap().to_string()).await.unwrap();
        let server = listener.accept().await.unwrap();
        assert_eq!(client.address().unwrap(), server.peer().unwrap());
        assert_eq!(client.peer().unwrap(), listener.address().unwrap());
    });
}

/// The reader of a flooding peer takes turns with other processes.
#[test]
fn reads_give_way() {
    dunlin::block_on(async {
        for (mut here, mut there) in pairs().await {
            let written = here.write(&mut large()).await.unwrap();
            assert!(written > 64 * 1_000);
            let mut read = there.read(1).await.unwrap().len();
            assert_eq!(read, 1, "it is known that there is something to read");
            let mut rest = pin!(async {
                while read < written {
                    read += there.read(64).await.unwrap().len();
                }
            });
            assert!(poll(&mut rest).is_pending(), "another process has its turn before all is read");
            rest.await;
        }
    });
}

/// The system reports how many bytes there are only when they are read.
#[test]
fn read_of_any_size_gives_the_available_bytes() {
    dunlin::block_on(async {
        for max in [usize::MAX, 1 << 46] {
            for (mut here, mut there) in pairs().await {
                here.write_all(&mut Bytes::from("krill")).await.unwrap();
                assert_eq!(there.read(max).await.unwrap(), "krill");
            }
        }
    });
}

#[test]
fn write_all_has_a_deadline_and_leaves_the_unwritten_rest() {
    dunlin::block_on(async {
        for (mut here, mut there) in pairs().await {
            let mut bytes = large();
            let timed_out = here.write_all(&mut bytes).within(Duration::from_millis(1)).await.unwrap_err();
            assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
            assert!(!bytes.is_empty() && bytes.len() < LARGE);
            let (mut tx, mut rx) = channel_with(fifo(1));
            tx.send(7).await.unwrap();
            alt! { biased;
                written = here.write_all(&mut bytes) => panic!("{written:?}"),
                n = rx.recv() => assert_eq!(n, Ok(7)),
            }
            let (read, written) = par!(async { read_all(&mut there).await }, async {
                here.write_all(&mut bytes).await?;
                here.finish()
            });
            written.unwrap();
            assert!(read.unwrap() == large(), "each byte is written once");
        }
    });
}

/// With a full queue, the system drops the first packet of further connections.
#[cfg(target_os = "linux")]
#[test]
fn connect_has_a_deadline_and_is_a_branch() {
    dunlin::block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let to = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        let timed_out = loop {
            match tcp::connect(to).within(Duration::from_millis(50)).await {
                Ok(client) => clients.push(client),
                Err(error) => break error,
            }
        };
        assert_eq!(timed_out.kind(), ErrorKind::TimedOut);
        let (mut tx, mut rx) = channel_with(fifo(1));
        tx.send(7).await.unwrap();
        alt! { biased;
            connected = tcp::connect(to) => panic!("{connected:?}"),
            n = rx.recv() => assert_eq!(n, Ok(7)),
        }
    });
}
