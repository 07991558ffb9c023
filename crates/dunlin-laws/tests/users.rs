//! The test kit in a user's crate: a policy and a network that pass, and faulty ones that the laws detect.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin::net::{BoxFuture, Listener, Memory, Network, Socket};
use dunlin::{Admit, Buffering};
use dunlin_laws::{Full, Kind, Local, users};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Keeps the newest values.
#[derive(Clone)]
struct ShedLoad {
    high: usize,
}

impl Buffering for ShedLoad {
    fn admit(&mut self, queued: usize) -> Admit {
        if queued < self.high { Admit::Keep } else { Admit::DropOldest }
    }
}

dunlin::laws! {
    mod shed_load;
    policy: ShedLoad { high: 3 },
    room: 3,
    full: DropsOldest,
}

#[test]
fn every_sort_of_policy_holds_at_the_largest_size() {
    for (full, admit) in [
        (Full::Waits, Admit::Wait),
        (Full::DropsOldest, Admit::DropOldest),
        (Full::ReplacesNewest, Admit::ReplaceNewest),
        (Full::DropsThis, Admit::DropThis),
        (Full::Refuses, Admit::Refuse),
    ] {
        for room in [1, users::ROOM_MAX] {
            let kind = Kind::new("own", Then { room, admit, forgets: false, count: 0 }, room, full);
            users::judge(&users::policy(&Local, kind, "-"));
        }
    }
}

#[derive(Clone)]
struct Then {
    room: usize,
    admit: Admit,
    /// Whether it drops every fifth value, too, though there is room.
    forgets: bool,
    count: u32,
}

impl Buffering for Then {
    fn admit(&mut self, queued: usize) -> Admit {
        self.count += 1;
        if self.forgets && self.count.is_multiple_of(5) {
            return Admit::DropThis;
        }
        if queued < self.room { Admit::Keep } else { self.admit }
    }
}

/// The broken laws, each with its message.
fn broken(policy: Then, room: usize, full: Full) -> Vec<String> {
    let lines = users::policy(&Local, Kind::new("own", policy, room, full), "cargo test -p mine own").broken();
    for line in &lines {
        assert!(line.contains(" on own over local with seed ") && line.contains("cargo test -p mine own"), "{line}");
    }
    lines
}

#[track_caller]
fn assert_broken(lines: &[String], law: &str) {
    assert!(lines.iter().any(|line| line.starts_with(law)), "{law} is not among\n{}", lines.join("\n"));
}

#[test]
fn policy_that_breaks_its_declaration_is_detected() {
    let honest = Then { room: 3, admit: Admit::Wait, forgets: false, count: 0 };
    assert_eq!(broken(honest.clone(), 3, Full::Waits), [""; 0]);
    // The policy loses values but declares that it keeps them.
    let lines = broken(Then { forgets: true, ..honest.clone() }, 3, Full::Waits);
    assert_broken(&lines, "nothing_is_lost");
    assert!(lines[0].contains("replay: DUNLIN_SEED=0 DUNLIN_LAW="), "{}", lines[0]);
    // It has one place fewer than declared, then one more.
    assert_broken(&broken(Then { room: 2, ..honest.clone() }, 3, Full::Waits), "capacity_is_exact");
    assert_broken(&broken(Then { room: 4, ..honest.clone() }, 3, Full::Waits), "capacity_is_exact");
    // When it is full, it does not act as declared.
    assert_broken(&broken(Then { admit: Admit::DropThis, ..honest.clone() }, 3, Full::Waits), "capacity_is_exact");
    assert_broken(&broken(Then { admit: Admit::DropThis, ..honest.clone() }, 3, Full::Refuses), "back_when_refused");
    assert_broken(
        &broken(Then { admit: Admit::ReplaceNewest, ..honest }, 3, Full::DropsOldest),
        "what_is_kept_is_exact",
    );
}

#[test]
#[should_panic(expected = "try one of at most 6 places, not 100")]
fn a_policy_that_is_too_large_to_fill_is_refused() {
    let kind = Kind::new("large", ShedLoad { high: 100 }, 100, Full::DropsOldest);
    drop(users::policy(&Local, kind, "-"));
}

dunlin::laws! {
    mod pigeons;
    network: Pigeons(None),
    listen: "",
}

/// The memory network under another scheme, with or without a fault.
#[derive(Clone, Copy)]
struct Pigeons(Option<Fault>);

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// It corrupts one byte.
    Misreads,
    /// It lets two listeners share an address.
    Shares,
}

impl Network for Pigeons {
    fn scheme(&self) -> &'static str {
        "pigeon"
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let socket = Memory.dial(address).await?;
            Ok(Box::new(Pigeon { socket, fault: self.0 }) as Box<dyn Socket>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        let address = if self.0 == Some(Fault::Shares) { "" } else { address };
        Memory.listen(address)
    }
}

struct Pigeon {
    socket: Box<dyn Socket>,
    fault: Option<Fault>,
}

impl Socket for Pigeon {
    fn peer(&self) -> String {
        self.socket.peer()
    }
}

impl AsyncRead for Pigeon {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        if self.fault == Some(Fault::Misreads)
            && let Some(byte) = buf.filled_mut().get_mut(before)
        {
            *byte ^= 1;
        }
        read
    }
}

impl AsyncWrite for Pigeon {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[test]
fn faulty_sockets_are_detected() {
    for fault in [Fault::Misreads, Fault::Shares] {
        let found = std::panic::catch_unwind(|| users::sockets(&Pigeons(Some(fault)), ""));
        assert!(found.is_err());
    }
}
