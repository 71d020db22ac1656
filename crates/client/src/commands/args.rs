//! Arguments of the commands that check limits.

use redis::{Cmd, RedisWrite, ToRedisArgs};

use crate::Limit;

/// Whether a call charges. The default charges if all limits allow the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallOptions(Charge);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Charge {
    #[default]
    IfAllowed,
    Never,
    Always,
}

impl CallOptions {
    /// Decides, but charges nothing.
    pub const PEEK: Self = Self(Charge::Never);
    /// Charges even past the limit, for costs known only afterwards.
    pub const FORCE: Self = Self(Charge::Always);

    pub(crate) const fn token(self) -> Option<&'static str> {
        match self.0 {
            Charge::IfAllowed => None,
            Charge::Never => Some("PEEK"),
            Charge::Always => Some("FORCE"),
        }
    }
}

impl ToRedisArgs for CallOptions {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        self.token().write_redis_args(out);
    }
}

/// One limit of RL.MULTI and its cost.
///
/// ```
/// use rl_client::{Limit, MINUTE, commands::Spec};
///
/// let trial = Spec::new(Limit::slide(10, MINUTE), 1).shadow();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Spec {
    limit: Limit,
    cost: u64,
    shadow: bool,
}

impl Spec {
    /// A limit that is enforced.
    pub const fn new(limit: Limit, cost: u64) -> Self {
        Self {
            limit,
            cost,
            shadow: false,
        }
    }

    /// The same limit, evaluated and counted but not enforced.
    pub fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    pub(super) const fn as_arg(&self) -> SpecArg<'_> {
        SpecArg {
            options: CallOptions(Charge::IfAllowed),
            shadow: self.shadow,
            limit: &self.limit,
            cost: self.cost,
        }
    }
}

/// A spec is a single argument of RL.MULTI or RL.PEEK: `PEEK SLIDE 100 1m 1`.
pub(crate) struct SpecArg<'a> {
    /// Options of the whole call; they stand in its first spec.
    options: CallOptions,
    shadow: bool,
    limit: &'a Limit,
    cost: u64,
}

impl<'a> SpecArg<'a> {
    pub(crate) fn new(limit: &'a Limit, cost: u64) -> Self {
        Self {
            options: CallOptions::default(),
            shadow: false,
            limit,
            cost,
        }
    }
}

impl ToRedisArgs for SpecArg<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let option = self
            .options
            .token()
            .map_or(String::new(), |token| format!("{token} "));
        let shadow = if self.shadow { "SHADOW " } else { "" };
        // The cost is always written: the server then rejects a holder that contains a space, and does not read a
        // part of it as the cost.
        out.write_arg_fmt(format_args!(
            "{option}{shadow}{}",
            self.limit.with_cost(self.cost)
        ));
    }
}

/// A one-limit command.
pub(crate) fn single_cmd(
    key: impl ToRedisArgs,
    limit: &Limit,
    cost: u64,
    options: CallOptions,
) -> Cmd {
    let mut cmd = redis::cmd(limit.command());
    cmd.arg(key);
    for arg in limit.parameters() {
        cmd.arg(arg);
    }
    cmd.arg(cost);
    if let Some(precision) = limit.precision() {
        cmd.arg("PRECISION").arg(precision);
    }
    cmd.arg(options);
    cmd
}

/// RL.MULTI.
pub(crate) fn multi_cmd<'a, K: ToRedisArgs + 'a>(
    limits: impl Iterator<Item = (&'a K, SpecArg<'a>)>,
    options: CallOptions,
) -> Cmd {
    let mut cmd = redis::cmd("RL.MULTI");
    for (index, (key, mut spec)) in limits.enumerate() {
        if index == 0 {
            spec.options = options;
        }
        cmd.arg(key).arg(spec);
    }
    cmd
}
