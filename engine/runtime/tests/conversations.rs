//! Several conversations: which one a prompt goes to, and which one goes when memory is short.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

mod common;

use common::{NEVER, engine, exactly, fresh, noise, tiny};
use strata_model::CpuOps;
use strata_runtime::{Answer, CheckpointParams, ConversationParams, Conversations, Engine, Error};

fn params(engine: &Engine<CpuOps>, count: usize, room: usize) -> ConversationParams {
    let checkpoints = CheckpointParams { every: 32, count: 4, bytes: 1 << 30 };
    // A conversation of up to 200 tokens with all its checkpoints.
    let one = engine.model().state_bytes(200) * 9 / 8 + 4 * (engine.model().snapshot_bytes() + 1200);
    ConversationParams { context: 512, chunk: 16, checkpoints, count, bytes: room * one }
}

fn ask(all: &mut Conversations<'_, CpuOps>, prompt: &[u32]) -> Answer {
    all.generate(&prompt.to_vec().into(), &exactly(4), &NEVER, &mut |_| ()).unwrap()
}

fn read(answer: &Answer) -> usize {
    answer.timings.prompt_tokens - answer.timings.cached_tokens
}

#[test]
fn each_prompt_finds_its_conversation() {
    let engine = engine(&tiny());
    let mut all = Conversations::new(&engine, params(&engine, 4, 8));
    let mut prompts: Vec<_> = (1..4).map(|seed| noise(seed, 60)).collect();
    for round in 0..3 {
        for (i, prompt) in prompts.iter_mut().enumerate() {
            let answer = ask(&mut all, prompt);
            assert_eq!(read(&answer), if round == 0 { 60 } else { 6 });
            assert_eq!(answer.tokens, fresh(&engine, prompt, 4).0);
            prompt.extend(&answer.tokens);
            prompt.extend(noise(50 + i as u32, 5));
        }
    }
    let stats = all.stats();
    assert_eq!((stats.started, stats.resumed, stats.branched, stats.evicted), (3, 6, 0, 0));
    assert_eq!((all.len(), stats.reread_tokens), (3, 0));
}

#[test]
fn a_branch_keeps_the_original_while_there_is_room() {
    let engine = engine(&tiny());
    for (count, room, kept) in [(4, 8, true), (1, 8, false), (4, 1, false)] {
        let mut all = Conversations::new(&engine, params(&engine, count, room));
        let start = noise(1, 60);
        let first = ask(&mut all, &start);
        let common = [start, first.tokens].concat();
        let one = [common.clone(), noise(2, 30)].concat();
        let two = [common.clone(), noise(3, 30)].concat();
        ask(&mut all, &one);
        // The end of the first answer is a checkpoint: the other question alone is read.
        assert_eq!(read(&ask(&mut all, &two)), 31);
        assert_eq!((all.stats().branched, all.stats().replaced), if kept { (1, 0) } else { (0, 1) });
        let back = ask(&mut all, &one);
        assert_eq!(read(&back), if kept { 0 } else { 31 }, "{count} {room}");
        assert_eq!(back.tokens, fresh(&engine, &one, 4).0);
    }
}

#[test]
fn the_conversation_used_longest_ago_goes_first() {
    let engine = engine(&tiny());
    let limits = params(&engine, 2, 8);
    let mut all = Conversations::new(&engine, limits);
    let prompts: Vec<_> = (1..4).map(|seed| noise(seed, 60)).collect();
    ask(&mut all, &prompts[0]);
    ask(&mut all, &prompts[1]);
    ask(&mut all, &prompts[0]);
    ask(&mut all, &prompts[2]);
    assert_eq!((all.len(), all.stats().evicted), (2, 1));
    assert_eq!([0, 1, 2].map(|i| all.reach(&prompts[i])), [60, 0, 60]);
    // A prompt that is refused costs nobody anything.
    let refused = all.generate(&noise(9, 600).into(), &exactly(4), &NEVER, &mut |_| ());
    assert!(matches!(refused, Err(Error::PromptTooLong { prompt: 600, context: 512 })));
    assert_eq!(all.len(), 2);
}

#[test]
fn the_budget_of_memory_holds() {
    let engine = engine(&tiny());
    let limits = params(&engine, 100, 3);
    let mut all = Conversations::new(&engine, limits);
    for seed in 0..12 {
        ask(&mut all, &noise(seed, 40 + 10 * seed as usize));
        assert!(all.bytes() <= limits.bytes, "{} of {}", all.bytes(), limits.bytes);
    }
    assert!(all.len() >= 2 && all.stats().evicted > 0, "{} {:?}", all.len(), all.stats());
    // Sizes are what they are said to be, but for the room that caches keep.
    let session = all.iter().next().unwrap();
    let (model, tokens) = (engine.model(), session.tokens().len());
    let held = model.held_bytes(session.state());
    assert!(held >= model.state_bytes(tokens) && held < model.state_bytes(tokens) * 5 / 4 + 12 * tokens, "{held}");
}

#[test]
fn short_questions_on_the_side_leave_a_long_conversation_alone() {
    let engine = engine(&tiny());
    let mut all = Conversations::new(&engine, params(&engine, 3, 8));
    let long = noise(1, 150);
    let first = ask(&mut all, &long);
    for seed in 2..9 {
        ask(&mut all, &noise(seed, 12));
    }
    assert_eq!(all.stats().evicted, 5);
    let next = [long, first.tokens, noise(20, 5)].concat();
    assert_eq!(read(&ask(&mut all, &next)), 6);
    // It goes too in the end, when nobody comes back to it.
    for seed in 30..60 {
        ask(&mut all, &noise(seed, 12));
    }
    assert_eq!(all.reach(&next), 0);
}

#[test]
fn a_conversation_that_is_taken_out_is_found_again() {
    let engine = engine(&tiny());
    let mut all = Conversations::new(&engine, params(&engine, 4, 8));
    let (one, other) = (noise(1, 60), noise(2, 60));
    let limits = exactly(4);
    let prompt = |tokens: &[u32]| strata_runtime::Prompt::from(tokens.to_vec());
    let mut first = all.begin(&prompt(&one), &limits).unwrap();
    assert_eq!((first.near(), all.len()), (None, 0));
    // Others are answered meanwhile.
    let aside = ask(&mut all, &other);
    assert_eq!(aside.tokens, fresh(&engine, &other, 4).0);
    let answer = first.generate(&prompt(&one), &limits, &NEVER, &mut |_| ()).unwrap();
    all.end(first);
    assert_eq!((all.len(), &answer.tokens), (2, &fresh(&engine, &one, 4).0));
    let next = [&one[..50], &noise(3, 20)].concat();
    let turn = all.begin(&prompt(&next), &limits).unwrap();
    let near = turn.near().unwrap();
    assert_eq!((near.common, near.known), (50, 63));
    all.end(turn);
    let bad = all.begin(&prompt(&[]), &limits);
    assert!(matches!(bad.err(), Some(Error::EmptyPrompt)));
    let more = [one, answer.tokens, noise(4, 5)].concat();
    assert_eq!(read(&ask(&mut all, &more)), 6);
}
