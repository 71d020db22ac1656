//! Rate limits for gateways, enforced by the RL module of Redis and Valkey.
//!
//! ```no_run
//! use rl_client::{Limit, Limiter, MINUTE};
//!
//! # async fn example() -> Result<(), rl_client::Error> {
//! let limiter = Limiter::builder("redis://127.0.0.1/").build().await?;
//! let decision = limiter.check("user:42", Limit::slide(100, MINUTE), 1).await?;
//! println!("allowed: {}, remaining: {}", decision.allowed, decision.remaining);
//! # Ok(())
//! # }
//! ```
//!
//! | to … | see |
//! |---|---|
//! | call the commands on a connection of yours | [`AsyncRlCommands`], [`RlCommands`], [`RlPipeline`] |
//! | check limits and have an answer whatever happens to the server | [`Limiter`], [`FailureMode`] |
//! | serve hot tenants without a call for each request | [`budgets`] |
//! | protect routes of axum or any tower service | [`http`] |
//! | say in a file which route goes by which policy | [`routes`] |
//! | watch it | [`metrics`], [`Limiter::health`] |
//!
//! # Features
//! `tower` (default): the HTTP layer. `cluster`, `sentinel`: limiters over a cluster or a primary that Sentinels know. `tls`:
//! `rediss://` addresses.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod breaker;
pub mod budgets;
mod builder;
mod commands;
mod connection;
mod decision;
mod deny_cache;
mod error;
#[cfg(feature = "tower")]
pub mod http;
mod key;
mod limit;
mod limiter;
mod local;
pub mod metrics;
mod policies;
#[cfg(feature = "tower")]
pub mod routes;
mod script;
mod server;

pub use builder::Builder;
pub use commands::{AsyncRlCommands, RlCommands, RlPipeline};
pub use decision::{Decision, MultiDecision, Source};
pub use error::Error;
pub use key::tagged;
pub use limit::{DAY, HOUR, Limit, MINUTE, SECOND};
pub use limiter::{Backend, FailureMode, Health, Limiter};
