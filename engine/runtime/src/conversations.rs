//! Several conversations within one budget of memory.

use crate::checkpoints::{CheckpointParams, Prompt, Way};
use crate::engine::Engine;
use crate::error::Result;
use crate::guide::Guide;
use crate::params::GenerateParams;
use crate::session::{Answer, Event, Session};
use crate::speculation::SpeculationParams;
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
    /// The least worth goes first: tokens that would have to be read again, and the worth of what had to go before it
    /// was used last.
    worth: u64,
}

/// The conversation that agrees with a prompt the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Near {
    /// First tokens that both have.
    pub common: usize,
    /// Tokens that the conversation has.
    pub known: usize,
}

/// A conversation that was taken out to be answered. See [`Conversations::begin`].
pub struct Turn<'e, O: Ops> {
    session: Session<'e, O>,
    /// Until it is answered.
    guide: Option<Guide>,
    near: Option<Near>,
    reread: usize,
    bytes: usize,
}

impl<O: Ops> Turn<'_, O> {
    /// The conversation that agreed with the prompt the longest, when this one was taken out; `None` if none was kept.
    pub fn near(&self) -> Option<Near> {
        self.near
    }

    /// Answers the prompt that it was taken out for. See [`Session::generate_from`].
    ///
    /// # Errors
    /// The model fails, or the answer cannot go on within its constraint.
    pub fn generate(
        &mut self,
        prompt: &Prompt,
        params: &GenerateParams,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        match self.guide.take() {
            Some(guide) => self.session.generate_guided(prompt, params, guide, cancel, on_event),
            None => self.session.generate_from(prompt, params, cancel, on_event),
        }
    }
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
/// When the new total would be beyond the budget, conversations go: of those of one length the one used longest ago, and
/// before a long one several short ones that were used since. A rereading of the long one would take longer, and agents
/// ask many short questions on the side. None goes while there is room.
pub struct Conversations<'e, O: Ops> {
    engine: &'e Engine<O>,
    params: ConversationParams,
    speculation: SpeculationParams,
    slots: Vec<Slot<'e, O>>,
    clock: u64,
    /// The worth of the last one that went.
    floor: u64,
    /// Conversations that are being answered, and bytes that are set aside for them.
    taken: usize,
    taken_bytes: usize,
    stats: ConversationStats,
}

impl<'e, O: Ops> Conversations<'e, O> {
    /// No conversations yet.
    pub fn new(engine: &'e Engine<O>, params: ConversationParams) -> Conversations<'e, O> {
        let params = ConversationParams { count: params.count.max(1), ..params };
        let (speculation, stats) = (SpeculationParams::default(), ConversationStats::default());
        Conversations {
            engine,
            params,
            speculation,
            slots: Vec::new(),
            clock: 0,
            floor: 0,
            taken: 0,
            taken_bytes: 0,
            stats,
        }
    }

    /// The same with other drafts for its conversations.
    pub fn with_speculation(self, speculation: SpeculationParams) -> Conversations<'e, O> {
        Conversations { speculation, ..self }
    }

    /// Conversations that are kept, those that are being answered not counted.
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
    /// The prompt is empty or leaves no room for an answer, a parameter cannot be obeyed, the model fails, or the answer
    /// cannot go on within its constraint; the other conversations are kept.
    pub fn generate(
        &mut self,
        prompt: &Prompt,
        params: &GenerateParams,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Answer> {
        let mut turn = self.begin(prompt, params)?;
        let answer = turn.generate(prompt, params, cancel, on_event);
        self.end(turn);
        answer
    }

    /// Takes out the conversation that a prompt belongs to. Others can be answered until it comes back with
    /// [`end`](Conversations::end); one that would go on in the same conversation does not find it there.
    ///
    /// # Errors
    /// The prompt is empty or leaves no room for an answer, or a parameter cannot be obeyed: nothing is given up then.
    pub fn begin(&mut self, prompt: &Prompt, params: &GenerateParams) -> Result<Turn<'e, O>> {
        let (tokens, context) = (prompt.tokens.len(), self.params.context);
        prompt.must_fit(context)?;
        let guide = Guide::new(self.engine, &prompt.tokens, params)?;
        let near = self.near(&prompt.tokens);
        let room = if params.max_tokens > 0 { params.max_tokens } else { ANSWER_ROOM };
        let needed = self.needed(context.min(tokens.saturating_add(room)));
        let session = self.session_for(&prompt.tokens, needed)?;
        let bytes = needed.max(session.bytes());
        self.taken += 1;
        self.taken_bytes += bytes;
        Ok(Turn { reread: session.reread_tokens(), session, guide: Some(guide), near, bytes })
    }

    /// Takes a conversation back.
    pub fn end(&mut self, turn: Turn<'e, O>) {
        let Turn { session, reread, bytes, .. } = turn;
        self.taken = self.taken.saturating_sub(1);
        self.taken_bytes = self.taken_bytes.saturating_sub(bytes);
        self.stats.reread_tokens += (session.reread_tokens() - reread) as u64;
        if !session.tokens().is_empty() {
            self.make_room(session.bytes(), None);
            self.clock += 1;
            let worth = self.floor + session.tokens().len() as u64;
            self.slots.push(Slot { session, used: self.clock, worth });
        }
    }

    /// The conversation that agrees with a prompt the longest.
    fn near(&self, prompt: &[u32]) -> Option<Near> {
        let near = |slot: &Slot<'e, O>| {
            let known = slot.session.tokens();
            let common = known.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            (Near { common, known: known.len() }, slot.used)
        };
        self.slots.iter().map(near).max_by_key(|(near, used)| (near.common, *used)).map(|(near, _)| near)
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
            let session = engine.session(p.context, p.chunk).with_checkpoints(p.checkpoints);
            return Ok(session.with_speculation(self.speculation));
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

    /// Gives up conversations, those of the least worth first, until one more of so many bytes fits.
    fn make_room(&mut self, needed: usize, spared: Option<usize>) {
        let spared = spared.map(|at| self.slots[at].used);
        let full = |all: &Self| {
            let bytes = all.bytes().saturating_add(all.taken_bytes).saturating_add(needed);
            all.slots.len() + all.taken >= all.params.count || bytes > all.params.bytes
        };
        while full(self) {
            let candidates = (0..self.slots.len()).filter(|&i| Some(self.slots[i].used) != spared);
            let least = candidates.min_by_key(|&i| (self.slots[i].worth, self.slots[i].used));
            let Some(least) = least else { break };
            self.floor = self.slots.swap_remove(least).worth;
            self.stats.evicted += 1;
        }
    }
}
