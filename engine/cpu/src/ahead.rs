//! Fetching what will be read soon.
#![allow(unsafe_code)]

/// How far ahead of the values in use others are fetched, in bytes.
///
/// A core that takes weights apart has too few loads in flight to hide the time memory takes, and what the processor
/// fetches by itself stops at the end of a page. Of distances from 256 bytes up to this one, this was the fastest.
const AHEAD: usize = 4096;

/// Has the values fetched that lie ahead of these. There may be none: fetching does not fault.
#[inline(always)]
pub(crate) fn fetch_ahead<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = values.as_ptr().cast::<i8>().wrapping_add(AHEAD);
        for line in (0..size_of_val(values)).step_by(64) {
            // SAFETY: it reads nothing that the program could see, and any address will do.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, AHEAD);
}
