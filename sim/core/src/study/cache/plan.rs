//! What a point asks of the cache: the engine's settings, room, start, and which part counts.

use crate::check::invalid;
use crate::error::SimError;
use crate::replay::ranking_from_text;
use crate::study::values::{Values, word};
use crate::study::{AxisValue, Point};
use strata_config::Layer;
use strata_policy::cache::{CacheParams, Capacity, Key, Shape};

/// What is resident before the first round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Cold,
    Popularity,
    Ranking,
}

/// How a cache goes through the accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Round by round, as the engine does.
    Engine,
    /// Access by access, everything inserted, as textbooks do.
    Classic,
}

/// A point, as far as the cache goes.
pub(super) struct Plan {
    pub(super) params: CacheParams,
    pub(super) start: Start,
    pub(super) mode: Mode,
    /// Whether only the second half of the requests is replayed.
    pub(super) half: bool,
}

/// Room where the point names none, in bytes.
pub(super) type Otherwise<'a> = &'a dyn Fn() -> Result<f64, SimError>;

impl Plan {
    /// # Errors
    /// A value cannot be, or contradicts another.
    pub(super) fn of(point: &Point, values: &Values, shape: &Shape, otherwise: Otherwise) -> Result<Plan, SimError> {
        for (key, value) in &point.values {
            if let Some(knob) = strata_config::find(key) {
                knob.parse(&value.to_string())?;
            }
        }
        let defaults = Layer::defaults()?;
        let capacity = capacity(point, values, shape, otherwise)?;
        let params = CacheParams::from_knobs(|name| match (name, capacity) {
            ("slots", Capacity::Slots(n)) => Some(n.to_string()),
            ("bytes", Capacity::Bytes(n)) => Some(n.to_string()),
            ("slots" | "bytes" | "vram", _) => None,
            _ => {
                let knob = strata_config::find(&format!("experts.{name}"))?;
                let given = point.values.get(knob.key).map(ToString::to_string);
                given.or_else(|| defaults.get(knob).map(ToString::to_string))
            }
        });
        let params = params?.ok_or_else(|| invalid("experts.slots", "nothing", "room for experts"))?;
        params.check()?;
        let start = match values.text("start", "popularity")? {
            "cold" => Start::Cold,
            "popularity" => Start::Popularity,
            "ranking" => Start::Ranking,
            other => return Err(word("start", other, "cold, popularity or ranking")),
        };
        let mode = match values.text("mode", "engine")? {
            "engine" => Mode::Engine,
            "classic" => Mode::Classic,
            other => return Err(word("mode", other, "engine or classic")),
        };
        let half = match values.text("part", "second-half")? {
            "second-half" => true,
            "all" if start == Start::Popularity => {
                return Err(word("part", "all", "second-half: the first half is what popularity is learned from"));
            }
            "all" => false,
            other => return Err(word("part", other, "second-half or all")),
        };
        Ok(Plan { params, start, mode, half })
    }
}

/// Room: so many slots that each hold the largest expert, or the same memory divided by what is put in.
fn capacity(point: &Point, values: &Values, shape: &Shape, otherwise: Otherwise) -> Result<Capacity, SimError> {
    let by_size = match values.text("sizing", "uniform")? {
        "uniform" => false,
        "bytes" => true,
        other => return Err(word("sizing", other, "uniform or bytes")),
    };
    let largest = shape.bytes().iter().copied().max().unwrap_or(1);
    let whole = |key: &str| match point.values.get(key) {
        None => Ok(None),
        Some(&AxisValue::Int(n)) if n >= 0 => Ok(Some(n as u64)),
        Some(other) => Err(invalid(format!("axis {key}"), other, "a whole number of at least 0")),
    };
    let bytes = match (whole("experts.slots")?, whole("experts.vram")?) {
        (Some(_), Some(_)) => return Err(invalid("axes experts.slots and experts.vram", "both", "one of them")),
        (Some(slots), None) if !by_size => return Ok(Capacity::Slots(slots as usize)),
        (Some(slots), None) => slots.saturating_mul(largest),
        (None, Some(mib)) => mib.saturating_mul(1 << 20),
        // Slots of the model times the size of an expert: whole numbers but for rounding.
        (None, None) => otherwise()?.round() as u64,
    };
    Ok(if by_size { Capacity::Bytes(bytes) } else { Capacity::Slots(shape.uniform_slots(bytes)) })
}

/// The ranking of a text.
///
/// # Errors
/// It is none for this model.
pub(super) fn ranking(text: &str, shape: &Shape) -> Result<Vec<Key>, SimError> {
    ranking_from_text("ranking", text, shape)
}
