//! `strata bench ab`: whether B is faster than A.
//!
//! Whoever measures A for a minute and then B for a minute measures how busy the machine was in each of them. Here A and
//! B take turns, in rounds that begin with A and with B alternately (ABBA), so that a slow drift weighs on both alike,
//! and what is looked at is the ratio within each round. Every run is a process of its own: nothing one leaves behind
//! helps the other, and two builds can be compared.

mod child;
mod side;

use super::report::{Measured, Series, Started, interval};
use super::stats::{self, Summary};
use super::values;
use crate::output::Table;
use crate::{interrupt, load};
use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use serde_json::{Value, json};
use side::Side;

/// Rounds, at most.
const MOST_ROUNDS: usize = 10_000;

/// What is compared in one row of the table.
struct Row {
    label: String,
    a: Vec<f64>,
    b: Vec<f64>,
}

/// Runs the rounds and prints a line for each.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let text = |id: &str| matches.get_one::<String>(id).map_or("", String::as_str);
    let sides = [Side::parse("A", text("A"))?, Side::parse("B", text("B"))?];
    if sides[0].kind != sides[1].kind {
        let [a, b] = [&sides[0], &sides[1]].map(|side| side.kind.name());
        return Err(strata_config::ConfigError::value("B", b, format!("{a}, as A is")).into());
    }
    let rounds = values::number(matches, "rounds", 1..=MOST_ROUNDS)?;
    sides.iter().try_for_each(Side::check)?;
    let mut started = Started::begin("ab", matches)?;
    let cancel = interrupt::handler()?;
    if rounds < stats::LEAST {
        started.note(format!("fewer than {} rounds cannot tell whether there is a difference", stats::LEAST));
    }
    sides.iter().try_for_each(|side| started.say(&format!("{}: {}", side.name, side.text)))?;

    let mut rows: Vec<Row> = Vec::new();
    let mut runs = Vec::new();
    // Otherwise the lines show how far it is.
    let bar = load::bar("comparing", "rounds", !started.json);
    bar.set_length(rounds as u64);
    for round in 0..rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut documents = [Value::Null, Value::Null];
        for which in order {
            documents[which] = child::run(&sides[which], round, cancel)?;
        }
        add(&mut rows, &documents)?;
        bar.inc(1);
        started.say(&line(round, &rows))?;
        runs.push(json!({
            "round": round + 1,
            "first": sides[order[0]].name,
            "a": kept(&documents[0], round),
            "b": kept(&documents[1], round),
        }));
    }
    bar.finish_and_clear();

    let mut table = Table::new("lrrrrl");
    table.row(["", "A tokens/s", "B tokens/s", "B/A", "95 % interval", ""]);
    let mut results = Vec::new();
    let mut csv = "label,round,a_tokens_per_second,b_tokens_per_second,ratio\n".to_owned();
    for row in &rows {
        let ratios: Vec<f64> = row.a.iter().zip(&row.b).map(|(a, b)| b / a).collect();
        let a = Series::new("A", "tokens/s", row.a.clone())?;
        let b = Series::new("B", "tokens/s", row.b.clone())?;
        let ratio = Series::new(row.label.clone(), "B/A", ratios)?;
        table.row([
            row.label.clone(),
            format!("{:.1}", a.summary.median),
            format!("{:.1}", b.summary.median),
            format!("{:.3}", ratio.summary.median),
            interval(&ratio.summary, 3),
            verdict(&ratio.summary).to_owned(),
        ]);
        let line = |(i, r): (usize, &f64)| format!("{},{},{},{},{r}\n", row.label, i + 1, row.a[i], row.b[i]);
        csv.extend(ratio.samples.iter().enumerate().map(line));
        results.push(ratio.with(json!({ "a": a, "b": b, "verdict": verdict(&ratio.summary) }))?);
    }
    started.say(&format!("\n{}", table.render(0)))?;
    let settings = json!({ "a": sides[0], "b": sides[1], "rounds": rounds, "order": "ABBA" });
    let more = json!({ "interval": "95 %, percentile bootstrap of the median of the rounds' ratios", "runs": runs });
    started.finish(Measured { settings, model: Value::Null, results, more, csv })
}

/// What the interval of the ratio says.
fn verdict(ratio: &Summary) -> &'static str {
    match ratio.interval {
        None => "too few rounds to tell",
        Some([low, _]) if low > 1.0 => "B is faster",
        Some([_, high]) if high < 1.0 => "A is faster",
        Some(_) => "no difference",
    }
}

/// Takes the figures of a round, one for each result of its two documents.
fn add(rows: &mut Vec<Row>, documents: &[Value; 2]) -> Result<()> {
    let [a, b] = [figures(&documents[0], "A")?, figures(&documents[1], "B")?];
    if a.len() != b.len() {
        bail!("A has {} results and B {}, and as many are expected: the same --prompt-tokens", a.len(), b.len());
    }
    for (i, ((label, a), (other, b))) in a.into_iter().zip(b).enumerate() {
        if rows.len() <= i {
            let label = if label == other { label } else { format!("A {label}, B {other}") };
            rows.push(Row { label, a: Vec::new(), b: Vec::new() });
        }
        if let Some(row) = rows.get_mut(i) {
            row.a.push(a);
            row.b.push(b);
        }
    }
    Ok(())
}

/// Each result's label and median.
fn figures(document: &Value, side: &str) -> Result<Vec<(String, f64)>> {
    let figure = |result: &Value| {
        let median = result["median"].as_f64().filter(|m| *m > 0.0)?;
        Some((result["label"].as_str()?.to_owned(), median))
    };
    let results = document["results"].as_array().filter(|r| !r.is_empty());
    let figures = results.and_then(|results| results.iter().map(figure).collect());
    figures.with_context(|| format!("{side} printed a document without figures; is it a strata of another version?"))
}

/// What is kept of a run's document: everything of the first round, and of others what may differ.
fn kept(document: &Value, round: usize) -> Value {
    if round == 0 {
        return document.clone();
    }
    json!({ "before": document["before"], "memory": document["memory"], "results": document["results"] })
}

/// A round, for people.
fn line(round: usize, rows: &[Row]) -> String {
    let figure = |row: &Row| Some((*row.a.last()?, *row.b.last()?));
    let figures: Vec<String> =
        rows.iter().filter_map(figure).map(|(a, b)| format!("A {a:.1}, B {b:.1} tokens/s, B/A {:.3}", b / a)).collect();
    format!("{:>3}: {}", round + 1, figures.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(values: &[(&str, f64)]) -> Value {
        let result = |(label, median): &(&str, f64)| json!({ "label": label, "median": median });
        json!({ "results": values.iter().map(result).collect::<Vec<_>>() })
    }

    #[test]
    fn rounds_are_paired_by_result() {
        let mut rows = Vec::new();
        let a = document(&[("prefill 8", 10.0), ("prefill 16", 20.0)]);
        let b = document(&[("prefill 8", 20.0), ("prefill 16", 10.0)]);
        add(&mut rows, &[a.clone(), b.clone()]).unwrap();
        add(&mut rows, &[b, a]).unwrap();
        assert_eq!(
            (rows[0].label.as_str(), &rows[0].a, &rows[1].a),
            ("prefill 8", &vec![10.0, 20.0], &vec![20.0, 10.0])
        );
        assert_eq!(line(1, &rows[..1]), "  2: A 20.0, B 10.0 tokens/s, B/A 0.500");
    }

    #[test]
    fn documents_that_do_not_fit_are_refused() {
        let one = document(&[("x", 1.0)]);
        let two = document(&[("x", 1.0), ("y", 2.0)]);
        assert!(add(&mut Vec::new(), &[one.clone(), two]).unwrap_err().to_string().contains("--prompt-tokens"));
        for bad in [json!({}), json!(null), document(&[]), document(&[("x", 0.0)])] {
            assert!(add(&mut Vec::new(), &[one.clone(), bad]).is_err());
        }
        let mut rows = Vec::new();
        add(&mut rows, &[one, document(&[("z", 2.0)])]).unwrap();
        assert_eq!(rows[0].label, "A x, B z");
    }

    #[test]
    fn an_interval_with_one_in_it_is_no_difference() {
        let verdict = |interval| verdict(&Summary { median: 1.0, interval });
        assert_eq!(verdict(Some([0.9, 1.1])), "no difference");
        assert_eq!(verdict(Some([1.0, 1.1])), "no difference");
        assert_eq!(verdict(Some([1.01, 1.1])), "B is faster");
        assert_eq!(verdict(Some([0.8, 0.99])), "A is faster");
        assert_eq!(verdict(None), "too few rounds to tell");
    }
}
