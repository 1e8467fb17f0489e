//! Caches as text: names and values, the names being those of the engine's settings.
//!
//! The engine's settings, the axes of a sweep and the header of a trace all give names and values, so one reader
//! serves them: [`CacheParams::from_knobs`] asks for what it needs. `Display` writes the same names, and `FromStr`
//! reads them back.

use super::error::CacheError;
use super::params::{Admission, CacheParams, Capacity, Rule, Scope};
use std::fmt;
use std::str::FromStr;
use strata_trace::Meta;

/// Every name that a text may hold.
const NAMES: [&str; 21] = [
    "policy",
    "slots",
    "vram",
    "bytes",
    "scope",
    "admission",
    "copy_rounds",
    "insert_budget",
    "count_prefill",
    "adapt_every",
    "adapt_swaps",
    "adapt_min_use",
    "adapt_gain",
    "decay",
    "lfu_remember",
    "bypass",
    "saving_fast",
    "saving_slow",
    "saving_burst",
    "saving_horizon",
    "saving_copy",
];

const MIB: u64 = 1 << 20;

/// Looks values up and turns them into what is needed.
struct Reader<F>(F);

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    fn maybe<T: FromStr>(&self, name: &str, expected: &str) -> Result<Option<T>, CacheError> {
        let Some(text) = (self.0)(name) else { return Ok(None) };
        let error = || CacheError::invalid(name, format!("{text:?}"), expected);
        text.trim().parse().map(Some).map_err(|_| error())
    }

    fn get<T: FromStr>(&self, name: &str, expected: &str) -> Result<T, CacheError> {
        self.maybe(name, expected)?.ok_or_else(|| CacheError::invalid(name, "nothing", expected))
    }

    fn word<T>(&self, name: &str, words: &[(&str, T)]) -> Result<T, CacheError>
    where
        T: Copy,
    {
        let expected = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let found: String = self.get(name, &format!("one of {expected}"))?;
        let same = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(&found));
        let error = || CacheError::invalid(name, format!("{found:?}"), format!("one of {expected}"));
        same.map(|(_, value)| *value).ok_or_else(error)
    }

    fn rule(&self) -> Result<Rule, CacheError> {
        let (number, whole, truth) = ("a number", "a whole number", "true or false");
        Ok(match self.get::<String>("policy", "the name of a policy")?.as_str() {
            "static" => Rule::Static,
            "lru" => Rule::Lru,
            "lfu" => Rule::Lfu {
                decay: self.get("decay", number)?,
                every: self.get("adapt_every", whole)?,
                remember: self.get("lfu_remember", truth)?,
                bypass: self.get("bypass", truth)?,
            },
            "adaptive" => Rule::Adaptive {
                every: self.get("adapt_every", whole)?,
                swaps: self.get("adapt_swaps", whole)?,
                min_use: self.get("adapt_min_use", number)?,
                gain: self.get("adapt_gain", number)?,
                decay: self.get("decay", number)?,
            },
            "s3-fifo" => Rule::S3Fifo,
            "saving" => Rule::Saving {
                fast: self.get("saving_fast", number)?,
                slow: self.get("saving_slow", number)?,
                burst: self.get("saving_burst", number)?,
                horizon: self.get("saving_horizon", number)?,
                copy: self.get("saving_copy", number)?,
            },
            "belady" => Rule::Belady { bypass: self.get("bypass", truth)? },
            "infinite" => Rule::Infinite,
            other => {
                let expected = "one of static, lru, lfu, adaptive, s3-fifo, saving, belady, infinite";
                return Err(CacheError::invalid("policy", format!("{other:?}"), expected));
            }
        })
    }

    fn capacity(&self) -> Result<Option<Capacity>, CacheError> {
        let slots = self.maybe("slots", "a whole number of experts")?.map(Capacity::Slots);
        let vram = self.maybe::<u64>("vram", "a whole number of MiB")?;
        let bytes = self.maybe("bytes", "a whole number")?;
        let vram = vram.map(|mib| mib.saturating_mul(MIB)).or(bytes).map(Capacity::Bytes);
        if let (Some(_), Some(_)) = (slots, vram) {
            return Err(CacheError::invalid("slots", "a number of slots and a size", "one of the two"));
        }
        Ok(slots.or(vram))
    }
}

impl CacheParams {
    /// The cache that settings ask for; `None` where they ask for none, having neither `slots` nor `vram`.
    ///
    /// `lookup` gives the value of a setting by its name within the section `experts`, or nothing where it is unset.
    ///
    /// # Errors
    /// A value is missing or cannot be, or there are both `slots` and `vram`. Ranges are for
    /// [`Cache::new`](super::Cache::new) to check.
    pub fn from_knobs(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<CacheParams>, CacheError> {
        let reader = Reader(lookup);
        let Some(capacity) = reader.capacity()? else { return Ok(None) };
        Ok(Some(CacheParams {
            rule: reader.rule()?,
            capacity,
            scope: reader.word("scope", &[("global", Scope::Global), ("per-layer", Scope::PerLayer)])?,
            admission: reader.word(
                "admission",
                &[("evict-first", Admission::EvictFirst), ("wait-for-copy", Admission::WaitForCopy)],
            )?,
            copy_rounds: reader.get("copy_rounds", "a whole number of rounds")?,
            insert_budget: reader.maybe("insert_budget", "a whole number")?,
            count_prefill: reader.get("count_prefill", "true or false")?,
        }))
    }

    /// The cache of the engine that made a recording, by the settings in its header; `None` if it had none.
    ///
    /// # Errors
    /// A setting is missing or cannot be.
    pub fn from_meta(meta: &Meta) -> Result<Option<CacheParams>, CacheError> {
        CacheParams::from_knobs(|name| meta.knobs.get(&format!("experts.{name}")).map(|knob| knob.value.clone()))
    }
}

impl fmt::Display for CacheParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy={}", self.rule.name())?;
        match self.rule {
            Rule::Static | Rule::Lru | Rule::S3Fifo | Rule::Infinite => {}
            Rule::Lfu { decay, every, remember, bypass } => {
                write!(f, " decay={decay} adapt_every={every} lfu_remember={remember} bypass={bypass}")?;
            }
            Rule::Adaptive { every, swaps, min_use, gain, decay } => write!(
                f,
                " adapt_every={every} adapt_swaps={swaps} adapt_min_use={min_use} adapt_gain={gain} decay={decay}"
            )?,
            Rule::Saving { fast, slow, burst, horizon, copy } => write!(
                f,
                " saving_fast={fast} saving_slow={slow} saving_burst={burst} saving_horizon={horizon} \
                 saving_copy={copy}"
            )?,
            Rule::Belady { bypass } => write!(f, " bypass={bypass}")?,
        }
        match self.capacity {
            Capacity::Slots(n) => write!(f, " slots={n}")?,
            Capacity::Bytes(n) if n % MIB == 0 => write!(f, " vram={}", n / MIB)?,
            Capacity::Bytes(n) => write!(f, " bytes={n}")?,
        }
        let scope = if self.scope == Scope::Global { "global" } else { "per-layer" };
        let admission = if self.admission == Admission::EvictFirst { "evict-first" } else { "wait-for-copy" };
        write!(f, " scope={scope} admission={admission} copy_rounds={}", self.copy_rounds)?;
        if let Some(budget) = self.insert_budget {
            write!(f, " insert_budget={budget}")?;
        }
        write!(f, " count_prefill={}", self.count_prefill)
    }
}

impl FromStr for CacheParams {
    type Err = CacheError;

    /// Reads what `Display` writes: `name=value`, in any order, apart by spaces.
    fn from_str(text: &str) -> Result<CacheParams, CacheError> {
        let mut pairs = Vec::new();
        for word in text.split_whitespace() {
            let Some((name, value)) = word.split_once('=') else {
                return Err(CacheError::invalid("cache", format!("{word:?}"), "name=value"));
            };
            if !NAMES.contains(&name) {
                return Err(CacheError::invalid("cache", format!("{name:?}"), format!("one of {}", NAMES.join(", "))));
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(CacheError::invalid("cache", format!("{name} twice"), "each name once"));
            }
            pairs.push((name, value));
        }
        let lookup = |name: &str| pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        CacheParams::from_knobs(lookup)?.ok_or_else(|| CacheError::invalid("cache", "no size", "slots, vram or bytes"))
    }
}
