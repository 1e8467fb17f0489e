//! What an experiment says must fit together and fit its study: every name is looked up before anything runs.

use super::axes::{self, Group, combinations, same};
use super::schema::{Axis, Check, Choice, Figure, File, Given, Promote, Reduce, Select, Table};
use super::{Draw, Experiment, Finder, listed};
use std::collections::HashSet;
use strata_sim::study::{AxisValue, Described, Study};
use toml::Spanned;

/// A place in the text, where known, and what is wrong there.
type Wrong = (Option<usize>, String);

/// More points than a sweep of this simulator is meant for.
const MOST_POINTS: usize = 10_000_000;

/// Columns that the laboratory adds itself.
const RESERVED: [&str; 3] = ["seed", "repetition", "draws"];

pub(super) fn experiment(name: &str, file: &str, raw: File, find: Finder) -> Result<Experiment, Wrong> {
    let blank = |text: &str, field: &str| match text.trim() {
        "" => Err((None, format!("{field} is empty, expected a sentence"))),
        text => Ok(text.to_owned()),
    };
    let at = raw.study.span().start;
    let study = find(raw.study.get_ref()).ok_or_else(|| (Some(at), no_study(raw.study.get_ref())))?;
    let groups = groups(&raw, study)?;
    let names: Vec<String> = groups.iter().flat_map(|g| g.names.iter().cloned()).collect();
    let experiment = Experiment {
        name: name.into(),
        file: file.into(),
        title: blank(&raw.title, "title")?,
        hypothesis: blank(&raw.hypothesis, "hypothesis")?,
        gate: blank(&raw.gate, "gate")?,
        study,
        quick: raw.quick,
        inputs: inputs(&raw, study)?,
        axes: names,
        draws: draws(&raw, &groups)?,
        baseline: raw.baseline.as_ref().map(|b| b.get_ref().clone()),
        tables: raw.tables.iter().map(|t| t.get_ref().clone()).collect(),
        figures: raw.figures.iter().map(|f| f.get_ref().clone()).collect(),
        checks: raw.checks.iter().map(|c| c.get_ref().clone()).collect(),
        promote: raw.promote.as_ref().map(|p| p.get_ref().clone()),
        groups,
    };
    let names = Names { experiment: &experiment };
    for check in &raw.checks {
        names.check(check.get_ref()).map_err(|e| (Some(check.span().start), e))?;
    }
    if !experiment.checks.iter().any(Check::decides) {
        let reason =
            "found no check that decides, expected at least one in [[checks]] that is neither fitted nor gate = false";
        return Err((None, reason.into()));
    }
    for (i, figure) in raw.figures.iter().enumerate() {
        let twice = experiment.figures[..i].iter().any(|f| f.file == figure.get_ref().file);
        let found = if twice {
            Err("its file has the name of another figure's".into())
        } else {
            names.figure(figure.get_ref())
        };
        found.map_err(|e| (Some(figure.span().start), e))?;
    }
    for table in &raw.tables {
        names.table(table.get_ref()).map_err(|e| (Some(table.span().start), e))?;
    }
    if let Some(baseline) = &raw.baseline {
        let found = names.select(&baseline.get_ref().select).and_then(|()| names.metric(&baseline.get_ref().metric));
        found.map_err(|e| (Some(baseline.span().start), e))?;
    }
    if let Some(promote) = &raw.promote {
        names.promote(promote.get_ref()).map_err(|e| (Some(promote.span().start), e))?;
    }
    Ok(experiment)
}

fn no_study(found: &str) -> String {
    let known: Vec<_> = strata_sim::study::STUDIES.iter().map(|s| s.name()).collect();
    format!("found study {found:?}, expected one of: {}", known.join(", "))
}

/// "expected one of", with the nearest where one is near.
fn unknown<'a>(what: &str, found: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    match strata_config::nearest(found, known.iter().copied()) {
        Some(near) => format!("found {what} {found:?}; did you mean {near:?}?"),
        None => format!("found {what} {found:?}, expected one of: {}", listed(&known)),
    }
}

fn names_of(described: &[Described]) -> impl Iterator<Item = &str> {
    described.iter().map(|d| d.name)
}

fn groups(raw: &File, study: &'static dyn Study) -> Result<Vec<Group>, Wrong> {
    // Groups stand in the order of the file, which the place of their first axis tells.
    let mut placed: Vec<(usize, Group)> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    let take = |name: &'_ Spanned<String>, axis: &Spanned<Axis>| -> Result<Vec<AxisValue>, Wrong> {
        let (at, word) = (Some(name.span().start), name.get_ref().as_str());
        if !names_of(study.axes()).any(|n| n == word) {
            return Err((at, unknown("axis", word, names_of(study.axes()))));
        }
        if names_of(study.metrics()).any(|m| m == word) {
            return Err((
                at,
                format!(
                    "found axis {word:?}, which study {} has as a figure too: one of them needs another name",
                    study.name()
                ),
            ));
        }
        if RESERVED.contains(&word) {
            return Err((at, format!("found axis {word:?}, a name that the laboratory keeps for itself")));
        }
        let values = axes::values(axis.get_ref()).map_err(|e| (at, format!("{word}: {e}")))?;
        if let Some(knob) = strata_config::find(word) {
            for value in &values {
                knob.parse(&value.to_string()).map_err(|e| (at, e.to_string()))?;
            }
        }
        Ok(values)
    };
    for (name, axis) in &raw.axes {
        let values = take(name, axis)?;
        seen.push(name.get_ref());
        placed.push((name.span().start, Group { names: vec![name.get_ref().clone()], values: vec![values] }));
    }
    for zip in &raw.zip {
        let mut axes: Vec<_> = zip.iter().collect();
        axes.sort_by_key(|(name, _)| name.span().start);
        let mut group = Group { names: Vec::new(), values: Vec::new() };
        for (name, axis) in &axes {
            let at = Some(name.span().start);
            if seen.contains(&name.get_ref().as_str()) {
                return Err((at, format!("found axis {:?} again, expected each axis once", name.get_ref())));
            }
            // Zipped axes may say a value again: the combination is what must differ.
            let values = match axis.get_ref() {
                Axis::List(list) if !list.is_empty() => {
                    take(name, &Spanned::new(axis.span(), Axis::List(axes::once(list))))?;
                    list.clone()
                }
                _ => take(name, axis)?,
            };
            if !group.values.is_empty() && values.len() != group.len() {
                let (found, want) = (values.len(), group.len());
                return Err((
                    at,
                    format!(
                        "found {found} values for {:?}, expected {want} as for {:?}",
                        name.get_ref(),
                        group.names[0]
                    ),
                ));
            }
            group.names.push(name.get_ref().clone());
            group.values.push(values);
        }
        for (name, _) in &axes {
            seen.push(name.get_ref());
        }
        if let Some((first, _)) = axes.first() {
            placed.push((first.span().start, group));
        }
    }
    placed.sort_by_key(|(at, _)| *at);
    Ok(placed.into_iter().map(|(_, group)| group).collect())
}

/// The draws, once it is known that they and the axes do not give too many points.
fn draws(raw: &File, groups: &[Group]) -> Result<Vec<Draw>, Wrong> {
    let seeds: &[u64] = raw.seeds.as_ref().map_or(&[1], |s| s.get_ref());
    if let Some(given) = &raw.seeds {
        let at = Some(given.span().start);
        if seeds.is_empty() {
            return Err((at, "found no seed, expected at least one".into()));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = seeds.iter().find(|seed| !seen.insert(**seed)) {
            return Err((at, format!("found seed {twice} twice, expected each seed once")));
        }
    }
    let repetitions = raw.repetitions.as_ref().map_or(1, |r| *r.get_ref());
    if repetitions == 0 {
        let at = raw.repetitions.as_ref().map(|r| r.span().start);
        return Err((at, "found 0 repetitions, expected at least 1".into()));
    }
    let draws = seeds.len().checked_mul(repetitions as usize);
    match combinations(groups).and_then(|n| n.checked_mul(draws?)) {
        Some(n) if n <= MOST_POINTS => {}
        _ => {
            let reason = format!("axes, seeds and repetitions give more than {MOST_POINTS} points, expected fewer");
            return Err((None, reason));
        }
    }
    Ok(seeds.iter().flat_map(|&seed| (0..repetitions).map(move |repetition| Draw { seed, repetition })).collect())
}

fn inputs(raw: &File, study: &dyn Study) -> Result<std::collections::BTreeMap<String, String>, Wrong> {
    for (name, path) in &raw.inputs {
        let at = Some(name.span().start);
        if !study.inputs().iter().any(|(n, _)| n == name.get_ref()) {
            return Err((at, unknown("input", name.get_ref(), study.inputs().iter().map(|(n, _)| *n))));
        }
        let outside = path.is_empty()
            || std::path::Path::new(path).components().any(|c| !matches!(c, std::path::Component::Normal(_)));
        if outside {
            return Err((at, format!("found path {path:?}, expected one below the project's root")));
        }
    }
    let missing: Vec<_> = study
        .inputs()
        .iter()
        .filter(|(name, needed)| *needed && !raw.inputs.keys().any(|k| k.get_ref() == name))
        .map(|(name, _)| *name)
        .collect();
    if !missing.is_empty() {
        return Err((None, format!("study {} needs inputs that are not named: {}", study.name(), missing.join(", "))));
    }
    Ok(raw.inputs.iter().map(|(k, v)| (k.get_ref().clone(), v.clone())).collect())
}

impl Check {
    /// Whether the verdict rests on it.
    pub fn decides(&self) -> bool {
        self.gate.unwrap_or(!self.fitted)
    }
}

/// Refuses what compares with no number, or with all alike.
fn finite(field: &str, number: Option<f64>) -> Result<(), String> {
    match number {
        Some(n) if !n.is_finite() => Err(format!("found {field} = {n}, expected a finite number")),
        _ => Ok(()),
    }
}

/// Looks names up.
struct Names<'a> {
    experiment: &'a Experiment,
}

impl Names<'_> {
    fn keys(&self) -> impl Iterator<Item = &str> {
        self.experiment.axes.iter().map(String::as_str).chain(names_of(self.experiment.study.labels()))
    }

    fn key(&self, name: &str) -> Result<(), String> {
        if self.keys().any(|k| k == name) { Ok(()) } else { Err(unknown("axis", name, self.keys())) }
    }

    fn metric(&self, name: &str) -> Result<(), String> {
        let mut known = names_of(self.experiment.study.metrics());
        if known.any(|m| m == name) {
            Ok(())
        } else {
            Err(unknown("figure", name, names_of(self.experiment.study.metrics())))
        }
    }

    fn either(&self, name: &str) -> Result<(), String> {
        self.key(name).or_else(|e| self.metric(name).map_err(|_| e))
    }

    fn select(&self, select: &Select) -> Result<(), String> {
        for (name, Choice(wanted)) in select {
            self.key(name)?;
            if wanted.is_empty() {
                return Err(format!("{name}: found no value, expected at least one"));
            }
            let Some(values) = self.experiment.values_of(name) else { continue };
            if let Some(value) = wanted.iter().find(|w| !values.iter().any(|v| same(v, w))) {
                let known: Vec<_> = values.iter().map(ToString::to_string).collect();
                return Err(format!("found {name} = {value}, expected one of its values: {}", known.join(", ")));
            }
        }
        Ok(())
    }

    fn check(&self, check: &Check) -> Result<(), String> {
        let wrong = |reason: String| Err(format!("check {:?}: {reason}", check.name));
        if check.name.trim().is_empty() {
            return Err("a check has no name".into());
        }
        self.select(&check.select).or_else(wrong)?;
        self.metric(&check.metric).or_else(wrong)?;
        for other in [&check.relative_to, &check.difference_to].into_iter().flatten() {
            self.select(other).or_else(wrong)?;
        }
        if check.relative_to.is_some() && check.difference_to.is_some() {
            return wrong("found relative_to and difference_to, expected one of them".into());
        }
        let by_axis = matches!(check.reduce, Reduce::Argmin | Reduce::Argmax);
        match &check.axis {
            Some(axis) if by_axis => self.key(axis).or_else(wrong)?,
            None if !by_axis => {}
            Some(_) => return wrong("found axis, which goes with argmin and argmax alone".into()),
            None => return wrong("found argmin or argmax without axis".into()),
        }
        let numbers = [
            ("expect", check.expect),
            ("percent", check.percent),
            ("absolute", check.absolute),
            ("at_least", check.at_least),
            ("at_most", check.at_most),
        ];
        for (field, number) in numbers {
            finite(field, number).or_else(wrong)?;
        }
        let bounds = [check.at_least, check.at_most];
        match (check.expect, check.percent, check.absolute, bounds) {
            (Some(0.0), Some(_), None, _) => return wrong("found a percentage of 0, expected absolute".into()),
            (Some(_), Some(t), None, [None, None]) | (Some(_), None, Some(t), [None, None]) if t >= 0.0 => {}
            (None, None, None, [Some(_), None] | [None, Some(_)]) => {}
            (None, None, None, [Some(low), Some(high)]) if low <= high => {}
            _ => return wrong("expected either expect with percent or absolute, or at_least, at_most or both".into()),
        }
        if check.fitted && check.gate == Some(true) {
            return wrong("what was fitted validates nothing, so it cannot decide".into());
        }
        Ok(())
    }

    fn figure(&self, figure: &Figure) -> Result<(), String> {
        let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if figure.file.is_empty() || !figure.file.chars().all(named) {
            return Err(format!("found file {:?}, expected small letters, digits and dashes", figure.file));
        }
        let wrong = |reason: String| Err(format!("figure {:?}: {reason}", figure.file));
        self.either(&figure.x).or_else(wrong)?;
        if figure.y.is_empty() {
            return wrong("found no y, expected at least one figure".into());
        }
        for y in &figure.y {
            self.metric(y).or_else(wrong)?;
        }
        for series in &figure.series {
            self.key(series).or_else(wrong)?;
        }
        for level in &figure.lines {
            finite("y of a line", Some(level.y)).or_else(wrong)?;
        }
        for (_, y) in figure.published.iter().flat_map(|p| &p.points) {
            finite("a published y", Some(*y)).or_else(wrong)?;
        }
        for Given(value) in figure.published.iter().filter_map(|p| p.series.as_ref()) {
            let Some(first) = figure.series.first() else {
                return wrong(format!("found published series {value}, expected none, as the figure has no series"));
            };
            let known = self.experiment.values_of(first).unwrap_or_default();
            if !known.iter().any(|k| same(k, value)) {
                let known: Vec<_> = known.iter().map(ToString::to_string).collect();
                return wrong(format!(
                    "found published series {value}, expected a value of {first:?}: {}",
                    listed(&known)
                ));
            }
        }
        self.select(&figure.select).or_else(wrong)
    }

    fn table(&self, table: &Table) -> Result<(), String> {
        self.select(&table.select)?;
        match (&table.down, &table.across, &table.metric) {
            (Some(down), Some(across), Some(metric)) if table.columns.is_empty() => {
                self.key(down)?;
                self.key(across)?;
                self.metric(metric)
            }
            (None, None, None) => table.columns.iter().try_for_each(|c| self.either(c)),
            _ => Err("expected columns, or down, across and metric together".into()),
        }
    }

    fn promote(&self, promote: &Promote) -> Result<(), String> {
        self.select(&promote.select)?;
        self.metric(&promote.metric)?;
        if !matches!(promote.reduce, Reduce::Argmin | Reduce::Argmax) {
            return Err("promote: expected reduce = \"argmin\" or \"argmax\"".into());
        }
        if promote.knobs.is_empty() {
            return Err("promote: found no knob, expected at least one".into());
        }
        for (axis, key) in &promote.knobs {
            let Some(values) = self.experiment.values_of(axis) else {
                return Err(unknown("axis", axis, self.experiment.axes.iter().map(String::as_str)));
            };
            let Some(knob) = strata_config::find(key) else {
                return Err(unknown("knob", key, strata_config::KNOBS.iter().map(|k| k.key)));
            };
            for value in values {
                knob.parse(&value.to_string()).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }
}
