//! `RL.RESERVE id ttl key spec [key spec …]`: like RL.MULTI, recorded under `id`, so that it can be repeated and settled.

use std::ffi::CStr;

use rl_core::syntax::{CallFlags, parse_duration_us};
use rl_core::{Error, reservation};
use smallvec::SmallVec;

use super::multi::{Requests, SPEC, parse};
use crate::check::{DecidedCalls, INLINE_REQUESTS, Reserve, Verdict, repeat, reserve};
use crate::error::{CommandError, REPEATED_KEY, RESERVE_OPTIONS};
use crate::reply;
use crate::server::{Args, Argument, Command, CommandFlags, Context, Docs, Key, Keys};

pub(crate) struct ReserveCommand;

impl Command for ReserveCommand {
    const NAME: &'static CStr = c"RL.RESERVE";
    const FLAGS: CommandFlags = CommandFlags::WRITE.union(CommandFlags::FAST);
    const KEYS: Keys = Keys::Pairs(1);
    const MIN_ARGS: usize = 5;
    const DOCS: Docs = Docs {
        summary:
            c"Charges several limits at once, to be settled later; a repeated call charges nothing.",
        complexity: c"O(N) where N is the number of limits, at most 128",
        since: c"0.1.0",
        arguments: &[
            Argument::key(c"id"),
            Argument::text(c"ttl"),
            Argument::block(c"limit", &[Argument::KEY, SPEC]).repeated(),
        ],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), CommandError> {
        let now_us = ctx.now_us();
        let id = args.get(1);
        let digest = reservation::digest(args.from(2));
        let mut id_key = Key::open_to_write(ctx, id);
        if let Some(stored) = id_key.reservation()? {
            let specs = args.from(4).step_by(2);
            let limits = specs
                .zip((3..).step_by(2))
                .map(|(spec, position)| (args.get(position), spec));
            return repeat(
                ctx,
                &stored.reservation()?,
                digest,
                limits,
                now_us,
                reply_to(ctx),
            );
        }
        let ttl_us = parse_duration_us(Some(args.get(2).as_bytes()), Error::Ttl)?;
        let mut requests = Requests::new();
        let options = parse(ctx, args, 3, now_us, &mut requests)?;
        if options
            .flags()
            .intersects(CallFlags::PEEK | CallFlags::BRIEF)
        {
            return Err(RESERVE_OPTIONS);
        }
        if requests
            .iter()
            .any(|request| request.key.as_bytes() == id.as_bytes())
        {
            return Err(REPEATED_KEY);
        }
        let specs: SmallVec<[&[u8]; INLINE_REQUESTS]> = args.from(4).step_by(2).collect();
        let call = Reserve {
            id,
            ttl_us,
            requests: &requests,
            specs: &specs,
            options,
            digest,
            now_us,
        };
        reserve(ctx, &mut id_key, &call, reply_to(ctx))
    }
}

fn reply_to(
    ctx: &Context,
) -> impl FnOnce(Verdict, i64, &mut dyn ExactSizeIterator<Item = DecidedCalls>) {
    |verdict, spend_ms, decisions| reply::reservation(ctx, &verdict, spend_ms, decisions)
}
