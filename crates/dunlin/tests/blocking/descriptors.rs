//! Calls that wait for a descriptor, or whose socket is shut down.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use dunlin::blocking::{Interest, Readiness};
use dunlin::prelude::*;
use dunlin::waits::Doing;

use super::{on, until_waits};

const TIMES: usize = 1_000;

fn pair() -> (UnixStream, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    (here, there)
}

#[test]
fn stop_request_ends_a_wait_for_a_descriptor() {
    on(2, async {
        for _ in 0..TIMES {
            let (here, _there) = pair();
            let call = blocking(move |stop| stop.ready(&here, Interest::Read).unwrap());
            until_waits(call.pid(), Doing::Ready).await;
            let ended = call.terminate().await;
            assert!(matches!(ended, Ended::Terminated(Readiness::Asked)), "{ended:?}");
        }
    });
}

#[test]
fn descriptor_that_is_ready_ends_a_wait() {
    on(2, async {
        let (mut here, mut there) = pair();
        let call = blocking(move |stop| {
            assert_eq!(stop.ready(&here, Interest::Write).unwrap(), Readiness::Ready);
            let mut read = [0; 3];
            for n in 0..3 {
                assert_eq!(stop.ready(&here, Interest::Read).unwrap(), Readiness::Ready);
                here.read_exact(&mut read[n..=n]).unwrap();
            }
            // The other end closes: that is ready, too.
            assert_eq!(stop.ready(&here, Interest::Read).unwrap(), Readiness::Ready);
            assert_eq!(here.read(&mut [0]).unwrap(), 0);
            (read, stop.asked())
        });
        for byte in b"abc" {
            until_waits(call.pid(), Doing::Ready).await;
            there.write_all(&[*byte]).unwrap();
        }
        until_waits(call.pid(), Doing::Ready).await;
        drop(there);
        assert_eq!(call.await.unwrap(), (*b"abc", false));
    });
}

/// The request comes before the wait, or after the first of several.
#[test]
fn stop_request_before_a_wait_ends_it_at_once() {
    on(2, async {
        let ((mut began, mut has_begun), (mut word, mut hear)) = (channel(), channel::<()>());
        let (here, _there) = pair();
        let call = blocking(move |stop| {
            assert_eq!(stop.ready(&here, Interest::Write).unwrap(), Readiness::Ready, "it makes the bell");
            began.send(()).wait().unwrap();
            hear.recv().wait().unwrap();
            [stop.ready(&here, Interest::Write).unwrap(), stop.ready(&here, Interest::Read).unwrap()]
        });
        has_begun.recv().await.unwrap();
        let mut ending = call.terminate();
        assert!(super::poll(&mut ending).is_pending());
        word.send(()).await.unwrap();
        // A descriptor that is ready does not hide the request.
        assert!(matches!(ending.await, Ended::Terminated([Readiness::Asked, Readiness::Asked])));
    });
}

/// Both have happened when the thread wakes: the request counts. (A fault there shows in most rounds.)
#[test]
fn stop_request_precedes_a_descriptor_that_becomes_ready() {
    on(2, async {
        for _ in 0..TIMES {
            let (here, mut there) = pair();
            let _stays_open = here.try_clone().unwrap();
            let call = blocking(move |stop| stop.ready(&here, Interest::Read).unwrap());
            until_waits(call.pid(), Doing::Ready).await;
            let mut ending = call.terminate();
            let asked = super::poll(&mut ending);
            there.write_all(b".").unwrap();
            let ended = match asked {
                std::task::Poll::Ready(ended) => ended,
                std::task::Poll::Pending => ending.await,
            };
            assert!(matches!(ended, Ended::Terminated(Readiness::Asked)), "{ended:?}");
        }
    });
}

/// Two readers wake: one is faster, and the other waits again.
#[test]
fn slower_reader_of_a_descriptor_waits_again() {
    on(4, async {
        let (here, mut there) = pair();
        let mut readers = Vec::new();
        for _ in 0..2 {
            let mut here = here.try_clone().unwrap();
            readers.push(blocking(move |stop| {
                let (mut count, mut byte) = (0, [0]);
                while stop.ready(&here, Interest::Read).unwrap() == Readiness::Ready {
                    match here.read(&mut byte) {
                        Ok(0) => break,
                        Ok(n) => count += n,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                    }
                }
                count
            }));
        }
        for reader in &readers {
            until_waits(reader.pid(), Doing::Ready).await;
        }
        for _ in 0..TIMES {
            there.write_all(b".").unwrap();
        }
        drop(there);
        let mut count = 0;
        for reader in readers {
            count += reader.await.unwrap();
        }
        assert_eq!(count, TIMES);
    });
}

#[test]
fn files_directories_and_descriptors_that_block_are_refused_at_once() {
    on(1, async {
        let why = blocking(|stop| {
            let flag = rustix::fs::OFlags::NONBLOCK.bits() as i32;
            let open = |path: &Path| File::options().read(true).custom_flags(flag).open(path).unwrap();
            let refused = |ready: std::io::Result<Readiness>| {
                let error = ready.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                error.to_string()
            };
            for path in [&*std::env::current_exe().unwrap(), Path::new("/"), Path::new("/proc/self/stat")] {
                if path.exists() {
                    let why = refused(stop.ready(open(path), Interest::Read));
                    assert!(why.contains("always reports as ready"), "{}: {why}", path.display());
                }
            }
            let (blocks, _there) = UnixStream::pair().unwrap();
            refused(stop.ready(&blocks, Interest::Read))
        });
        assert!(why.await.unwrap().contains("set it non-blocking first"));
    });
}

#[test]
fn stop_request_shuts_down_a_socket_that_a_call_reads() {
    on(2, async {
        for _ in 0..TIMES {
            let (mut here, mut there) = UnixStream::pair().unwrap();
            let (mut began, mut has_begun) = channel();
            let call = blocking(move |stop| {
                let _cut = stop.shuts_down(&here).unwrap();
                began.send(()).wait().unwrap();
                let mut read = Vec::new();
                here.read_to_end(&mut read).unwrap();
                (read, stop.asked())
            });
            has_begun.recv().await.unwrap();
            there.write_all(b"krill").unwrap();
            let Ended::Terminated((read, true)) = call.terminate().await else { panic!("it was asked") };
            assert_eq!(read, b"krill", "what it has read is not lost");
        }
    });
}

/// Only Linux wakes an accept this way.
#[cfg(target_os = "linux")]
#[test]
fn stop_request_ends_an_accept() {
    on(2, async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let (mut accepted, mut has_accepted) = channel();
        let call = blocking(move |stop| {
            let _cut = stop.shuts_down(&listener).unwrap();
            while let Ok((_, from)) = listener.accept() {
                accepted.send(from).wait().unwrap();
            }
            stop.asked()
        });
        for _ in 0..3 {
            let client = TcpStream::connect(to).unwrap();
            assert_eq!(has_accepted.recv().await, Ok(client.local_addr().unwrap()));
        }
        assert!(matches!(call.terminate().await, Ended::Terminated(true)));
        assert!(TcpStream::connect(to).is_err(), "it is shut down for all");
    });
}

#[test]
fn socket_that_was_taken_back_is_not_shut_down() {
    on(2, async {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut kept = here.try_clone().unwrap();
        let (mut began, mut has_begun) = channel();
        let call = blocking(move |stop| {
            drop(stop.shuts_down(&here).unwrap());
            began.send(()).wait().unwrap();
            stop.requested().wait()
        });
        has_begun.recv().await.unwrap();
        assert!(matches!(call.terminate().await, Ended::Terminated(true)));
        there.write_all(b"krill").unwrap();
        let mut read = [0; 5];
        kept.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"krill");
    });
}

#[test]
fn socket_is_shut_down_at_once_after_a_stop_request() {
    on(2, async {
        let (mut here, _there) = UnixStream::pair().unwrap();
        let ((mut began, mut has_begun), (mut word, mut hear)) = (channel(), channel::<()>());
        let call = blocking(move |stop| {
            began.send(()).wait().unwrap();
            hear.recv().wait().unwrap();
            let _cut = stop.shuts_down(&here).unwrap();
            (here.read(&mut [0]).unwrap(), stop.asked())
        });
        has_begun.recv().await.unwrap();
        let mut ending = call.terminate();
        assert!(super::poll(&mut ending).is_pending());
        word.send(()).await.unwrap();
        assert!(matches!(ending.await, Ended::Terminated((0, true))));
    });
}
