//! The errors about limits, states and the arguments that describe them. Their texts are static, so that rejecting bad
//! input costs nothing.

use std::fmt;

/// What is wrong with an argument, a call or a stored state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The limit is not an integer in range.
    Limit,
    /// The capacity is not an integer in range.
    Capacity,
    /// The refill is not an integer in range.
    Refill,
    /// The rate is not an integer in range.
    Rate,
    /// The limit is too large to keep a log.
    ExactLimit,
    /// The precision is not an integer in range, or given twice.
    Precision,
    /// The holder's name is empty or too long.
    Holder,
    /// The key already has as many holders as a key can have.
    TooManyHolders,
    /// The ttl is not a duration in range.
    Ttl,
    /// A lease is released, not refunded.
    RefundOfLease,
    /// The cost is not an integer in range.
    Cost,
    /// The fixed cost of a policy's limit is not an integer in range, or given twice.
    FixedCost,
    /// The window is not a duration in range.
    Window,
    /// The window of FIXED is neither a duration in range nor one of the calendar.
    FixedWindow,
    /// The offset is not a duration, not shorter than the window, or given twice.
    Offset,
    /// The period is not a duration in range.
    Period,
    /// A spec does not start with the name of an algorithm.
    UnknownAlgorithm,
    /// The limit is missing.
    MissingLimit,
    /// The capacity is missing.
    MissingCapacity,
    /// The refill is missing.
    MissingRefill,
    /// The rate is missing.
    MissingRate,
    /// The window is missing.
    MissingWindow,
    /// The period is missing.
    MissingPeriod,
    /// The ttl is missing.
    MissingTtl,
    /// The holder is missing.
    MissingHolder,
    /// An argument after the cost is not an option.
    UnknownOption,
    /// PEEK and FORCE exclude each other.
    ExclusiveOptions,
    /// The number of calls is not an integer in range, or given twice.
    Times,
    /// The fewest calls are not an integer in range, or given twice or without TIMES.
    AtLeast,
    /// ATLEAST excludes FORCE and BRIEF.
    ExclusiveAtLeast,
    /// A lease cannot be taken several times in one step.
    TimesOfLease,
    /// The calls cost too much together.
    TotalCost,
    /// The age of a charge is not a duration in range.
    Age,
    /// RL.REFUND has no such option, or it is given twice.
    RefundOption,
    /// An option of the call is not at the start of the first spec.
    MisplacedOption,
    /// An option of a call is in a spec of RL.PEEK.
    OptionInPeek,
    /// The keys and specs are not pairs.
    OddArguments,
    /// Words follow a complete spec.
    TrailingWords,
    /// There are more limits than one call may check.
    TooManyLimits,
    /// No version ever wrote these bytes.
    DamagedState,
    /// A later version wrote these bytes.
    NewerState,
    /// The state belongs to another algorithm than the limit.
    WrongAlgorithm,
    /// The name of a policy is not valid.
    PolicyName,
    /// A policy or an override has no limit, or too many.
    LimitCount,
    /// A limit of a policy is a lease.
    LeaseInPolicy,
    /// An argument is neither a limit nor an option of a policy.
    PolicySyntax,
    /// An option follows a limit of a policy whose algorithm does not have it.
    OptionOfOtherLimit,
    /// A cost follows a limit of a policy without COST in front.
    CostInPolicy,
    /// The note is not text, or too long.
    Note,
    /// There are more policies than a server keeps.
    TooManyPolicies,
    /// The arguments are not those of an override.
    OverrideSyntax,
    /// The factor is out of range.
    Scale,
    /// The lifetime of an override is not a duration in range.
    OverrideExpiry,
    /// The key already has as many overrides as a key can have.
    TooManyOverrides,
    /// A bug was caught before it could harm the server.
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
            Self::ExactLimit => {
                "ERR limit of EXACT must be an integer between 0 and 1000000: use SLIDE for larger limits"
            }
            Self::Precision => "ERR PRECISION must be given once, an integer between 2 and 60",
            Self::Holder => "ERR holder must be 1 to 256 bytes long",
            Self::TooManyHolders => "ERR a key can have at most 10000 holders: use several keys",
            Self::Ttl => "ERR ttl must be a duration between 1ms and 3650d (ms, s, m, h, d)",
            Self::RefundOfLease => "ERR a lease cannot be refunded: release it with RL.RELEASE",
            Self::Cost => "ERR cost must be an integer between 0 and 9007199254740991",
            Self::FixedCost => {
                "ERR COST of a limit must be given once, an integer between 1 and 9007199254740991"
            }
            Self::Window => "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)",
            Self::FixedWindow => {
                "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d), or day, week, month or year"
            }
            Self::Offset => {
                "ERR OFFSET must be given once, a duration (ms, s, m, h, d), also negative, that is shorter than the window (month: than 28d, year: than 365d)"
            }
            Self::Period => "ERR period must be a duration between 1ms and 3650d (ms, s, m, h, d)",
            Self::UnknownAlgorithm => {
                "ERR expected a limit as one argument, such as \"SLIDE 100 60\" or \"POLICY name\""
            }
            Self::MissingLimit => "ERR incomplete limit: the limit is missing",
            Self::MissingCapacity => "ERR incomplete limit: the capacity is missing",
            Self::MissingRefill => "ERR incomplete limit: the refill is missing",
            Self::MissingRate => "ERR incomplete limit: the rate is missing",
            Self::MissingWindow => "ERR incomplete limit: the window is missing",
            Self::MissingPeriod => "ERR incomplete limit: the period is missing",
            Self::MissingTtl => "ERR incomplete limit: the ttl is missing",
            Self::MissingHolder => "ERR incomplete limit: the holder is missing",
            Self::UnknownOption => {
                "ERR unknown option: use PEEK, FORCE, BRIEF, TIMES n [ATLEAST m], (for SLIDE) PRECISION n or (for FIXED) OFFSET [-]duration, after the cost"
            }
            Self::ExclusiveOptions => "ERR PEEK and FORCE exclude each other",
            Self::Times => {
                "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
            }
            Self::AtLeast => {
                "ERR ATLEAST must be given once, with TIMES n, an integer between 1 and n"
            }
            Self::ExclusiveAtLeast => "ERR ATLEAST excludes FORCE and BRIEF",
            Self::TimesOfLease => {
                "ERR TIMES does not apply to a LEASE: the same holder calling again renews it"
            }
            Self::TotalCost => "ERR the cost of all TIMES n calls must be at most 9007199254740991",
            Self::Age => "ERR AGE must be a duration between 1ms and 3650d (ms, s, m, h, d)",
            Self::RefundOption => {
                "ERR unknown option: use TIMES n or AGE duration, each once, after the cost"
            }
            Self::MisplacedOption => {
                "ERR PEEK, FORCE, BRIEF, TIMES and ATLEAST apply to the whole call: put them at the start of the first limit, such as \"PEEK SLIDE 100 60\""
            }
            Self::OptionInPeek => {
                "ERR RL.PEEK accepts no PEEK, FORCE, BRIEF, TIMES or ATLEAST: it never charges"
            }
            Self::OddArguments => {
                "ERR keys and limits must come in pairs, each limit one argument: key \"SLIDE 100 60\" key \"BUCKET 10 5 1s\""
            }
            Self::TrailingWords => {
                "ERR only PRECISION n (for SLIDE) or OFFSET [-]duration (for FIXED) may follow a limit's cost"
            }
            Self::TooManyLimits => "ERR a call may check at most 128 limits",
            Self::DamagedState => "ERR damaged rate-limit state",
            Self::NewerState => {
                "ERR rate-limit state of a newer version: upgrade this module first"
            }
            Self::WrongAlgorithm => "WRONGTYPE the key holds a limit of another algorithm",
            Self::PolicyName => {
                "ERR policy name must be 1 to 128 printable ASCII characters without spaces"
            }
            Self::LimitCount => "ERR a policy must have between 1 and 16 limits",
            Self::LeaseInPolicy => {
                "ERR a policy cannot contain a LEASE, because the caller names the holder: use RL.LEASE"
            }
            Self::PolicySyntax => {
                "ERR expected a limit such as SLIDE 100 1m, then COST n, more limits, SHADOW or NOTE text, each once"
            }
            Self::OptionOfOtherLimit => {
                "ERR this limit has no such option: SLIDE accepts PRECISION n, FIXED accepts OFFSET [-]duration, and every limit COST n"
            }
            Self::CostInPolicy => {
                "ERR a policy's limit takes no cost: the call supplies it, or COST n fixes it"
            }
            Self::Note => "ERR note must be UTF-8 text of at most 1024 bytes",
            Self::TooManyPolicies => "ERR a server keeps at most 10000 policies",
            Self::OverrideSyntax => {
                "ERR expected limits, SCALE num den, BLOCK or ALLOW, then optionally EX duration and NOTE text, each once"
            }
            Self::Scale => "ERR num and den of SCALE must be integers between 1 and 1000000",
            Self::OverrideExpiry => {
                "ERR EX must be a duration between 1ms and 3650d (ms, s, m, h, d)"
            }
            Self::TooManyOverrides => "ERR a key can have overrides of at most 64 policies",
            Self::Internal => "ERR internal error in the rl module, see the server log",
        }
    }
}

impl Error {
    /// The text without the code in front.
    #[must_use]
    pub fn reason(self) -> &'static str {
        let message = self.message();
        message.strip_prefix("ERR ").unwrap_or(message)
    }

    /// The error for an argument that is missing, from the one for an argument that is wrong. Other texts name the
    /// argument in both cases.
    #[cold]
    pub(crate) const fn if_missing(self) -> Self {
        match self {
            Self::Limit | Self::ExactLimit => Self::MissingLimit,
            Self::Capacity => Self::MissingCapacity,
            Self::Refill => Self::MissingRefill,
            Self::Rate => Self::MissingRate,
            Self::Window | Self::FixedWindow => Self::MissingWindow,
            Self::Period => Self::MissingPeriod,
            Self::Ttl => Self::MissingTtl,
            Self::Holder => Self::MissingHolder,
            other => other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}
