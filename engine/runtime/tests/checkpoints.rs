//! Where a session resumes, what it keeps, and that none of it changes an answer.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

mod common;

use common::{NEVER, engine, exactly, fresh, generate, nano, noise, tiny};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use strata_model::CpuOps;
use strata_runtime::{
    Answer, Chat, ChatMarks, ChatOptions, CheckpointParams, ConversationParams, Conversations, Engine, Prompt,
};

const FEW: CheckpointParams = CheckpointParams { every: 24, count: 4, bytes: 1 << 30 };

/// Prompt tokens that an answer had to read.
fn read(answer: &Answer) -> usize {
    answer.timings.prompt_tokens - answer.timings.cached_tokens
}

#[test]
fn each_turn_reads_only_its_new_tokens() {
    let engine = engine(&tiny());
    let mut session = engine.session(512, 16);
    let mut prompt = noise(1, 100);
    for turn in 2..8 {
        let answer = generate(&mut session, &prompt, 5);
        let expected = fresh(&engine, &prompt, 5);
        assert_eq!((answer.tokens.clone(), session.state().fingerprint()), expected, "turn {turn}");
        // The last token of an answer is chosen, not read.
        assert_eq!(read(&answer), if turn == 2 { 100 } else { 8 });
        prompt.extend(&answer.tokens);
        prompt.extend(noise(turn, 7));
    }
    assert_eq!(session.reread_tokens(), 0);
}

#[test]
fn the_same_prompt_again_needs_no_reading() {
    let engine = engine(&tiny());
    let mut session = engine.session(512, 16);
    let prompt = noise(3, 90);
    let first = generate(&mut session, &prompt, 6);
    let again = generate(&mut session, &prompt, 6);
    assert_eq!((read(&again), again.tokens), (0, first.tokens));
    assert_eq!(session.state().fingerprint(), fresh(&engine, &prompt, 6).1);
}

#[test]
fn an_edit_resumes_at_the_last_checkpoint_before_it() {
    let engine = engine(&tiny());
    let mut session =
        engine.session(512, 16).with_checkpoints(CheckpointParams { every: 64, count: 8, bytes: 1 << 30 });
    let long = noise(4, 300);
    generate(&mut session, &long, 3);
    assert_eq!(session.checkpoints(), [64, 128, 192, 256, 300]);
    let mut edited = long.clone();
    edited[200] = (edited[200] + 1) % 280;
    let answer = generate(&mut session, &edited, 3);
    assert_eq!(read(&answer), 300 - 192);
    assert_eq!((answer.tokens, session.state().fingerprint()), fresh(&engine, &edited, 3));
}

#[test]
fn limits_hold_and_the_latest_stays() {
    let engine = engine(&tiny());
    let each = engine.model().snapshot_bytes();
    let with = |count, bytes| {
        let params = CheckpointParams { every: 32, count, bytes };
        let mut session = engine.session(512, 16).with_checkpoints(params);
        generate(&mut session, &noise(5, 200), 1);
        session.checkpoints()
    };
    assert_eq!(with(3, usize::MAX), [160, 192, 200]);
    assert_eq!(with(100, 2 * (each + 4 * 300)), [192, 200]);
    assert_eq!(with(100, 0), [200]);
    assert!(with(0, usize::MAX).is_empty());
}

#[test]
fn a_shared_beginning_outlives_the_others() {
    let engine = engine(&tiny());
    let mut session =
        engine.session(512, 16).with_checkpoints(CheckpointParams { every: 16, count: 3, bytes: 1 << 30 });
    let shared = noise(6, 70);
    for question in 0..4 {
        let tokens = [shared.clone(), noise(7 + question, 120)].concat();
        let prompt = Prompt { tokens: tokens.clone(), shared: 70, ..Prompt::default() };
        let answer = session.generate_from(&prompt, &exactly(4), &NEVER, &mut |_| ()).unwrap();
        assert_eq!(read(&answer), if question == 0 { 190 } else { 120 });
        assert_eq!((answer.tokens, session.state().fingerprint()), fresh(&engine, &tokens, 4));
        assert!(session.checkpoints().len() == 3 && session.checkpoints()[0] == 70, "{:?}", session.checkpoints());
    }
}

fn ask(chat: &mut Chat<'_, CpuOps>, question: &str, max: usize) -> Answer {
    let params = strata_runtime::GenerateParams { max_tokens: max, ..Default::default() };
    chat.ask(question, &params, &NEVER, &mut |_| ()).unwrap()
}

/// Without thinking, a turn reads what is behind the last answer; taken back, it costs the new question alone.
#[test]
fn a_chat_takes_turns_back_for_nothing() {
    let engine = engine(&nano());
    for think in [false, true] {
        let options = ChatOptions { think: Some(think), system: Some("Answer the question. ".repeat(40)) };
        let mut chat = Chat::new(engine.session(2048, 64), options.clone());
        let first = ask(&mut chat, "What is the capital of France?", 60);
        assert_eq!(first.timings.cached_tokens, 0);
        let second = ask(&mut chat, "What is the capital of Italy?", 60);
        assert!(read(&second) < 60, "think {think}: {:?}", second.timings);
        let third = ask(&mut chat, "What is 12 + 30?", 60);
        assert!(read(&third) < 60, "think {think}: {:?}", third.timings);
        // Another question in its place, at most a few of the template's tokens more.
        assert!(chat.undo());
        let other = ask(&mut chat, "What is 11 + 32?", 60);
        assert!(read(&other) <= 40, "think {think}: {:?}", other.timings);
        // Two turns back.
        assert!(chat.undo() && chat.undo());
        let back = ask(&mut chat, "What is the capital of Spain?", 60);
        assert!(read(&back) < 60, "think {think}: {:?}", back.timings);
        let mut anew = Chat::new(engine.session(2048, 256), options.clone());
        ask(&mut anew, "What is the capital of France?", 60);
        assert_eq!(ask(&mut anew, "What is the capital of Spain?", 60).tokens, back.tokens);
        // A new conversation has the system message in common.
        chat.clear();
        let cleared = ask(&mut chat, "What is the capital of France?", 60);
        assert!(read(&cleared) < 40, "think {think}: {:?}", cleared.timings);
        assert_eq!(cleared.tokens, first.tokens);
    }
}

#[test]
fn marks_stand_where_conversations_part() {
    let engine = engine(&nano());
    let message = |role: &str, text: &str| serde_json::json!({"role": role, "content": text});
    let options = |think| strata_gguf::RenderOptions { enable_thinking: Some(think), ..Default::default() };
    let start = [message("system", "Be brief."), message("user", "Who are you?")];
    let later = [&start[..], &[message("assistant", "Nobody."), message("user", "xylophones?")]].concat();
    for think in [false, true] {
        let mut marks = ChatMarks::new();
        let first = marks.prompt(&engine, &start, &options(think), None).unwrap();
        let text = |p: &Prompt, len: usize| {
            let bytes = engine.tokenizer().decode(&p.tokens[..len], strata_gguf::ControlText::Show);
            String::from_utf8(bytes).unwrap()
        };
        assert!(text(&first, first.shared).ends_with("user\n"), "{:?}", text(&first, first.shared));
        let second = marks.prompt(&engine, &later, &options(think), None).unwrap();
        let question = text(&second, second.marks[0]);
        assert!(question.contains("Nobody.") && question.ends_with("user\n"), "{question:?}");
        assert_eq!(second.shared, first.shared);
    }
}

/// What is done to a conversation between two prompts.
#[derive(Debug, Clone)]
enum Edit {
    /// New tokens behind the last answer.
    Continue(usize),
    /// So many tokens kept of the last prompt and answer, and new ones behind.
    Cut(usize, usize),
    /// An earlier prompt again.
    Revert(usize),
    /// Something else.
    Start(usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        4 => (1..30usize).prop_map(Edit::Continue),
        3 => (0..160usize, 1..30usize).prop_map(|(keep, new)| Edit::Cut(keep, new)),
        2 => (0..8usize).prop_map(Edit::Revert),
        1 => (1..60usize).prop_map(Edit::Start),
    ];
    prop::collection::vec(edit, 3..9)
}

/// The prompts of a script, each with the tokens it has in common with the one before as a mark.
fn play(engine: &Engine<CpuOps>, script: &[Edit], mut answer: impl FnMut(&Prompt) -> (Vec<u32>, u64)) {
    let mut prompts: Vec<Vec<u32>> = vec![noise(99, 80)];
    for (i, edit) in script.iter().enumerate() {
        let prompt = prompts.last().cloned().unwrap();
        let marks = vec![prompt.len() / 2, prompt.len().saturating_sub(3)];
        let given = answer(&Prompt { tokens: prompt.clone(), shared: 70, marks, ..Prompt::default() });
        assert_eq!(given, fresh(engine, &prompt, 4), "step {i} of {script:?}");
        let known = [prompt, given.0].concat();
        let new = |len| noise(i as u32 * 31 + 7, len);
        prompts.push(match *edit {
            Edit::Continue(len) => [known, new(len)].concat(),
            Edit::Cut(keep, len) => [&known[..keep.min(known.len())], &new(len)].concat(),
            Edit::Revert(back) => prompts[back % prompts.len()].clone(),
            Edit::Start(len) => new(len),
        });
    }
}

/// Runs a test of scripts and two numbers on one engine.
fn scripts(limits: (usize, usize), test: impl Fn(&Engine<CpuOps>, &[Edit], usize, usize)) {
    let engine = engine(&tiny());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) };
    let strategy = (edits(), 1..limits.0, 1..limits.1);
    let outcome = TestRunner::new(config).run(&strategy, |(script, a, b)| {
        test(&engine, &script, a, b);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn edits_never_change_an_answer() {
    scripts((20, 5), |engine, script, chunk, count| {
        let mut session = engine.session(512, chunk).with_checkpoints(CheckpointParams { count, ..FEW });
        play(engine, script, |prompt| {
            let answer = session.generate_from(prompt, &exactly(4), &NEVER, &mut |_| ()).unwrap();
            (answer.tokens, session.state().fingerprint())
        });
    });
}

#[test]
fn conversations_never_change_an_answer() {
    scripts((4, 6), |engine, script, count, room| {
        let one = engine.model().state_bytes(200) * 9 / 8 + 4 * (engine.model().snapshot_bytes() + 1200);
        let params = ConversationParams { context: 512, chunk: 16, checkpoints: FEW, count, bytes: room * one };
        let mut all = Conversations::new(engine, params);
        play(engine, script, |prompt| {
            let answer = all.generate(prompt, &exactly(4), &NEVER, &mut |_| ()).unwrap();
            assert!(all.len() <= count && (all.len() == 1 || all.bytes() <= params.bytes));
            (answer.tokens, all.iter().next().unwrap().state().fingerprint())
        });
    });
}
