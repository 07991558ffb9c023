//! Processes: spawn, send, what `recv` is made of, links.

use super::super::fail::{Fail, Result, out_of_range, wrong_type};
use super::super::machine::Machine;
use super::super::run::truth;
use super::Row;
use super::control::is_procedure;
use crate::heap::word::{FALSE, UNSPECIFIED, Word, as_natural, as_pid, as_tag, pid, tag};
use crate::num::Number;
use crate::value;

pub(super) const TABLE: &[Row] = &[
    ("self", 0, 0, |m, _| Ok(pid(m.running_pid()))),
    ("%self", 0, 0, |m, _| Ok(pid(m.running_pid()))),
    ("spawn", 1, 1, |m, a| spawn(m, a[0], false)),
    ("spawn-link", 1, 1, |m, a| spawn(m, a[0], true)),
    ("!", 2, 2, |m, a| {
        let to = pid_argument(a[0])?;
        m.send(to, a[1])?;
        Ok(UNSPECIFIED)
    }),
    ("pid?", 1, 1, |_, a| Ok(truth(as_pid(a[0]).is_some()))),
    ("make-tag", 0, 0, |m, _| Ok(tag(m.commons.program.new_number() as u64))),
    ("tag?", 1, 1, |_, a| Ok(truth(as_tag(a[0]).is_some()))),
    // The order of two processes, or of two tags: the same in every program.
    ("%name<?", 2, 2, |m, a| {
        let [one, other] =
            [name_argument(a[0])?, name_argument(a[1])?].map(|number| m.commons.program.names.place(number));
        Ok(truth(one < other))
    }),
    // The message of this number; what was removed meanwhile is no message any more.
    ("%message", 1, 1, |m, a| {
        let number = number_argument(a[0])?;
        m.message(number).ok_or_else(|| out_of_range(a[0], 0))
    }),
    ("%accept", 2, 2, |m, a| {
        // A continuation of another process accepted a message of that one: there is none to remove here.
        if a[0] == pid(m.running_pid()) {
            let number = number_argument(a[1])?;
            m.accept(number);
        }
        Ok(UNSPECIFIED)
    }),
    // The process whose end the first exit tells of.
    ("%exit-process", 0, 0, |m, _| Ok(m.exit_process().map_or(FALSE, pid))),
    ("%take-exit", 0, 0, |m, _| m.take_exit()),
    ("%deadline", 1, 1, |m, a| deadline(m, a[0])),
    ("inbound-link", 1, 1, |m, a| {
        let from = pid_argument(a[0])?;
        m.link(from, m.running_pid())?;
        Ok(UNSPECIFIED)
    }),
    ("outbound-link", 1, 1, |m, a| {
        let to = pid_argument(a[0])?;
        m.link(m.running_pid(), to)?;
        Ok(UNSPECIFIED)
    }),
    ("kill", 1, 1, |m, a| {
        let which = pid_argument(a[0])?;
        m.kill(which)?;
        Ok(UNSPECIFIED)
    }),
    ("%finish-body", 1, 1, |m, a| {
        m.commons.bodies.finish(a[0]);
        Ok(UNSPECIFIED)
    }),
    ("%leave-body", 1, 1, |m, a| {
        m.leave_body(a[0]);
        Ok(UNSPECIFIED)
    }),
    ("halt!", 0, 0, |_, _| Err(Fail::Halt)),
];

fn pid_argument(word: Word) -> Result<u64> {
    as_pid(word).ok_or_else(|| wrong_type("a process", word))
}

fn name_argument(word: Word) -> Result<u64> {
    as_pid(word).or(as_tag(word)).ok_or_else(|| wrong_type("a process or a tag", word))
}

fn number_argument(word: Word) -> Result<u64> {
    as_natural(word).ok_or_else(|| wrong_type("the number of a message", word))
}

fn spawn(machine: &mut Machine, thunk: Word, is_linked: bool) -> Result {
    if !is_procedure(machine, thunk) {
        return Err(wrong_type("a procedure without parameters", thunk));
    }
    Ok(pid(machine.spawn(thunk, is_linked)?))
}

/// The time of the host in so many seconds; false for no time at all.
fn deadline(machine: &mut Machine, seconds: Word) -> Result {
    if seconds == FALSE {
        return Ok(FALSE);
    }
    let number = value::number(&machine.heap, seconds).map(|number| number.to_f64());
    let Some(number) = number.filter(|number| *number >= 0.0) else {
        return Err(wrong_type("seconds, zero or more", seconds));
    };
    let us = number * 1e6;
    // Longer than any program runs.
    if us >= (1_u64 << 58) as f64 {
        return Ok(FALSE);
    }
    let at = machine.now_us().saturating_add(us.ceil() as u64);
    Ok(value::of_number(&mut machine.heap, &Number::from_i64(at as i64)))
}
