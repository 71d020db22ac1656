//! What an algorithm is called and which arguments it takes.
//!
//! Command registration, COMMAND DOCS and the grammar of a spec are all derived from [`Descriptor`]. Texts that
//! a server needs as C strings are C strings.

use std::ffi::CStr;
use std::fmt;

use super::Algorithm;

/// Everything that commands and documentation state about an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Descriptor {
    /// The name in specs: `SLIDE`.
    pub name: &'static str,
    /// The one-limit command, such as `RL.SLIDE`; `None` for a policy, which RL.CHECK checks.
    pub command: Option<&'static CStr>,
    /// The name of the data type in the server, which has nine characters.
    pub type_name: &'static CStr,
    /// The required arguments between the name (or the key) and the cost.
    pub parameters: &'static [Parameter],
    /// The options of this algorithm alone, such as `PRECISION n`.
    pub options: &'static [Parameter],
    /// One sentence for COMMAND DOCS.
    pub summary: &'static CStr,
    /// The time complexity of a call, for COMMAND DOCS.
    pub complexity: &'static CStr,
}

/// One argument of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// The name in COMMAND DOCS and in error texts.
    pub name: &'static CStr,
    /// The word in front of the value, for options.
    pub token: Option<&'static CStr>,
    /// What the value is.
    pub kind: ParameterKind,
}

/// What an argument's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterKind {
    /// An integer.
    Integer,
    /// A duration, such as `60` or `1m`.
    Duration,
    /// A duration with an optional minus sign, such as `-9h`.
    SignedDuration,
    /// Any text.
    Text,
}

impl Parameter {
    pub(crate) const fn integer(name: &'static CStr) -> Self {
        Self::new(name, ParameterKind::Integer)
    }

    pub(crate) const fn duration(name: &'static CStr) -> Self {
        Self::new(name, ParameterKind::Duration)
    }

    pub(crate) const fn text(name: &'static CStr) -> Self {
        Self::new(name, ParameterKind::Text)
    }

    /// An option: `token` and an integer.
    pub(crate) const fn integer_option(name: &'static CStr, token: &'static CStr) -> Self {
        Self {
            token: Some(token),
            ..Self::integer(name)
        }
    }

    /// An option: `token` and a duration that may be negative.
    pub(crate) const fn signed_duration_option(name: &'static CStr, token: &'static CStr) -> Self {
        Self {
            token: Some(token),
            ..Self::new(name, ParameterKind::SignedDuration)
        }
    }

    const fn new(name: &'static CStr, kind: ParameterKind) -> Self {
        Self {
            name,
            token: None,
            kind,
        }
    }
}

/// The parameter in a synopsis: `limit`, or `PRECISION n`.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.token, self.kind) {
            (None, _) => f.write_str(&self.name.to_string_lossy()),
            (Some(token), ParameterKind::Integer) => write!(f, "{} n", token.to_string_lossy()),
            (Some(token), ParameterKind::Duration) => {
                write!(f, "{} duration", token.to_string_lossy())
            }
            (Some(token), ParameterKind::SignedDuration) => {
                write!(f, "{} [-]duration", token.to_string_lossy())
            }
            (Some(token), ParameterKind::Text) => write!(f, "{} text", token.to_string_lossy()),
        }
    }
}

/// The synopsis of a spec: `SLIDE limit window [cost] [PRECISION n]`.
impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for parameter in self.parameters {
            write!(f, " {parameter}")?;
        }
        f.write_str(" [cost]")?;
        for option in self.options {
            write!(f, " [{option}]")?;
        }
        Ok(())
    }
}

impl Algorithm {
    /// The synopses of all specs, for the documentation of RL.MULTI and RL.PEEK: `SLIDE … | BUCKET … | …`.
    #[must_use]
    pub fn spec_grammar() -> String {
        let synopses = Self::ALL.iter().map(|algorithm| algorithm.descriptor());
        let synopses: Vec<String> = synopses.map(Descriptor::to_string).collect();
        synopses.join(" | ")
    }
}
