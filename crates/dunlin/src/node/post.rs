//! A socket's carrier, and the task that serves it.
//!
//! That task also works on channels, and code of users may keep it there. The carrier is not locked
//! meanwhile, and if it takes too long, the node's own task gives the carrier to another task. It does the
//! same if the task has been woken and no worker runs it.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use dunlin_proto::time::Time;

use super::bell::{Bell, Writes};
use super::carrier::{Carrier, Step};
use super::state::Driver;
use super::watch::{HELD_UP, Serves};
use super::work::LONG;
use crate::lock::lock;
use crate::world;

/// If the works of one turn took long together, those of this many turns that follow are measured one by one.
const TIMED: u32 = 64;

pub(crate) struct Post {
    driver: Arc<Driver>,
    bell: Arc<Bell>,
    desk: Mutex<Desk>,
    /// When the task began to work on channels; 0: it does not.
    since: AtomicU64,
    /// The last look at the task found that it had been woken, and it has not run since.
    overdue: AtomicBool,
}

struct Desk {
    carrier: Carrier,
    /// The number of the task that serves the socket.
    shift: u64,
    /// In how many more turns each work on a channel is measured by itself.
    timed: u32,
}

impl Post {
    pub(super) fn new(driver: Arc<Driver>, bell: Arc<Bell>, carrier: Carrier) -> Arc<Self> {
        let post = Arc::new(Self {
            driver,
            bell,
            desk: Mutex::new(Desk { carrier, shift: 0, timed: 0 }),
            since: AtomicU64::new(0),
            overdue: AtomicBool::new(false),
        });
        let socket = Arc::downgrade(&post) as Weak<dyn Writes>;
        post.bell.serves(post.driver.number, socket, post.driver.watch.clone());
        post
    }

    /// Serves the socket for as long as it exists, or until another task has taken it over.
    pub(super) async fn serve(self: Arc<Self>, shift: u64) {
        poll_fn(|cx| self.poll(cx, shift)).await;
        self.bell.write_last_companions();
    }

    fn poll(&self, cx: &mut Context<'_>, shift: u64) -> Poll<()> {
        self.bell.write_companions();
        loop {
            let mut desk = lock(&self.desk);
            if desk.shift != shift {
                return Poll::Ready(());
            }
            self.overdue.store(false, Ordering::Relaxed);
            self.since.store(0, Ordering::Release);
            self.bell.works(false);
            if ready!(desk.carrier.poll(cx)) == Step::Over {
                return Poll::Ready(());
            }
            let since = self.driver.lately();
            self.since.store(since.0.max(1), Ordering::Release);
            self.bell.works(true);
            let timed = desk.timed > 0;
            let mut arrivals = desk.carrier.take_arrivals();
            drop(desk);
            self.bell.write_companions();
            arrivals.pass_on(&self.driver);
            let mut took = Duration::ZERO;
            if self.bell.stirred() > 0 {
                self.driver.watch.begin();
                self.driver.work(&self.bell, timed);
                took = self.driver.now().since(since);
            }
            let mut desk = lock(&self.desk);
            if desk.shift != shift {
                // Another task serves the socket.
                return Poll::Ready(());
            }
            desk.carrier.keep(arrivals);
            desk.timed = if took >= LONG { TIMED } else { desk.timed.saturating_sub(1) };
        }
    }
}

impl Writes for Post {
    fn write_beside(&self, waker: Waker) {
        let is_done = match self.desk.try_lock() {
            // Its task has run since, and done that.
            Ok(_) if self.bell.is_waiting() => true,
            Ok(mut desk) if self.since.load(Ordering::Acquire) == 0 => {
                desk.carrier.write_beside(&mut Context::from_waker(&waker))
            }
            _ => false,
        };
        if !is_done {
            waker.wake();
        }
    }
}

impl Post {
    /// Gives the socket to another task if its own has been woken and does not run.
    fn run_what_is_due(self: Arc<Self>, now: Time) -> Option<Time> {
        if !self.bell.is_due() {
            return None;
        }
        // (Otherwise the task runs.)
        if let Ok(mut desk) = self.desk.try_lock() {
            // (One that parts waits for its socket alone.)
            let is_idle = self.since.load(Ordering::Acquire) == 0 && !desk.carrier.is_parting();
            if is_idle && self.overdue.swap(true, Ordering::Relaxed) {
                self.overdue.store(false, Ordering::Relaxed);
                desk.shift += 1;
                world::spawn_own(self.clone().serve(desk.shift));
            }
        }
        Some(now + HELD_UP)
    }
}

impl Serves for Post {
    fn relieve(self: Arc<Self>, now: Time) -> Option<Time> {
        let since = self.since.load(Ordering::Acquire);
        if since == 0 {
            return self.run_what_is_due(now);
        }
        let until = Time(since) + HELD_UP;
        if now < until {
            return Some(until);
        }
        let mut desk = lock(&self.desk);
        // (Otherwise the task has come back just now.)
        if self.since.compare_exchange(since, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            desk.shift += 1;
            world::spawn_own(self.clone().serve(desk.shift));
        }
        None
    }
}
