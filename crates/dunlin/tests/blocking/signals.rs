//! Calls in a system call that a signal interrupts.

use std::io::{Error, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin::prelude::*;

use super::{on, poll};

/// The request comes before the read, at its start, or while it blocks: each time the read ends.
#[test]
fn stop_request_interrupts_a_read() {
    on(2, async {
        for n in 0..1_000 {
            let (mut pipe, writer) = std::io::pipe().unwrap();
            let (mut began, mut has_begun) = channel();
            let call = blocking(move |stop| {
                began.send(()).wait().unwrap();
                stop.interrupting(|| pipe.read(&mut [0]))
            });
            has_begun.recv().await.unwrap();
            for _ in 0..n % 20 {
                tokio::task::yield_now().await;
            }
            let Ended::Terminated(Err(error)) = call.terminate().await else { panic!("it was asked") };
            assert_eq!(error.kind(), ErrorKind::Interrupted);
            drop(writer);
        }
    });
}

#[test]
fn uninterrupted_read_returns_the_bytes_it_read() {
    on(2, async {
        let (mut pipe, mut writer) = std::io::pipe().unwrap();
        let (mut began, mut has_begun) = channel();
        let call = blocking(move |stop| {
            began.send(()).wait().unwrap();
            let mut read = [0; 5];
            stop.interrupting(|| pipe.read(&mut read)).map(|n| read[..n].to_vec())
        });
        has_begun.recv().await.unwrap();
        writer.write_all(b"krill").unwrap();
        assert_eq!(call.await.unwrap().unwrap(), b"krill");
    });
}

/// Like an interruption by a foreign signal.
#[test]
fn interruption_without_a_stop_request_is_retried() {
    on(1, async {
        let mut times = 0;
        let call = blocking(move |stop| {
            stop.interrupting(|| {
                times += 1;
                if times < 3 { Err(Error::from(ErrorKind::Interrupted)) } else { Ok(times) }
            })
        });
        assert_eq!(call.await.unwrap().unwrap(), 3);
    });
}

#[test]
fn stop_request_before_the_system_call_prevents_it() {
    on(2, async {
        let ((mut began, mut has_begun), (mut word, mut hear)) = (channel(), channel::<()>());
        let made = Arc::new(AtomicBool::new(false));
        let make = made.clone();
        let call = blocking(move |stop| {
            began.send(()).wait().unwrap();
            hear.recv().wait().unwrap();
            stop.interrupting(|| {
                make.store(true, Ordering::Relaxed);
                Ok(())
            })
        });
        has_begun.recv().await.unwrap();
        let mut ending = call.terminate();
        assert!(poll(&mut ending).is_pending());
        word.send(()).await.unwrap();
        assert!(matches!(ending.await, Ended::Terminated(Err(_))));
        assert!(!made.load(Ordering::Relaxed));
    });
}

/// No signal interrupts the rest of the call after the system call, nor other calls on that thread.
#[test]
fn nothing_is_interrupted_after_the_system_call() {
    on(1, async {
        for _ in 0..200 {
            let (mut pipe, mut writer) = std::io::pipe().unwrap();
            let (mut later, mut later_writer) = std::io::pipe().unwrap();
            let (mut began, mut has_begun) = channel();
            let call = blocking(move |stop| {
                began.send(()).wait().unwrap();
                let first = stop.interrupting(|| pipe.read(&mut [0]));
                began.send(()).wait().unwrap();
                // A signal would interrupt this read.
                let mut byte = [0];
                (first.is_err(), later.read(&mut byte).map(|_| byte[0]).map_err(|error| error.kind()))
            });
            has_begun.recv().await.unwrap();
            let mut ending = call.terminate();
            assert!(poll(&mut ending).is_pending());
            has_begun.recv().await.unwrap();
            later_writer.write_all(&[7]).unwrap();
            let ended = ending.await;
            assert!(matches!(ended, Ended::Terminated((true, Ok(7)))), "{ended:?}");
            writer.write_all(&[0]).unwrap_err();
        }
    });
}

#[test]
fn other_threads_of_a_call_cannot_be_interrupted() {
    on(1, async {
        let call = blocking(|stop| std::thread::scope(|threads| threads.spawn(|| stop.interrupting(|| Ok(()))).join()));
        assert_eq!(call.await.unwrap().unwrap().unwrap_err().kind(), ErrorKind::Unsupported);
    });
}

#[test]
fn only_real_time_signals_are_accepted() {
    for signal in [0, 1, 9, 17, 1_000] {
        assert_eq!(dunlin::blocking::set_interrupt_signal(signal).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
