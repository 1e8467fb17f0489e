//! Buffers that a thread keeps between operations.

use std::cell::RefCell;

thread_local! {
    /// Buffers not in use, the last used on top.
    static KEPT: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `f` with `len` values of any content. Memory is taken and cleared only when a thread needs more than it ever
/// did; calls may nest.
pub(crate) fn with<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut buffer = KEPT.with_borrow_mut(Vec::pop).unwrap_or_default();
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    let result = f(&mut buffer[..len]);
    KEPT.with_borrow_mut(|kept| kept.push(buffer));
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_buffers_are_apart() {
        for _ in 0..2 {
            with(8, |outer| {
                outer.fill(1.0);
                with(16, |inner| inner.fill(2.0));
                assert_eq!(outer, [1.0; 8]);
            });
        }
        with(3, |small| assert_eq!(small.len(), 3));
    }
}
