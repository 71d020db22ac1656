//! Lua scripts: by hash, and in full once a server does not know them.

use std::sync::LazyLock;

use redis::{Arg, Cmd, ErrorKind, RedisResult, ServerErrorKind, ToRedisArgs, Value};

use crate::connection::Link;

/// All limits for servers without the module.
pub(crate) static LIMITS: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/limits.lua")));
/// Takes a budget.
pub(crate) static TAKE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/take.lua")));
/// Gives the rest of a budget back.
pub(crate) static GIVE_BACK: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/give_back.lua")));
/// Charges what was admitted without the server.
pub(crate) static SETTLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/settle.lua")));

pub(crate) struct Script {
    code: &'static str,
    hash: String,
}

impl Script {
    fn new(code: &'static str) -> Self {
        let hash = redis::Script::new(code).get_hash().to_owned();
        Self { code, hash }
    }

    /// A call of the script, to be completed with its arguments.
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

/// A call of a script on its keys.
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
