//! I/O with the server, on Tokio.

pub(crate) mod connection;
pub(crate) mod server;
