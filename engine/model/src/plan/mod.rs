//! What lies where: of a budget of the GPU's memory, the parts that must be there, then as many experts as there is room for.
//!
//! The same arithmetic plans for a machine that is not there and loads a model onto one that is. After loading, what the
//! device really holds takes the place of what was reckoned ([`Plan::slot_bytes`]).

mod needs;

pub use needs::{ModelNumbers, Needs};

use crate::cuda::ExpertPlace;

/// Rows of the longest window that is recorded.
pub const WINDOW_ROWS: usize = 8;

/// Rows of a prompt up to which intermediate results have room besides the experts.
pub(crate) const RESERVED: usize = 256;

/// Slots that experts pass through while a prompt is read.
pub(crate) const PASSED: usize = 512;

/// Lengths of chunks that are of use, longest first.
const LONG_CHUNKS: [usize; 5] = [8192, 4096, 2048, 1024, 512];

/// Checkpoints of a conversation that come before a second conversation, where there is no room for all.
const FEW: usize = 4;

/// Of what is left beside the dense weights, conversations get one part in so many where it does not suffice for all experts.
const SHARE: u64 = 4;

/// What is asked of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// Bytes that may be used, the reserve included.
    pub budget: u64,
    /// Bytes of them that stay free, for what is not reckoned.
    pub reserve: u64,
    /// Tokens of a sequence at most.
    pub context: usize,
    /// Sequences kept at once, at least 1.
    pub conversations: usize,
    /// Checkpoints of each at most.
    pub checkpoints: usize,
    /// Prompt tokens read in one pass; 0 = as many as are of use and have room.
    pub chunk: usize,
    /// Rows of the longest window of decoding.
    pub rows: usize,
    /// Experts on the GPU at most.
    pub slots: Option<u64>,
}

/// What lies where on the GPU, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// What was asked.
    pub wish: Wish,
    /// Weights that every token uses.
    pub dense: u64,
    /// The draft layer's.
    pub draft: u64,
    /// Sequences whose parts are on the GPU at once: one more than are kept if those are several, since one may be copied.
    pub sequences: u64,
    /// Keys, values and indexer keys of all sequences, the draft layer's included.
    pub caches: u64,
    /// Recurrent states of all sequences and of their checkpoints.
    pub states: u64,
    /// Buffers of windows and recorded passes of all sequences.
    pub windows: u64,
    /// Intermediate results, and places for experts that come over the link.
    pub scratch: u64,
    /// Of the parts above, those of a first sequence before anything was drafted.
    first: u64,
    /// Sequences that are kept, and the checkpoints of each.
    pub conversations: usize,
    /// Checkpoints of each.
    pub checkpoints: usize,
    /// Where experts are.
    pub place: ExpertPlace,
    /// Experts on the GPU.
    pub slots: u64,
    /// What they take there, the draft layer's included if they are all there.
    pub slots_bytes: u64,
    /// Experts of all layers.
    pub experts: u64,
    /// Prompt tokens read in one pass.
    pub chunk: usize,
    /// Those of them whose intermediate results have room besides the experts.
    pub reserved: usize,
    /// What stays free besides the reserve.
    pub free: u64,
}

/// The budget is too small for what must be on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the GPU has no room: {} MiB are needed without any expert, and {} MiB are there", needed.div_ceil(1 << 20), budget >> 20)]
pub struct NoRoom {
    /// Bytes that are needed, the reserve included.
    pub needed: u64,
    /// Bytes that may be used.
    pub budget: u64,
}

/// What is kept of the memory that is there: 5 %, and of a GPU that others may use as well at least 512 MiB.
pub fn reserve(bytes: u64, shared: bool) -> u64 {
    let share = bytes / 20;
    if shared { share.max(512 << 20) } else { share }
}

impl Plan {
    /// Plans.
    ///
    /// Longer chunks read each expert less often. Their intermediate results may take the place of experts while a prompt is read, of
    /// at most half of them; where all experts have their places there is room for them besides.
    ///
    /// # Errors
    /// There is no room for one sequence beside the dense weights.
    pub fn new(needs: &Needs, wish: Wish) -> Result<Plan, NoRoom> {
        let fits = |&chunk: &usize| chunk <= wish.context.max(RESERVED);
        if wish.chunk == 0 {
            for chunk in LONG_CHUNKS.into_iter().skip(2).filter(fits) {
                match Plan::with_room_for(needs, wish, chunk) {
                    Ok(plan) if plan.place == ExpertPlace::Device => return Ok(Plan { chunk, ..plan }),
                    _ => {}
                }
            }
        }
        let reserved = if wish.chunk == 0 { RESERVED } else { wish.chunk.min(RESERVED) };
        let plan = Plan::with_room_for(needs, wish, reserved)?;
        let half = plan.slots_bytes / 2;
        let borrows = |chunk: usize| needs.config.results(chunk) + PASSED as u64 * needs.slot <= half;
        let asked = (wish.chunk > 0).then_some(wish.chunk);
        let chunk = asked
            .unwrap_or_else(|| LONG_CHUNKS.into_iter().filter(fits).find(|&chunk| borrows(chunk)).unwrap_or(RESERVED));
        if chunk <= reserved || (plan.place == ExpertPlace::Host && borrows(chunk)) {
            return Ok(Plan { chunk, ..plan });
        }
        Plan::with_room_for(needs, wish, chunk)
    }

    /// A plan with room for the intermediate results of so many rows besides everything else.
    fn with_room_for(needs: &Needs, wish: Wish, chunk: usize) -> Result<Plan, NoRoom> {
        let caches = needs.caches(wish.context) + needs.draft_caches(wish.context);
        let (state, rows) = (needs.states(), wish.rows.min(WINDOW_ROWS));
        let windows = needs.windows(WINDOW_ROWS) + needs.graphs(wish.context, rows);
        let scratch = needs.scratch(wish.context, chunk);
        let sequences = |conversations: usize| conversations as u64 + u64::from(conversations > 1);
        // One checkpoint of a sequence may be under way while the oldest is still there.
        let copies = |checkpoints: usize| checkpoints as u64 + u64::from(checkpoints > 0);
        let room = |conversations: usize, checkpoints: usize| {
            sequences(conversations) * (caches + windows + state * (1 + copies(checkpoints)))
        };
        let (most, points) = (wish.conversations.max(1), wish.checkpoints);
        let fixed = needs.dense + needs.draft + scratch + wish.reserve;
        let least = room(1, points.min(1));
        let Some(left) = wish.budget.checked_sub(fixed).filter(|&left| left >= least) else {
            return Err(NoRoom { needed: fixed + least, budget: wish.budget });
        };
        let experts = needs.config.layers as u64 * needs.config.experts as u64;
        let all = needs.experts + needs.draft_experts;
        let mut link = 0;
        let limited = wish.slots.is_some_and(|slots| slots < experts);
        let (place, (conversations, checkpoints), slots, slots_bytes) = if !limited && room(most, points) + all <= left
        {
            (ExpertPlace::Device, (most, points), experts, all)
        } else {
            // What experts cannot take is for conversations.
            let most_slots = wish.slots.unwrap_or(experts).min(experts).saturating_mul(needs.slot);
            let part = (left / SHARE).max(left.saturating_sub(most_slots)).max(least);
            let kept = kept(most, points, |n, c| room(n, c) <= part);
            link = needs.link().min(left - room(kept.0, kept.1));
            let bytes = left - room(kept.0, kept.1) - link;
            let slots = (bytes / needs.slot.max(1)).min(experts).min(wish.slots.unwrap_or(u64::MAX));
            (ExpertPlace::Host, kept, slots, slots * needs.slot)
        };
        let n = sequences(conversations);
        Ok(Plan {
            wish,
            dense: needs.dense,
            draft: needs.draft,
            sequences: n,
            caches: n * caches,
            states: n * state * (1 + copies(checkpoints)),
            windows: n * windows,
            scratch: scratch + link,
            first: caches + state + needs.windows(WINDOW_ROWS) + link,
            conversations,
            checkpoints,
            place,
            slots,
            slots_bytes,
            experts,
            chunk,
            reserved: chunk,
            free: left - room(conversations, checkpoints) - link - slots_bytes,
        })
    }

    /// Bytes for slots once the weights and a first sequence's buffers are on the device: `held` bytes of it are ours, and
    /// `free` bytes nobody's. No more slots than were planned for get room, each of `slot` bytes.
    pub fn slot_bytes(&self, held: u64, free: u64, slot: u64) -> u64 {
        let later =
            (self.caches + self.states + self.windows + self.scratch).saturating_sub(self.first) + self.wish.reserve;
        let ours = self.wish.budget.saturating_sub(held);
        let most = self.wish.slots.unwrap_or(self.experts).min(self.experts);
        ours.min(free).saturating_sub(later).min(most.saturating_mul(slot))
    }
}

/// How many conversations and checkpoints of each have room: first some checkpoints of one, then conversations, then more
/// checkpoints.
fn kept(conversations: usize, checkpoints: usize, fits: impl Fn(usize, usize) -> bool) -> (usize, usize) {
    let (mut n, mut c) = (1, checkpoints.min(1));
    while c < checkpoints.min(FEW) && fits(n, c + 1) {
        c += 1;
    }
    while n < conversations && fits(n + 1, c) {
        n += 1;
    }
    while c < checkpoints && fits(n, c + 1) {
        c += 1;
    }
    (n, c)
}

/// Pairs of a layer and an expert in the order in which they get room where nothing is known of their use: equally many of
/// each layer.
pub fn in_turn(layers: usize, experts: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..experts).flat_map(move |expert| (0..layers).map(move |layer| (layer, expert)))
}

#[cfg(test)]
mod tests;
