//! What kernels run on: an instruction set and threads.

use crate::{Isa, Pool};

/// An instruction set and a pool of threads.
pub struct Cpu {
    isa: Isa,
    pool: Pool,
}

impl Cpu {
    /// With `threads` threads (0: a sane default for this machine) and an instruction set.
    pub fn new(threads: usize, isa: Isa) -> Cpu {
        Cpu { isa, pool: Pool::new(threads) }
    }

    /// With exactly so many threads, pinned nowhere, even if they outnumber the cores: to show that results do not
    /// depend on the number.
    pub fn exactly(threads: usize, isa: Isa) -> Cpu {
        Cpu { isa, pool: Pool::exactly(threads) }
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The threads.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}
