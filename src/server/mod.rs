//! The boundary to the server: every call into it and every call from it goes through this folder, and all of
//! the module's `unsafe` code is here.
//!
//! It imports nothing from the rest of the module: what callbacks do is passed in as [`Handlers`], [`Command`]s and
//! [`Settings`].

mod boxed_value;
mod calls;
mod command;
mod config;
mod context;
mod datatype;
mod defrag;
mod docs;
mod entry_point;
mod error;
mod events;
mod handlers;
pub(crate) mod help;
mod info;
mod io;
mod key;
mod main_thread;
mod overrides_value;
mod packed_value;
mod policy_snapshot;
mod reservation_value;
mod server_info;
mod string;

pub(crate) use command::{
    Command, CommandFlags, Container, Keys, Register, Subcommand, add_acl_category, register,
    register_container,
};
pub(crate) use config::{ConfigAccess, NumericConfig, Settings, register_settings};
pub(crate) use context::{Context, LOAD_COMMAND};
pub(crate) use datatype::create_types;
pub(crate) use docs::{Argument, Docs};
pub(crate) use entry_point::{entry_point, on_load};
pub(crate) use error::CommandError;
pub(crate) use events::{Loading, schedule_deferred, subscribe};
pub(crate) use handlers::Handlers;
pub(crate) use info::{Info, InfoAccess, register_info};
pub(crate) use key::Key;
pub(crate) use main_thread::{MainThread, OnMainThread};
pub(crate) use overrides_value::keys_with_overrides;
pub(crate) use string::{Args, ServerStr, ServerString};

/// A function that every supported server has. Its absence is a bug in this module, so it may panic;
/// panics end at the boundary, in an error reply.
macro_rules! api {
    ($name:ident) => {
        match redis_module::raw::$name {
            Some(function) => function,
            None => $crate::server::missing(stringify!($name)),
        }
    };
}
pub(crate) use api;

#[cold]
fn missing(name: &str) -> ! {
    panic!("the server has no {name}")
}

/// Runs a callback. A panic must not cross into C, where it would abort the server.
fn catch_panic<T>(on_panic: T, body: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(on_panic)
}

/// Concatenates texts into one line that ends with a NUL, for C. A line that is too long is cut.
fn c_line(parts: &[&str]) -> [u8; 160] {
    let mut line = [0; 160];
    let room = line.len() - 1;
    let bytes = parts.iter().flat_map(|part| part.bytes());
    for (to, from) in line[..room].iter_mut().zip(bytes) {
        *to = from;
    }
    line
}
