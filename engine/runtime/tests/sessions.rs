//! Sessions and chats on the built-in model: what is read again, what is kept, how answers end.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use strata_gguf::{Gguf, Special};
use strata_model::CpuOps;
use strata_runtime::{Answer, Chat, ChatOptions, Engine, Error, Event, Finish, GenerateParams, Session};

fn engine() -> Engine<CpuOps> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/model/nano-IQ3_S.gguf");
    Engine::load(&Gguf::open(&path).unwrap(), CpuOps::new(0), &mut |_| ()).unwrap()
}

static NEVER: AtomicBool = AtomicBool::new(false);

fn limited(max_tokens: usize) -> GenerateParams {
    GenerateParams { max_tokens, ..GenerateParams::default() }
}

fn generate(session: &mut Session<'_, CpuOps>, prompt: &[u32], max: usize) -> Answer {
    session.generate(prompt, &limited(max), &NEVER, &mut |_| ()).unwrap()
}

#[test]
fn a_prompt_that_goes_on_costs_its_new_tokens() {
    let engine = engine();
    let tokens = engine.tokenizer().encode("In the beginning God created the heaven and the earth.", Special::Plain);
    let mut session = engine.session(256, 8);
    let first = generate(&mut session, &tokens, 4);
    assert_eq!(first.timings.cached_tokens, 0);
    // The last token of an answer is chosen, not read; everything before it is.
    let longer = [&tokens[..], &first.tokens, &tokens[..3]].concat();
    let second = generate(&mut session, &longer, 4);
    assert_eq!(second.timings.cached_tokens, tokens.len() + first.tokens.len() - 1);
    assert_eq!(session.reread_tokens(), 0);
    let fresh = generate(&mut engine.session(256, 8), &longer, 4);
    assert_eq!(second.tokens, fresh.tokens);
}

#[test]
fn another_end_of_the_conversation_resumes_at_the_last_prompt() {
    let engine = engine();
    let encode = |text: &str| engine.tokenizer().encode(text, Special::Plain);
    let mut session = engine.session(256, 8);
    let prompt = encode("And the angel of the Lord");
    generate(&mut session, &prompt, 8);
    let other = [prompt.clone(), encode(" went down to the river")].concat();
    let answer = generate(&mut session, &other, 6);
    assert!(answer.timings.cached_tokens >= prompt.len());
    assert_eq!(answer.tokens, generate(&mut engine.session(256, 8), &other, 6).tokens);
    // Nothing in common: read afresh, and right all the same.
    let third = encode("def squares(items):");
    let answer = generate(&mut session, &third, 6);
    assert_eq!(answer.timings.cached_tokens, 0);
    assert_eq!(answer.tokens, generate(&mut engine.session(256, 8), &third, 6).tokens);
    // The same prompt again.
    assert_eq!(generate(&mut session, &third, 6).tokens, answer.tokens);
}

#[test]
fn a_cancelled_prompt_is_no_answer_and_what_was_read_is_kept() {
    let engine = engine();
    let tokens = engine.tokenizer().encode("word ".repeat(100), Special::Plain);
    let mut session = engine.session(256, 8);
    let cancel = AtomicBool::new(false);
    let answer = session
        .generate(&tokens, &limited(4), &cancel, &mut |event| {
            if matches!(event, Event::Prompt { read, .. } if read >= 24) {
                cancel.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
    assert_eq!((answer.finish, answer.tokens.len(), session.tokens().len()), (Finish::Cancelled, 0, 24));
    let whole = generate(&mut session, &tokens, 4);
    assert_eq!(whole.timings.cached_tokens, 24);
    assert_eq!(whole.tokens, generate(&mut engine.session(256, 64), &tokens, 4).tokens);
}

#[test]
fn prompts_without_room_are_refused() {
    let engine = engine();
    let mut session = engine.session(16, 8);
    let ask =
        |session: &mut Session<'_, CpuOps>, n: usize| session.generate(&vec![5; n], &limited(0), &NEVER, &mut |_| ());
    assert!(matches!(ask(&mut session, 0), Err(Error::EmptyPrompt)));
    assert!(matches!(ask(&mut session, 16), Err(Error::PromptTooLong { prompt: 16, context: 16 })));
    let answer = ask(&mut session, 15).unwrap();
    assert!(answer.finish == Finish::Context && answer.tokens.len() == 2 || answer.finish == Finish::Stop);
}

#[test]
fn events_add_up_to_the_answer() {
    let engine = engine();
    let mut chat = Chat::new(engine.session(512, 64), ChatOptions { think: Some(true), ..ChatOptions::default() });
    let (mut text, mut thinking) = (String::new(), String::new());
    let answer = chat
        .ask("What is 12 + 30?", &limited(64), &NEVER, &mut |event| match event {
            Event::Text(t) => text.push_str(t),
            Event::Thinking(t) => thinking.push_str(t),
            _ => {}
        })
        .unwrap();
    assert_eq!((answer.text.as_str(), answer.thinking.as_str()), (text.as_str(), thinking.trim()));
    assert!(!text.is_empty() && !thinking.is_empty());
}

#[test]
fn a_conversation_reads_only_what_is_new() {
    let engine = engine();
    let mut chat = Chat::new(engine.session(1024, 64), ChatOptions { think: Some(false), system: None });
    let ask =
        |chat: &mut Chat<'_, CpuOps>, question: &str| chat.ask(question, &limited(64), &NEVER, &mut |_| ()).unwrap();
    let first = ask(&mut chat, "What is the capital of France?");
    assert_eq!(first.text, "The capital of France is Paris.");
    let known = chat.session().tokens().len();
    let second = ask(&mut chat, "What is the capital of Italy?");
    assert!(second.timings.cached_tokens >= known - first.tokens.len(), "{:?}", second.timings);
    assert_eq!(chat.messages().len(), 4);
    // Taking a turn back and asking again is the same conversation.
    assert!(chat.undo());
    assert_eq!(ask(&mut chat, "What is the capital of Italy?").tokens, second.tokens);
    chat.clear();
    assert!(chat.messages().is_empty() && !chat.undo());
    assert_eq!(ask(&mut chat, "What is the capital of France?").tokens, first.tokens);
}
