//! Text for people: aligned tables, sizes, and a stdout that may be closed.

use anyhow::{Context, Result};
use std::io::Write;

/// Writes to stdout and ends the text with a line break. A closed pipe is an error that [`crate::exit`] keeps quiet about.
pub(crate) fn emit(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    out.write_all(text.as_bytes())
        .and_then(|()| out.write_all(end.as_bytes()))
        .and_then(|()| out.flush())
        .context("cannot write to stdout")
}

/// A line to stderr. Nothing can be done when that is closed.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// `value` in steps of 1000 with three or four digits: `17.86 M`, `999`, `1000`.
fn scaled(value: f64, units: &[&str]) -> String {
    let (mut value, mut step) = (value, 0);
    // 999.95 would be written as 1000.0.
    while value >= 999.95 && step + 1 < units.len() {
        value /= 1000.0;
        step += 1;
    }
    let unit = units.get(step).copied().unwrap_or("");
    match step {
        0 => format!("{value:.0} {unit}"),
        _ if value < 10.0 => format!("{value:.3} {unit}"),
        _ if value < 100.0 => format!("{value:.2} {unit}"),
        _ => format!("{value:.1} {unit}"),
    }
}

/// Bytes with decimal units: 1 GB = 10^9.
pub(crate) fn bytes(n: u64) -> String {
    scaled(n as f64, &["B", "kB", "MB", "GB", "TB"])
}

/// A count of weights: k, M and B are 10^3, 10^6 and 10^9.
pub(crate) fn weights(n: u64) -> String {
    scaled(n as f64, &["", "k", "M", "B"]).trim_end().to_string()
}

/// A whole number with a comma between groups of three digits.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `1 file`, `2 files`.
pub(crate) fn count(n: usize, one: &str) -> String {
    format!("{} {one}{}", grouped(n as u64), if n == 1 { "" } else { "s" })
}

/// Lines of cells. Columns are as wide as their widest cell.
pub(crate) struct Table {
    /// For each column, whether its cells stand at the right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with one column for each letter of `columns`: `l` or `r`, the side at which cells stand.
    pub(crate) fn new(columns: &str) -> Table {
        Table { right: columns.chars().map(|c| c == 'r').collect(), rows: Vec::new() }
    }

    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as text, each line behind `indent` spaces.
    pub(crate) fn render(&self, indent: usize) -> String {
        let width = |column: usize| {
            self.rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for ((cell, &width), &right) in row.iter().zip(&widths).zip(&self.right) {
                let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
                let (before, after) = if right { (pad.as_str(), "") } else { ("", pad.as_str()) };
                line.extend([before, cell, after, "  "]);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_decimal() {
        for (n, want) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.000 kB"),
            (17_858_496, "17.86 MB"),
            (999_949_999, "999.9 MB"),
            (999_950_000, "1.000 GB"),
            (28_800_138_240, "28.80 GB"),
        ] {
            assert_eq!(bytes(n), want);
        }
        assert_eq!(weights(176_900_000_000), "176.9 B");
        assert_eq!(weights(8), "8");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(123), "123");
    }

    #[test]
    fn columns_are_aligned() {
        let mut t = Table::new("lr");
        t.row(["a", "1"]);
        t.row(["bcd", "22"]);
        assert_eq!(t.render(1), " a     1\n bcd  22\n");
    }
}
