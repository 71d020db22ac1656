//! One file for each command: its name, its flags, its page in COMMAND DOCS, its syntax.

pub(crate) mod bucket;
pub(crate) mod load;
pub(crate) mod multi;
pub(crate) mod peek;
mod single;
pub(crate) mod slide;
