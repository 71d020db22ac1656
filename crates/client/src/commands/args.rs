//! Arguments of the commands that check limits.

use redis::{Cmd, RedisWrite, ToRedisArgs};

use crate::Limit;

/// The options of a call. The default is one call, charged if all limits allow it.
///
/// ```
/// use rl_client::commands::CallOptions;
///
/// let batch = CallOptions::default().times(64).at_least(1);
/// let dry_run = CallOptions::PEEK.times(64);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallOptions {
    charge: Charge,
    times: Option<u64>,
    at_least: Option<u64>,
    brief: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Charge {
    #[default]
    IfAllowed,
    Never,
    Always,
}

impl CallOptions {
    /// Decides, but charges nothing.
    pub const PEEK: Self = Self::charging(Charge::Never);
    /// Charges even past the limit, for costs known only afterwards.
    pub const FORCE: Self = Self::charging(Charge::Always);

    const fn charging(charge: Charge) -> Self {
        Self {
            charge,
            times: None,
            at_least: None,
            brief: false,
        }
    }

    /// TIMES: `calls` such calls in one step, at least 1. [`Decision::allowed_calls`](super::Decision::allowed_calls)
    /// says how many were allowed: all or, unless [`CallOptions::at_least`] permits fewer, none.
    #[must_use]
    pub const fn times(self, calls: u64) -> Self {
        Self {
            times: Some(calls),
            ..self
        }
    }

    /// ATLEAST: charges as many of the calls as are allowed, but no fewer than `calls`. Needs [`CallOptions::times`]; not
    /// with FORCE or a brief reply.
    #[must_use]
    pub const fn at_least(self, calls: u64) -> Self {
        Self {
            at_least: Some(calls),
            ..self
        }
    }

    pub(super) const fn brief(self) -> Self {
        Self {
            brief: true,
            ..self
        }
    }

    /// PEEK or FORCE.
    pub(crate) const fn charge_token(self) -> Option<&'static str> {
        match self.charge {
            Charge::IfAllowed => None,
            Charge::Never => Some("PEEK"),
            Charge::Always => Some("FORCE"),
        }
    }

    fn words(self) -> impl Iterator<Item = String> {
        let numbered = |token: &str, calls: Option<u64>| {
            calls.map_or_else(Vec::new, |calls| vec![token.to_owned(), calls.to_string()])
        };
        let charge = self.charge_token().map(str::to_owned);
        let brief = self.brief.then(|| "BRIEF".to_owned());
        let times = numbered("TIMES", self.times);
        let at_least = numbered("ATLEAST", self.at_least);
        charge.into_iter().chain(times).chain(at_least).chain(brief)
    }
}

impl ToRedisArgs for CallOptions {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        for word in self.words() {
            out.write_arg(word.as_bytes());
        }
    }

    fn num_of_args(&self) -> usize {
        self.words().count()
    }
}

/// One limit of RL.MULTI or RL.FIRST, and its cost.
///
/// ```
/// use rl_client::{Limit, MINUTE, commands::Spec};
///
/// let trial = Spec::new(Limit::slide(10, MINUTE), 1).shadow();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Spec {
    limit: SpecLimit,
    shadow: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SpecLimit {
    Typed { limit: Limit, cost: u64 },
    Text(String),
}

impl Spec {
    /// A limit that is enforced.
    pub const fn new(limit: Limit, cost: u64) -> Self {
        Self {
            limit: SpecLimit::Typed { limit, cost },
            shadow: false,
        }
    }

    /// A limit and its cost as a person writes them, such as `SLIDE 100 1m 5`. The server reads the text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            limit: SpecLimit::Text(text.into()),
            shadow: false,
        }
    }

    /// The same limit, evaluated and counted but not enforced.
    pub fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    pub(super) fn as_arg(&self) -> SpecArg<'_> {
        SpecArg {
            options: CallOptions::default(),
            shadow: self.shadow,
            limit: match &self.limit {
                SpecLimit::Typed { limit, cost } => SpecLimitRef::Typed(limit, *cost),
                SpecLimit::Text(text) => SpecLimitRef::Text(text),
            },
        }
    }
}

/// A spec is a single argument of RL.MULTI, RL.FIRST or RL.PEEK: `PEEK SLIDE 100 1m 1`.
pub(crate) struct SpecArg<'a> {
    /// Options of the whole call; they stand in its first spec.
    options: CallOptions,
    shadow: bool,
    limit: SpecLimitRef<'a>,
}

enum SpecLimitRef<'a> {
    /// A limit and its cost.
    Typed(&'a Limit, u64),
    Text(&'a str),
}

impl<'a> SpecArg<'a> {
    pub(crate) fn new(limit: &'a Limit, cost: u64) -> Self {
        Self {
            options: CallOptions::default(),
            shadow: false,
            limit: SpecLimitRef::Typed(limit, cost),
        }
    }
}

impl ToRedisArgs for SpecArg<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let options: String = self.options.words().map(|word| word + " ").collect();
        let shadow = if self.shadow { "SHADOW " } else { "" };
        // The cost is always written: the server then rejects a holder that contains a space, and does not read a
        // part of it as the cost.
        match self.limit {
            SpecLimitRef::Typed(limit, cost) => {
                out.write_arg_fmt(format_args!("{options}{shadow}{}", limit.with_cost(cost)));
            }
            SpecLimitRef::Text(text) => {
                out.write_arg_fmt(format_args!("{options}{shadow}{text}"));
            }
        }
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
    if let Some(option) = limit.option() {
        cmd.arg(option.token()).arg(option.to_string());
    }
    cmd.arg(options);
    cmd
}

/// RL.MULTI or RL.FIRST.
pub(crate) fn multi_cmd<'a, K: ToRedisArgs + 'a>(
    command: &str,
    limits: impl Iterator<Item = (&'a K, SpecArg<'a>)>,
    options: CallOptions,
) -> Cmd {
    let mut cmd = redis::cmd(command);
    add_limits(&mut cmd, limits, options);
    cmd
}

/// Keys and their specs; the first spec also has the options of the call.
pub(super) fn add_limits<'a, K: ToRedisArgs + 'a>(
    cmd: &mut Cmd,
    limits: impl Iterator<Item = (&'a K, SpecArg<'a>)>,
    options: CallOptions,
) {
    for (index, (key, mut spec)) in limits.enumerate() {
        if index == 0 {
            spec.options = options;
        }
        cmd.arg(key).arg(spec);
    }
}
