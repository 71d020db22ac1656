//! `RL.MULTI key spec [key spec …]`: charges all limits, or none if any of them denies the call. Options stand at the
//! start of the first spec.

use std::ffi::CStr;
use std::hash::{DefaultHasher, Hasher};

use rl_core::Algorithm;
use rl_core::syntax::{self, CallOptions};
use smallvec::SmallVec;

use crate::check::{INLINE_REQUESTS, Request, check_all};
use crate::error::{CommandError, REPEATED_KEY};
use crate::reply;
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs, Keys};

pub(crate) struct MultiCommand;

/// A limit with its cost. It is one argument, so that keys are found by position.
pub(super) const SPEC: Argument = Argument::text(c"spec").with_summary(spec_summary);

fn spec_summary() -> String {
    format!(
        "One argument: [SHADOW] followed by {}. RL.MULTI and RL.FIRST also take options at the start of the first spec: \
         [PEEK | FORCE] [TIMES n [ATLEAST m]] [BRIEF]",
        Algorithm::spec_grammar()
    )
}

/// The documentation of a command with the arguments `key spec [key spec …]`.
pub(super) const fn docs(summary: &'static CStr) -> Docs {
    Docs {
        summary,
        complexity: c"O(N) where N is the number of limits, at most 128",
        since: c"0.1.0",
        arguments: const { &[Argument::block(c"limit", &[Argument::KEY, SPEC]).repeated()] },
    }
}

impl Command for MultiCommand {
    const NAME: &'static CStr = c"RL.MULTI";
    const FLAGS: CommandFlags = CommandFlags::WRITE.union(CommandFlags::FAST);
    const KEYS: Keys = Keys::Pairs(1);
    const MIN_ARGS: usize = 3;
    const DOCS: Docs =
        docs(c"Checks several limits at once; a denial by any charges nothing anywhere.");

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let now_us = ctx.now_us();
        let mut requests = Requests::new();
        let options = parse(ctx, args, 1, now_us, &mut requests)?;
        check_all(ctx, &requests, options, now_us, |verdict, decisions| {
            if options.is_brief() {
                let reports_delay = matches!(&*requests, [one] if one.reports_delay());
                reply::brief_verdict(ctx, &verdict, decisions, reports_delay);
            } else {
                reply::verdict(ctx, &verdict, decisions);
            }
        })
    }
}

pub(super) type Requests<'a> = SmallVec<[Request<'a>; INLINE_REQUESTS]>;

/// Reads `key spec [key spec …]`, from position `first` on, into `requests`.
#[inline(always)]
pub(super) fn parse<'a>(
    ctx: &Context,
    args: Args<'a>,
    first: usize,
    now_us: u64,
    requests: &mut Requests<'a>,
) -> Result<CallOptions, CommandError> {
    let mut names = SmallVec::<[(u64, &[u8]); INLINE_REQUESTS]>::new();
    syntax::multi_args(args.from(first), |position, key, spec| {
        let distinct = (fingerprint(key), key);
        if names.contains(&distinct) {
            return Err(REPEATED_KEY);
        }
        names.push(distinct);
        let key = args.get(first + position);
        requests.push(Request::from_spec(ctx, key, spec, now_us)?);
        Ok(())
    })
}

/// Makes it cheap to compare long keys with each other.
fn fingerprint(key: &[u8]) -> u64 {
    if key.len() <= 64 {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}
