//! The policy's state and its decisions.

use serde::{Deserialize, Serialize};

use super::acceptance::{Lookup, Mtp};
use super::cost::{CostTable, Shape, measured};
use super::probe::{Backoff, Credit};
use super::value::View;
use super::{MAX_ROWS, Match, Offer, Outcome, Plan, Probe, Round, Settings, Window};

/// Seconds of a step of the draft layer relative to a window of one row, before any was measured: 0.75 ms of some 15 ms
/// with the original engine.
const STEP_PRIOR: f64 = 0.05;

/// The least by which an uncertain cost must improve the rate to be measured, as a factor.
const WORTH_PROBING: f64 = 1.002;

/// The window policy; see the [module's documentation](super).
///
/// It is all state that decisions depend on: a policy written out and read back decides as the first one would.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    settings: Settings,
    window: CostTable,
    steps: CostTable,
    mtp: Mtp,
    lookup: Lookup,
    credit: Credit,
    backoff: Backoff,
}

impl Policy {
    /// A policy that has seen nothing.
    pub fn new(settings: Settings) -> Policy {
        Policy {
            settings,
            window: CostTable::new(Shape::Window, 1.0),
            steps: CostTable::new(Shape::Steps, STEP_PRIOR),
            mtp: Mtp::default(),
            lookup: Lookup::default(),
            credit: Credit::default(),
            backoff: Backoff::default(),
        }
    }

    /// How the policy decides.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Decides by other settings from now on; what was learned stays.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Another text begins (a prompt, a turn): acceptance counts less from here on, costs stay, and the draft layer is
    /// tried soon even if it failed before.
    pub fn text_changed(&mut self) {
        self.mtp.fade();
        self.lookup.fade();
        self.backoff.now();
    }

    /// Expected seconds of a window of `rows` rows, from 1 to [`MAX_ROWS`]. In units of one row before any round.
    pub fn cost(&self, rows: usize) -> Option<f64> {
        self.window.estimates().get(rows.checked_sub(1)?).copied()
    }

    /// Decides what to draft in a round.
    pub fn plan(&self, offer: Offer) -> Plan {
        let rows = self.settings.max_rows.min(offer.remaining).clamp(1, MAX_ROWS);
        let (mtp, found) = (self.settings.source.mtp() && offer.mtp, self.usable(offer.lookup));
        if let Some(drafts) = self.settings.fixed {
            let lookup = found.map_or(0, |m| m.drafts.min(drafts).min(rows - 1));
            let steps = if mtp && lookup == 0 { drafts.min(rows - 1) } else { 0 };
            return Plan { steps, lookup, rows, rate: 0.0, probe: None };
        }
        let mut view = self.view(rows);
        let longest = if mtp { self.mtp.longest() } else { 0 };
        let mut best = choose(&view, longest, found);
        let known = view.window;
        for size in 1..=rows {
            let Some(least) = self.window.optimistic(size, &known) else { continue };
            if !self.credit.affords(known[size - 1] - least) {
                continue;
            }
            view.window[size - 1] = least;
            let hoped = choose(&view, longest, found);
            view.window = known;
            if hoped.rate > best.rate * WORTH_PROBING {
                best = Plan { probe: Some(Probe::Cost(size)), ..hoped };
            }
        }
        let idle = mtp && best.steps == 0 && best.lookup == 0 && rows > 1;
        if idle && self.backoff.due() && self.credit.affords(view.step(0)) {
            best = Plan { steps: 1, probe: Some(Probe::Draft), ..best };
        }
        best
    }

    /// Whether the draft layer should make one more draft after those with these probabilities. `agreeing` is lookup's
    /// match while its first drafts are the ones made so far.
    pub fn go_on(&self, plan: &Plan, probabilities: &[f32], agreeing: Option<Match>) -> bool {
        let done = probabilities.len();
        if done >= plan.steps.min(plan.rows.saturating_sub(1)).min(MAX_ROWS - 1) {
            return false;
        }
        if self.trusted(probabilities) < done {
            return false;
        }
        if done == 0 || self.settings.fixed.is_some() {
            return true;
        }
        let view = self.planned(plan);
        let agreeing = self.usable(agreeing);
        let reach = view.reach(probabilities, agreeing);
        let tail = agreeing.map_or(0.0, |found| view.tail(done, reach, plan.rate, found).value);
        view.chain(done, plan.steps, reach, plan.rate).value > tail
    }

    /// Which drafts the window takes, given the probabilities of those that the draft layer made.
    pub fn window(&self, plan: &Plan, probabilities: &[f32], agreeing: Option<Match>) -> Window {
        let room = plan.rows.clamp(1, MAX_ROWS) - 1;
        if plan.steps == 0 {
            return Window { mtp: 0, lookup: plan.lookup.min(room) };
        }
        let made = self.trusted(probabilities).min(room);
        if self.settings.fixed.is_some() {
            return Window { mtp: made, lookup: 0 };
        }
        let view = self.planned(plan);
        let agreeing = self.usable(agreeing);
        let (mut best, mut most) = (Window::default(), 0.0);
        let mut value = 0.0;
        for k in 0..=made {
            let reach = view.reach(probabilities.get(..k).unwrap_or_default(), agreeing);
            if k > 0 {
                value += reach - plan.rate * (view.cost(k + 1) - view.cost(k));
            }
            // Behind no draft of the draft layer lookup is not confirmed by any.
            let tail = match agreeing {
                Some(found) if k > 0 => view.tail(k, reach, plan.rate, found),
                _ => Default::default(),
            };
            if value + tail.value > most {
                (best, most) = (Window { mtp: k, lookup: tail.drafts }, value + tail.value);
            }
        }
        best
    }

    /// Learns from a round. Nothing it holds is trusted: a window that is larger than [`MAX_ROWS`] makes the round one
    /// to ignore; more accepted or agreeing drafts than there can be are taken as the most there can be; seconds that
    /// are not finite, not above zero or longer than an hour say nothing about costs; probabilities that are none count
    /// as 0, and those beyond `MAX_ROWS - 1` are dropped.
    pub fn record(&mut self, round: &Round<'_>) {
        let rows = round.window.rows();
        if rows > MAX_ROWS {
            return;
        }
        let probabilities = round.probabilities.get(..MAX_ROWS - 1).unwrap_or(round.probabilities);
        let steps = probabilities.len();
        let committed = round.accepted.min(rows - 1) + 1;

        let known = self.window.estimates();
        match round.plan.probe {
            // What it took, since a draft layer that has not read along for a while has to catch up first.
            Some(Probe::Draft) if steps > 0 => {
                self.credit.spend(measured(round.seconds_draft).unwrap_or_else(|| self.view(1).step(0)));
            }
            Some(Probe::Cost(size)) if size == rows => {
                let least = self.window.optimistic(size, &known);
                self.credit.spend(least.map_or(0.0, |least| known[size - 1] - least));
            }
            _ => {}
        }
        self.window.observe(rows, round.seconds_verify);
        self.steps.assume(STEP_PRIOR * self.window.estimates()[0]);
        self.steps.observe(steps, round.seconds_draft);
        self.window.age();
        self.steps.age();
        if let Some(seconds) = measured(round.seconds_verify) {
            let share = if self.settings.probe_share > 0.0 { self.settings.probe_share.min(0.1) } else { 0.0 };
            let draft = measured(round.seconds_draft).unwrap_or(0.0);
            self.credit.earn(share * (seconds + draft), self.window.estimates()[0]);
        }

        let known = steps.min(committed);
        let agreed = round.mtp_agreed.min(known);
        self.mtp.observe(probabilities, agreed, known);
        if steps > 0 {
            self.backoff.tried(round.plan.probe == Some(Probe::Draft), agreed > 0);
        } else {
            self.backoff.rest();
        }
        if let Some(Outcome { found, agreed, confirmed }) = round.lookup {
            let found = bounded(found);
            let known = found.drafts.min(committed);
            self.lookup.observe(found.length, agreed.min(known), known, steps, confirmed);
        }
    }

    /// A match that may be used.
    fn usable(&self, found: Option<Match>) -> Option<Match> {
        found.filter(|m| self.settings.source.lookup() && m.drafts > 0).map(bounded)
    }

    /// Leading drafts that are no less probable than the floor.
    fn trusted(&self, probabilities: &[f32]) -> usize {
        let floor = self.settings.confidence_floor;
        probabilities.iter().take_while(|&&p| p >= floor || floor <= 0.0 || floor.is_nan()).count()
    }

    fn view(&self, rows: usize) -> View<'_> {
        View {
            window: self.window.estimates(),
            steps: self.steps.estimates(),
            outlook: self.mtp.outlook(),
            lookup: &self.lookup,
            rows: rows.clamp(1, MAX_ROWS),
        }
    }

    /// The estimates under which `plan` was made.
    fn planned(&self, plan: &Plan) -> View<'_> {
        let mut view = self.view(plan.rows);
        if let Some(Probe::Cost(size)) = plan.probe
            && let Some(least) = self.window.optimistic(size, &view.window)
            && let Some(cost) = view.window.get_mut(size - 1)
        {
            *cost = least;
        }
        view
    }
}

/// A match of which no more is told apart than matters, so that sums of its numbers are numbers.
fn bounded(found: Match) -> Match {
    Match { length: found.length.min(1 << 16), drafts: found.drafts.min(MAX_ROWS - 1) }
}

/// The best way to draft under these estimates, with no more than `longest` steps of the draft layer.
fn choose(view: &View<'_>, longest: usize, found: Option<Match>) -> Plan {
    let (rows, plain) = (view.rows, view.plain());
    let longest = longest.min(rows - 1);
    let mut rate = if longest > 0 { view.best_rate(longest) } else { plain };
    let mut steps = if rate > plain { longest } else { 0 };
    let mut lookup = 0;
    if let Some(found) = found {
        if longest > 0 {
            let extended = view.extend(found);
            if extended > rate {
                (rate, steps) = (extended, longest);
            }
        }
        let (drafts, replaced) = view.replace(found);
        if replaced > rate {
            (rate, steps, lookup) = (replaced, 0, drafts);
        }
    }
    Plan { steps, lookup, rows, rate, probe: None }
}
