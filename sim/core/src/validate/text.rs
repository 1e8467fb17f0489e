//! Fits and validations as text.

use super::Report;
use crate::fit::{Fitted, Residual, Term};
use crate::replay::Interval;
use std::fmt::Write;

/// Constants and residuals of a fit as Markdown: each constant, then each term, then each window.
pub fn fit_markdown(fitted: &Fitted) -> String {
    let mut text = String::from("| constant | value | bounds |\n|---|---|---|\n");
    for (p, value) in fitted.parameters.iter().zip(&fitted.values) {
        let bound = |b: f64| (value - b).abs() <= 1e-6 * (p.high - p.low);
        let note = if bound(p.low) || bound(p.high) { ", at a bound" } else { "" };
        let _ = writeln!(text, "| {} | {value:.4} {} | {} to {}{note} |", p.name, p.unit, p.low, p.high);
    }
    text.push_str("\n| term | windows | mean error | mean size | worst |\n|---|---|---|---|---|\n");
    for term in Term::ALL {
        let errors: Vec<(f64, &Residual)> =
            fitted.residuals.iter().filter(|r| r.term == term).map(|r| (r.predicted / r.measured - 1.0, r)).collect();
        let Some(worst) = errors.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs())) else { continue };
        let n = errors.len() as f64;
        let mean = errors.iter().map(|e| e.0).sum::<f64>() / n * 100.0;
        let size = errors.iter().map(|e| e.0.abs()).sum::<f64>() / n * 100.0;
        let (at, of) = (worst.0 * 100.0, worst.1);
        let (name, machine, row) = (term.name(), &of.machine, &of.row);
        let _ = writeln!(text, "| {name} | {n} | {mean:+.1} % | {size:.1} % | {at:+.1} % ({machine} {row}) |");
    }
    text.push('\n');
    text.push_str(&residuals_markdown(fitted.residuals.iter()));
    text
}

/// A validation as Markdown: each figure's quality, then each held-out window.
pub fn report_markdown(report: &Report) -> String {
    let plan = &report.plan;
    let mut text = format!(
        "{}\n\n{} windows; held out together: {:?}; fitted to the others: {}.\n\n",
        plan.question,
        report.windows,
        plan.group,
        plan.parameters.join(", ")
    );
    text.push_str("| figure | pairs | groups | mean error | 95 % below | Kendall's tau | regret |\n|---|---|---|---|---|---|---|\n");
    for q in &report.quality {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            q.metric,
            q.pairs,
            q.blocks,
            percent(q.mape),
            percent(q.p95),
            plain(q.tau),
            percent(q.regret)
        );
    }
    text.push('\n');
    text.push_str(&residuals_markdown(report.held_out.iter().flat_map(|(_, left)| left)));
    text
}

/// Held-out predictions as CSV.
pub fn report_csv(report: &Report) -> String {
    let mut text = String::from("group,row,machine,term,predicted_ms,measured_ms,error_pct\n");
    for (group, left) in &report.held_out {
        for r in left {
            let error = (r.predicted / r.measured - 1.0) * 100.0;
            let (row, machine, term) = (&r.row, &r.machine, r.term.name());
            let _ = writeln!(text, "{group},{row},{machine},{term},{:.4},{:.4},{error:.2}", r.predicted, r.measured);
        }
    }
    text
}

fn residuals_markdown<'a>(residuals: impl Iterator<Item = &'a Residual>) -> String {
    let mut text =
        String::from("| machine | row | figure | predicted ms | measured ms | error |\n|---|---|---|---|---|---|\n");
    for r in residuals {
        let error = (r.predicted / r.measured - 1.0) * 100.0;
        let (machine, row, term) = (&r.machine, &r.row, r.term.name());
        let _ =
            writeln!(text, "| {machine} | {row} | {term} | {:.2} | {:.2} | {error:+.1} % |", r.predicted, r.measured);
    }
    text
}

fn percent(i: Interval) -> String {
    format!("{:.1} % [{:.1}, {:.1}]", i.value * 100.0, i.low * 100.0, i.high * 100.0)
}

fn plain(i: Interval) -> String {
    if i.value.is_nan() { "none".to_owned() } else { format!("{:.2} [{:.2}, {:.2}]", i.value, i.low, i.high) }
}
