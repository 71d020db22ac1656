//! `RL.OVERRIDE SET | GET | DEL`: what applies to one key in place of a policy's limits.

use std::ffi::CStr;

use rl_core::policy::{self, Overrides};

use crate::commit;
use crate::error::{CommandError, NO_OVERRIDE_KEY};
use crate::policy::{registry, slot_migration};
use crate::server::{
    Args, Argument, CommandFlags, Container, Context, Docs, Key, Keys, ServerStr, ServerString,
    Subcommand,
};

pub(crate) struct OverrideCommand;

const WRITE: CommandFlags = CommandFlags::WRITE.union(CommandFlags::DANGEROUS);
const POLICY: Argument = Argument::text(c"policy");
const COMPLEXITY: &CStr = c"O(N) where N is the number of overrides of the key, at most 64";

impl Container for OverrideCommand {
    const NAME: &'static CStr = c"RL.OVERRIDE";
    const KEYS: Keys = Keys::At(2);
    const DOCS: Docs = Docs {
        summary: c"Sets, shows and removes what applies to one key in place of a policy's limits.",
        complexity: c"Depends on the subcommand",
        since: c"0.1.0",
        arguments: &[],
    };
    const SUBCOMMANDS: &'static [Subcommand] = &[
        Subcommand {
            name: c"set",
            flags: WRITE,
            min_args: 5,
            max_args: usize::MAX,
            docs: Docs {
                summary: c"Sets what applies to one key in place of a policy's limits.",
                complexity: COMPLEXITY,
                since: c"0.1.0",
                arguments: &[
                    Argument::KEY,
                    POLICY,
                    Argument::one_of(
                        c"action",
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
                    Argument::text_option(c"duration", c"EX").optional(),
                    Argument::text_option(c"note", c"NOTE").optional(),
                ],
            },
            run: set,
        },
        Subcommand {
            name: c"get",
            flags: CommandFlags::READONLY,
            min_args: 3,
            max_args: 3,
            docs: Docs {
                summary: c"Shows the overrides of a key.",
                complexity: COMPLEXITY,
                since: c"0.1.0",
                arguments: &[Argument::KEY],
            },
            run: get,
        },
        Subcommand {
            name: c"del",
            flags: WRITE,
            min_args: 4,
            max_args: 4,
            docs: Docs {
                summary: c"Removes the override of a policy from a key.",
                complexity: COMPLEXITY,
                since: c"0.1.0",
                arguments: &[Argument::KEY, POLICY],
            },
            run: del,
        },
    ];
}

/// The key under which the overrides of a key are stored.
fn override_key(ctx: &Context, key: ServerStr) -> Result<ServerString, CommandError> {
    let name = policy::override_key(key.as_bytes()).ok_or(NO_OVERRIDE_KEY)?;
    Ok(ServerString::new(ctx, &name))
}

fn set(ctx: &Context, args: Args) -> Result<(), CommandError> {
    let target = args.get(2);
    let now_us = ctx.now_us();
    let entry = policy::Override::parse(&mut args.from(3), now_us)?;
    registry::find(ctx, entry.policy.as_bytes())?;
    let name = override_key(ctx, target)?;
    let mut key = Key::open_to_write(ctx, name.borrow());
    let overrides = match key.overrides()? {
        Some(overrides) => overrides.with(entry, now_us)?,
        None => {
            slot_migration::check(ctx, target, &name)?;
            Overrides::default().with(entry, now_us)?
        }
    };
    commit::commit_overrides(ctx, &mut key, name.borrow(), overrides)?;
    ctx.reply_ok();
    Ok(())
}

fn get(ctx: &Context, args: Args) -> Result<(), CommandError> {
    let target = args.get(2);
    let now_us = ctx.now_us();
    let Ok(name) = override_key(ctx, target) else {
        ctx.reply_array(0);
        return Ok(());
    };
    let key = Key::open_to_read(ctx, name.borrow());
    let entries: Vec<&policy::Override> = match key.overrides()? {
        Some(overrides) => overrides.iter(now_us).collect(),
        None => {
            slot_migration::check(ctx, target, &name)?;
            Vec::new()
        }
    };
    ctx.reply_array(entries.len());
    for entry in entries {
        ctx.reply_map(4);
        ctx.reply_text(b"policy");
        ctx.reply_text(entry.policy.as_bytes());
        ctx.reply_text(b"action");
        ctx.reply_text(entry.action.to_string().as_bytes());
        ctx.reply_text(b"expires_in_ms");
        ctx.reply_integer(entry.expires_in_ms(now_us).map_or(-1, |ms| ms as i64));
        ctx.reply_text(b"note");
        ctx.reply_text(entry.note.as_bytes());
    }
    Ok(())
}

fn del(ctx: &Context, args: Args) -> Result<(), CommandError> {
    let (target, policy) = (args.get(2), args.get(3).as_bytes());
    let now_us = ctx.now_us();
    let Ok(name) = override_key(ctx, target) else {
        ctx.reply_integer(0);
        return Ok(());
    };
    let mut key = Key::open_to_write(ctx, name.borrow());
    let remaining = match key.overrides()? {
        Some(overrides) if overrides.get(policy, now_us).is_some() => {
            overrides.without(policy, now_us)
        }
        Some(_) => {
            ctx.reply_integer(0);
            return Ok(());
        }
        None => {
            slot_migration::check(ctx, target, &name)?;
            ctx.reply_integer(0);
            return Ok(());
        }
    };
    commit::commit_overrides(ctx, &mut key, name.borrow(), remaining)?;
    ctx.reply_integer(1);
    Ok(())
}
