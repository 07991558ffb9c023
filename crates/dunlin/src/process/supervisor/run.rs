//! The process that supervises.

use std::sync::Mutex;
use std::time::Duration;

use dunlin_sorted::{SortedMap, SortedSet};

use super::control::{Control, Event, Run};
use super::end::{ChildEnd, SupervisorError, TooManyDeaths};
use super::notice::Notice;
use super::order::{Number, Plan, Strategy};
use super::spec::{Child, Notices, Restart};
use super::supervised::Supervised;
use super::tree::{ChildState, Row};
use super::window::{Backoff, Verdict, Window};
use crate::lock::lock;
use crate::time::{Instant, sleep_until};
use crate::{Process, Receiver, Sender, alt, channel};

/// What a supervisor keeps from one of its runs to the next.
pub(super) struct Keep {
    pub(super) strategy: Strategy,
    pub(super) restarts: u32,
    pub(super) period: Duration,
    pub(super) backoff: Backoff,
    members: SortedMap<Number, Member>,
    /// How many of the members are of the specification: those with the lowest numbers.
    fixed: Number,
    next: Number,
    last_run: Run,
    pub(super) control: Control,
    queue: Receiver<Event>,
}

impl Keep {
    pub(super) fn new(strategy: Strategy) -> Self {
        let (control, queue) = Control::new();
        Self {
            strategy,
            restarts: 3,
            period: Duration::from_secs(5),
            backoff: Backoff::default(),
            members: SortedMap::new(),
            fixed: 0,
            next: 0,
            last_run: 0,
            control,
            queue,
        }
    }

    /// Adds a child to the specification.
    pub(super) fn specify(&mut self, child: Child) {
        self.add(child);
        self.fixed = self.next;
    }

    fn add(&mut self, child: Child) -> Number {
        let number = self.next;
        self.next += 1;
        let (name, children) = (child.name.clone(), child.rows.clone());
        let row = Row { name, pid: None, state: ChildState::Waiting, restarts: 0, children };
        self.control.rows().insert(number, row);
        self.members.insert(number, Member::new(child));
        number
    }
}

/// A child.
struct Member {
    child: Child,
    state: State,
    /// Its latest process.
    run: Run,
    process: Option<Process<()>>,
    /// Dropped as the request to shut down.
    asked: Option<Sender<()>>,
    began: Option<Instant>,
    deaths_in_a_row: u32,
    timer: Option<Instant>,
    /// It starts again when it has ended.
    again: bool,
    /// Told when it has started.
    added: Option<Sender<Number>>,
    /// Told when it has ended, and then it is forgotten.
    removed: Vec<Sender<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has no process: it waits for its turn, for its back-off, or for its ends.
    Waiting,
    Starting,
    Running,
    /// Asked to shut down.
    Asked,
    /// Cancelled: because it did not shut down, or did not start, in time.
    Cancelled {
        failed: bool,
    },
    /// Cancelled, and it has not ended within its deadline.
    Stuck,
    /// It has no process, because the supervisor ends.
    Stopped,
    /// It has ended for good.
    Ended,
}

impl Member {
    fn new(child: Child) -> Self {
        Self {
            child,
            state: State::Waiting,
            run: 0,
            process: None,
            asked: None,
            began: None,
            deaths_in_a_row: 0,
            timer: None,
            again: false,
            added: None,
            removed: Vec::new(),
        }
    }

    /// Forgets what concerns one run of its supervisor.
    fn reset(&mut self) {
        self.asked = None;
        self.timer = None;
        self.added = None;
        self.removed.clear();
    }

    fn is_up(&self) -> bool {
        matches!(self.state, State::Starting | State::Running)
    }
}

/// One run of a supervisor. Dropped, it cancels all children.
pub(super) struct Running<'a> {
    keep: &'a mut Keep,
    supervised: Supervised,
    window: Window,
    plan: Plan,
    timers: SortedSet<(Instant, Number)>,
    /// How many members have ended for good.
    ended: usize,
    /// All children of the specification have started once.
    has_started: bool,
    starting: Vec<Sender<()>>,
    /// Why it ends, once it does.
    ending: Option<Result<(), Box<TooManyDeaths>>>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        for (number, member) in &mut self.keep.members {
            if let Some(process) = member.process.take() {
                process.cancel();
            }
            member.reset();
            if member.state != State::Ended {
                self.keep.control.rows().change(*number, |row| {
                    row.pid = None;
                    row.state = ChildState::Stopped;
                });
            }
        }
    }
}

impl<'a> Running<'a> {
    pub(super) fn new(keep: &'a mut Keep, supervised: Supervised) -> Self {
        // Children that were added to an earlier run are not of this one.
        keep.members.split_off(&keep.fixed).into_keys().for_each(|number| keep.control.rows().remove(number));
        let window = Window::new(keep.restarts, keep.period);
        let mut running = Self {
            keep,
            supervised,
            window,
            plan: Plan::default(),
            timers: SortedSet::new(),
            ended: 0,
            has_started: false,
            starting: Vec::new(),
            ending: None,
        };
        for number in 0..running.keep.fixed {
            if running.keep.members[&number].state == State::Ended {
                running.ended += 1;
                continue;
            }
            running.change(number, State::Waiting);
            running.plan.take_turn(number);
            running.plan.start(number);
        }
        running
    }

    /// Runs to the end.
    pub(super) async fn run(mut self) -> Result<(), SupervisorError> {
        loop {
            self.advance();
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            let due = self.timers.first().map(|(due, _)| *due);
            let is_open = self.ending.is_none();
            let event = alt! {
                event = self.keep.queue.recv() => event.ok(),
                _ = self.supervised.requested(), if is_open => Some(Event::Shutdown),
                _ = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => None,
            };
            match event {
                Some(event) => self.handle(event).await,
                None => self.expire(due),
            }
        }
    }

    /// Stops and starts the children that can be stopped and started now.
    fn advance(&mut self) {
        loop {
            let stop = self.plan.take_to_stop(self.keep.fixed);
            if stop.is_empty() {
                break;
            }
            stop.into_iter().for_each(|number| self.stop(number));
        }
        loop {
            let start = self.plan.take_to_start(self.keep.fixed);
            if start.is_empty() {
                break;
            }
            start.into_iter().for_each(|number| self.start(number));
        }
        if !self.has_started && self.ending.is_none() && !self.plan.is_in_turn() && !self.plan.is_stopping() {
            self.has_started = true;
            self.supervised.ready();
            self.starting.drain(..).for_each(|mut reply| drop(reply.try_send(())));
        }
    }

    /// How the supervisor ends, if now.
    fn outcome(&mut self) -> Option<Result<(), SupervisorError>> {
        if self.ending.is_none() {
            // Its work is done when that of all children of a specification is.
            let is_done = self.keep.fixed > 0 && self.ended == self.keep.members.len();
            return is_done.then_some(Ok(()));
        }
        if self.plan.is_stopping() {
            return None;
        }
        let stuck = self.keep.members.values().filter(|member| member.state == State::Stuck);
        let running: Vec<_> = stuck.map(|member| member.child.name.clone()).collect();
        self.ending.take().map(|ending| match ending {
            Ok(()) if running.is_empty() => Ok(()),
            Ok(()) => Err(SupervisorError::StillRunning(running)),
            Err(mut deaths) => {
                deaths.still_running = running;
                Err(SupervisorError::TooManyDeaths(deaths))
            }
        })
    }

    async fn handle(&mut self, event: Event) {
        match event {
            Event::Ended(number, run) => self.end(number, run).await,
            Event::Ready(number, run) => {
                let is_starting = |member: &Member| member.run == run && member.state == State::Starting;
                if self.keep.members.get(&number).is_some_and(is_starting) {
                    self.started(number);
                }
            }
            Event::Returned(number, run) => {
                let waits = |member: &Member| member.run == run && member.state == State::Waiting;
                if self.ending.is_none() && self.keep.members.get(&number).is_some_and(waits) {
                    self.plan.start(number);
                }
            }
            Event::Add(offer, reply) => self.add(&offer, reply),
            Event::Remove(number, reply) => self.remove(number, reply),
            Event::Started(mut reply) => {
                if self.has_started {
                    drop(reply.try_send(()));
                } else if self.ending.is_none() {
                    self.starting.push(reply);
                }
            }
            Event::Shutdown => self.give_up(Ok(())),
        }
    }

    /// Acts on the timers until `due`, whose time has come. (A simulation's clock rounds down.)
    fn expire(&mut self, due: Option<Instant>) {
        let now = crate::world::now();
        let now = due.map_or(now, |due| due.max(now));
        while let Some((due, number)) = self.timers.first().copied()
            && due <= now
        {
            self.set_timer(number, None);
            let Some(member) = self.keep.members.get(&number) else { continue };
            let (start_within, shutdown_within) = (member.child.start_within, member.child.shutdown_within);
            match member.state {
                State::Waiting => self.plan.start(number),
                State::Starting if start_within.is_some() => self.cancel(number, true),
                State::Asked if shutdown_within.is_some() => self.cancel(number, false),
                State::Cancelled { .. } => self.stick(number),
                _ => {}
            }
        }
    }

    fn start(&mut self, number: Number) {
        self.keep.last_run += 1;
        let run = self.keep.last_run;
        let notice = |event: fn(Number, Run) -> Event| {
            let control = self.keep.control.clone();
            // A supervisor that has ended waits for nothing.
            Notice::new(move || drop(control.post(event(number, run))))
        };
        let (ready, ended, returned) = (notice(Event::Ready), notice(Event::Ended), notice(Event::Returned));
        let Some(member) = self.keep.members.get_mut(&number) else { return };
        let again = u64::from(member.began.is_some());
        member.run = run;
        // Listed before it can do anything that others notice.
        self.keep.control.rows().change(number, |row| row.restarts += again);
        self.change(number, State::Starting);
        let Some(member) = self.keep.members.get_mut(&number) else { return };
        let (ask, shutdown) = channel();
        let supervised = Supervised::new(shutdown, ready);
        let notices = Notices { ended, returned };
        let body = member.child.body.as_mut();
        let Some(process) = body.and_then(|body| body.start(&member.child.name, supervised, notices)) else {
            // A process of the supervisor's last run, or a guard that was passed on, has its ends.
            self.keep.control.rows().change(number, |row| row.restarts -= again);
            return self.change(number, State::Waiting);
        };
        let now = crate::world::now();
        member.began = Some(now);
        member.asked = Some(ask);
        member.again = true;
        let pid = process.pid();
        member.process = Some(process);
        let start_within = member.child.start_within;
        self.keep.control.rows().change(number, |row| row.pid = Some(pid));
        match start_within {
            Some(deadline) => self.set_timer(number, now.checked_add(deadline)),
            None => self.started(number),
        }
    }

    fn started(&mut self, number: Number) {
        self.set_timer(number, None);
        self.change(number, State::Running);
        self.plan.settle(number);
        if let Some(mut added) = self.keep.members.get_mut(&number).and_then(|member| member.added.take()) {
            drop(added.try_send(number));
        }
    }

    /// Asks a child to shut down, or cancels it if it does not see a request.
    fn stop(&mut self, number: Number) {
        let Some(member) = self.keep.members.get_mut(&number) else { return self.plan.stopped(number) };
        if !member.is_up() {
            if member.process.is_none() || member.state == State::Stuck {
                self.plan.stopped(number);
            }
            return;
        }
        if !member.child.is_asked {
            return self.cancel(number, false);
        }
        member.asked = None;
        let deadline = member.child.shutdown_within.and_then(|deadline| crate::world::now().checked_add(deadline));
        self.change(number, State::Asked);
        self.set_timer(number, deadline);
    }

    /// `failed`: because it did not start.
    fn cancel(&mut self, number: Number, failed: bool) {
        let Some(member) = self.keep.members.get_mut(&number) else { return };
        if let Some(process) = &member.process {
            process.cancel();
        }
        let deadline = member.child.shutdown_within.and_then(|deadline| crate::world::now().checked_add(deadline));
        self.change(number, State::Cancelled { failed });
        self.set_timer(number, deadline);
    }

    /// A cancelled child does not end: it counts as dead, and the others no longer wait for it.
    fn stick(&mut self, number: Number) {
        self.change(number, State::Stuck);
        self.plan.stopped(number);
        self.plan.settle(number);
        self.death(number, ChildEnd::Stuck);
    }

    /// A process has ended.
    async fn end(&mut self, number: Number, run: Run) {
        let Some(member) = self.keep.members.get_mut(&number).filter(|member| member.run == run) else { return };
        let Some(process) = member.process.take() else { return };
        // The process has posted this event as the last that it does.
        let end = process.await.map_or_else(ChildEnd::Exited, |()| ChildEnd::Returned);
        let (state, again) = (member.state, member.again);
        let start_within = member.child.start_within.unwrap_or_default();
        self.set_timer(number, None);
        self.keep.control.rows().change(number, |row| row.pid = None);
        self.plan.stopped(number);
        self.change(number, State::Waiting);
        match state {
            State::Cancelled { failed: true } => self.death(number, ChildEnd::NotReady(start_within)),
            State::Asked | State::Cancelled { .. } if self.ending.is_none() && again => {}
            // Its death was counted when its deadline had passed.
            State::Stuck if self.ending.is_none() && again => self.restart(number),
            // However it ended: in the supervisor's next run it starts again.
            State::Asked | State::Cancelled { .. } | State::Stuck
                if self.ending.is_some() && number < self.keep.fixed =>
            {
                self.change(number, State::Stopped);
            }
            State::Asked | State::Cancelled { .. } | State::Stuck => self.finish(number, end),
            _ => self.death(number, end),
        }
    }

    /// A child has died.
    fn death(&mut self, number: Number, end: ChildEnd) {
        if self.ending.is_some() {
            return self.finish(number, end);
        }
        let now = crate::world::now();
        let Some(member) = self.keep.members.get_mut(&number) else { return };
        let lived = member.began.map_or(Duration::ZERO, |began| now.duration_since(began));
        member.deaths_in_a_row =
            if lived < self.window.period() { member.deaths_in_a_row.saturating_add(1) } else { 1 };
        member.again = member.child.restart.follows(end.is_normal()) && member.removed.is_empty();
        if !member.again {
            return self.finish(number, end);
        }
        if self.window.death(now) == Verdict::Stop {
            let child = member.child.name.clone();
            let (deaths, period) = (self.window.deaths(), self.window.period());
            let deaths = TooManyDeaths { child, end, deaths, period, still_running: Vec::new() };
            return self.give_up(Err(Box::new(deaths)));
        }
        self.restart_with(number);
    }

    /// Restarts a child that died, and stops and starts those that its death concerns.
    fn restart_with(&mut self, died: Number) {
        let Keep { strategy, fixed, ref mut members, .. } = *self.keep;
        for (number, member) in members.range_mut(strategy.concerns(died, fixed)) {
            if *number != died && member.is_up() {
                member.again = member.child.restart != Restart::Temporary;
                self.plan.stop(*number);
                self.plan.settle(*number);
            }
            let waits = matches!(member.state, State::Waiting) || member.is_up();
            if strategy != Strategy::OneForOne && *number < fixed && member.again && waits {
                self.plan.take_turn(*number);
            }
            if *number != died && member.is_up() && member.again {
                self.plan.start(*number);
            }
        }
        self.restart(died);
    }

    /// Lets a child start when its back-off is over, unless it has not ended.
    fn restart(&mut self, number: Number) {
        let Some(member) = self.keep.members.get(&number).filter(|member| member.process.is_none()) else { return };
        let wait = self.keep.backoff.wait(member.deaths_in_a_row);
        if wait.is_zero() {
            return self.plan.start(number);
        }
        self.set_timer(number, crate::world::now().checked_add(wait));
    }

    /// A child does not start again: not in this run, if the supervisor ends, or else never.
    fn finish(&mut self, number: Number, end: ChildEnd) {
        self.plan.settle(number);
        let is_ending = self.ending.is_some();
        let Some(member) = self.keep.members.get_mut(&number) else { return };
        member.added = None;
        if member.process.is_some() {
            // It counts as dead, and still runs.
        } else if number >= self.keep.fixed {
            self.forget(number);
        } else if is_ending && member.child.restart.follows(end.is_normal()) {
            self.change(number, State::Stopped);
        } else {
            // Its ends are dropped, so that the other sides learn of it.
            member.child.body = None;
            self.change(number, State::Ended);
            self.ended += 1;
            self.keep.control.rows().change(number, |row| row.state = ChildState::Ended(end));
        }
    }

    /// A child that was added has ended for good, or will not start.
    fn forget(&mut self, number: Number) {
        self.set_timer(number, None);
        self.plan.settle(number);
        self.keep.control.rows().remove(number);
        let removed = self.keep.members.remove(&number).map(|member| member.removed).unwrap_or_default();
        removed.into_iter().for_each(|mut reply| drop(reply.try_send(())));
    }

    /// Stops all children; then the supervisor ends.
    fn give_up(&mut self, why: Result<(), Box<TooManyDeaths>>) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(why);
        self.starting.clear();
        self.plan.start_none();
        let numbers: Vec<_> = self.keep.members.keys().copied().collect();
        for number in numbers {
            let Some(member) = self.keep.members.get_mut(&number) else { continue };
            member.again = false;
            member.added = None;
            if member.process.is_some() && member.state != State::Stuck {
                self.plan.stop(number);
            } else if member.state == State::Waiting {
                self.set_timer(number, None);
                self.change(number, State::Stopped);
            }
        }
    }

    fn add(&mut self, offer: &Mutex<Option<Child>>, reply: Sender<Number>) {
        if self.ending.is_some() {
            return;
        }
        let Some(child) = lock(offer).take() else { return };
        let number = self.keep.add(child);
        if let Some(member) = self.keep.members.get_mut(&number) {
            member.added = Some(reply);
        }
        self.plan.start(number);
    }

    fn remove(&mut self, number: Number, reply: Sender<()>) {
        let Some(member) = self.keep.members.get_mut(&number) else { return };
        member.again = false;
        member.removed.push(reply);
        self.plan.settle(number);
        if member.is_up() {
            // Beside the plan: no other child waits for its end.
            self.stop(number);
        } else if member.process.is_none() {
            self.forget(number);
        }
    }

    fn change(&mut self, number: Number, state: State) {
        let Some(member) = self.keep.members.get_mut(&number) else { return };
        member.state = state;
        let state = match state {
            State::Waiting => ChildState::Waiting,
            State::Starting => ChildState::Starting,
            State::Running => ChildState::Running,
            State::Asked | State::Cancelled { .. } => ChildState::Stopping,
            State::Stuck => ChildState::Stuck,
            // How it ended is written by its caller.
            State::Stopped | State::Ended => ChildState::Stopped,
        };
        self.keep.control.rows().change(number, |row| row.state = state);
    }

    fn set_timer(&mut self, number: Number, due: Option<Instant>) {
        let Some(member) = self.keep.members.get_mut(&number) else { return };
        if let Some(old) = std::mem::replace(&mut member.timer, due) {
            self.timers.remove(&(old, number));
        }
        if let Some(due) = due {
            self.timers.insert((due, number));
        }
    }
}
