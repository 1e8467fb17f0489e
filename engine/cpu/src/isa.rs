//! Which instructions the processor has, and functions compiled for each set.

use std::fmt;

/// An instruction set that kernels are written for, and that this processor has. Results are the same on all of them,
/// bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isa(Level);

/// The sets there are, the slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    /// Plain Rust: the definition of every result. Fused multiply-add may be a library call, so it can be slow.
    Scalar,
    /// AVX2, FMA and F16C: x86-64 processors since about 2013.
    Avx2,
    /// AVX-512 F, BW, VL, DQ and VNNI: server processors since 2019, AMD's since Zen 4.
    Avx512,
}

/// Names that [`Isa::from_name`] knows, the slowest first.
pub const ISA_NAMES: [&str; 3] = ["scalar", "avx2", "avx512"];

impl Isa {
    /// Plain Rust, which every processor runs.
    pub const SCALAR: Isa = Isa(Level::Scalar);

    /// The sets that this processor has, the slowest first.
    pub fn available() -> impl Iterator<Item = Isa> {
        [Level::Scalar, Level::Avx2, Level::Avx512].into_iter().filter(|l| l.available()).map(Isa)
    }

    /// The fastest one that this processor has.
    pub fn detect() -> Isa {
        Isa::available().last().unwrap_or(Isa::SCALAR)
    }

    /// The set with this name; `None` if there is none or this processor lacks it.
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::available().find(|isa| isa.name().eq_ignore_ascii_case(name))
    }

    /// Its name, as `--isa` takes it.
    pub fn name(self) -> &'static str {
        ISA_NAMES[self.0 as usize]
    }

    pub(crate) fn level(self) -> Level {
        self.0
    }
}

impl Level {
    fn available(self) -> bool {
        match self {
            Level::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Compiles a function once per instruction set and chooses at run time.
///
/// The body is the same source for all of them. The compiler may use wider instructions where the source allows, but it
/// neither reorders floating-point operations nor fuses what is not written as `mul_add`, so all give the same bits.
macro_rules! per_isa {
    ($(#[$meta:meta])* $vis:vis fn $name:ident ( $isa:ident : Isa $(, $arg:ident : $ty:ty)* $(,)? ) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name($isa: $crate::Isa $(, $arg: $ty)*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            match $isa.level() {
                // SAFETY: an `Isa` above scalar exists only where its features were found.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Level::Avx512 => unsafe { avx512($($arg),*) },
                _ => body($($arg),*),
            }
        }
    };
}
pub(crate) use per_isa;
