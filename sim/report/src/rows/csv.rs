//! Rows as comma-separated values: RFC 4180 with line feeds, numbers with as many digits as bring them back exactly.

use super::Rows;
use std::fmt::Write;
use strata_sim::study::AxisValue;

impl Rows {
    /// The rows as text. A figure that is not there leaves its cell empty.
    pub fn csv(&self) -> String {
        let mut out = String::new();
        let names: Vec<String> = self.columns().into_iter().map(quoted).collect();
        out.push_str(&names.join(","));
        out.push('\n');
        for line in &self.lines {
            let mut cells: Vec<String> = line.key.iter().map(cell).collect();
            if self.drawn && !self.aggregated {
                cells.push(line.draw.seed.to_string());
                cells.push(line.draw.repetition.to_string());
            }
            cells.extend(line.figures.iter().map(|v| v.map_or_else(String::new, |v| v.to_string())));
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{}", cells.join(","));
        }
        out
    }
}

fn cell(value: &Option<AxisValue>) -> String {
    value.as_ref().map_or_else(String::new, |v| quoted(&v.to_string()))
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
