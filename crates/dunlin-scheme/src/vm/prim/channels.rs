//! Ends of channels.

use super::super::run::truth;
use super::Row;
use crate::heap::word::{UNSPECIFIED, as_end, is_receiver, is_shared_end};

pub(super) const TABLE: &[Row] = &[
    ("channel-sender?", 1, 1, |_, a| Ok(truth(as_end(a[0]).is_some_and(|end| !is_receiver(end))))),
    ("channel-receiver?", 1, 1, |_, a| Ok(truth(as_end(a[0]).is_some_and(is_receiver)))),
    ("channel-shared?", 1, 1, |_, a| Ok(truth(as_end(a[0]).is_some_and(is_shared_end)))),
    ("channel-leave", 1, 1, |m, a| {
        m.leave_end(a[0])?;
        Ok(UNSPECIFIED)
    }),
];
