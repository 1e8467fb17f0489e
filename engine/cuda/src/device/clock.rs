//! When kernels begin, by the device's clock, in graphs too.

use super::{Device, lock};
use crate::error::{Result, driver};
use crate::kernels::{BEGINS, MODULES, entries};
use cudarc::driver::{result, sys};
use std::sync::atomic::Ordering;

/// Kernels that a module keeps the beginnings of; further ones are not kept.
const KEPT: usize = 1 << 16;

/// When a kernel began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelStart {
    /// The kernel.
    pub name: &'static str,
    /// Nanoseconds of the device's clock when its first block had begun.
    pub started: u64,
    /// And when all kernels before it had ended.
    pub followed: u64,
    /// When the first block's first thread had nothing left to do.
    pub ended: u64,
}

impl Device {
    /// From now on kernels note when they begin. Those whose module is translated already do not, so this comes before anything else.
    pub fn clock_kernels(&self) {
        self.inner.clocked.store(true, Ordering::Relaxed);
    }

    /// The kernels that began since the last call, in order. Waits for the device.
    ///
    /// # Errors
    /// The device failed.
    pub fn kernel_starts(&self) -> Result<Vec<KernelStart>> {
        self.synchronize()?;
        let mut all = Vec::new();
        let modules: Vec<(usize, sys::CUmodule)> =
            lock(&self.inner.functions).modules.iter().map(|(&at, &module)| (at, module)).collect();
        for (at, module) in modules {
            let find = |name| {
                // SAFETY: the module is loaded.
                unsafe { result::module::get_global(module, name) }.map_err(driver("finding the kernels' clock"))
            };
            let ((count_at, _), (list, _)) = (find(c"clock_count".to_owned())?, find(c"clock_list".to_owned())?);
            let mut count = [0u32];
            // SAFETY: the module has a word and a list of so many entries of four words of 64 bits each.
            unsafe { self.download(count_at, &mut count) };
            let mut words = vec![0u64; 4 * (count[0] as usize).min(KEPT)];
            // SAFETY: as above.
            unsafe {
                self.download(list, &mut words);
                self.fill(count_at, 0, 4);
            }
            let names: Vec<&'static str> = MODULES.get(at).map(|m| entries(m.ptx).collect()).unwrap_or_default();
            all.extend(words.chunks_exact(4).filter_map(|entry| match *entry {
                [which, started, followed, ended] => {
                    names.get(which as usize).map(|&name| KernelStart { name, started, followed, ended })
                }
                _ => None,
            }));
        }
        self.synchronize()?;
        all.sort_by_key(|start| start.followed);
        Ok(all)
    }
}

/// A module whose kernels note when they begin.
pub(super) fn clocked(ptx: &str) -> String {
    let mut parts = ptx.split(".visible .entry ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    text.push_str(".visible .global .align 8 .u32 clock_count;\n");
    text.push_str(&format!(".visible .global .align 8 .b64 clock_list[{}];\n", 4 * KEPT));
    for (which, part) in parts.enumerate() {
        // The first thread of the grid notes: when it comes, when it may go on, and when it leaves.
        let note = format!(
            "{BEGINS}\n\
             mov.u32 %cr0, %tid.x;\nmov.u32 %cr1, %ctaid.x;\nor.b32 %cr0, %cr0, %cr1;\nmov.u32 %cr1, %ctaid.y;\nor.b32 %cr0, %cr0, %cr1;\n\
             mov.u32 %cr1, %ctaid.z;\nor.b32 %cr0, %cr0, %cr1;\n\
             mov.u64 %cd0, %globaltimer;\n// sm_90: griddepcontrol.wait;\n\
             {{\nsetp.ne.u32 %cp, %cr0, 0;\n@%cp bra CLOCKED;\n\
             mov.u64 %cd1, %globaltimer;\natom.global.add.u32 %cr2, [clock_count], 1;\n\
             min.u32 %cr2, %cr2, {last};\n\
             mov.u64 %cd2, clock_list;\nmul.wide.u32 %cd3, %cr2, 32;\nadd.s64 %cd2, %cd2, %cd3;\n\
             mov.u64 %cd3, {which};\nst.global.u64 [%cd2], %cd3;\nst.global.u64 [%cd2+8], %cd0;\nst.global.u64 [%cd2+16], %cd1;\nCLOCKED:\n}}",
            last = KEPT - 1
        );
        let leave = "\n{\nsetp.ne.u32 %cp, %cr0, 0;\n@%cp bra CLOCKED;\nmov.u64 %cd1, %globaltimer;\nst.global.u64 [%cd2+24], %cd1;\nCLOCKED:\n}\nret;\n";
        let part = part.replacen("\n{\n", "\n{\n.reg .pred %cp;\n.reg .b32 %cr<4>;\n.reg .b64 %cd<4>;\n", 1);
        let part = part.replace("\nret;\n", leave);
        text.push_str(".visible .entry ");
        text.push_str(&part.replace(BEGINS, &note));
    }
    text
}
