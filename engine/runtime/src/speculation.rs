//! Speculative decoding: where a session's drafts come from, and what became of them.
//!
//! A round reads a window, the newest token and drafts of those that follow it, in one pass. Each row then chooses its
//! token as plain decoding would; drafts are kept as far as they agree, and the state returns to the last row kept. So
//! drafts, windows and their sizes change how fast an answer comes, never what it says. [Rejection
//! sampling](SpecSampling::Reject), for those who ask for it, keeps that promise for the answer's distribution only.

use crate::engine::Engine;
use crate::recorder::{Times, nanos};
use crate::rejection::{Probabilities, SpecSampling};
use crate::sampler::Sampler;
use crate::side::{Side, SidePoint};
use std::time::Instant;
use strata_model::{Draft, DraftLimits, HiddenNorm, Ops};
use strata_policy::hidden_norm::{self, Trial};
use strata_policy::lookup::Lookup;
use strata_policy::window::{self, MAX_ROWS, Match, Offer, Outcome, Plan, Policy, Probe, Window, agreement};
use strata_trace::DraftSource;

/// Rows that are read along with at a time: a device plans for long chunks of the model's passes, not of the draft layer's.
const PIECE: usize = 256;

/// How the residual streams that enter the draft layer are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DraftNorm {
    /// Tries both readings in the first rounds and keeps the one whose drafts are accepted more often.
    #[default]
    Auto,
    /// This one.
    Fixed(HiddenNorm),
}

/// How drafts are made.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SpeculationParams {
    /// Where they come from and how many are worth their cost.
    pub policy: window::Settings,
    /// How the draft layer reads the model.
    pub norm: DraftNorm,
    /// How drafts are verified when tokens are drawn at random.
    pub sampling: SpecSampling,
}

impl SpeculationParams {
    /// No drafts.
    pub fn none() -> SpeculationParams {
        let policy = window::Settings { source: window::Source::None, fixed: Some(0), ..window::Settings::default() };
        SpeculationParams { policy, ..SpeculationParams::default() }
    }

    /// Whether there can be drafts at all.
    fn any(&self) -> bool {
        self.policy.fixed != Some(0) && self.policy.max_rows > 1 && self.policy.source != window::Source::None
    }

    fn mtp(&self) -> bool {
        self.any() && self.policy.source.mtp()
    }

    fn lookup(&self) -> bool {
        self.any() && self.policy.source.lookup()
    }
}

/// Drafts verified and accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Rows of drafts in verified windows.
    pub verified: usize,
    /// Of them those accepted.
    pub accepted: usize,
}

impl Tally {
    fn add(&mut self, verified: usize, accepted: usize) {
        self.verified += verified;
        self.accepted += accepted.min(verified);
    }
}

/// What became of an answer's drafts.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Speculation {
    /// Passes after the prompt's.
    pub rounds: usize,
    /// Rows in them.
    pub rows: usize,
    /// The draft layer's drafts.
    pub mtp: Tally,
    /// Prompt lookup's drafts.
    pub lookup: Tally,
    /// Drafts by position in the window: the first, the second, ...
    pub positions: Vec<Tally>,
    /// Drafts that the draft layer made, with those that were not verified.
    pub drafted: usize,
    /// Seconds that it took of the answer's, reading along included.
    pub draft_seconds: f64,
    /// Seconds that it took to read along with the prompt.
    pub prompt_seconds: f64,
    /// Times that the draft layer failed; it then begins anew, and the answer is none the worse.
    pub failures: usize,
    /// Times that the draft layer forgot the text but for its end, as it was not asked for drafts.
    pub restarts: usize,
}

impl Speculation {
    /// Tokens per round; `output_tokens` includes the first, which came with the prompt.
    pub fn tokens_per_round(&self, output_tokens: usize) -> f64 {
        if self.rounds == 0 { 0.0 } else { output_tokens.saturating_sub(1) as f64 / self.rounds as f64 }
    }
}

/// Drafts from elsewhere: given the sequence and how many may be used.
pub type OwnDrafts = Box<dyn FnMut(&[u32], usize) -> Vec<u32> + Send>;

/// What drafting has taught, for the sessions to come: costs belong to the machine, not to a conversation.
pub(crate) struct Learned {
    params: SpeculationParams,
    policy: Policy,
    trial: Trial,
}

/// What a session knows about drafting.
pub(crate) struct Speculator<O: Ops> {
    params: SpeculationParams,
    policy: Policy,
    trial: Trial,
    lookup: Lookup,
    /// The sequence as far as it is known: the prompt and what was answered.
    text: Vec<u32>,
    side: Option<Side<O>>,
    /// Whether the draft layer was asked for drafts since it last had to read along, or a prompt is being read.
    wanted: bool,
    own: Option<OwnDrafts>,
    /// Nanoseconds that the draft layer took since they were last asked for.
    spent: u64,
    pub(crate) stats: Speculation,
}

/// The drafts of a round, and what the policy must be told about them.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) drafts: Vec<u32>,
    plan: Option<Plan>,
    window: Window,
    made: Vec<Draft>,
    found: Option<(Match, Vec<u32>)>,
    norm: Option<HiddenNorm>,
    /// Whether drafts are verified by rejection sampling, and what the draft layer's were drawn from.
    rejecting: bool,
    drawn_from: Vec<Probabilities>,
}

impl<O: Ops> Speculator<O> {
    pub(crate) fn new(params: SpeculationParams) -> Speculator<O> {
        Speculator {
            params,
            policy: Policy::new(params.policy),
            trial: Trial::new(),
            lookup: Lookup::new(),
            text: Vec::new(),
            side: None,
            wanted: true,
            own: None,
            spent: 0,
            stats: Speculation::default(),
        }
    }

    pub(crate) fn set_own(&mut self, own: OwnDrafts) {
        self.own = Some(own);
    }

    pub(crate) fn params(&self) -> SpeculationParams {
        self.params
    }

    /// The sequence so far.
    pub(crate) fn text(&self) -> &[u32] {
        &self.text
    }

    /// An answer to this prompt begins.
    pub(crate) fn begin(&mut self, engine: &Engine<O>, prompt: &[u32]) {
        self.stats = Speculation::default();
        if let Some(learned) = engine.learned().as_ref().filter(|learned| learned.params == self.params) {
            (self.policy, self.trial) = (learned.policy.clone(), learned.trial);
        }
        self.policy.text_changed();
        let known = self.text.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        self.text.truncate(known);
        self.lookup.truncate(known);
        prompt[known..].iter().for_each(|&token| self.commit(token));
    }

    /// The answer is over.
    pub(crate) fn end(&self, engine: &Engine<O>) {
        if self.params.any() {
            let (policy, trial) = (self.policy.clone(), self.trial);
            *engine.learned() = Some(Learned { params: self.params, policy, trial });
        }
    }

    /// The sequence has another token.
    pub(crate) fn commit(&mut self, token: u32) {
        self.text.push(token);
        if self.params.lookup() {
            self.lookup.push(token);
        }
    }

    /// Reads along with a prompt: see [`follow`](Speculator::follow).
    pub(crate) fn read(&mut self, engine: &Engine<O>, first: usize, tokens: &[u32], residual: &O::Buf, room: usize) {
        self.wanted = true;
        self.follow(engine, first, tokens, residual, room);
        // The answer is read along with once the policy drafts: where drafts fail, even the first rows are dear.
        self.wanted = false;
    }

    /// Reads along: the tokens at the positions from `first` on, and the residual streams of the pass that read them.
    pub(crate) fn follow(&mut self, engine: &Engine<O>, first: usize, tokens: &[u32], residual: &O::Buf, room: usize) {
        let Some(layer) = engine.draft_layer().filter(|_| self.params.mtp()) else { return };
        if tokens.len() > PIECE {
            let (ops, len) = (engine.model().ops(), engine.model().config().residual_len());
            let wanted = self.wanted;
            for (at, part) in (0..).step_by(PIECE).zip(tokens.chunks(PIECE)) {
                self.wanted = wanted;
                let rows = ops.slice(residual, at * len..(at + part.len()) * len);
                self.follow(engine, first + at, part, &rows, room);
            }
            return;
        }
        let here = self.side.take().filter(|side| side.end() == first);
        let mut side = here.unwrap_or_else(|| Side::new(layer, engine.model(), first, room));
        side.note(engine.model(), tokens, residual);
        let full = side.full();
        self.side = Some(side);
        // While drafts are not worth their time, reading along would only cost some more.
        match (full, self.wanted) {
            (true, false) => self.restart(engine),
            (true, true) => self.catch_up(engine),
            _ => {}
        }
        self.wanted &= !full;
    }

    /// Has the draft layer forget the text but for its end.
    fn restart(&mut self, engine: &Engine<O>) {
        let both = engine.draft_layer().zip(self.side.take());
        self.side = both.map(|(layer, side)| side.restarted(layer, engine.model()));
        self.stats.restarts += 1;
    }

    /// Has the draft layer read what waits, and counts the time. If it fails, it begins anew.
    fn catch_up(&mut self, engine: &Engine<O>) {
        if self.side.is_some() {
            let started = Instant::now();
            self.fill(engine);
            self.spend(started);
        }
    }

    /// Has the draft layer read what waits. If it fails, it begins anew.
    fn fill(&mut self, engine: &Engine<O>) {
        let norm = self.norm();
        let (Some(layer), Some(side)) = (engine.draft_layer(), &mut self.side) else { return };
        if side.catch_up(layer, engine.model(), norm).is_err() {
            self.side = None;
            self.stats.failures += 1;
        }
    }

    /// The draft layer was at work since then.
    fn spend(&mut self, started: Instant) {
        let nanos = nanos(started.elapsed());
        self.spent += nanos;
        self.stats.draft_seconds += nanos as f64 / 1e9;
    }

    /// The prompt is read, and the answer begins.
    pub(crate) fn prompt_is_read(&mut self) {
        self.stats.prompt_seconds = std::mem::take(&mut self.stats.draft_seconds);
        self.spent = 0;
    }

    /// Nanoseconds that the draft layer took since this was last asked.
    pub(crate) fn take_spent(&mut self) -> u64 {
        std::mem::take(&mut self.spent)
    }

    /// How the next cells read the model.
    fn norm(&self) -> HiddenNorm {
        match self.params.norm {
            DraftNorm::Fixed(norm) => norm,
            DraftNorm::Auto => match self.trial.next() {
                hidden_norm::HiddenNorm::Pooled => HiddenNorm::Whole,
                hidden_norm::HiddenNorm::PerStream => HiddenNorm::PerStream,
            },
        }
    }

    /// Drafts for the tokens behind the sequence's last, of which the answer has `answered`. At most `remaining` tokens
    /// may be committed in this round.
    pub(crate) fn draft(&mut self, engine: &Engine<O>, sampler: &Sampler, answered: usize, remaining: usize) -> Round {
        let most = remaining.saturating_sub(1);
        let rejecting = self.params.sampling == SpecSampling::Reject && sampler.params().temp > 0.0;
        if let Some(own) = &mut self.own {
            let mut drafts = own(&self.text, most);
            drafts.truncate(most);
            return Round { drafts, rejecting, ..Round::default() };
        }
        if !self.params.any() {
            return Round::default();
        }
        let mut found = None;
        if self.params.lookup() {
            let mut drafts = Vec::new();
            let length = self.lookup.propose(most.min(MAX_ROWS - 1), &mut drafts);
            found = length.map(|length| (Match { length, drafts: drafts.len() }, drafts));
        }
        let mtp = self.side.is_some() && self.params.mtp();
        let plan = self.policy.plan(Offer { lookup: found.as_ref().map(|(m, _)| *m), mtp, remaining });
        let started = Instant::now();
        if plan.steps > 0 {
            // Nothing was drafted for a while, so it may well be for nothing again.
            if !self.wanted && self.side.as_ref().is_some_and(Side::behind) {
                self.restart(engine);
            }
            self.wanted |= plan.probe != Some(Probe::Draft);
            self.fill(engine);
        }
        let Speculator { policy, side, text, .. } = self;
        let ready = engine.draft_layer().zip(side.as_mut());
        let known = text.len();
        let mut round = Round { plan: Some(plan), found, rejecting, ..Round::default() };
        if let Some((layer, side)) = ready.filter(|_| plan.steps > 0)
            && let Some(&newest) = text.last()
        {
            let (found, policy) = (&round.found, &*policy);
            let mut go_on = |made: &[Draft]| {
                let probabilities: Vec<f32> = made.iter().map(|d| d.probability).collect();
                policy.go_on(&plan, &probabilities, agreeing(found, made))
            };
            let drawn_from = &mut round.drawn_from;
            let mut choose = |c: &strata_model::Candidates<'_>| {
                let answered = answered + text.len() - known;
                let index = if rejecting {
                    let (index, q) = sampler.draw_candidate(c, text, answered, known);
                    drawn_from.push(q);
                    index
                } else {
                    sampler.pick_candidate(c, text, answered)
                };
                text.push(c.token(index));
                index
            };
            let limits = DraftLimits { most: plan.steps.min(most), floor: 0.0 };
            let made = layer.draft_while(engine.model(), &mut side.state, newest, limits, &mut choose, &mut go_on);
            match made {
                Ok(made) => (round.made, round.norm) = (made, Some(side.state.hidden_norm())),
                Err(_) => self.stats.failures += 1,
            }
        }
        self.text.truncate(known);
        self.spend(started);
        let probabilities = round.probabilities();
        round.window = self.policy.window(&plan, &probabilities, agreeing(&round.found, &round.made));
        if rejecting {
            // A draft that was drawn is verified: dropping those that turned out unlikely would favour the likely ones.
            let (drafts, made) = (round.window.drafts(), round.made.len());
            round.window = Window { mtp: made, lookup: drafts.saturating_sub(made) };
        }
        let Window { mtp, lookup } = round.window;
        round.drafts.extend(round.made.iter().take(mtp).map(|d| d.token));
        let lookups = round.found.iter().flat_map(|(_, drafts)| drafts.iter().skip(mtp).take(lookup));
        round.drafts.extend(lookups);
        round.drafts.truncate(most);
        self.stats.drafted += round.made.len();
        round
    }

    /// A round is over: `committed` are its tokens.
    pub(crate) fn learn(&mut self, round: &Round, committed: &[u32], times: Times) {
        let accepted = agreement(&round.drafts, committed);
        self.stats.rounds += 1;
        self.stats.rows += 1 + round.drafts.len();
        for (i, _) in round.drafts.iter().enumerate().take(accepted + 1) {
            if self.stats.positions.len() <= i {
                self.stats.positions.push(Tally::default());
            }
            self.stats.positions[i].add(1, usize::from(i < accepted));
        }
        let Some(plan) = round.plan else { return };
        let Window { mtp, lookup } = round.window;
        self.stats.mtp.add(mtp, accepted);
        self.stats.lookup.add(lookup, accepted.saturating_sub(mtp));
        let made: Vec<u32> = round.made.iter().map(|d| d.token).collect();
        let outcome = |(found, drafts): &(Match, Vec<u32>)| Outcome {
            found: *found,
            agreed: agreement(drafts, committed),
            confirmed: agreement(drafts, &made),
        };
        self.policy.record(&window::Round {
            plan,
            window: round.window,
            accepted,
            probabilities: &round.probabilities(),
            mtp_agreed: agreement(&made, committed),
            lookup: round.found.as_ref().map(outcome),
            // What a trace holds of the round, to the bit.
            seconds_verify: times.seconds_verify(),
            seconds_draft: times.seconds_draft(),
        });
        if let (DraftNorm::Auto, Some(norm), Some(&first)) = (self.params.norm, round.norm, made.first()) {
            let norm = match norm {
                HiddenNorm::Whole => hidden_norm::HiddenNorm::Pooled,
                HiddenNorm::PerStream => hidden_norm::HiddenNorm::PerStream,
            };
            self.trial.record(norm, committed.first() == Some(&first));
        }
    }

    /// The point where the draft layer is, if it has read along up to `len` tokens.
    pub(crate) fn point(&mut self, engine: &Engine<O>, len: usize) -> Option<SidePoint<O>> {
        self.catch_up(engine);
        Some(self.side.as_ref().filter(|side| side.end() == len)?.point(engine.model()))
    }

    /// Returns to a point; without one the draft layer begins anew.
    pub(crate) fn restore(&mut self, engine: &Engine<O>, point: Option<&SidePoint<O>>) {
        let side = self.side.take().zip(point);
        self.side = side.and_then(|(mut side, point)| side.restore(engine.model(), point).is_ok().then_some(side));
    }

    /// Forgets the sequence; what was learned about costs stays.
    pub(crate) fn clear(&mut self) {
        self.side = None;
        self.text.clear();
        self.lookup.clear();
    }
}

impl Round {
    /// The token that a row chooses, behind `sequence`, which holds the drafts before it.
    pub(crate) fn token(
        &self,
        row: usize,
        sampler: &Sampler,
        logits: &[f32],
        sequence: &[u32],
        answered: usize,
    ) -> u32 {
        match self.drafts.get(row).filter(|_| self.rejecting) {
            Some(&draft) => {
                let q = self.drawn_from.get(row).filter(|_| row < self.window.mtp);
                sampler.judge(logits, sequence, answered, draft, q.map(Vec::as_slice))
            }
            None => sampler.pick(logits, sequence, answered),
        }
    }

    /// Where the drafts came from, as traces have it.
    pub(crate) fn source(&self) -> DraftSource {
        match self.window.source() {
            // The policy was not asked.
            _ if self.plan.is_none() && !self.drafts.is_empty() => DraftSource::Own,
            window::Source::None => DraftSource::None,
            window::Source::Mtp => DraftSource::Mtp,
            window::Source::Lookup => DraftSource::Lookup,
            window::Source::Both => DraftSource::Both,
        }
    }

    fn probabilities(&self) -> Vec<f32> {
        self.made.iter().map(|d| d.probability).collect()
    }
}

/// Lookup's match, while the draft layer's drafts are its first ones.
fn agreeing(found: &Option<(Match, Vec<u32>)>, made: &[Draft]) -> Option<Match> {
    let (found, drafts) = found.as_ref()?;
    made.iter().enumerate().all(|(i, d)| drafts.get(i) == Some(&d.token)).then_some(*found)
}
