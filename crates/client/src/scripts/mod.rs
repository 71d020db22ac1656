//! Lua scripts: called by hash, and sent in full when a server does not know them.

use std::sync::LazyLock;

use redis::{Arg, Cmd, ErrorKind, RedisResult, ServerErrorKind, ToRedisArgs, Value};

use crate::drivers::connection::Link;

/// Limits on servers without the module.
pub(crate) static LIMITS: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("limits.lua")));
/// Refunds the unused units of a budget.
pub(crate) static REFUND_BUDGET: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("refund_budget.lua")));
/// Charges what was allowed while the server was unavailable.
pub(crate) static RECONCILE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("reconcile.lua")));

pub(crate) struct Script {
    code: &'static str,
    hash: String,
}

impl Script {
    fn new(code: &'static str) -> Self {
        let hash = redis::Script::new(code).get_hash().to_owned();
        Self { code, hash }
    }

    /// Starts a call of the script; its arguments are added afterwards.
    pub(crate) fn on<'a>(&'static self, keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Call {
        let mut by_hash = redis::cmd("EVALSHA");
        by_hash.arg(&self.hash).arg(keys.len());
        for key in keys {
            by_hash.arg(key);
        }
        Call {
            by_hash,
            code: self.code,
        }
    }
}

/// A call of a script.
pub(crate) struct Call {
    by_hash: Cmd,
    code: &'static str,
}

impl Call {
    pub(crate) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.by_hash.arg(arg);
        self
    }

    pub(crate) async fn run(&self, link: &dyn Link) -> RedisResult<Value> {
        match link.call(&self.by_hash).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.call(&self.in_full()).await
            }
            reply => reply,
        }
    }

    fn in_full(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(self.code);
        for arg in self.by_hash.args_iter().skip(2) {
            if let Arg::Simple(bytes) = arg {
                command.arg(bytes);
            }
        }
        command
    }
}
