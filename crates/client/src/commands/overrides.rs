//! The arguments and the reply of RL.OVERRIDE.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redis::{FromRedisValue, ParsingError, RedisWrite, ToRedisArgs, Value};

use super::fields::Fields;
use super::policy::{ParseLimitError, PolicyRule};
use crate::limit::LimitArg;

/// What an override does in place of a policy's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverrideAction {
    /// Replaces all limits of the policy.
    Limits(Vec<PolicyRule>),
    /// Multiplies the policy's limits by `num / den`.
    Scale {
        /// The numerator.
        num: u64,
        /// The denominator.
        den: u64,
    },
    /// Denies every call.
    Block,
    /// Allows every call, and charges nothing.
    Allow,
}

impl fmt::Display for OverrideAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(rules) => {
                for (index, rule) in rules.iter().enumerate() {
                    let space = if index > 0 { " " } else { "" };
                    write!(f, "{space}{rule}")?;
                }
                Ok(())
            }
            Self::Scale { num, den } => write!(f, "SCALE {num} {den}"),
            Self::Block => f.write_str("BLOCK"),
            Self::Allow => f.write_str("ALLOW"),
        }
    }
}

/// Reads the text form, with the server's own parser: `SCALE 5 1`, `BLOCK`, `ALLOW`, or limits such as `SLIDE 500 1m`.
impl FromStr for OverrideAction {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, ParseLimitError> {
        use rl_core::policy::OverrideAction as Core;
        match text.parse().map_err(ParseLimitError::new)? {
            Core::Limits(rules) => PolicyRule::all_from_core(&rules).map(Self::Limits),
            Core::Scale(scale) => Ok(Self::Scale {
                num: scale.num().into(),
                den: scale.den().into(),
            }),
            Core::Block => Ok(Self::Block),
            Core::Allow => Ok(Self::Allow),
        }
    }
}

impl ToRedisArgs for OverrideAction {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        for word in self.to_string().split(' ') {
            out.write_arg(word.as_bytes());
        }
    }

    fn num_of_args(&self) -> usize {
        self.to_string().split(' ').count()
    }
}

/// A new override for RL.OVERRIDE SET.
///
/// ```
/// use rl_client::{HOUR, commands::{NewOverride, OverrideAction}};
///
/// let launch = NewOverride::new(OverrideAction::Scale { num: 5, den: 1 }).expires_in(HOUR).note("launch");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct NewOverride {
    action: OverrideAction,
    expires_in: Option<Duration>,
    note: String,
}

impl NewOverride {
    /// An override that does not expire and has no note.
    pub const fn new(action: OverrideAction) -> Self {
        Self {
            action,
            expires_in: None,
            note: String::new(),
        }
    }

    /// Removes the override after this time.
    pub fn expires_in(mut self, duration: Duration) -> Self {
        self.expires_in = Some(duration);
        self
    }

    /// Adds a comment.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.note = text.into();
        self
    }
}

impl ToRedisArgs for NewOverride {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        self.action.write_redis_args(out);
        if let Some(duration) = self.expires_in {
            out.write_arg(b"EX");
            LimitArg::Duration(duration).write_redis_args(out);
        }
        if !self.note.is_empty() {
            out.write_arg(b"NOTE");
            out.write_arg(self.note.as_bytes());
        }
    }

    fn num_of_args(&self) -> usize {
        self.to_redis_args().len()
    }
}

/// An entry of RL.OVERRIDE GET.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OverrideRecord {
    /// The policy that is overridden.
    pub policy: String,
    /// What applies instead, as text: `SCALE 5 1`, `BLOCK`, `SLIDE 500 1m`. To use it as a value, parse it as an
    /// [`OverrideAction`].
    pub action: String,
    /// The time until it expires; `None` if it does not.
    pub expires_in_ms: Option<u64>,
    /// A comment.
    pub note: String,
}

impl FromRedisValue for OverrideRecord {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields::read(value)?;
        Ok(Self {
            policy: fields.take_text("policy")?,
            action: fields.take_text("action")?,
            expires_in_ms: fields.take_unless_negative("expires_in_ms")?,
            note: fields.take_text("note")?,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{HOUR, Limit, MINUTE};
    use redis::{from_redis_value, parse_redis_value};

    #[test]
    fn an_action_has_one_text() {
        let limits = OverrideAction::Limits(vec![
            PolicyRule::new(Limit::slide(500, MINUTE)),
            PolicyRule::with_fixed_cost(Limit::fixed(9, HOUR), 1),
        ]);
        for (text, action) in [
            ("BLOCK", OverrideAction::Block),
            ("ALLOW", OverrideAction::Allow),
            ("SCALE 5 2", OverrideAction::Scale { num: 5, den: 2 }),
            ("SLIDE 500 1m FIXED 9 1h COST 1", limits),
        ] {
            assert_eq!(action.to_string(), text);
            assert_eq!(text.to_ascii_lowercase().parse(), Ok(action.clone()));
            assert_eq!(action.to_redis_args().len(), text.split(' ').count());
        }
        for wrong in ["", "BLOCK 5", "SCALE 5", "SCALE x 1", "GLIDE 5 1m"] {
            let error = wrong.parse::<OverrideAction>().unwrap_err();
            assert!(!error.to_string().is_empty(), "{wrong}");
        }
    }

    #[test]
    fn a_new_override_as_arguments() {
        let new = NewOverride::new(OverrideAction::Block)
            .expires_in(HOUR)
            .note("a b");
        let args = new.to_redis_args();
        let args: Vec<_> = args
            .iter()
            .map(|arg| String::from_utf8_lossy(arg))
            .collect();
        assert_eq!(args.join("|"), "BLOCK|EX|1h|NOTE|a b");
    }

    #[test]
    fn records_that_do_not_expire() {
        let reply = "*1 *8 $6 policy $3 pro $6 action $5 BLOCK $13 expires_in_ms :-1 $4 note $0  ";
        let reply = parse_redis_value(reply.replace(' ', "\r\n").as_bytes()).unwrap();
        let records: Vec<OverrideRecord> = from_redis_value(reply).unwrap();
        let record = &records[0];
        assert_eq!((&*record.action, record.expires_in_ms), ("BLOCK", None));
    }
}
