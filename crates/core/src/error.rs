//! Every error text, once. Static, so that refusing bad input costs nothing.

use std::fmt;

/// What is wrong with an argument, a call or a stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A limit that is not an integer in range.
    Limit,
    /// A capacity that is not an integer in range.
    Capacity,
    /// A refill that is not an integer in range.
    Refill,
    /// A rate that is not an integer in range.
    Rate,
    /// A limit that is too large to keep a log for.
    LogLimit,
    /// A precision that is not an integer in range.
    Precision,
    /// A holder's name that is empty or too long.
    Holder,
    /// A lease for one holder more than a key can have.
    TooManyHolders,
    /// A time to live that is not a duration in range.
    Ttl,
    /// A refund to what is not counted but held.
    RefundOfLease,
    /// A cost that is not an integer in range.
    Cost,
    /// A window that is not a duration in range.
    Window,
    /// A period that is not a duration in range.
    Period,
    /// A word other than an algorithm's name where a spec begins.
    UnknownAlgorithm,
    /// A spec that ends too early.
    IncompleteSpec,
    /// A trailing word that is no option.
    UnknownOption,
    /// PEEK and FORCE together where they exclude each other.
    ExclusiveOptions,
    /// Words after a complete call.
    TrailingWords,
    /// One key twice in a call.
    RepeatedKey,
    /// More limits than one call may check.
    TooManyLimits,
    /// An expiry that is not an integer in range.
    ExpireAt,
    /// State bytes that no version ever wrote.
    DamagedState,
    /// State bytes of a later version.
    NewerState,
    /// A state of another algorithm than the limit's.
    WrongAlgorithm,
    /// A key of another Redis type.
    WrongType,
    /// A new key while memory is full.
    OutOfMemory,
    /// A policy's name that is not one.
    PolicyName,
    /// A policy or an override with no limit, or with too many.
    RuleCount,
    /// A lease as a limit of a policy.
    LeaseInPolicy,
    /// A word other than a limit or an option of a policy.
    PolicySyntax,
    /// A note that is no text, or too long.
    Note,
    /// A policy that does not exist.
    NoSuchPolicy,
    /// More policies than a server keeps.
    TooManyPolicies,
    /// Something else than what an override may say.
    OverrideSyntax,
    /// A factor that is out of range.
    Scale,
    /// An override's end that is not a duration in range.
    Ends,
    /// More overrides than a key can have.
    TooManyOverrides,
    /// A key that has no name for its overrides in the same slot.
    NoPlaceForOverrides,
    /// JSON that is longer than any set of policies.
    JsonTooLong,
    /// A subcommand that does not exist.
    UnknownSubcommand,
    /// A change where only a primary may make one.
    ReadOnly,
    /// A bug, caught before it could harm the server.
    Internal,
}

impl Error {
    /// The text as a Redis error reply, code first.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Limit => "ERR limit must be an integer between 0 and 9007199254740991",
            Self::Capacity => "ERR capacity must be an integer between 0 and 9007199254740991",
            Self::Refill => "ERR refill must be an integer between 1 and 9007199254740991",
            Self::Rate => "ERR rate must be an integer between 1 and 9007199254740991",
            Self::LogLimit => {
                "ERR limit of EXACT must be an integer between 0 and 1000000: use SLIDE beyond"
            }
            Self::Precision => "ERR precision must be an integer between 1 and 64",
            Self::Holder => "ERR holder must be 1 to 256 bytes long",
            Self::TooManyHolders => "ERR a key can have at most 10000 holders: use several keys",
            Self::Ttl => "ERR ttl must be a duration between 1ms and 3650d",
            Self::RefundOfLease => "ERR a lease is not refunded but released: use RL.RELEASE",
            Self::Cost => "ERR cost must be an integer between 0 and 9007199254740991",
            Self::Window => "ERR window must be a duration between 1ms and 3650d",
            Self::Period => "ERR period must be a duration between 1ms and 3650d",
            Self::UnknownAlgorithm => {
                "ERR expected a limit behind the key, such as SLIDE 100 60 1, or one of PEEK and FORCE at the end"
            }
            Self::IncompleteSpec => "ERR incomplete limit: a parameter or the cost is missing",
            Self::UnknownOption => {
                "ERR unknown option: use PEEK, FORCE or (for SLIDE) PRECISION n, after the cost"
            }
            Self::ExclusiveOptions => "ERR PEEK and FORCE exclude each other",
            Self::TrailingWords => "ERR syntax error: nothing may follow the limit",
            Self::RepeatedKey => "ERR a key may appear only once in a call",
            Self::TooManyLimits => "ERR a call may check at most 128 limits",
            Self::ExpireAt => {
                "ERR expire-at-ms must be a Unix time in milliseconds between 1 and 9007199254740991"
            }
            Self::DamagedState => "ERR damaged rate-limit state",
            Self::NewerState => {
                "ERR rate-limit state of a newer version: upgrade this module first"
            }
            Self::WrongAlgorithm => "WRONGTYPE the key holds a limit of another algorithm",
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::PolicyName => {
                "ERR policy name must be 1 to 128 printable ASCII characters without space"
            }
            Self::RuleCount => "ERR a policy must have between 1 and 16 limits",
            Self::LeaseInPolicy => {
                "ERR a policy cannot have a LEASE: its holder belongs to the call, use RL.LEASE"
            }
            Self::PolicySyntax => {
                "ERR expected a limit without its cost, such as SLIDE 100 1m, or COST n, SHADOW, NOTE text behind it"
            }
            Self::Note => "ERR note must be UTF-8 text of at most 1024 bytes",
            Self::NoSuchPolicy => "ERR no such policy",
            Self::TooManyPolicies => "ERR a server keeps at most 10000 policies",
            Self::OverrideSyntax => {
                "ERR expected limits, SCALE num den, BLOCK or ALLOW, then EX seconds, NOTE text or nothing"
            }
            Self::Scale => "ERR num and den of SCALE must be integers between 1 and 1000000",
            Self::Ends => "ERR EX must be a duration between 1ms and 3650d",
            Self::TooManyOverrides => "ERR a key can have overrides of at most 64 policies",
            Self::NoPlaceForOverrides => {
                "ERR an empty key, or one with a } outside a hash tag, cannot have overrides"
            }
            Self::JsonTooLong => "ERR policies must be JSON of at most 16777216 bytes",
            Self::UnknownSubcommand => "ERR unknown subcommand: see COMMAND DOCS of this command",
            Self::ReadOnly => "READONLY You can't write against a read only replica.",
            Self::Internal => "ERR internal error in the rl module, see the server log",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}
