//! The one door to the server: every call into it and every call from it goes through this folder, and
//! all of the module's `unsafe` is here.

mod aux;
mod command;
mod config;
mod context;
mod datatype;
mod docs;
mod events;
mod info;
mod key;
mod live;
mod main_thread;
mod override_type;
mod string;
mod words;

pub(crate) use command::{Access, Command, add_acl_category, register};
pub(crate) use config::register_settings;
pub(crate) use context::Context;
pub(crate) use datatype::create_types;
pub(crate) use docs::{Argument, Docs};
pub(crate) use events::{Event, Loading, catch_up_soon, subscribe, subscribe_to_loading};
pub(crate) use info::{Info, register_info};
pub(crate) use key::Key;
pub(crate) use main_thread::{MainThread, OnMainThread};
pub(crate) use override_type::overrides_held;
pub(crate) use string::{Arg, Args, OwnedName};

/// A function that every supported server has. Its absence is a bug in this module, so it may panic;
/// panics end at the boundary, in an error reply.
macro_rules! api {
    ($name:ident) => {
        match redis_module::raw::$name {
            Some(function) => function,
            None => crate::redis::missing(stringify!($name)),
        }
    };
}
pub(crate) use api;

#[cold]
fn missing(name: &str) -> ! {
    panic!("the server has no {name}")
}

/// Runs what the server called. A panic must not cross into C, where it would abort the server.
fn shield<T>(on_panic: T, body: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(on_panic)
}

/// Static texts as one line that ends with a NUL, for C; no text is as long.
fn c_line(parts: &[&str]) -> [u8; 160] {
    let mut line = [0; 160];
    let room = line.len() - 1;
    let bytes = parts.iter().flat_map(|part| part.bytes());
    for (to, from) in line[..room].iter_mut().zip(bytes) {
        *to = from;
    }
    line
}
