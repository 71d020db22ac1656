//! The module's section of INFO.

use std::ffi::{CStr, c_int};

use redis_module::raw::*;

use super::{Context, Handlers, api, catch_panic};

/// INFO while it is being written.
pub(crate) struct Info {
    raw: *mut RedisModuleInfoCtx,
}

/// Proof of being called by INFO on the main thread, and not by a crash report.
pub(crate) struct InfoAccess(());

impl Info {
    pub(crate) fn text(&self, field: &CStr, value: &CStr) {
        // SAFETY: the context is valid while the handler runs; the server copies both strings.
        unsafe {
            api!(RedisModule_InfoAddFieldCString)(self.raw, field.as_ptr(), value.as_ptr());
        }
    }

    pub(crate) fn number(&self, field: &CStr, value: u64) {
        // SAFETY: as above.
        unsafe {
            api!(RedisModule_InfoAddFieldULongLong)(self.raw, field.as_ptr(), value);
        }
    }
}

pub(crate) fn register_info<H: Handlers>(ctx: &Context) {
    // SAFETY: the context is valid during the load; the handler lives as long as the module.
    unsafe { api!(RedisModule_RegisterInfoFunc)(ctx.raw, Some(write::<H>)) };
}

unsafe extern "C" fn write<H: Handlers>(ctx: *mut RedisModuleInfoCtx, for_crash_report: c_int) {
    catch_panic((), || {
        // SAFETY: the context is valid while the handler runs. A section without a name of its own is
        // called after the module.
        unsafe { api!(RedisModule_InfoAddSection)(ctx, std::ptr::null()) };
        let info = Info { raw: ctx };
        H::write_info_atomics(&info);
        // Any thread may crash, at any moment, while the main thread is changing everything else.
        if for_crash_report == 0 {
            H::write_info_counters(&info, &InfoAccess(()));
        }
    });
}
