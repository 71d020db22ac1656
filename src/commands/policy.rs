//! `RL.POLICY SET | GET | DEL | LIST | DUMP | LOAD`: limits by name, for all keys of this server.

use std::ffi::CStr;

use rl_core::Error;
use rl_core::policy::{self, MAX_JSON, Policy};

use crate::failure::Failure;
use crate::redis::{Access, Args, Argument, Command, Context, Docs};
use crate::registry;

pub(crate) struct PolicySet;

const NAME_ARGUMENT: Argument = Argument::text(c"name");

impl Command for PolicySet {
    const NAME: &'static CStr = c"RL.POLICY";
    // Not a write command, or replicas could not be asked: changes are refused there by `may_change`.
    const FLAGS: &'static CStr = c"may-replicate";
    const ACL: &'static str = "write slow dangerous";
    const ACCESS: Access = Access::Keyless;
    const MIN_ARGS: usize = 2;
    const DOCS: Docs = Docs {
        summary: c"Sets, shows, lists, saves and loads policies: limits by name.",
        complexity: c"O(1); LIST, DUMP and LOAD O(N) where N is the number of policies",
        since: c"0.1.0",
        arguments: &[Argument::one_of(
            c"action",
            &[
                Argument::block(
                    c"set",
                    &[
                        Argument::token(c"set", c"SET"),
                        NAME_ARGUMENT,
                        Argument::text(c"limit").repeated(),
                        Argument::token(c"shadow", c"SHADOW").optional(),
                        Argument::text_behind(c"note", c"NOTE").optional(),
                    ],
                ),
                Argument::block(c"get", &[Argument::token(c"get", c"GET"), NAME_ARGUMENT]),
                Argument::block(c"del", &[Argument::token(c"del", c"DEL"), NAME_ARGUMENT]),
                Argument::block(
                    c"list",
                    &[
                        Argument::token(c"list", c"LIST"),
                        Argument::text(c"prefix").optional(),
                    ],
                ),
                Argument::token(c"dump", c"DUMP"),
                Argument::block(
                    c"load",
                    &[Argument::token(c"load", c"LOAD"), Argument::text(c"json")],
                ),
            ],
        )],
    };

    fn run(ctx: &Context, args: Args) -> Result<(), Failure> {
        let words = args.words(2);
        let arity = |right| if right { Ok(()) } else { Err(Failure::Arity) };
        match &*args.get(1).as_bytes().to_ascii_uppercase() {
            b"SET" => {
                arity(args.len() >= 4)?;
                set(ctx, args)
            }
            b"GET" => {
                arity(args.len() == 3)?;
                get(ctx, args.get(2).as_bytes());
                Ok(())
            }
            b"DEL" => {
                arity(args.len() == 3)?;
                may_change(ctx)?;
                let removed = registry::remove(ctx, args.get(2).as_bytes())?;
                if removed {
                    ctx.replicate_verbatim();
                }
                ctx.reply_integer(i64::from(removed));
                Ok(())
            }
            b"LIST" => {
                arity(args.len() <= 3)?;
                let prefix = words.clone().next().unwrap_or_default();
                let list = registry::list(ctx, prefix);
                ctx.reply_array(list.len());
                for named in list {
                    ctx.reply_text(named.name.as_bytes());
                }
                Ok(())
            }
            b"DUMP" => {
                arity(args.len() == 2)?;
                ctx.reply_text(registry::dump(ctx).as_bytes());
                Ok(())
            }
            b"LOAD" => {
                arity(args.len() == 3)?;
                load(ctx, args.get(2).as_bytes())
            }
            _ => Err(Error::UnknownSubcommand.into()),
        }
    }
}

/// Changes come from clients of a primary, from its replication stream, or from a file.
fn may_change(ctx: &Context) -> Result<(), Error> {
    if ctx.is_read_only_replica() && !ctx.is_replaying() {
        return Err(Error::ReadOnly);
    }
    Ok(())
}

fn has_room(ctx: &Context) -> Result<(), Error> {
    if !ctx.is_applying() && ctx.is_full() {
        return Err(Error::OutOfMemory);
    }
    Ok(())
}

fn set(ctx: &Context, args: Args) -> Result<(), Failure> {
    may_change(ctx)?;
    let name = policy::name(args.get(2).as_bytes())?;
    let policy = Policy::parse(&mut args.words(3))?;
    has_room(ctx)?;
    registry::set(ctx, name, policy)?;
    ctx.replicate_verbatim();
    ctx.reply_ok();
    Ok(())
}

fn get(ctx: &Context, name: &[u8]) {
    let Ok(named) = registry::find(ctx, name) else {
        ctx.reply_null();
        return;
    };
    let policy = &named.policy;
    ctx.reply_map(4);
    ctx.reply_text(b"name");
    ctx.reply_text(named.name.as_bytes());
    ctx.reply_text(b"limits");
    let rules = policy.rules().as_slice();
    ctx.reply_array(rules.len());
    for rule in rules {
        ctx.reply_text(rule.to_string().as_bytes());
    }
    ctx.reply_text(b"shadow");
    ctx.reply_integer(i64::from(policy.shadow));
    ctx.reply_text(b"note");
    ctx.reply_text(policy.note.as_bytes());
}

fn load(ctx: &Context, json: &[u8]) -> Result<(), Failure> {
    may_change(ctx)?;
    // What this module wrote itself is taken at any length.
    if json.len() > MAX_JSON && !ctx.is_replaying() {
        return Err(Error::JsonTooLong.into());
    }
    has_room(ctx)?;
    let count = registry::load(ctx, json).map_err(|why| Failure::Line(format!("ERR {why}")))?;
    ctx.replicate_verbatim();
    ctx.reply_integer(count as i64);
    Ok(())
}
