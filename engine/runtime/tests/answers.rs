//! What an answer may be told to be: stop texts, marks, log-probabilities, biases, budgets of thinking.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{NEVER, engine, exactly, nano, nano_with_draft_layer, noise, tiny, tiny_that_chats};
use strata_gguf::{Gguf, Special, TokenKind, Writer};
use strata_model::{CpuOps, Silent, Want};
use strata_runtime::{
    Answer, Constraint, Engine, Error, Event, Finish, GenerateParams, SamplingParams, Session, SpeculationParams,
    TokenLogprob,
};

const ASKED: &str =
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

fn prompt(engine: &Engine<CpuOps>, text: &str) -> Vec<u32> {
    engine.tokenizer().encode(text, Special::Parse)
}

/// An answer and its events: marks as they are between other pieces.
fn answer(session: &mut Session<'_, CpuOps>, prompt: &[u32], params: &GenerateParams) -> (Answer, Vec<String>) {
    let (mut events, mut last) = (Vec::new(), "");
    let answer = session.generate(prompt, params, &NEVER, &mut |event| {
        let (kind, piece) = match event {
            Event::Text(piece) => ("text", piece),
            Event::Thinking(piece) => ("thinking", piece),
            Event::Mark(piece) => ("mark", piece),
            Event::Prompt { .. } | Event::Logprob(_) | Event::Round(_) => return,
        };
        match events.last_mut() {
            Some(before) if last == kind && kind != "mark" => *before += piece,
            _ => events.push(format!("{kind} {piece}")),
        }
        last = kind;
    });
    (answer.unwrap(), events)
}

fn greedy(max_tokens: usize) -> GenerateParams {
    GenerateParams { max_tokens, ..GenerateParams::default() }
}

#[test]
fn a_stop_text_ends_the_answer_wherever_tokens_end() {
    let engine = nano_with_draft_layer();
    let prompt = prompt(&engine, ASKED);
    for plain in [true, false] {
        let ask = |stop: &[&str]| {
            let mut session = engine.session(256, 64);
            if plain {
                session = session.with_speculation(SpeculationParams::none());
            }
            let stop = stop.iter().map(|&s| s.to_owned()).collect();
            answer(&mut session, &prompt, &GenerateParams { stop, ..greedy(40) }).0
        };
        let whole = ask(&[]);
        assert_eq!((whole.text.as_str(), whole.finish), ("The capital of France is Paris.", Finish::Stop));
        assert_eq!(whole.stop_text, None);
        // Over four tokens, from the middle of one to the middle of another.
        let cut = ask(&["Par", "tal of France i"]);
        assert_eq!((cut.text.as_str(), cut.finish), ("The capi", Finish::StopText));
        assert_eq!(cut.stop_text.as_deref(), Some("tal of France i"));
        assert!(whole.tokens.starts_with(&cut.tokens) && cut.tokens.len() >= 4, "{:?}", cut.tokens);
        // Nearly, but not quite: nothing is lost.
        let near = ask(&["tal of France is London", "Paris. ", "Paris.."]);
        assert_eq!((near.text, near.finish, near.tokens), (whole.text, Finish::Stop, whole.tokens));
    }
}

#[test]
fn log_probabilities_are_the_models_own_and_follow_the_text() {
    let engine = nano_with_draft_layer();
    let prompt = prompt(&engine, ASKED);
    let ask = |params: SpeculationParams, change: fn(&mut GenerateParams)| {
        let mut session = engine.session(256, 64).with_speculation(params);
        let mut told: Vec<TokenLogprob> = Vec::new();
        let mut text = String::new();
        let mut params = GenerateParams { logprobs: Some(3), ..greedy(40) };
        change(&mut params);
        let answer = session.generate(&prompt, &params, &NEVER, &mut |event| match event {
            Event::Logprob(logprob) => told.push(logprob.clone()),
            Event::Text(piece) => text.push_str(piece),
            _ => {}
        });
        let bytes: Vec<u8> = told.iter().flat_map(|t| t.bytes.clone()).collect();
        assert!(String::from_utf8(bytes).unwrap().starts_with(&text));
        (answer.unwrap(), told)
    };
    let (whole, told) = ask(SpeculationParams::none(), |_| ());
    // The token that ends the answer is not shown.
    let ids: Vec<u32> = told.iter().map(|t| t.id).collect();
    assert_eq!(ids, whole.tokens[..whole.tokens.len() - 1]);
    let mut text = prompt.clone();
    for token in &told {
        let mut state = engine.model().new_state(text.len());
        let logits = engine.model().forward(&mut state, &text, Want::Last, &mut Silent).unwrap().logits;
        let total: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        let expected = f64::from(logits[token.id as usize]) - total.ln();
        assert!((f64::from(token.logprob) - expected).abs() < 1e-5, "{token:?}, expected {expected}");
        assert!(token.top.len() == 3 && token.top[0].0 == token.id && token.top[0].2 == token.logprob);
        assert!(token.top.windows(2).all(|pair| pair[0].2 >= pair[1].2) && token.logprob < 0.0);
        text.push(token.id);
    }
    assert_eq!(ask(SpeculationParams::default(), |_| ()).1, told, "drafts make no difference");
    // Neither does what changes the choice.
    let (other, changed) = ask(SpeculationParams::none(), |params| {
        (params.sampling.temp, params.sampling.seed, params.sampling.presence_penalty) = (1.8, 3, 0.5);
    });
    assert_eq!(changed[0].top, told[0].top);
    assert_ne!(other.tokens, whole.tokens);
    // What belongs to a stop text has none.
    let (cut, told) = ask(SpeculationParams::default(), |params| params.stop = vec![" of France".to_owned()]);
    assert_eq!((cut.text.as_str(), told.len()), ("The capital", told.iter().take_while(|t| t.bytes != b" of").count()));
    assert!(!told.is_empty());
}

#[test]
fn a_mark_is_a_token_and_not_its_letters() {
    let engine = engine(&tiny_that_chats());
    let lark = |grammar: &str| {
        let constraint = Some(Constraint::Lark(grammar.to_owned()));
        let mut session = engine.session(256, 64);
        answer(&mut session, &[65; 20], &GenerateParams { constraint, ..greedy(100) })
    };
    let (spelled, events) = lark(r#"start: "a <tool_call>b</tool_call>""#);
    assert_eq!(events, ["text a <tool_call>b</tool_call>"]);
    assert_eq!(spelled.tokens.len(), spelled.text.len());
    let (marked, events) = lark(r#"start: "a " <tool_call> "b" </tool_call>"#);
    assert_eq!(events, ["text a ", "mark <tool_call>", "text b", "mark </tool_call>"]);
    assert_eq!((marked.text, marked.tokens.len()), (spelled.text, 5));
    assert_eq!((marked.finish, spelled.finish), (Finish::Stop, Finish::Stop));
}

#[test]
fn a_budget_closes_the_thinking() {
    let engine = nano_with_draft_layer();
    let asked = prompt(&engine, "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n<think>\n");
    let (_, close) = engine.think_ids().unwrap();
    let ask = |budget: Option<usize>, params: SpeculationParams| {
        let mut session = engine.session(256, 64).with_speculation(params);
        answer(&mut session, &asked, &GenerateParams { think_budget: budget, ..greedy(60) })
    };
    let (free, _) = ask(None, SpeculationParams::none());
    let thought = free.tokens.iter().position(|&t| t == close).unwrap();
    assert!(thought > 6 && free.thinking_tokens == thought, "{free:?}");
    for budget in [0, 1, 5, thought, thought + 1] {
        let (cut, events) = ask(Some(budget), SpeculationParams::none());
        let thought = budget.min(thought);
        assert_eq!((cut.thinking_tokens, cut.tokens[thought]), (thought, close), "budget {budget}");
        assert_eq!(cut.tokens[..thought], free.tokens[..thought]);
        assert_eq!(events.iter().any(|e| e.starts_with("thinking")), thought > 0);
        assert!(!cut.text.is_empty() && cut.finish == Finish::Stop, "{cut:?}");
        let (drafted, same) = ask(Some(budget), SpeculationParams::default());
        assert_eq!((drafted.tokens, same), (cut.tokens, events));
    }
}

#[test]
fn a_thought_that_was_cut_short_and_is_closed_once_more_leaves_no_mark() {
    let engine = nano_with_draft_layer();
    let asked = prompt(&engine, "<|im_start|>user\nWhat is 7 plus 9?<|im_end|>\n<|im_start|>assistant\n<think>\n");
    let (_, close) = engine.think_ids().unwrap();
    let mut twice = false;
    for budget in 1..12 {
        let params = GenerateParams { think_budget: Some(budget), ..greedy(60) };
        let (cut, events) = answer(&mut engine.session(256, 64), &asked, &params);
        twice |= cut.tokens.iter().filter(|&&t| t == close).count() > 1;
        assert!(!cut.text.contains("</think>"), "{cut:?}");
        assert!(!events.iter().any(|e| e.contains("</think>")), "{events:?}");
    }
    assert!(twice, "no thought was closed twice");
}

#[test]
fn a_call_of_a_tool_ends_the_thinking() {
    let engine = engine(&tiny_that_chats());
    let id = |literal: &str| engine.tokenizer().id_of(literal).unwrap();
    let asked = [noise(2, 20), vec![id("<think>")]].concat();
    let ask = |token: u32| {
        let sampling = SamplingParams { logit_bias: vec![(token, 1000.0)], ..SamplingParams::default() };
        answer(&mut engine.session(256, 64), &asked, &GenerateParams { sampling, ..greedy(2) })
    };
    let (call, events) = ask(id("<tool_call>"));
    assert_eq!(events, ["mark <tool_call>", "mark <tool_call>"]);
    assert_eq!((call.thinking.as_str(), call.thinking_tokens), ("", 0));
    let (thought, events) = ask(id("</tool_call>"));
    assert_eq!(events, ["thinking </tool_call></tool_call>"]);
    assert_eq!(thought.thinking_tokens, 2);
}

#[test]
fn biases_steer_and_ban() {
    let engine = nano_with_draft_layer();
    let asked = prompt(&engine, ASKED);
    let ask = |logit_bias: Vec<(u32, f32)>| {
        let sampling = SamplingParams { logit_bias, ..SamplingParams::default() };
        answer(&mut engine.session(256, 64), &asked, &GenerateParams { sampling, ..greedy(20) }).0
    };
    let free = ask(Vec::new());
    let banned = free.tokens[2];
    let other = ask(vec![(banned, -100.0)]);
    assert_eq!(free.tokens[..2], other.tokens[..2]);
    assert!(!other.tokens.contains(&banned));
    let only = ask(vec![(banned, 100.0)]);
    assert!(only.tokens.iter().all(|&t| t == banned) && only.finish == Finish::Length);
}

#[test]
fn what_cannot_be_obeyed_is_refused_and_nothing_is_lost() {
    let engine = engine(&nano());
    let mut session = engine.session(256, 64);
    let asked = prompt(&engine, ASKED);
    answer(&mut session, &asked, &greedy(2));
    let known = session.tokens().len();
    let mut refuse = |params: GenerateParams, says: &str| {
        assert!(params.check(&engine).is_err());
        let e = session.generate(&asked, &params, &NEVER, &mut |_| ()).unwrap_err();
        assert!(e.to_string().contains(says), "{e}");
        assert_eq!(session.tokens().len(), known);
        e
    };
    let json = |schema: serde_json::Value| GenerateParams { constraint: Some(Constraint::Json(schema)), ..greedy(4) };
    refuse(GenerateParams { stop: vec![String::new()], ..greedy(4) }, "stop");
    refuse(GenerateParams { logprobs: Some(21), ..greedy(4) }, "at most 20");
    let sampling = SamplingParams { logit_bias: vec![(1 << 30, 1.0)], ..SamplingParams::default() };
    refuse(GenerateParams { sampling, ..greedy(4) }, "logit_bias");
    let e = refuse(json(serde_json::json!({"type": "nothing"})), "nothing");
    assert!(matches!(e, Error::BadConstraint(_)) && !e.to_string().contains('\n'));
    refuse(json(serde_json::json!({"type": "string", "pattern": "("})), "the constraint cannot be followed");
    refuse(json(serde_json::json!({"$ref": "#/nowhere"})), "nowhere");
    refuse(json(serde_json::json!(3)), "the constraint cannot be followed");
    let lark = GenerateParams { constraint: Some(Constraint::Lark("start: \"a".to_owned())), ..greedy(4) };
    refuse(lark, "the constraint cannot be followed");
}

#[test]
fn a_number_that_is_none_ends_the_answer_with_an_error() {
    let whole = tiny();
    let mut writer = Writer::new();
    for (key, value) in whole.meta().iter() {
        writer.meta(key, value.clone()).unwrap();
    }
    for tensor in whole.tensors() {
        let mut data = tensor.data().to_vec();
        if tensor.name() == "output_hc_norm.weight" {
            data = data.chunks_exact(4).flat_map(|_| f32::MAX.to_le_bytes()).collect();
        }
        writer.tensor(tensor.name(), tensor.dims(), tensor.ty(), data).unwrap();
    }
    let broken = engine(&Gguf::from_bytes("broken", writer.to_bytes().unwrap()).unwrap());
    let mut session = broken.session(64, 8);
    for _ in 0..2 {
        let e = session.generate(&noise(1, 20), &exactly(8), &NEVER, &mut |_| ()).unwrap_err();
        assert!(e.to_string().contains("in the head at position 19"), "{e}");
        assert!(session.tokens().is_empty(), "nothing of it is kept");
    }
}

#[test]
fn marks_are_the_visible_added_tokens() {
    let engine = engine(&nano());
    let kind = |literal: &str| engine.tokenizer().id_of(literal).and_then(|id| engine.tokenizer().kind(id));
    assert_eq!(kind("<tool_call>"), Some(TokenKind::Visible));
    assert_eq!(kind("<|im_end|>"), Some(TokenKind::Control));
}
