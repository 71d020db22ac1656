//! `RL.OVERRIDE SET | GET | DEL`: what holds for one key in place of a policy's limits.

use std::ffi::CStr;

use rl_core::Error;
use rl_core::overrides::{Entry, Overrides, place_of};

use crate::failure::Failure;
use crate::redis::{Arg, Args, Argument, Command, Context, Docs, Key, OwnedName};
use crate::registry;

pub(crate) struct Override;

const POLICY: Argument = Argument::text(c"policy");

impl Command for Override {
    const NAME: &'static CStr = c"RL.OVERRIDE";
    const FLAGS: &'static CStr = c"write";
    const ACL: &'static str = "write slow dangerous";
    const FIRST_KEY: usize = 2;
    const MIN_ARGS: usize = 3;
    const DOCS: Docs = Docs {
        summary: c"Sets, shows and removes what holds for one key in place of a policy's limits.",
        complexity: c"O(N) where N is the number of overrides of the key, at most 64",
        since: c"0.1.0",
        arguments: &[Argument::one_of(
            c"action",
            &[
                Argument::block(
                    c"set",
                    &[
                        Argument::token(c"set", c"SET"),
                        Argument::KEY,
                        POLICY,
                        Argument::one_of(
                            c"instead",
                            &[
                                Argument::text(c"limit").repeated(),
                                Argument::block(
                                    c"scale",
                                    &[
                                        Argument::token(c"scale", c"SCALE"),
                                        Argument::integer(c"num"),
                                        Argument::integer(c"den"),
                                    ],
                                ),
                                Argument::token(c"block", c"BLOCK"),
                                Argument::token(c"allow", c"ALLOW"),
                            ],
                        ),
                        Argument::text_behind(c"seconds", c"EX").optional(),
                        Argument::text_behind(c"note", c"NOTE").optional(),
                    ],
                ),
                Argument::block(c"get", &[Argument::token(c"get", c"GET"), Argument::KEY]),
                Argument::block(
                    c"del",
                    &[Argument::token(c"del", c"DEL"), Argument::KEY, POLICY],
                ),
            ],
        )],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        let arity = |right| if right { Ok(()) } else { Err(Failure::Arity) };
        let key = args.get(2);
        match &*args.get(1).as_bytes().to_ascii_uppercase() {
            b"SET" => {
                arity(args.len() >= 5)?;
                set(ctx, key, args)
            }
            b"GET" => {
                arity(args.len() == 3)?;
                get(ctx, key)
            }
            b"DEL" => {
                arity(args.len() == 4)?;
                del(ctx, key, args.get(3).as_bytes())
            }
            _ => Err(Error::UnknownSubcommand.into()),
        }
    }
}

fn place(ctx: &Context, key: Arg) -> Result<OwnedName, Error> {
    let place = place_of(key.as_bytes()).ok_or(Error::NoPlaceForOverrides)?;
    Ok(OwnedName::new(ctx, &place))
}

fn set(ctx: &Context, name: Arg, args: Args) -> Result<(), Failure> {
    let now_us = ctx.now_us();
    let entry = Entry::parse(&mut args.words(3), now_us)?;
    registry::find(ctx, entry.policy.as_bytes())?;
    let place = place(ctx, name)?;
    let mut key = Key::open_to_write(ctx, place.arg());
    let all = key.overrides()?.cloned().unwrap_or_default();
    let all = all.with(entry, now_us)?;
    if ctx.is_full() {
        return Err(Error::OutOfMemory.into());
    }
    store(ctx, &mut key, place.arg(), all)?;
    ctx.reply_ok();
    Ok(())
}

fn get(ctx: &Context, name: Arg) -> Result<(), Failure> {
    let now_us = ctx.now_us();
    let Ok(place) = place(ctx, name) else {
        ctx.reply_array(0);
        return Ok(());
    };
    let key = Key::open_to_read(ctx, place.arg());
    let entries: Vec<&Entry> = match key.overrides()? {
        Some(all) => all.iter(now_us).collect(),
        None => Vec::new(),
    };
    ctx.reply_array(entries.len());
    for entry in entries {
        ctx.reply_map(4);
        ctx.reply_text(b"policy");
        ctx.reply_text(entry.policy.as_bytes());
        ctx.reply_text(b"override");
        ctx.reply_text(entry.what.to_string().as_bytes());
        ctx.reply_text(b"ends_in_ms");
        ctx.reply_integer(entry.ends_in_ms(now_us).map_or(-1, |ms| ms as i64));
        ctx.reply_text(b"note");
        ctx.reply_text(entry.note.as_bytes());
    }
    Ok(())
}

fn del(ctx: &Context, name: Arg, policy: &[u8]) -> Result<(), Failure> {
    let now_us = ctx.now_us();
    let Ok(place) = place(ctx, name) else {
        ctx.reply_integer(0);
        return Ok(());
    };
    let mut key = Key::open_to_write(ctx, place.arg());
    let left = match key.overrides()? {
        Some(all) if all.of(policy, now_us).is_some() => all.without(policy, now_us),
        _ => {
            ctx.reply_integer(0);
            return Ok(());
        }
    };
    if left.is_empty() {
        key.delete();
        ctx.signal_modified(place.arg());
        ctx.replicate_delete(place.arg());
    } else {
        store(ctx, &mut key, place.arg(), left)?;
    }
    ctx.reply_integer(1);
    Ok(())
}

/// Value, expiry, watchers, replicas and AOF.
fn store(ctx: &Context, key: &mut Key, name: Arg, all: Overrides) -> Result<(), Failure> {
    let expire_at_ms = all.expire_at_ms() as i64;
    let blob = all.blob();
    key.put_overrides(all)?;
    key.expire_at_or_never(expire_at_ms);
    ctx.signal_modified(name);
    ctx.replicate_load(name, expire_at_ms, &blob);
    Ok(())
}
