//! Several conversations within one budget of memory.

use crate::checkpoints::{CheckpointParams, Prompt, Way};
use crate::engine::Engine;
use crate::error::Result;
use crate::session::{Answer, Event, GenerateParams, Session};
use std::sync::atomic::AtomicBool;
use strata_model::Ops;

/// Tokens of an answer without a limit for which memory is set aside before it starts. A longer one may take more than
/// the budget, by what it grows beyond this, until it ends.
const ANSWER_ROOM: usize = 16_384;

/// How many conversations are kept, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversationParams {
    /// Tokens that each can hold.
    pub context: usize,
    /// Prompt tokens read in one pass.
    pub chunk: usize,
    /// Checkpoints of each.
    pub checkpoints: CheckpointParams,
    /// Conversations at most, at least 1.
    pub count: usize,
    /// Bytes that all may take together. The one that is answered goes on even if it alone takes more.
    pub bytes: usize,
}

/// What happened to conversations so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct ConversationStats {
    /// Prompts that started with nothing known.
    pub started: u64,
    /// Prompts that went on in a conversation.
    pub resumed: u64,
    /// Prompts that went on from an earlier point of a conversation, which was kept as it is.
    pub branched: u64,
    /// Prompts that replaced the later turns of a conversation, for lack of memory to keep both.
    pub replaced: u64,
    /// Conversations given up for others.
    pub evicted: u64,
    /// Tokens that had been read and were read again.
    pub reread_tokens: u64,
}

struct Slot<'e, O: Ops> {
    session: Session<'e, O>,
    used: u64,
}

/// Several conversations on one engine.
///
/// A prompt is given to the conversation that can answer from the most of its tokens without reading them again (among
/// equals the one used last):
///
/// - all that this conversation knows is the prompt's beginning, or all that the prompt does not share lies behind its
///   last checkpoint (an answer to be given again, or rendered differently): it goes on there;
/// - the prompt leaves it at an earlier checkpoint, so that later turns would be lost: a copy goes on from there and the
///   original stays. If even without every other conversation there is no memory for both, the original goes on;
/// - none has a checkpoint in reach: a new one is started.
///
/// When the new total would be beyond the budget, the conversations used longest ago go first. None goes while there is
/// room.
pub struct Conversations<'e, O: Ops> {
    engine: &'e Engine<O>,
    params: ConversationParams,
    slots: Vec<Slot<'e, O>>,
    clock: u64,
    stats: ConversationStats,
}

impl<'e, O: Ops> Conversations<'e, O> {
    /// No conversations yet.
    pub fn new(engine: &'e Engine<O>, params: ConversationParams) -> Conversations<'e, O> {
        let params = ConversationParams { count: params.count.max(1), ..params };
        Conversations { engine, params, slots: Vec::new(), clock: 0, stats: ConversationStats::default() }
    }

    /// Conversations that are kept.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of memory that all hold now.
    pub fn bytes(&self) -> usize {
        self.slots.iter().map(|s| s.session.bytes()).sum()
    }

    /// What happened so far.
    pub fn stats(&self) -> ConversationStats {
        self.stats
    }

    /// The conversations, the one used last first.
    pub fn iter(&self) -> impl Iterator<Item = &Session<'e, O>> {
        let mut slots: Vec<_> = self.slots.iter().collect();
        slots.sort_by_key(|s| std::cmp::Reverse(s.used));
        slots.into_iter().map(|s| &s.session)
    }

    /// How many of a prompt's first tokens would need no reading.
    pub fn reach(&self, prompt: &[u32]) -> usize {
        self.slots.iter().map(|s| s.session.reach(prompt)).max().unwrap_or(0)
    }

    /// Answers a prompt in the conversation it belongs to. See [`Session::generate_from`].
    ///
    /// # Errors
    /// The prompt is empty or leaves no room for an answer, or the model fails; the other conversations are kept.
    pub fn generate(
        &mut self,
        prompt: &Prompt,
        params: &GenerateParams,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        // Nothing is given up for a prompt that will be refused.
        let (tokens, context) = (prompt.tokens.len(), self.params.context);
        prompt.must_fit(context)?;
        let room = if params.max_tokens > 0 { params.max_tokens } else { ANSWER_ROOM };
        let needed = self.needed(context.min(tokens.saturating_add(room)));
        let mut session = self.session_for(&prompt.tokens, needed)?;
        let before = session.reread_tokens();
        let answer = session.generate_from(prompt, params, cancel, on_event);
        self.stats.reread_tokens += (session.reread_tokens() - before) as u64;
        if !session.tokens().is_empty() {
            let held = session.bytes();
            self.make_room(held, None);
            self.clock += 1;
            self.slots.push(Slot { session, used: self.clock });
        }
        answer
    }

    /// Bytes of a conversation of so many tokens at most.
    fn needed(&self, tokens: usize) -> usize {
        let (model, c) = (self.engine.model(), self.params.checkpoints);
        let state = model.state_bytes(tokens);
        // Caches keep room for an eighth more.
        state + state / 8 + crate::checkpoints::Checkpoints::<O>::new(c).most_bytes(model)
    }

    /// The session that a prompt goes on in, taken out of the others, with room made for it.
    fn session_for(&mut self, prompt: &[u32], needed: usize) -> Result<Session<'e, O>> {
        let reach = |slot: &Slot<'e, O>| (slot.session.reach(prompt), slot.used);
        let best =
            (0..self.slots.len()).max_by_key(|&i| reach(&self.slots[i])).filter(|&i| reach(&self.slots[i]).0 > 0);
        let Some(at) = best else {
            self.stats.started += 1;
            self.make_room(needed, None);
            let (engine, p) = (self.engine, self.params);
            return Ok(engine.session(p.context, p.chunk).with_checkpoints(p.checkpoints));
        };
        let source = &self.slots[at];
        if let (len, _, Way::Back(point)) = source.session.way(prompt)
            && source.session.checkpoints().last().is_some_and(|&last| last > len)
        {
            if self.params.count > 1 && source.session.bytes() + needed <= self.params.bytes {
                self.stats.branched += 1;
                let copy = source.session.branch(&point);
                self.make_room(needed, Some(at));
                return copy;
            }
            self.stats.replaced += 1;
        } else {
            self.stats.resumed += 1;
        }
        let session = self.slots.swap_remove(at).session;
        self.make_room(needed.max(session.bytes()), None);
        Ok(session)
    }

    /// Gives up conversations, those used longest ago first, until one more of so many bytes fits.
    fn make_room(&mut self, needed: usize, spared: Option<usize>) {
        let spared = spared.map(|at| self.slots[at].used);
        while self.slots.len() >= self.params.count || self.bytes().saturating_add(needed) > self.params.bytes {
            let candidates = (0..self.slots.len()).filter(|&i| Some(self.slots[i].used) != spared);
            let Some(oldest) = candidates.min_by_key(|&i| self.slots[i].used) else { break };
            self.slots.swap_remove(oldest);
            self.stats.evicted += 1;
        }
    }
}
