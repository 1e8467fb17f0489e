//! Slots that serve for intermediate results for a while.

use super::{Device, lock};
use crate::loan::Loan;
use crate::slots::Slots;

impl Device {
    /// Until [`Device::take_back`], large intermediate results are kept, while [`Device::use_loan`] says so, in the memory of these slots, which nothing else may use
    /// meanwhile. What was lent before must have been taken back.
    pub fn lend(&self, slots: Slots) {
        // What was begun beside may still write there.
        self.behind_what_is_beside();
        let mut loan = lock(&self.inner.loan);
        if loan.is_none() {
            *loan = Some(Loan::new(slots));
        }
    }

    /// Whether results are kept there that are begun from now on; those that live long must not be.
    pub fn use_loan(&self, yes: bool) {
        if let Some(loan) = &mut *lock(&self.inner.loan) {
            loan.open(yes);
        }
    }

    /// Ends the lending. `None` if a result still is in that memory: then it goes on. Otherwise the most bytes that were in use;
    /// 0 if nothing was lent.
    pub fn take_back(&self) -> Option<usize> {
        let mut loan = lock(&self.inner.loan);
        if loan.as_ref().is_some_and(|loan| !loan.is_whole()) {
            return None;
        }
        let ended = loan.take().map(Loan::end);
        // The slots' memory may be given back now, which asks whether it is lent.
        drop(loan);
        Some(ended.map_or(0, |(_, most)| most))
    }
}
