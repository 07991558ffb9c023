//! Which process runs, and what processes do to each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::commons::FailureLog;
use super::fail::{Fail, Result};
use super::machine::{Machine, NONE};
use super::outside::Request;
use super::turn::Turn;
use crate::error::Error;
use crate::heap::collect::Full;
use crate::heap::object::header;
use crate::heap::word::{FALSE, NIL, OBJECT, TRUE, Word, as_code, as_natural, as_pid, code, fixnum, pointer, symbol};
use crate::heap::{Parcel, Space, Tag};
use crate::proc::{Host, Letter, Operation, Parting, Process, Wait};
use crate::wire::{Limits, ReadError, WriteError};

/// Fuel of a turn, about 20 us.
pub(super) const TURN_FUEL: u64 = 500;

/// The number of the main process: it evaluates the forms of the top level.
pub(crate) const MAIN: u64 = 0;

/// A process that has ended, those that are linked to it, and what they hear.
struct End {
    pid: u64,
    links: BTreeSet<u64>,
    exit: Option<Arc<Parcel>>,
}

/// What came for a process that ran.
#[derive(Default)]
pub(super) struct Came {
    has_message: bool,
    has_exit: bool,
}

impl Came {
    /// Whether it ends this wait, or makes the process ask anew.
    fn ends(&self, wait: Wait) -> bool {
        self.has_exit || (self.has_message && matches!(wait, Wait::Message(_)))
    }
}

impl Machine {
    pub(crate) fn set_host(&mut self, host: Box<dyn Host + Send>) {
        self.host = host;
    }

    /// Runs all processes until the main one has a value. Afterwards the main process is in the machine.
    ///
    /// Turns have at most `turn` fuel, and all of them `fuel` if there is a limit, which is reduced by what
    /// was used. With `rewrite`, a process goes on from its own image after every turn. `flush` hears of each
    /// turn, and whether it ended with a wait.
    pub(crate) fn run_main(
        &mut self,
        turn: u64,
        fuel: &mut Option<u64>,
        rewrite: bool,
        flush: &mut dyn FnMut(&mut Self, bool),
    ) -> std::result::Result<Word, Error> {
        let result = loop {
            let most = fuel.unwrap_or(u64::MAX).min(turn).min(TURN_FUEL);
            let ended = self.run(most);
            self.count_fuel();
            flush(self, matches!(ended, Ok(Turn::Waiting(_) | Turn::Operating(_))));
            if let Some(fuel) = fuel {
                *fuel = fuel.saturating_sub(self.used);
            }
            let is_main = self.running.pid == MAIN;
            let next = match ended {
                Ok(Turn::Done(value)) if is_main => {
                    self.live = 0;
                    return Ok(value);
                }
                Ok(Turn::Halted) if is_main => break Err(Error::Exit(0)),
                Ok(Turn::Done(_) | Turn::Halted) => {
                    self.end(None);
                    self.switch(false)
                }
                Err(error) if is_main => break Err(error),
                Err(error @ Error::Exit(_)) => {
                    self.end(None);
                    break Err(error);
                }
                Err(error) => {
                    self.end(Some(error));
                    self.switch(false)
                }
                Ok(stopped) => {
                    if *fuel == Some(0) {
                        break Err(Error::OutOfFuel);
                    }
                    if self.interrupts.take() {
                        break Err(Error::Interrupted);
                    }
                    let rewritten = if rewrite { self.rewrite() } else { Ok(()) };
                    rewritten.and_then(|()| self.stop(&stopped))
                }
            };
            if let Some(error) = self.main_failure.take().or(next.err()) {
                break Err(error);
            }
        };
        // One error is told; another one that ended the main process in the same turn is over with it.
        (self.failure, self.main_failure) = (None, None);
        self.load_main();
        result
    }

    /// The turn is over: another process runs, or this one again.
    fn stop(&mut self, stopped: &Turn) -> std::result::Result<(), Error> {
        let deadline = match *stopped {
            Turn::Waiting(deadline) => {
                self.running.wait = Wait::Message(deadline);
                deadline
            }
            Turn::Operating(deadline) => {
                let computes = matches!(self.asked, Some(Operation::Compute(_)));
                self.running.wait = if computes { Wait::Computation } else { Wait::Outcome(deadline) };
                self.start_operation();
                deadline
            }
            _ => {
                self.queue();
                return self.switch(false);
            }
        };
        if let Some(at) = deadline {
            self.host.set_timer(self.running.pid, at);
        }
        self.switch(true)
    }

    fn queue(&mut self) {
        if !self.running.is_queued {
            self.running.is_queued = true;
            self.host.ready(self.running.pid);
        }
    }

    /// Gives the machine to the process whose turn it is.
    fn switch(&mut self, parks: bool) -> std::result::Result<(), Error> {
        let next = loop {
            self.finish_operations();
            match self.host.next() {
                Some(pid) if self.can_run(pid) => match self.pause_of(pid) {
                    Some(at) => self.pause(pid, at),
                    None => break pid,
                },
                Some(_) => {}
                None if self.host.wait() => {
                    if self.interrupts.take() {
                        return Err(Error::Interrupted);
                    }
                }
                // Whatever computes unparks this thread, as an interrupter does.
                None if !self.commons.operations.computing.is_empty() => {
                    std::thread::park();
                    if self.interrupts.take() {
                        return Err(Error::Interrupted);
                    }
                }
                None => return Err(Error::Deadlock),
            }
        };
        self.withdraw(next);
        if self.running.pid != next {
            self.put_away(parks);
            let process = self.commons.table.take(next).expect("it was found just now");
            self.bring(process);
        }
        self.set_ready();
        Ok(())
    }

    /// A process that can run has no fuel up to this time.
    fn pause(&mut self, pid: u64, at: u64) {
        let is_running = self.running.pid == pid;
        let found = if is_running { Some(&mut *self.running) } else { self.commons.table.parked(pid) };
        if let Some(process) = found {
            process.is_queued = false;
            let wait = std::mem::replace(&mut process.wait, Wait::Fuel(at));
            if let Some(timer) = wait.deadline() {
                self.host.cancel_timer(pid, timer);
            }
            self.host.set_timer(pid, at);
        }
    }

    /// The process that runs no longer waits.
    pub(super) fn set_ready(&mut self) {
        if let Some(at) = std::mem::replace(&mut self.running.wait, Wait::Ready).deadline() {
            self.host.cancel_timer(self.running.pid, at);
        }
        self.running.is_queued = false;
    }

    /// Whether a process that the host named has a turn. Others were named for an older reason.
    fn can_run(&mut self, pid: u64) -> bool {
        let is_running = self.running.pid == pid;
        let found = if is_running { Some(&mut *self.running) } else { self.commons.table.parked(pid) };
        match found.map(|process| (process.wait, process.is_queued)) {
            Some((_, true)) => true,
            Some((wait, false)) => wait.deadline().is_some_and(|at| at <= self.host.now_us()),
            None => false,
        }
    }

    /// Moves the process in the machine to the table, unless it has ended.
    pub(super) fn put_away(&mut self, parks: bool) {
        if self.running.pid == NONE {
            self.heap.clear();
            return;
        }
        let frame = if self.live == 0 { NIL } else { self.park_frames() };
        let mut registers = [frame, self.marks];
        let mut held = self.running.roots();
        match self.heap.save(&mut [&mut registers, &mut held], parks) {
            Ok(space) => {
                self.running.space = space;
                self.running.set_roots(&held);
                [self.running.frame, self.running.marks] = registers;
                let came = self.take_letters();
                if let Some(parting) = self.parting.take() {
                    let Parting { error, object } = *parting;
                    self.note_end(self.running.pid, &error);
                    self.end_with(Some(&error), object);
                    return;
                }
                let Process { pid, wait, .. } = *self.running;
                let process = std::mem::replace(&mut self.running, Box::new(Process::new(NONE)));
                self.commons.table.put(process);
                if came.ends(wait) {
                    self.wake(pid);
                }
            }
            Err(Full) => {
                let error = Error::HeapLimit { limit_bytes: self.heap.limit() * 8, trace: Vec::new() };
                if self.running.pid == MAIN {
                    self.main_failure = Some(error);
                    self.clear();
                    // It goes on with the next form, without what took the memory.
                    let mut main = Box::new(Process::new(MAIN));
                    main.links = std::mem::take(&mut self.running.links);
                    *self.running = Process::new(NONE);
                    self.commons.table.put(main);
                } else {
                    self.note_end(self.running.pid, &error);
                    self.end(Some(error));
                }
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
        self.frames.clear();
        self.failure = None;
        (self.kont, self.marks, self.live, self.base) = (NIL, NIL, 0, 0);
    }

    /// Puts a process into the machine.
    pub(super) fn bring(&mut self, mut process: Box<Process>) {
        self.clear();
        self.heap.load(std::mem::take(&mut process.space));
        self.marks = process.marks;
        let frame = process.frame;
        self.running = process;
        if frame != NIL {
            self.resume_frame(frame);
        }
    }

    /// Puts the main process into the machine; what it ran is over.
    fn load_main(&mut self) {
        self.forget_asked();
        if self.running.pid != MAIN {
            if self.running.wait == Wait::Ready && self.commons.table.is_alive(self.running.pid) {
                self.queue();
            }
            self.put_away(false);
            let main = self.commons.table.take(MAIN).expect("the main process does not end");
            self.bring(main);
        }
        self.abandon_operation();
        self.leave_bodies(MAIN);
        self.set_ready();
        self.frames.clear();
        (self.kont, self.marks, self.live, self.base) = (NIL, NIL, 0, 0);
    }

    /// The process in the machine has ended.
    pub(super) fn end(&mut self, error: Option<Error>) {
        let object = self.failure.take().filter(|_| error.is_some()).map(|object| self.heap.pack(object).0);
        self.end_with(error.as_ref(), object);
    }

    /// The process in the machine has ended, with an object that it raised.
    fn end_with(&mut self, error: Option<&Error>, object: Option<Parcel>) {
        // It may be linked to processes that it does not know of.
        self.take_letters();
        self.parting = None;
        let Process { pid, ref mut links, .. } = *self.running;
        let links = std::mem::take(links);
        let exit = error.map(|error| Arc::new(self.exit(pid, &links, error, object)));
        self.clear();
        self.running.pid = NONE;
        self.forget_operation(pid);
        self.leave_bodies(pid);
        self.commons.table.remove(pid);
        self.tell(End { pid, links, exit });
    }

    /// What those that are linked to a process hear of its failure. The log hears of it if there are none.
    fn exit(&mut self, pid: u64, links: &BTreeSet<u64>, error: &Error, object: Option<Parcel>) -> Parcel {
        if links.is_empty()
            && let Some(log) = &mut self.commons.on_failure
        {
            log(pid, error);
        }
        object.unwrap_or_else(|| {
            let object = self.condition("limit", &error.to_string(), &[], -1);
            self.heap.pack(object).0
        })
    }

    /// Takes what came for the process that runs since its turn began.
    pub(super) fn take_letters(&mut self) -> Came {
        let mut came = Came::default();
        let letters = self.commons.table.take_letters(self.running.pid);
        if letters.is_empty() {
            return came;
        }
        // They may hold values of globals that this machine has not seen.
        self.sync();
        for letter in letters {
            match letter {
                Letter::Message(parcel) => {
                    self.running.mailbox.push(parcel);
                    came.has_message = true;
                }
                Letter::Exit(ended, exit) => {
                    self.running.links.remove(&ended);
                    if let Some(exit) = exit {
                        self.running.mailbox.push_exit(ended, exit);
                        came.has_exit = true;
                    }
                }
                Letter::Link(to) if self.commons.table.is_alive(to) => {
                    self.running.links.insert(to);
                }
                Letter::Link(_) => {}
                Letter::Body => came.has_message = true,
                Letter::Parting(parting) => self.part(parting),
            }
        }
        if self.check_mailbox().is_err() {
            self.part(Parting { error: self.mailbox_limit(), object: None });
        }
        came
    }

    /// The process that runs ends with its turn; the first reason counts.
    fn part(&mut self, parting: Parting) {
        self.parting.get_or_insert_with(|| Box::new(parting));
    }

    /// Delivers the end of a process to those that are linked to it. That may end some of them: those that
    /// are linked to these hear of it in turn.
    fn tell(&mut self, end: End) {
        let limit = self.heap.limit();
        let mut ends = vec![end];
        while let Some(End { pid: ended, links, exit }) = ends.pop() {
            for to in links {
                let is_running = self.running.pid == to;
                let table = &mut self.commons.table;
                let Some(process) = (if is_running { Some(&mut *self.running) } else { table.parked(to) }) else {
                    table.post(to, Letter::Exit(ended, exit.clone()));
                    continue;
                };
                process.links.remove(&ended);
                if let Some(port) = &process.port {
                    if exit.is_some() || port.owner == Some(ended) {
                        let links = std::mem::take(&mut process.links);
                        table.remove(to);
                        ends.push(End { pid: to, links, exit: exit.clone() });
                    }
                    continue;
                }
                let Some(exit) = &exit else { continue };
                process.mailbox.push_exit(ended, exit.clone());
                if is_running || !process.mailbox.exceeds(limit) {
                    self.wake(to);
                } else {
                    ends.extend(self.end_parked(to, &self.mailbox_limit(), None));
                }
            }
        }
    }

    /// Ends a process that is a port, as one whose procedure has returned.
    pub(super) fn end_port(&mut self, pid: u64) {
        if let Some(process) = self.commons.table.take(pid) {
            self.commons.table.remove(pid);
            self.tell(End { pid, links: process.links, exit: None });
        }
    }

    /// Raises an object in one process.
    pub(super) fn tell_one(&mut self, to: u64, object: Word) {
        let exit = Some(Arc::new(self.heap.pack(object).0));
        self.tell(End { pid: u64::MAX, links: [to].into(), exit });
    }

    fn mailbox_limit(&self) -> Error {
        Error::MailboxLimit { limit_bytes: 8 * self.heap.limit() }
    }

    /// Fails if what the process that runs has just done made its own mailbox too large, and empties that.
    fn check_mailbox(&mut self) -> Result<()> {
        if !self.running.mailbox.exceeds(self.heap.limit()) {
            return Ok(());
        }
        self.running.mailbox.clear();
        Err(Fail::End(self.mailbox_limit()))
    }

    /// What a process waited for is computed: its wake counts.
    pub(super) fn end_computation(&mut self, pid: u64) {
        let is_running = self.running.pid == pid;
        let found = if is_running { Some(&mut *self.running) } else { self.commons.table.parked(pid) };
        if let Some(process) = found.filter(|process| process.wait == Wait::Computation) {
            process.wait = Wait::Outcome(None);
        }
    }

    /// A process that waits can run.
    pub(super) fn wake(&mut self, pid: u64) {
        let is_running = self.running.pid == pid;
        let found = if is_running { Some(&mut *self.running) } else { self.commons.table.parked(pid) };
        let Some(process) = found else { return };
        if !matches!(process.wait, Wait::Ready | Wait::Computation | Wait::Fuel(_)) && !process.is_queued {
            let deadline = std::mem::replace(&mut process.wait, Wait::Ready).deadline();
            process.is_queued = true;
            if let Some(at) = deadline {
                self.host.cancel_timer(pid, at);
            }
            self.host.ready(pid);
        }
    }

    /// What the last turn used.
    pub(crate) fn last_used(&self) -> u64 {
        self.used
    }

    pub(crate) fn set_failure_log(&mut self, log: FailureLog) {
        self.commons.on_failure = Some(log);
    }

    /// Limits how many processes there may be, the main one included.
    pub(crate) fn set_process_limit(&mut self, count: usize) {
        self.commons.table.set_limit(count);
    }

    pub(super) fn running_pid(&self) -> u64 {
        self.running.pid
    }

    pub(super) fn now_us(&mut self) -> u64 {
        // The host is the embedder's code, which may use other machines.
        self.commons.release();
        self.host.now_us()
    }

    /// Whether it is this time of the host's, if that is one.
    pub(super) fn is_past(&mut self, deadline: Option<u64>) -> bool {
        match deadline {
            Some(at) => at <= self.now_us(),
            None => false,
        }
    }

    /// Makes a process that calls a procedure.
    pub(super) fn spawn(&mut self, thunk: Word, is_linked: bool) -> Result<u64> {
        if self.commons.table.is_full() {
            return Err(Fail::Raise("limit", "too many processes".into(), vec![]));
        }
        let entry = self.commons.program.process_entry;
        let closure = thunk;
        let (mut words, thunk, segments, copied) = self.heap.pack_for(closure, 5);
        self.charge += copied as u64 / 16;
        let frame = pointer(words.len(), OBJECT);
        // The frame of `%process` after its first instruction, with its argument.
        words.extend([header(Tag::Frame, 4), NIL, fixnum(entry as i64 + 1), code(entry), thunk]);
        let pid = self.commons.table.add();
        // The procedure takes along the ends that it closes over, as a message does.
        self.pass_ends(closure, Some(pid));
        let mut process = Box::new(Process::new(pid));
        process.space = Space::new(words, &segments);
        process.frame = frame;
        process.is_queued = true;
        process.is_spawned = true;
        if is_linked {
            process.links.insert(self.running.pid);
        }
        self.commons.table.put(process);
        self.host.ready(pid);
        Ok(pid)
    }

    /// Looks up what a new process runs; the prelude has defined it.
    pub(crate) fn set_process_entry(&mut self) {
        let procedure = self.global_value("%process");
        self.commons.program.process_entry = as_code(procedure).expect("the prelude defines it, without variables");
    }

    /// Puts a message into the mailbox of a process. Without such a process it is dropped.
    pub(super) fn send(&mut self, to: u64, message: Word) -> Result<()> {
        if self.concerns_outside([to; 2]) {
            self.post(to, message);
            return Ok(());
        }
        let is_running = self.running.pid == to;
        if !is_running && !self.commons.table.is_alive(to) {
            self.pass_ends(message, None);
            return Ok(());
        }
        if !is_running && self.commons.table.port(to).is_some() {
            return self.ask_port(to, message);
        }
        self.pass_ends(message, Some(to));
        let (parcel, copied) = self.heap.pack(message);
        self.charge += copied as u64 / 16;
        if is_running {
            self.running.mailbox.push(parcel);
            return self.check_mailbox();
        }
        let limit = self.heap.limit();
        let table = &mut self.commons.table;
        let Some(process) = table.parked(to) else {
            table.post(to, Letter::Message(parcel));
            return Ok(());
        };
        process.mailbox.push(parcel);
        if process.mailbox.exceeds(limit) {
            return self.end_other(to, &self.mailbox_limit(), None);
        }
        // A message is not what an operation on channels waits for.
        if !matches!(process.wait, Wait::Outcome(_)) {
            self.wake(to);
        }
        Ok(())
    }

    /// Ends a process that does not run. The one that runs may hear of it.
    pub(super) fn end_other(&mut self, pid: u64, error: &Error, object: Option<Word>) -> Result<()> {
        if let Some(end) = self.end_parked(pid, error, object) {
            self.tell(end);
        }
        self.check_mailbox()
    }

    /// Takes out a process that does not run; the main one stays, without its messages.
    fn end_parked(&mut self, pid: u64, error: &Error, object: Option<Word>) -> Option<End> {
        if pid == MAIN {
            if let Some(main) = self.commons.table.parked(MAIN) {
                main.mailbox.clear();
            }
            self.main_failure = Some(error.clone());
            return None;
        }
        let Some(process) = self.commons.table.take(pid) else {
            let object = object.map(|object| self.heap.pack(object).0);
            self.commons.table.post(pid, Letter::Parting(Parting { error: error.clone(), object }));
            return None;
        };
        if let Some(at) = process.wait.deadline() {
            self.host.cancel_timer(pid, at);
        }
        self.forget_operation(pid);
        self.leave_bodies(pid);
        self.commons.table.remove(pid);
        self.note_end(pid, error);
        let object = object.map(|object| self.heap.pack(object).0);
        let exit = Some(Arc::new(self.exit(pid, &process.links, error, object)));
        Some(End { pid, links: process.links, exit })
    }

    /// Ends a process; those that are linked to it hear `killed`.
    pub(super) fn kill(&mut self, pid: u64) -> Result<()> {
        let killed = symbol(self.commons.program.symbols.intern("killed"));
        if pid == self.running.pid {
            self.failure = Some(killed);
            return Err(Fail::End(Error::Killed));
        }
        if self.concerns_outside([pid; 2]) {
            self.ask(Request::Kill(pid));
            return Ok(());
        }
        self.end_other(pid, &Error::Killed, Some(killed))
    }

    /// From now on `to` hears of an abnormal end of `from`; at once, if that has ended.
    pub(super) fn link(&mut self, from: u64, to: u64) -> Result<()> {
        if from == to {
            return Ok(());
        }
        if self.concerns_outside([from, to]) {
            self.ask(Request::Link { source: from, target: to });
            return Ok(());
        }
        if from == self.running.pid {
            if self.commons.table.is_alive(to) {
                self.running.links.insert(to);
            }
            return Ok(());
        }
        if let Some(process) = self.commons.table.parked(from) {
            process.links.insert(to);
            return Ok(());
        }
        if self.commons.table.is_alive(from) {
            self.commons.table.post(from, Letter::Link(to));
            return Ok(());
        }
        let gone = symbol(self.commons.program.symbols.intern("no-process"));
        let exit = Some(Arc::new(Parcel::of_word(gone)));
        self.tell(End { pid: from, links: [to].into(), exit });
        self.check_mailbox()
    }

    /// What a wait for a message ends with: the number of a message, true if an exit comes first, or false if
    /// the time is over. Otherwise how long to wait.
    pub(super) fn wait(&mut self, [owner, cursor, deadline]: [Word; 3]) -> std::result::Result<Word, Option<u64>> {
        // A continuation that another process captured knows nothing of this mailbox.
        let seen = if as_pid(owner) == Some(self.running.pid) { as_natural(cursor).unwrap_or(0) } else { 0 };
        if let Some(found) = self.found_after(seen) {
            return Ok(found);
        }
        self.take_letters();
        if let Some(found) = self.found_after(seen) {
            return Ok(found);
        }
        // What comes from here on wakes the process, once it is put away.
        let deadline = as_natural(deadline);
        if self.is_past(deadline) { Ok(FALSE) } else { Err(deadline) }
    }

    fn found_after(&self, seen: u64) -> Option<Word> {
        let mailbox = &self.running.mailbox;
        if mailbox.has_exit() { Some(TRUE) } else { mailbox.after(seen).map(|next| fixnum(next as i64)) }
    }

    pub(super) fn message(&mut self, number: u64) -> Option<Word> {
        let heap = &mut self.heap;
        self.running.mailbox.message(number, |parcel| heap.unpack(parcel))
    }

    pub(super) fn accept(&mut self, number: u64) {
        self.running.mailbox.remove(number);
    }

    /// The process that raised the first exit that was not raised here yet.
    pub(super) fn exit_process(&self) -> Option<u64> {
        self.running.mailbox.exit_process()
    }

    /// The first exit that was not raised yet.
    pub(super) fn take_exit(&mut self) -> Result<Word> {
        let exit = self.running.mailbox.take_exit();
        Ok(exit.map_or(FALSE, |exit| self.heap.unpack(&exit)))
    }

    /// The numbers of all processes but the main one.
    pub(crate) fn processes(&self) -> Vec<u64> {
        self.commons.table.pids()
    }

    /// The bytes that a process takes, unless it runs or has ended.
    pub(crate) fn process_bytes(&mut self, pid: u64) -> Option<usize> {
        self.commons.table.parked(pid).map(|process| process.bytes())
    }

    /// Writes a process other than the main one, which stays: none for a port, which runs no code.
    pub(crate) fn write_process(&mut self, pid: u64) -> Option<std::result::Result<Vec<u8>, WriteError>> {
        if self.commons.table.port(pid).is_some() {
            return None;
        }
        let process = self.commons.table.take(pid)?;
        self.put_away(false);
        self.bring(process);
        let image = self.process_image(Limits::default());
        self.load_main();
        Some(image)
    }

    /// Makes a process of an image; it goes on where it was written.
    pub(crate) fn read_process(&mut self, image: &[u8]) -> std::result::Result<u64, ReadError> {
        if self.commons.table.is_full() {
            return Err(ReadError::TooLarge);
        }
        self.put_away(false);
        let pid = self.commons.table.add();
        self.bring(Box::new(Process::new(pid)));
        self.running.is_spawned = true;
        let result = self.restore_process(image, Limits::default());
        if result.is_err() {
            self.end(None);
        }
        self.load_main();
        result.map(|()| pid)
    }
}
