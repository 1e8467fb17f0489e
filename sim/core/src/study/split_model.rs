//! `split-model`: one layer and two branches, small enough to follow with a pencil.
//!
//! A layer misses `miss_mb` of experts. The share `fraction` of them is copied to the GPU, which meanwhile computes the
//! resident ones and afterwards the copied ones; the CPU computes the rest where it lies. The layer ends with its later
//! branch:
//!
//! - gpu = max(resident, copied / link) + fraction x missed, with `missed` the GPU's time for all misses;
//! - cpu = (1 - fraction) x miss_mb / cpu_gb_s;
//! - layer = max(gpu, cpu); one after the other it is their sum.

use super::values::Values;
use super::{Described, Inputs, Point, Prepared, Row, Study};
use crate::check::{not_negative, positive, share};
use crate::error::SimError;

/// The study.
pub struct SplitModel;

const AXES: &[Described] = &[
    Described { name: "fraction", unit: "", help: "Share of the misses that is copied to the GPU; 0.36 unless given" },
    Described { name: "miss_mb", unit: "MB", help: "Experts of a layer that are not resident; 24 unless given" },
    Described { name: "cpu_gb_s", unit: "GB/s", help: "What the CPU reads of main memory; 20 unless given" },
    Described { name: "link_gb_s", unit: "GB/s", help: "Copies over PCIe; 12 unless given" },
    Described { name: "resident_ms", unit: "ms", help: "The GPU with resident experts; 0.20 unless given" },
    Described { name: "missed_ms", unit: "ms", help: "The GPU with all missed experts, once there; 0.12 unless given" },
];

const METRICS: &[Described] = &[
    Described {
        name: "gpu_ms",
        unit: "ms",
        help: "The GPU's branch: resident experts beside the copies, then the copied",
    },
    Described { name: "cpu_ms", unit: "ms", help: "The CPU's branch" },
    Described { name: "layer_ms", unit: "ms", help: "The later branch" },
    Described { name: "serial_ms", unit: "ms", help: "One branch after the other" },
];

impl Study for SplitModel {
    fn name(&self) -> &'static str {
        "split-model"
    }

    fn axes(&self) -> &'static [Described] {
        AXES
    }

    fn metrics(&self) -> &'static [Described] {
        METRICS
    }

    fn inputs(&self) -> &'static [(&'static str, bool)] {
        &[]
    }

    fn prepare(&self, _: &Inputs) -> Result<Box<dyn Prepared>, SimError> {
        Ok(Box::new(SplitModel))
    }
}

impl Prepared for SplitModel {
    fn evaluate(&self, point: &Point) -> Result<Vec<Row>, SimError> {
        let values = Values::new(self.name(), point, AXES)?;
        let fraction = values.number("fraction", 0.36)?;
        let miss_mb = values.number("miss_mb", 24.0)?;
        let cpu_gb_s = values.number("cpu_gb_s", 20.0)?;
        let link_gb_s = values.number("link_gb_s", 12.0)?;
        let resident = values.number("resident_ms", 0.20)?;
        let missed = values.number("missed_ms", 0.12)?;
        share("axis fraction", fraction)?;
        not_negative("axis miss_mb", miss_mb)?;
        positive("axis cpu_gb_s", cpu_gb_s)?;
        positive("axis link_gb_s", link_gb_s)?;
        not_negative("axis resident_ms", resident)?;
        not_negative("axis missed_ms", missed)?;
        // MB over GB/s is ms.
        let gpu = resident.max(fraction * miss_mb / link_gb_s) + fraction * missed;
        let cpu = (1.0 - fraction) * miss_mb / cpu_gb_s;
        let figures = [gpu, cpu, gpu.max(cpu), gpu + cpu];
        Ok(vec![Row::of(values.labels(), METRICS, &figures)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::AxisValue;

    fn at(fraction: f64) -> Vec<f64> {
        let values = [("fraction".to_owned(), AxisValue::Float(fraction))].into();
        let rows = SplitModel.evaluate(&Point { values, seed: 0 }).unwrap();
        rows[0].metrics.iter().map(|m| m.1).collect()
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "found {found}, expected {expected}");
    }

    #[test]
    fn the_published_figures_come_out() {
        let best = (0..=100).map(|i| f64::from(i) / 100.0).min_by(|a, b| at(*a)[2].total_cmp(&at(*b)[2]));
        assert_eq!(best, Some(0.36));
        near(at(0.36)[0], 0.7632);
        near(at(0.36)[1], 0.768);
        near(at(0.36)[2], 0.768);
        near(at(0.0)[2], 1.2);
        near(at(1.0)[2], 2.12);
        near(at(0.0)[3], 1.4);
    }

    #[test]
    fn an_unknown_axis_and_a_link_without_speed_are_refused() {
        let refused = |name: &str, value: AxisValue| {
            let values = [(name.to_owned(), value)].into();
            SplitModel.evaluate(&Point { values, seed: 0 }).unwrap_err().to_string()
        };
        assert!(refused("fractoin", AxisValue::Float(0.1)).contains("fractoin, expected one of fraction, miss_mb"));
        assert!(
            refused("link_gb_s", AxisValue::Int(0)).contains("axis link_gb_s: found 0, expected a finite number above")
        );
        assert!(
            refused("fraction", AxisValue::Float(1.5)).contains("axis fraction: found 1.5, expected a number from 0")
        );
        assert!(refused("fraction", AxisValue::Text("half".into())).contains("found half, expected a finite number"));
    }
}
