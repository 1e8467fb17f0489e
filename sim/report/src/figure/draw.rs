//! A plot as SVG text. The chart's places come from plotters; texts are placed here, since without font files their
//! width is a guess and needs room.

use super::marks;
use super::plot::{Plot, Series};
use super::scale::{Kind, Scale};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 920;
const LEFT: i32 = 86;
const RIGHT: i32 = 18;
const PLOT_HEIGHT: i32 = 380;
/// Sizes of letters and what they need; sans-serif letters are about half as wide as high.
const TITLE: u32 = 19;
const TEXT: u32 = 15;
const LETTER: f64 = 6.6;
const LINE: i32 = 17;
const GREY: RGBColor = RGBColor(90, 90, 90);
const PALE: RGBColor = RGBColor(225, 225, 225);
const INK: RGBColor = RGBColor(25, 25, 25);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn failed<E: std::error::Error + Send + Sync>(e: DrawingAreaErrorKind<E>) -> anyhow::Error {
    anyhow!("cannot draw: {e}")
}

/// Lines of at most `width` letters, broken at spaces, or behind dashes in long words.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let fits = |line: &str, add: &str| line.chars().count() + add.chars().count() < width || line.is_empty();
        if fits(lines.last().map_or("", String::as_str), word) {
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn text(area: &Area<'_>, content: &str, at: (i32, i32), size: u32, (h, v): (HPos, VPos)) -> Result<()> {
    let style = ("sans-serif", size).into_font().color(&INK).pos(Pos::new(h, v));
    area.draw(&Text::new(content.to_owned(), at, style)).map_err(failed)
}

/// What the legend holds beside its texts.
enum Entry<'a> {
    Series(usize, &'a Series),
    Published(usize, &'a Series),
    Level(usize, &'a str),
}

impl Entry<'_> {
    fn label(&self) -> &str {
        match self {
            Entry::Series(_, s) | Entry::Published(_, s) => &s.label,
            Entry::Level(_, label) => label,
        }
    }
}

/// A row of the legend beneath the figure.
struct LegendRow<'a> {
    /// Places in the row.
    columns: usize,
    /// What stands there, with the lines of its text.
    entries: Vec<(Entry<'a>, Vec<String>)>,
}

impl LegendRow<'_> {
    fn height(&self) -> i32 {
        self.entries.iter().map(|(_, lines)| lines.len()).max().unwrap_or(1) as i32 * LINE + 5
    }
}

/// Our series in as many columns as their names allow, and below them what is not ours.
fn legend(plot: &Plot) -> Vec<LegendRow<'_>> {
    let mut ours: Vec<Entry<'_>> = Vec::new();
    // A lone series needs no name: the figure's title has it.
    if plot.series.len() > 1 || !plot.published.is_empty() || !plot.lines.is_empty() {
        ours.extend(plot.series.iter().enumerate().map(|(i, s)| Entry::Series(i, s)));
    }
    let mut theirs: Vec<Entry<'_>> =
        plot.published.iter().enumerate().map(|(i, (_, s))| Entry::Published(i, s)).collect();
    theirs.extend(plot.lines.iter().enumerate().map(|(i, (_, label))| Entry::Level(i, label)));
    [ours, theirs].into_iter().flat_map(in_columns).collect()
}

fn in_columns(entries: Vec<Entry<'_>>) -> Vec<LegendRow<'_>> {
    let longest = entries.iter().map(|e| e.label().chars().count()).max().unwrap_or(0);
    let columns = [(14, 5), (21, 4), (32, 3), (52, 2)].iter().find(|(most, _)| longest <= *most).map_or(1, |(_, n)| *n);
    let width = (f64::from(WIDTH) / columns as f64 - 60.0) / LETTER;
    let mut rows: Vec<LegendRow<'_>> = Vec::new();
    for (i, entry) in entries.into_iter().enumerate() {
        let unnamed = entry.label().is_empty();
        let lines = if unnamed { vec!["simulated".to_owned()] } else { wrapped(entry.label(), width as usize) };
        match rows.last_mut() {
            Some(row) if i % columns != 0 => row.entries.push((entry, lines)),
            _ => rows.push(LegendRow { columns, entries: vec![(entry, lines)] }),
        }
    }
    rows
}

/// The figure as SVG; the same plot gives the same bytes.
pub(super) fn svg(plot: &Plot) -> Result<String> {
    let title = wrapped(&plot.title, 92);
    let legend = legend(plot);
    let words: Vec<Vec<String>> = tick_words(&plot.x);
    let below = words.iter().map(Vec::len).max().unwrap_or(1) as i32 * LINE + 40;
    let top = 14 + title.len() as i32 * 24;
    let height = top + PLOT_HEIGHT + below + legend.iter().map(LegendRow::height).sum::<i32>() + 12;
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, (WIDTH, height as u32)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        for (i, line) in title.iter().enumerate() {
            text(&root, line, (LEFT, 14 + i as i32 * 24), TITLE, (HPos::Left, VPos::Top))?;
        }
        let frame = root.clone().shrink((LEFT, top), (WIDTH as i32 - LEFT - RIGHT, PLOT_HEIGHT));
        let mut chart = ChartBuilder::on(&frame)
            .build_cartesian_2d(plot.x.range.0..plot.x.range.1, plot.y.range.0..plot.y.range.1)
            .map_err(failed)?;
        axes(&root, &chart, plot, &words)?;
        if plot.bars {
            // Bars would hide what lies behind them.
            marks::bars(&root, &mut chart, plot).map_err(failed)?;
            levels(&mut chart, plot)?;
        } else {
            levels(&mut chart, plot)?;
            marks::lines(&root, &mut chart, plot).map_err(failed)?;
        }
        marks::published(&root, &mut chart, plot).map_err(failed)?;
        draw_legend(&root, &legend, plot, top + PLOT_HEIGHT + below)?;
        root.present().map_err(failed)?;
    }
    // One element a line keeps the differences between two versions short.
    if !out.ends_with('\n') {
        out.push('\n');
    }
    Ok(out)
}

/// The texts below the bottom axis, in lines; those that would run into their left neighbour are left out.
fn tick_words(x: &Scale) -> Vec<Vec<String>> {
    let wide = f64::from(WIDTH as i32 - LEFT - RIGHT);
    let each = wide / x.ticks.len().max(1) as f64;
    if matches!(x.kind, Kind::Words(_)) {
        return x
            .ticks
            .iter()
            .map(|(_, t)| wrapped(&t.replace('-', "- ").replace('_', "_ "), (each / LETTER) as usize))
            .map(joined)
            .collect();
    }
    let mut end = f64::NEG_INFINITY;
    let mut kept = Vec::new();
    for (place, word) in &x.ticks {
        let middle = (place - x.range.0) / (x.range.1 - x.range.0) * wide;
        let half = word.chars().count() as f64 * LETTER / 2.0 + 4.0;
        if middle - half >= end {
            kept.push(vec![word.clone()]);
            end = middle + half;
        } else {
            kept.push(vec![String::new()]);
        }
    }
    kept
}

/// Lines without the spaces that were put in behind dashes for breaking.
fn joined(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().map(|l| l.replace("- ", "-").replace("_ ", "_")).collect()
}

fn axes(root: &Area<'_>, chart: &Chart<'_, '_>, plot: &Plot, words: &[Vec<String>]) -> Result<()> {
    let area = chart.plotting_area();
    let (low_x, high_x) = plot.x.range;
    let (low_y, high_y) = plot.y.range;
    let (left, bottom) = area.map_coordinate(&(low_x, low_y));
    let (right, top) = area.map_coordinate(&(high_x, high_y));
    let line = |from: (i32, i32), to: (i32, i32), color: RGBColor| {
        root.draw(&PathElement::new(vec![from, to], color.stroke_width(1))).map_err(failed)
    };
    for (place, word) in &plot.y.ticks {
        let y = area.map_coordinate(&(low_x, *place)).1;
        line((left, y), (right, y), PALE)?;
        text(root, word, (left - 8, y), TEXT, (HPos::Right, VPos::Center))?;
    }
    for ((place, _), lines) in plot.x.ticks.iter().zip(words) {
        let x = area.map_coordinate(&(*place, low_y)).0;
        if !matches!(plot.x.kind, Kind::Words(_)) {
            line((x, bottom), (x, bottom + 5), GREY)?;
            if lines.iter().any(|l| !l.is_empty()) {
                line((x, top), (x, bottom), PALE)?;
            }
        }
        for (i, word) in lines.iter().enumerate() {
            text(root, word, (x, bottom + 8 + i as i32 * LINE), TEXT, (HPos::Center, VPos::Top))?;
        }
    }
    line((left, bottom), (right, bottom), GREY)?;
    line((left, top), (left, bottom), GREY)?;
    let deepest = words.iter().map(Vec::len).max().unwrap_or(1) as i32;
    text(root, &plot.x_label, ((left + right) / 2, bottom + 12 + deepest * LINE), TEXT, (HPos::Center, VPos::Top))?;
    let up = ("sans-serif", TEXT).into_font().transform(FontTransform::Rotate270).color(&INK);
    let up = up.pos(Pos::new(HPos::Center, VPos::Top));
    root.draw(&Text::new(plot.y_label.clone(), (12, (top + bottom) / 2), up)).map_err(failed)
}

fn levels(chart: &mut Chart<'_, '_>, plot: &Plot) -> Result<()> {
    for (i, (height, _)) in plot.lines.iter().enumerate() {
        let y = plot.y.place(*height);
        let ends = [(plot.x.range.0, y), (plot.x.range.1, y)];
        let style = marks::level_color(i).stroke_width(2);
        chart.draw_series(DashedLineSeries::new(ends, 7, 5, style)).map_err(failed)?;
    }
    Ok(())
}

fn draw_legend(root: &Area<'_>, legend: &[LegendRow<'_>], plot: &Plot, top: i32) -> Result<()> {
    let mut y = top;
    for row in legend {
        for (i, (entry, lines)) in row.entries.iter().enumerate() {
            let x = 20 + i as i32 * (WIDTH as i32 - 20) / row.columns as i32;
            let at = (x + 14, y + 8);
            match entry {
                Entry::Series(n, _) if plot.bars => marks::bar_sample(root, at, *n),
                Entry::Series(n, series) => marks::sample(root, at, *n, series),
                Entry::Published(n, _) => marks::published_sample(root, at, *n, plot),
                Entry::Level(n, _) => marks::level_sample(root, at, *n),
            }
            .map_err(failed)?;
            for (k, line) in lines.iter().enumerate() {
                text(root, line, (x + 36, y + 8 + k as i32 * LINE), TEXT, (HPos::Left, VPos::Center))?;
            }
        }
        y += row.height();
    }
    Ok(())
}
