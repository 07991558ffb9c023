//! The messages of mailboxes that receive exits and downs.

use dunlin::Down;
use dunlin::prelude::*;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Msg {
    Word(u32),
    Exit(Exit),
    Down(Down),
}

impl From<Exit> for Msg {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

impl From<Down> for Msg {
    fn from(down: Down) -> Self {
        Self::Down(down)
    }
}
