//! A study whose answers are known: a bowl over `share` with its lowest point at 0.36, deeper by `depth`.

use std::sync::atomic::{AtomicUsize, Ordering};
use strata_sim::SimError;
use strata_sim::study::{AxisValue, Described, Inputs, Point, Prepared, Row, Study};

pub(crate) struct Bowl;

pub(crate) static BOWL: Bowl = Bowl;

/// Evaluations by all tests of this process.
pub(crate) static EVALUATED: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn find(name: &str) -> Option<&'static dyn Study> {
    (name == "bowl").then_some(&BOWL as &dyn Study)
}

const fn one(name: &'static str, unit: &'static str) -> Described {
    Described { name, unit, help: "" }
}

impl Study for Bowl {
    fn name(&self) -> &'static str {
        "bowl"
    }

    fn axes(&self) -> &'static [Described] {
        const { &[one("share", ""), one("depth", "mm"), one("glaze", ""), one("noise", ""), one("speculation.spec", "")] }
    }

    fn labels(&self) -> &'static [Described] {
        const { &[one("layer", "")] }
    }

    fn metrics(&self) -> &'static [Described] {
        const { &[one("height", "mm"), one("volume", "ml")] }
    }

    fn inputs(&self) -> &'static [(&'static str, bool)] {
        &[("clay", true), ("tools", false)]
    }

    fn prepare(&self, inputs: &Inputs) -> Result<Box<dyn Prepared>, SimError> {
        let path = &inputs["clay"];
        let text = std::fs::read_to_string(path)
            .map_err(|source| SimError::Io { path: path.display().to_string(), source })?;
        let base = text.trim().parse().map_err(|_| invalid(&path.display().to_string(), &text, "a number"))?;
        Ok(Box::new(Ready { base }))
    }
}

fn invalid(place: &str, found: &str, expected: &str) -> SimError {
    SimError::Invalid { place: place.into(), found: found.into(), expected: expected.into() }
}

struct Ready {
    base: f64,
}

impl Prepared for Ready {
    fn evaluate(&self, point: &Point) -> Result<Vec<Row>, SimError> {
        EVALUATED.fetch_add(1, Ordering::Relaxed);
        let number = |name: &str, default: f64| match point.values.get(name) {
            Some(AxisValue::Int(v)) => *v as f64,
            Some(AxisValue::Float(v)) => *v,
            _ => default,
        };
        let depth = number("depth", 1.0);
        if depth < 0.0 {
            return Err(invalid("depth", &depth.to_string(), "at least 0"));
        }
        // Between 0 and 1, different for each seed, equal for equal seeds.
        let drawn = (point.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1u64 << 53) as f64;
        let height = self.base + (number("share", 0.0) - 0.36).powi(2) + depth + number("noise", 0.0) * drawn;
        let labels: Vec<_> = point.values.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let layers = if point.values.get("glaze") == Some(&AxisValue::Text("layered".into())) { 2 } else { 1 };
        let row = |layer: i64| {
            let mut labels = labels.clone();
            if layers > 1 {
                labels.push(("layer".into(), AxisValue::Int(layer)));
            }
            // A volume is known for whole depths alone.
            let volume = if depth.fract() == 0.0 { 10.0 * depth } else { f64::NAN };
            Row { labels, metrics: vec![("height".into(), height + layer as f64), ("volume".into(), volume)] }
        };
        Ok((0..layers).map(row).collect())
    }
}
