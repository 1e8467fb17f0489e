//! Marks: how a series looks. Colour and shape both tell series apart, for print and for eyes that see fewer colours
//! (palette: Okabe and Ito 2008, without its yellow, which is too pale on white).

use super::plot::{Plot, Series};
use super::scale::Kind;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(30, 30, 30),
    RGBColor(140, 140, 140),
];
const PUBLISHED: [RGBColor; 3] = [RGBColor(20, 20, 20), RGBColor(120, 0, 80), RGBColor(0, 80, 60)];
/// Marks on a line; with more of them they run into each other and the line says it.
const MOST_MARKS: usize = 60;
const SIZE: i32 = 5;

fn color(series: usize) -> RGBColor {
    COLORS[series % COLORS.len()]
}

pub(super) fn level_color(level: usize) -> RGBColor {
    PUBLISHED[level % PUBLISHED.len()]
}

/// The outline of a series' mark around a pixel: circle (none), square, triangle, diamond or cross by turns.
fn outline(series: usize, (x, y): (i32, i32)) -> Option<Vec<(i32, i32)>> {
    let s = SIZE;
    match series % 5 {
        1 => Some(vec![(x - s + 1, y - s + 1), (x + s - 1, y - s + 1), (x + s - 1, y + s - 1), (x - s + 1, y + s - 1)]),
        2 => Some(vec![(x, y - s), (x + s, y + s - 1), (x - s, y + s - 1)]),
        3 => Some(vec![(x, y - s - 1), (x + s + 1, y), (x, y + s + 1), (x - s - 1, y)]),
        4 => Some(vec![(x - s, y - s), (x + s, y - s), (x, y + s)]),
        _ => None,
    }
}

fn mark<'a>(root: &Area<'a>, series: usize, at: (i32, i32)) -> Drawn<'a> {
    match outline(series, at) {
        Some(points) => root.draw(&Polygon::new(points, color(series).filled())),
        None => root.draw(&Circle::new(at, SIZE, color(series).filled())),
    }
}

/// An interval, where the estimate has one.
fn whisker<'b>(
    on: (&Area<'b>, &Chart<'_, 'b>),
    plot: &Plot,
    x: f64,
    (low, high): (f64, f64),
    color: RGBColor,
) -> Drawn<'b> {
    let (root, chart) = on;
    let area = chart.plotting_area();
    let from = area.map_coordinate(&(x, plot.y.place(low)));
    let to = area.map_coordinate(&(x, plot.y.place(high)));
    let line = |ends: [(i32, i32); 2]| root.draw(&PathElement::new(ends.to_vec(), color.stroke_width(1)));
    line([from, to])?;
    line([(from.0 - 4, from.1), (from.0 + 4, from.1)])?;
    line([(to.0 - 4, to.1), (to.0 + 4, to.1)])
}

/// Lines with their marks; `root` is the whole figure, whose pixels marks are drawn in.
pub(super) fn lines<'b>(root: &Area<'b>, chart: &mut Chart<'_, 'b>, plot: &Plot) -> Drawn<'b> {
    for (i, series) in plot.series.iter().enumerate() {
        let points: Vec<(f64, f64)> =
            series.points.iter().map(|(x, y)| (plot.x.place(*x), plot.y.place(y.value))).collect();
        chart.draw_series(LineSeries::new(points.clone(), color(i).stroke_width(2)))?;
        for (x, y) in series.points.iter().filter(|(_, y)| y.is_wide()) {
            whisker((root, chart), plot, plot.x.place(*x), (y.low, y.high), color(i))?;
        }
        if points.len() <= MOST_MARKS {
            for point in points {
                mark(root, i, chart.plotting_area().map_coordinate(&point))?;
            }
        }
    }
    Ok(())
}

/// Bars side by side at each place.
pub(super) fn bars<'b>(root: &Area<'b>, chart: &mut Chart<'_, 'b>, plot: &Plot) -> Drawn<'b> {
    let count = plot.series.len().max(1) as f64;
    let width = 0.8 / count;
    let (low, high) = plot.y.range;
    let floor = if plot.y.kind == Kind::Log { low } else { 0f64.clamp(low, high) };
    for (i, series) in plot.series.iter().enumerate() {
        for (x, y) in &series.points {
            let left = x - 0.4 + i as f64 * width;
            let ends = [(left + width * 0.04, floor), (left + width * 0.96, plot.y.place(y.value))];
            chart.draw_series([Rectangle::new(ends, color(i).filled())])?;
            if y.is_wide() {
                whisker((root, chart), plot, left + width / 2.0, (y.low, y.high), RGBColor(30, 30, 30))?;
            }
        }
    }
    Ok(())
}

/// Rings where others published a point: over the bar of their series, or in the colour of its line.
pub(super) fn published<'b>(root: &Area<'b>, chart: &mut Chart<'_, 'b>, plot: &Plot) -> Drawn<'b> {
    let width = 0.8 / plot.series.len().max(1) as f64;
    for (i, (owner, series)) in plot.published.iter().enumerate() {
        let aside = owner.filter(|_| plot.bars).map_or(0.0, |o| -0.4 + (o as f64 + 0.5) * width);
        for (x, y) in &series.points {
            let at = chart.plotting_area().map_coordinate(&(plot.x.place(*x) + aside, plot.y.place(y.value)));
            ring(root, at, i, ring_color(plot, i))?;
        }
    }
    Ok(())
}

fn ring_color(plot: &Plot, published: usize) -> RGBColor {
    let owner = plot.published.get(published).and_then(|(owner, _)| *owner);
    owner.filter(|_| !plot.bars).map_or(level_color(published), color)
}

fn ring<'a>(root: &Area<'a>, at: (i32, i32), published: usize, color: RGBColor) -> Drawn<'a> {
    let style = color.stroke_width(2);
    if published.is_multiple_of(2) {
        return root.draw(&Circle::new(at, SIZE + 2, style));
    }
    let (x, y) = at;
    let s = SIZE + 2;
    let path = vec![(x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s), (x - s, y - s)];
    root.draw(&PathElement::new(path, style))
}

pub(super) fn sample<'a>(root: &Area<'a>, at: (i32, i32), number: usize, series: &Series) -> Drawn<'a> {
    let (x, y) = at;
    root.draw(&PathElement::new(vec![(x - 13, y), (x + 13, y)], color(number).stroke_width(2)))?;
    if series.points.len() <= MOST_MARKS { mark(root, number, at) } else { Ok(()) }
}

pub(super) fn bar_sample<'a>(root: &Area<'a>, (x, y): (i32, i32), series: usize) -> Drawn<'a> {
    root.draw(&Rectangle::new([(x - 7, y - 7), (x + 7, y + 7)], color(series).filled()))
}

pub(super) fn published_sample<'a>(root: &Area<'a>, at: (i32, i32), published: usize, plot: &Plot) -> Drawn<'a> {
    ring(root, at, published, ring_color(plot, published))
}

pub(super) fn level_sample<'a>(root: &Area<'a>, (x, y): (i32, i32), level: usize) -> Drawn<'a> {
    let style = level_color(level).stroke_width(2);
    root.draw(&PathElement::new(vec![(x - 13, y), (x - 3, y)], style))?;
    root.draw(&PathElement::new(vec![(x + 3, y), (x + 13, y)], style))
}
