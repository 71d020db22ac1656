//! Client for the RL rate-limiting module of Redis and Valkey.
//!
#![cfg_attr(feature = "tokio", doc = "```no_run")]
#![cfg_attr(not(feature = "tokio"), doc = "```ignore")]
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
//! | task | see |
//! |---|---|
//! | call the commands on your own connection | [`commands`], `AsyncRlCommands`, [`RlCommands`], [`RlPipeline`] |
//! | get a decision even if the server is unavailable | `Limiter`, `FailureMode` |
//! | check hot keys without a call to the server each time | `budgets` |
//! | protect routes of axum, or any tower service | `http` |
//! | map routes to policies in a file | `http::routes` |
//! | monitor it | `metrics`, `Limiter::health` |
//!
//! # Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `tokio` | yes | the `Limiter` and `AsyncRlCommands`; without it, only the blocking commands |
//! | `tower` | yes | the HTTP layer |
//! | `cluster` | yes | limiters on a Redis Cluster |
//! | `sentinel` | yes | limiters on a primary that Sentinel monitors |
//! | `tls` | no | `rediss://` addresses |
//! | `serde` | no | `Serialize` for the replies of RL.STATS, RL.TOP, RL.AUDIT and RL.OVERRIDE |

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

pub mod commands;
#[cfg(feature = "tokio")]
mod drivers;
#[cfg(feature = "tokio")]
mod engine;
#[cfg(feature = "tokio")]
mod error;
#[cfg(feature = "tower")]
pub mod http;
mod limit;
#[cfg(feature = "tokio")]
mod limiter;
#[cfg(feature = "tokio")]
pub mod metrics;
#[cfg(feature = "tokio")]
mod scripts;
mod tagged_key;

/// The redis crate, whose types appear in this crate's API.
pub use redis;

#[cfg(feature = "tokio")]
pub use commands::AsyncRlCommands;
pub use commands::{DecidedBy, Decision, MultiDecision, RlCommands, RlPipeline, Source};
#[cfg(feature = "tokio")]
pub use engine::budgets;
#[cfg(feature = "tokio")]
pub use error::Error;
pub use limit::{Calendar, DAY, FixedWindow, HOUR, Limit, MINUTE, Offset, SECOND};
#[cfg(feature = "tokio")]
pub use limiter::{Backend, Builder, FailureMode, Health, Limiter};
pub use tagged_key::tagged_key;

/// Compiles the example in the README.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
