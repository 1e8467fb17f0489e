//! How likely drafts are to be accepted, learned from what became of earlier ones.
//!
//! A draft counts only where its outcome is known: up to the first one that was rejected, and for drafts that were left
//! out of the window as far as the round's committed tokens tell. All counts decay, so estimates follow a conversation.

use serde::{Deserialize, Serialize};

use super::MAX_ROWS;
use super::rate::{BUCKETS, CARRIED_OVER, DECAY, Factor, PRIOR_WEIGHT, Rate, Run, decayed};

/// What remains after a round of what is known about a position that the round did not reach. Else a few rejections
/// would keep chains short for good; so the position is like the one before it again after some 500 rounds.
const UNREACHED: f64 = 0.998;

/// Lower ends of the confidence buckets but the first: narrow where most drafts are, near certainty.
const BUCKET_ENDS: [f64; BUCKETS - 1] = [0.15, 0.3, 0.45, 0.6, 0.75, 0.88, 0.96];
/// Prior acceptance in a bucket: its middle, that is, confidence taken at its word.
const BUCKET_PRIOR: [f64; BUCKETS] = [0.075, 0.225, 0.375, 0.525, 0.675, 0.815, 0.92, 0.98];
/// Prior share of drafts in a bucket. With the acceptance above they make 0.72, the 0.7 that the original engine
/// assumes for every draft and the .62 to .86 that were measured with it.
const SHARE_PRIOR: [f64; BUCKETS] = [0.07, 0.07, 0.08, 0.09, 0.1, 0.12, 0.15, 0.32];

/// Ends of the match-length buckets of lookup, in tokens, and their prior acceptance: the original engine's.
const LENGTH_ENDS: [usize; 3] = [6, 12, 24];
const LENGTH_PRIOR: [f64; 4] = [0.75, 0.88, 0.93, 0.96];
/// Prior share of matches whose continuation agrees with the draft layer's; the mean of the two sources' priors.
const AGREE_PRIOR: f64 = 0.7;

/// Bucket of a draft's probability; what is no probability counts as 0.
fn bucket(probability: f32) -> usize {
    let p = f64::from(probability);
    BUCKET_ENDS.iter().filter(|&&end| p >= end).count()
}

/// Acceptance of the draft layer's drafts, each given that the drafts before it were accepted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Mtp {
    /// Accepted drafts among those of a confidence bucket.
    confidence: [Rate; BUCKETS],
    /// Per position: drafts made in each bucket, and how many of them the prior is worth.
    made: [Made; MAX_ROWS],
    /// Per position: how it differs from what the buckets say.
    position: [Factor; MAX_ROWS],
    run: Run,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Made {
    drafts: [f64; BUCKETS],
    prior: f64,
}

impl Default for Made {
    fn default() -> Made {
        Made { drafts: [0.0; BUCKETS], prior: PRIOR_WEIGHT }
    }
}

impl Made {
    fn decay(&mut self, kept: f64) {
        self.drafts.iter_mut().for_each(|d| *d = decayed(*d, kept));
        self.prior = decayed(self.prior, kept);
    }
}

/// What is expected of a draft at one position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outlook {
    /// Share of drafts in each confidence bucket.
    pub(super) share: [f64; BUCKETS],
    /// Acceptance in each bucket.
    pub(super) accepted: [f64; BUCKETS],
}

impl Outlook {
    /// Expected acceptance before the draft is made.
    pub(super) fn mean(&self) -> f64 {
        self.share.iter().zip(&self.accepted).map(|(s, a)| s * a).sum()
    }

    /// Acceptance of a draft with this probability.
    pub(super) fn of(&self, probability: f32) -> f64 {
        self.accepted.get(bucket(probability)).copied().unwrap_or(0.0)
    }
}

impl Mtp {
    /// What is expected at every position. A position seldom reached is like the one before it.
    pub(super) fn outlook(&self) -> [Outlook; MAX_ROWS] {
        let mut confidence = BUCKET_PRIOR;
        for (estimate, rate) in confidence.iter_mut().zip(&self.confidence) {
            *estimate = rate.estimate(*estimate);
        }
        let (mut share, mut factor) = (SHARE_PRIOR, 1.0);
        let mut outlook = [Outlook { share, accepted: confidence }; MAX_ROWS];
        for (k, known) in outlook.iter_mut().enumerate() {
            let (Some(made), Some(position)) = (self.made.get(k), self.position.get(k)) else { break };
            let all: f64 = made.drafts.iter().sum();
            for (share, drafts) in share.iter_mut().zip(&made.drafts) {
                *share = (drafts + made.prior * *share) / (all + made.prior);
            }
            factor = position.estimate(&confidence, factor);
            known.share = share;
            known.accepted = confidence.map(|a| (a * factor).min(1.0));
        }
        outlook
    }

    /// The most drafts to make in a round: one more than first drafts were compared with the text. Priors are not trusted
    /// with a long chain.
    pub(super) fn longest(&self) -> usize {
        1 + self.made.first().map_or(0.0, |first| first.drafts.iter().sum()) as usize
    }

    /// Takes in the drafts of a round: how probable they were, how many leading ones agreed with the committed tokens
    /// and of how many that is known.
    pub(super) fn observe(&mut self, probabilities: &[f32], agreed: usize, known: usize) {
        if let (Some(&first), 1..) = (probabilities.first(), known) {
            let [outlook, ..] = self.outlook();
            if self.run.surprises(agreed > 0, outlook.of(first)) {
                self.confidence.iter_mut().for_each(Rate::doubt);
                self.position.iter_mut().for_each(Factor::doubt);
            }
        }
        for (k, &probability) in probabilities.iter().enumerate() {
            let b = bucket(probability);
            if let Some(made) = self.made.get_mut(k) {
                made.decay(DECAY);
                made.drafts[b] += 1.0;
            }
            if k > agreed || k >= known {
                continue;
            }
            let hit = if k < agreed { 1.0 } else { 0.0 };
            if let (Some(position), Some(rate)) = (self.position.get_mut(k), self.confidence.get_mut(b)) {
                position.add(b, hit);
                rate.add(hit, 1.0);
            }
        }
        let reached = known.min(agreed + 1).max(1);
        self.position.iter_mut().skip(reached).for_each(|p| p.fade(UNREACHED));
    }

    /// The text changed: what was learned counts less.
    pub(super) fn fade(&mut self) {
        self.confidence.iter_mut().for_each(Rate::fade);
        self.position.iter_mut().for_each(|p| p.fade(CARRIED_OVER));
        for made in &mut self.made {
            made.decay(CARRIED_OVER);
            made.prior += PRIOR_WEIGHT * (1.0 - CARRIED_OVER);
        }
    }
}

/// Acceptance of lookup's drafts by the length of the match. An accepted draft makes the match one token longer, so
/// later drafts of a proposal are those of a longer match.
///
/// A proposal that was not used is compared with the text all the same, which costs nothing. So there is time to wait
/// for evidence: estimates are one standard error below the mean, and a proposal is used no further than
/// [`longest`](Lookup::longest) says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Lookup {
    /// Of a proposal on its own.
    alone: [Rate; 4],
    /// Behind drafts of the draft layer that agreed with the proposal so far.
    confirmed: [Rate; 4],
    /// Proposals whose first draft agreed with the draft layer's first one.
    agrees: [Rate; 4],
    /// How drafts of all lengths differ from what their buckets say.
    overall: Factor,
    run: Run,
}

fn length_bucket(length: usize) -> usize {
    LENGTH_ENDS.iter().filter(|&&end| length >= end).count()
}

impl Lookup {
    /// Acceptance of the draft that follows a match of `length` tokens.
    pub(super) fn alone(&self, length: usize) -> f64 {
        let b = length_bucket(length);
        self.cautious(&self.alone[b], LENGTH_PRIOR[b])
    }

    /// The same behind agreeing drafts of the draft layer; `length` counts these.
    pub(super) fn confirmed(&self, length: usize) -> f64 {
        let b = length_bucket(length);
        self.cautious(&self.confirmed[b], LENGTH_PRIOR[b])
    }

    fn cautious(&self, rate: &Rate, prior: f64) -> f64 {
        let mut buckets = LENGTH_PRIOR;
        for (estimate, rate) in buckets.iter_mut().zip(&self.alone) {
            *estimate = rate.estimate(*estimate);
        }
        let mean = (rate.estimate(prior) * self.overall.estimate(&buckets, 1.0)).clamp(0.0, 1.0);
        let error = (mean * (1.0 - mean) / (rate.tries + rate.prior + 1.0)).sqrt();
        (mean - error).max(0.0)
    }

    /// The most drafts of a match that are used: one more than were compared with the text for such matches.
    pub(super) fn longest(&self, length: usize) -> usize {
        // Counts decay to some 50 at most.
        1 + self.alone[length_bucket(length)].tries as usize
    }

    /// How likely the draft layer's first draft is to agree with a proposal.
    pub(super) fn agrees(&self, length: usize) -> f64 {
        self.agrees[length_bucket(length)].estimate(AGREE_PRIOR)
    }

    /// Takes in a proposal: of its drafts the first `agreed` agreed with the committed tokens, which tell about `known`
    /// of them. The draft layer had made `steps` drafts, of which `confirmed` leading ones were the proposal's.
    pub(super) fn observe(&mut self, length: usize, agreed: usize, known: usize, steps: usize, confirmed: usize) {
        if steps > 0 {
            self.agrees[length_bucket(length)].add(if confirmed > 0 { 1.0 } else { 0.0 }, 1.0);
        }
        if known > 0 && self.run.surprises(agreed > 0, self.alone(length)) {
            self.alone.iter_mut().chain(&mut self.confirmed).for_each(Rate::doubt);
            self.overall.doubt();
        }
        for i in 0..known.min(agreed + 1) {
            let (hit, b) = (if i < agreed { 1.0 } else { 0.0 }, length_bucket(length + i));
            self.overall.add(b, hit);
            self.alone[b].add(hit, 1.0);
            if steps > 0 && confirmed >= steps && i >= steps {
                self.confirmed[b].add(hit, 1.0);
            }
        }
    }

    /// The text changed: what was learned counts less.
    pub(super) fn fade(&mut self) {
        self.alone.iter_mut().chain(&mut self.confirmed).chain(&mut self.agrees).for_each(Rate::fade);
        self.overall.fade(CARRIED_OVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priors_are_those_of_the_original() {
        let mean = Mtp::default().outlook()[0].mean();
        assert!((mean - 0.72).abs() < 0.01, "{mean}");
        assert!((SHARE_PRIOR.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        for (n, prior) in [3, 6, 12, 64].into_iter().zip(LENGTH_PRIOR) {
            let cautious = Lookup::default().alone(n);
            assert!(cautious < prior && cautious > prior - 0.2);
        }
    }

    #[test]
    fn confidence_and_position_are_told_apart() {
        let mut mtp = Mtp::default();
        for i in 0..400 {
            // The first draft is always right; the second, as confident, every other time.
            let second = 1 + i % 2;
            mtp.observe(&[0.9, 0.9, 0.2], second, 3);
        }
        let outlook = mtp.outlook();
        assert!(outlook[0].of(0.9) > 0.85 && outlook[1].of(0.9) < 0.65, "{:?}", outlook[1].of(0.9));
        assert!(outlook[2].of(0.2) < 0.1);
        // Twenty rejections in a row are noticed.
        for _ in 0..20 {
            mtp.observe(&[0.9], 0, 1);
        }
        assert!(mtp.outlook()[0].of(0.9) < 0.7);
    }

    #[test]
    fn hostile_probabilities_have_a_bucket() {
        assert_eq!([f32::NAN, -1.0, 0.0, f32::INFINITY, 2.0, 1.0].map(bucket), [0, 0, 0, 7, 7, 7]);
    }

    #[test]
    fn lookup_learns_by_length_and_behind_agreeing_drafts() {
        let mut lookup = Lookup::default();
        for _ in 0..50 {
            lookup.observe(4, 0, 1, 0, 0);
            lookup.observe(30, 5, 6, 2, 2);
        }
        assert!(lookup.alone(5) < 0.2 && lookup.alone(40) > 0.6 && lookup.alone(40) < 0.9);
        assert!(lookup.agrees(30) > 0.9 && lookup.agrees(4) == AGREE_PRIOR);
        assert!(lookup.confirmed(30) > 0.5 && lookup.confirmed(30) < lookup.alone(30));
    }
}
