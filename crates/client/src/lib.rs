#![forbid(unsafe_code)]
#![warn(missing_docs)]
mod commands;
mod decision;
mod error;
mod key;
mod limit;
pub use commands::{AsyncRlCommands, RlCommands, RlPipeline};
pub use decision::{Decision, MultiDecision, Source};
pub use error::Error;
pub use key::tagged;
pub use limit::{DAY, HOUR, Limit, MINUTE, SECOND};
