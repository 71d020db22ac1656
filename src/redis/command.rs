//! Registration of commands, and the boundary at which the server calls them.

use std::ffi::{CStr, CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use redis_module::raw::{self, *};
use rl_core::Error;

use super::{Args, Context, Docs, api, docs};
use crate::failure::Failure;

/// Whether a command may change its keys, or has none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Keyless,
}

/// A command, one file each under `commands/`.
pub(crate) trait Command {
    const NAME: &'static CStr;
    const FLAGS: &'static CStr;
    /// Categories of `ACL CAT`, where the server lets modules choose (7.2 and later).
    const ACL: &'static str;
    const ACCESS: Access = Access::Write;
    /// The position of the first key, by which clients route.
    const FIRST_KEY: usize = 1;
    /// Fewest arguments, the name included.
    const MIN_ARGS: usize;
    /// Most arguments, the name included.
    const MAX_ARGS: usize = usize::MAX;
    const DOCS: Docs;

    /// Replies, unless it fails: then nothing has changed, and the caller replies with the failure.
    fn run(ctx: &Context, args: Args) -> Result<(), Failure>;

    /// Positions of the keys, for commands that have others than the first argument.
    const KEYS: Option<fn(&Context, Args)> = None;
}

/// Registers a command with the server.
pub(crate) fn register<C: Command>(ctx: &Context) -> Result<(), Error> {
    // Which is the last as well.
    let first_key = match C::ACCESS {
        Access::Keyless => 0,
        _ => C::FIRST_KEY as c_int,
    };
    // SAFETY: the context is valid during the load, the strings are static, the function lives as long
    // as the module.
    unsafe {
        let created = api!(RedisModule_CreateCommand)(
            ctx.raw,
            C::NAME.as_ptr(),
            Some(entry::<C>),
            C::FLAGS.as_ptr(),
            first_key,
            first_key,
            first_key.min(1),
        );
        if created != REDISMODULE_OK as c_int {
            return Err(Error::Internal);
        }
        let Some(get_command) = raw::RedisModule_GetCommand else {
            return Ok(());
        };
        let command = get_command(ctx.raw, C::NAME.as_ptr());
        let arity = match C::MAX_ARGS {
            max if max == C::MIN_ARGS => max as c_int,
            _ => -(C::MIN_ARGS as c_int),
        };
        let keys = docs::Keys {
            first: C::FIRST_KEY,
            access: C::ACCESS,
            more: C::KEYS.is_some(),
        };
        if !docs::publish(command, &C::DOCS, arity, keys) {
            return Err(Error::Internal);
        }
        set_acl(command, C::ACL)
    }
}

/// # Safety
/// `command` must be a command of this module.
unsafe fn set_acl(command: *mut RedisModuleCommand, categories: &str) -> Result<(), Error> {
    // SAFETY: promised by the caller; the strings live until the calls return.
    unsafe {
        let Some(set) = raw::RedisModule_SetCommandACLCategories else {
            return Ok(());
        };
        // Our own category exists where the server lets modules add one (see `add_acl_category`). What is
        // dangerous has to be granted by name.
        let own = match raw::RedisModule_AddACLCategory {
            Some(_) if !categories.contains("dangerous") => " rl",
            _ => "",
        };
        let categories = CString::new(format!("{categories}{own}")).map_err(|_| Error::Internal)?;
        if set(command, categories.as_ptr()) != REDISMODULE_OK as c_int {
            return Err(Error::Internal);
        }
    }
    Ok(())
}

/// `@rl` holds every command for applications, on servers that let modules add a category.
pub(crate) fn add_acl_category(ctx: &Context) -> Result<(), Error> {
    // SAFETY: the context is valid during the load; the name is static.
    unsafe {
        match raw::RedisModule_AddACLCategory {
            Some(add) if add(ctx.raw, c"rl".as_ptr()) != REDISMODULE_OK as c_int => {
                Err(Error::Internal)
            }
            _ => Ok(()),
        }
    }
}

/// Where every request enters.
unsafe extern "C" fn entry<C: Command>(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: from the server, and used only during this call.
    let (ctx, args) = unsafe { (Context::new(ctx), Args::new(argv, argc)) };
    let result = catch_unwind(AssertUnwindSafe(|| {
        if let Some(keys) = C::KEYS
            && ctx.is_keys_request()
        {
            keys(&ctx, args);
            return Ok(());
        }
        if args.len() < C::MIN_ARGS || args.len() > C::MAX_ARGS {
            return Err(Failure::Arity);
        }
        C::run(&ctx, args)
    }));
    match result {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => failure.reply(&ctx),
        Err(_) => {
            ctx.log_warning(c"rl: a command panicked; this is a bug, please report it");
            Failure::from(Error::Internal).reply(&ctx);
        }
    }
    REDISMODULE_OK as c_int
}
