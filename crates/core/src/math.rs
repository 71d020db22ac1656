//! Exact division with a 64-bit fast path: a 128-bit division costs tens of nanoseconds.

/// `ceil(a / b)`; `b` must not be 0.
pub(crate) fn div_ceil(a: u128, b: u64) -> u128 {
    match u64::try_from(a) {
        Ok(a) => u128::from(a.div_ceil(b)),
        Err(_) => a.div_ceil(u128::from(b)),
    }
}

/// `floor(a · b / c)`; `c` must not be 0.
pub(crate) fn mul_div_floor(a: u64, b: u64, c: u64) -> u128 {
    let product = u128::from(a) * u128::from(b);
    match u64::try_from(product) {
        Ok(product) => u128::from(product / c),
        Err(_) => product / u128::from(c),
    }
}

/// `ceil(a · b / c)`; `c` must not be 0.
pub(crate) fn mul_div_ceil(a: u64, b: u64, c: u64) -> u128 {
    div_ceil(u128::from(a) * u128::from(b), c)
}

/// For quotients that the caller knows to fit. Saturates if they do not.
pub(crate) fn to_u64(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
