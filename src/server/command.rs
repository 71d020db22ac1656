//! Registration of commands, and the boundary at which the server calls them.

use std::ffi::{CStr, CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use bitflags::bitflags;
use redis_module::raw::{self, *};
use rl_core::Error;

use super::error::{READ_ONLY, UNKNOWN_SUBCOMMAND};
use super::{Args, CommandError, Context, Docs, api, docs, help};

bitflags! {
    /// What the server and its ACL know about a command.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) struct CommandFlags: u8 {
        const WRITE = 1;
        const READONLY = 1 << 1;
        const FAST = 1 << 2;
        const ADMIN = 1 << 3;
        const ALLOW_LOADING = 1 << 4;
        const ALLOW_STALE = 1 << 5;
        const MAY_REPLICATE = 1 << 6;
        /// For the ACL only: the command has to be granted by name, like those for administrators.
        const DANGEROUS = 1 << 7;
    }
}

impl CommandFlags {
    /// The flags as the server expects them, such as `write fast`.
    fn names(self) -> Result<CString, Error> {
        let flags = self.difference(Self::DANGEROUS);
        let names: Vec<_> = flags.iter_names().map(|(name, _)| name).collect();
        let names = names.join(" ").to_lowercase().replace('_', "-");
        CString::new(names).map_err(|_| Error::Internal)
    }

    /// The ACL categories. Our own exists only on servers that let modules add one.
    fn acl_categories(self) -> Result<CString, Error> {
        let dangerous = self.intersects(Self::DANGEROUS | Self::ADMIN);
        // SAFETY: a plain read of a function pointer that the server set at load.
        let has_own = unsafe { raw::RedisModule_AddACLCategory }.is_some();
        let categories = [
            ("write", self.contains(Self::WRITE)),
            ("read", self.contains(Self::READONLY)),
            ("admin", self.contains(Self::ADMIN)),
            ("fast", self.contains(Self::FAST)),
            ("slow", !self.contains(Self::FAST)),
            ("dangerous", dangerous),
            ("rl", has_own && !dangerous),
        ];
        let categories: Vec<_> = categories.iter().filter(|(_, has)| *has).collect();
        let names: Vec<_> = categories.iter().map(|(name, _)| *name).collect();
        CString::new(names.join(" ")).map_err(|_| Error::Internal)
    }

    pub(super) fn is_write(self) -> bool {
        self.contains(Self::WRITE)
    }
}

/// Where a command's keys are. The server finds every key by its position and never has to ask the module, which Valkey
/// would do on its I/O threads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    None,
    /// One key, at this position.
    At(usize),
    /// Keys alternate with other arguments, from this position to the end.
    Pairs(usize),
}

impl Keys {
    /// The first key, the last key and the step, as the server expects them.
    fn range(self) -> (c_int, c_int, c_int) {
        match self {
            Self::None => (0, 0, 0),
            Self::At(position) => (position as c_int, position as c_int, 1),
            Self::Pairs(first) => (first as c_int, -1, 2),
        }
    }
}

/// A command. Each has a file under `commands/`; the one-limit commands share `one_limit.rs`.
pub(crate) trait Command {
    const NAME: &'static CStr;
    const FLAGS: CommandFlags;
    const KEYS: Keys = Keys::At(1);
    /// The fewest arguments, including the name.
    const MIN_ARGS: usize;
    /// The most arguments, including the name.
    const MAX_ARGS: usize = usize::MAX;
    const DOCS: Docs;

    /// Runs the command and replies. If it fails, it has changed nothing, and the caller replies with the error.
    fn run(ctx: &Context, args: Args) -> Result<(), CommandError>;
}

/// A command that only groups subcommands. `HELP` is added to them.
pub(crate) trait Container {
    const NAME: &'static CStr;
    const KEYS: Keys;
    const DOCS: Docs;
    const SUBCOMMANDS: &'static [Subcommand];
}

/// One subcommand. On servers that know subcommands (7.0 and later), each has its own flags, key, arity, ACL
/// categories and docs.
pub(crate) struct Subcommand {
    pub(crate) name: &'static CStr,
    pub(crate) flags: CommandFlags,
    /// The fewest arguments, including both names.
    pub(crate) min_args: usize,
    pub(crate) max_args: usize,
    pub(crate) docs: Docs,
    /// The same as [`Command::run`], with all arguments.
    pub(crate) run: fn(&Context, Args) -> Result<(), CommandError>,
}

fn arity(min_args: usize, max_args: usize) -> c_int {
    match max_args {
        max if max == min_args => max as c_int,
        _ => -(min_args as c_int),
    }
}

fn to_result(status: c_int) -> Result<(), Error> {
    if status == REDISMODULE_OK as c_int {
        Ok(())
    } else {
        Err(Error::Internal)
    }
}

/// Registers one or several commands with the server.
pub(crate) type Register = fn(&Context) -> Result<(), Error>;

/// Registers a command with the server.
pub(crate) fn register<C: Command>(ctx: &Context) -> Result<(), Error> {
    let flags = C::FLAGS.names()?;
    let (first, last, step) = C::KEYS.range();
    // SAFETY: the context is valid during the load, the strings live until the calls return, the function lives as
    // long as the module.
    unsafe {
        to_result(api!(RedisModule_CreateCommand)(
            ctx.raw,
            C::NAME.as_ptr(),
            Some(entry::<C>),
            flags.as_ptr(),
            first,
            last,
            step,
        ))?;
        let Some(get_command) = raw::RedisModule_GetCommand else {
            return Ok(());
        };
        let command = get_command(ctx.raw, C::NAME.as_ptr());
        let arity = arity(C::MIN_ARGS, C::MAX_ARGS);
        docs::publish(command, &C::DOCS, arity, C::KEYS, C::FLAGS)?;
        set_acl(command, C::FLAGS)
    }
}

/// Registers a container and its subcommands. A server without subcommands gets one command. It is not a write command,
/// because then replicas could not run GET; [`check_write_allowed`] makes the checks that the server makes for
/// write commands.
pub(crate) fn register_container<C: Container>(ctx: &Context) -> Result<(), Error> {
    let (first, last, step) = C::KEYS.range();
    let create = |function: RedisModuleCmdFunc, flags: CommandFlags, first, last, step| {
        let flags = flags.names()?;
        let name = C::NAME.as_ptr();
        // SAFETY: the context is valid during the load, the strings live until the call returns, the function lives
        // as long as the module.
        to_result(unsafe {
            let flags = flags.as_ptr();
            api!(RedisModule_CreateCommand)(ctx.raw, name, function, flags, first, last, step)
        })
    };
    // SAFETY: plain reads of function pointers that the server set at load.
    let functions = unsafe {
        (
            raw::RedisModule_CreateSubcommand,
            raw::RedisModule_GetCommand,
        )
    };
    let (Some(create_subcommand), Some(get_command)) = functions else {
        let flags = CommandFlags::MAY_REPLICATE;
        return create(Some(container_entry::<C>), flags, first, last, step);
    };
    create(None, CommandFlags::empty(), 0, 0, 0)?;
    // SAFETY: the context is valid during the load, all strings live until the calls return, the function lives as
    // long as the module.
    unsafe {
        let parent = get_command(ctx.raw, C::NAME.as_ptr());
        docs::publish(parent, &C::DOCS, -2, Keys::None, CommandFlags::empty())?;
        for subcommand in C::SUBCOMMANDS.iter().chain([&help::SUBCOMMAND]) {
            let keys = match subcommand.name {
                name if name == help::SUBCOMMAND.name => Keys::None,
                _ => C::KEYS,
            };
            let (first, last, step) = keys.range();
            let flags = subcommand.flags.names()?;
            to_result(create_subcommand(
                parent,
                subcommand.name.as_ptr(),
                Some(container_entry::<C>),
                flags.as_ptr(),
                first,
                last,
                step,
            ))?;
            let name = [C::NAME.to_bytes(), b"|", subcommand.name.to_bytes()].concat();
            let name = CString::new(name).map_err(|_| Error::Internal)?;
            let command = get_command(ctx.raw, name.as_ptr());
            let arity = arity(subcommand.min_args, subcommand.max_args);
            docs::publish(command, &subcommand.docs, arity, keys, subcommand.flags)?;
            set_acl(command, subcommand.flags)?;
        }
    }
    Ok(())
}

/// # Safety
/// `command` must be a command of this module.
unsafe fn set_acl(command: *mut RedisModuleCommand, flags: CommandFlags) -> Result<(), Error> {
    // SAFETY: promised by the caller; the string lives until the call returns.
    unsafe {
        match raw::RedisModule_SetCommandACLCategories {
            Some(set) => to_result(set(command, flags.acl_categories()?.as_ptr())),
            None => Ok(()),
        }
    }
}

/// `@rl` contains every command for applications, on servers that let modules add a category.
pub(crate) fn add_acl_category(ctx: &Context) -> Result<(), Error> {
    // SAFETY: the context is valid during the load; the name is static.
    unsafe {
        match raw::RedisModule_AddACLCategory {
            Some(add) => to_result(add(ctx.raw, c"rl".as_ptr())),
            None => Ok(()),
        }
    }
}

/// Where a call of a command without subcommands enters.
unsafe extern "C" fn entry<C: Command>(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: from the server, and used only during this call.
    let (ctx, args) = unsafe { (Context::new(ctx), Args::new(argv, argc)) };
    reply_error_of(&ctx, || {
        if args.len() < C::MIN_ARGS || args.len() > C::MAX_ARGS {
            return Err(CommandError::WrongArity);
        }
        C::run(&ctx, args)
    })
}

/// Where every call of a container enters.
unsafe extern "C" fn container_entry<C: Container>(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: from the server, and used only during this call.
    let (ctx, args) = unsafe { (Context::new(ctx), Args::new(argv, argc)) };
    reply_error_of(&ctx, || {
        if args.len() < 2 {
            return Err(CommandError::WrongArity);
        }
        let name = args.get(1).as_bytes();
        let named = |name_of: &CStr| name.eq_ignore_ascii_case(name_of.to_bytes());
        if named(help::SUBCOMMAND.name) && args.len() == 2 {
            help::reply_container::<C>(&ctx);
            return Ok(());
        }
        let mut subcommands = C::SUBCOMMANDS.iter();
        let subcommand = subcommands.find(|subcommand| named(subcommand.name));
        let subcommand = subcommand.ok_or(UNKNOWN_SUBCOMMAND)?;
        if args.len() < subcommand.min_args || args.len() > subcommand.max_args {
            return Err(CommandError::WrongArity);
        }
        if subcommand.flags.is_write() {
            check_write_allowed(&ctx)?;
        }
        (subcommand.run)(&ctx, args)
    })
}

/// Fails if the client may not change anything now. A server that knows subcommands has checked all of this already,
/// unless a module made the call. What comes from a primary or a file is never refused.
fn check_write_allowed(ctx: &Context) -> Result<(), CommandError> {
    if !ctx.is_from_client() {
        return Ok(());
    }
    if ctx.is_read_only_replica() {
        return Err(READ_ONLY);
    }
    // SAFETY: a plain read of a function pointer that the server set at load.
    if unsafe { raw::RedisModule_CreateSubcommand }.is_none()
        && let Some(refusal) = ctx.write_refusal()
    {
        return Err(CommandError::Static(refusal));
    }
    Ok(())
}

/// Runs a command and replies with its error, if it fails.
#[inline(always)]
fn reply_error_of(ctx: &Context, body: impl FnOnce() -> Result<(), CommandError>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => error.reply(ctx),
        Err(_) => {
            ctx.log_warning(c"rl: a command panicked; this is a bug, please report it");
            CommandError::from(Error::Internal).reply(ctx);
        }
    }
    REDISMODULE_OK as c_int
}
