//! Where the server loads the module. The macro of the crate `redis-module` is not used, because on Valkey it logs a
//! warning about defragmentation callbacks that this module does not use.

use std::ffi::{CStr, c_char, c_int};

use redis_module::alloc::RedisAlloc;
use redis_module::raw::*;
use redis_module::{Context as LoadContext, RedisString, Status};

use super::catch_panic;

/// All memory is allocated by the server, so that it knows how much is used.
#[global_allocator]
static ALLOCATOR: RedisAlloc = RedisAlloc;

const NAME: &CStr = c"rl";

/// The version in Cargo.toml as MODULE LIST shows it: major · 10000 + minor · 100 + patch.
const VERSION: c_int = 10_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
    + 100 * number(env!("CARGO_PKG_VERSION_MINOR"))
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const fn number(digits: &str) -> c_int {
    let digits = digits.as_bytes();
    let (mut number, mut index) = (0, 0);
    while index < digits.len() {
        number = 10 * number + (digits[index] - b'0') as c_int;
        index += 1;
    }
    number
}

/// Defines the function that the server calls to load the module, which runs `$init`.
macro_rules! entry_point {
    ($init:path) => {
        /// # Safety
        /// Called by the server, once.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unsafe_code)]
        pub unsafe extern "C" fn RedisModule_OnLoad(
            ctx: *mut redis_module::raw::RedisModuleCtx,
            argv: *mut *mut redis_module::raw::RedisModuleString,
            argc: std::ffi::c_int,
        ) -> std::ffi::c_int {
            // SAFETY: passed on as the server called.
            unsafe { $crate::server::on_load(ctx, argv, argc, $init) }
        }
    };
}
pub(crate) use entry_point;

/// # Safety
/// To be called by the server, once, with what it passes to a module that is loaded.
pub(crate) unsafe fn on_load(
    ctx: *mut RedisModuleCtx,
    argv: *mut *mut RedisModuleString,
    argc: c_int,
    init: fn(&LoadContext, &[RedisString]) -> Status,
) -> c_int {
    // Copied to where the crate's C code may write.
    let mut name = [0; 16];
    for (to, &from) in name.iter_mut().zip(NAME.to_bytes()) {
        *to = from as c_char;
    }
    // SAFETY: the context is valid, the name ends with a NUL. Nothing may be allocated before.
    let ready = unsafe {
        Export_RedisModule_Init(ctx, name.as_ptr(), VERSION, REDISMODULE_APIVER_1 as c_int)
    };
    if ready != REDISMODULE_OK as c_int {
        return REDISMODULE_ERR as c_int;
    }
    catch_panic(REDISMODULE_ERR as c_int, || {
        let args: Vec<RedisString> = redis_module::decode_args(ctx, argv, argc);
        match init(&LoadContext::new(ctx), &args) {
            Status::Ok => REDISMODULE_OK as c_int,
            Status::Err => REDISMODULE_ERR as c_int,
        }
    })
}
