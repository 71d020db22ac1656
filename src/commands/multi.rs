//! `RL.MULTI key spec [key spec …] [PEEK | FORCE]`: all limits allow, or none is spent.

use std::ffi::CStr;
use std::hash::{DefaultHasher, Hasher};

use rl_core::{Error, parse};
use smallvec::SmallVec;

use super::single::{self, FORCE, PEEK};
use super::{bucket, exact, fixed, leak, lease, slide};
use crate::check::{self, INLINE, Request};
use crate::failure::Failure;
use crate::redis::{Args, Argument, Command, Context, Docs};
use crate::reply;

pub(crate) struct Multi;

/// A limit with its cost, as it follows a key.
pub(super) const SPEC: Argument = Argument::one_of(
    c"spec",
    &[
        slide::SPEC,
        bucket::SPEC,
        fixed::SPEC,
        exact::SPEC,
        leak::SPEC,
        lease::SPEC,
        Argument::block(
            c"policy",
            &[
                Argument::token(c"by", c"POLICY"),
                Argument::text(c"name"),
                single::COST,
            ],
        ),
    ],
);

/// Evaluate and count, but do not enforce.
pub(super) const SHADOW: Argument = Argument::token(c"shadow", c"SHADOW").optional();

impl Command for Multi {
    const NAME: &'static CStr = c"RL.MULTI";
    const FLAGS: &'static CStr = c"write fast getkeys-api";
    const ACL: &'static str = "write fast";
    const MIN_ARGS: usize = 5;
    const DOCS: Docs = Docs {
        summary: c"Checks several limits at once; a denial by any spends nothing anywhere.",
        complexity: c"O(N) where N is the number of limits, at most 128",
        since: c"0.1.0",
        arguments: &[
            Argument::block(c"limit", &[Argument::KEY, SHADOW, SPEC]).repeated(),
            Argument::one_of(c"option", &[PEEK, FORCE]).optional(),
        ],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        let now_us = ctx.now_us();
        let mut requests = SmallVec::<[Request; INLINE]>::new();
        let mut names = SmallVec::<[(u64, &[u8]); INLINE]>::new();
        let options = parse::multi(args.words(1), |position, key, ask| {
            let name = args.get(1 + position);
            let distinct = (fingerprint(key), key);
            if names.contains(&distinct) {
                return Err(Error::RepeatedKey);
            }
            names.push(distinct);
            requests.push(Request::of(ctx, name, ask, now_us)?);
            Ok(())
        })?;
        check::all(ctx, &requests, options, now_us, |verdict, decisions| {
            reply::verdict(ctx, &verdict, decisions);
        })
    }

    const KEYS: Option<fn(&Context, Args)> = Some(|ctx, args| {
        parse::multi_keys(args.words(1), |position| ctx.key_at(1 + position));
    });
}

/// Keeps the comparison of all keys with each other short where keys are long.
fn fingerprint(key: &[u8]) -> u64 {
    if key.len() <= 64 {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    hasher.finish()
}
