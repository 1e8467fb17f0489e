//! Constrained answers: they are what they must be, with and without drafts, and drafts change nothing.
//!
//! `STRATA_CASES` sets the number of cases on the random model; a tenth as many run on the built-in one.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{NEVER, drafts, engine, nano_with_draft_layer, noise, tiny_that_chats};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use strata_gguf::Special;
use strata_model::CpuOps;
use strata_policy::window::{Settings, Source};
use strata_runtime::{
    CheckpointParams, Constraint, Engine, Event, Finish, GenerateParams, SamplingParams, Session, SpecSampling,
    SpeculationParams,
};

fn schemas() -> Vec<Value> {
    let city = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["city", "n"],
        "additionalProperties": false,
    });
    vec![
        city.clone(),
        json!({"type": "array", "items": {"enum": ["red", "green", 7, null, true]}, "minItems": 1, "maxItems": 4}),
        json!({"anyOf": [{"const": "yes"}, city]}),
        json!({"type": "boolean"}),
        json!({
            "$defs": {"pair": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}},
            "type": "object",
            "properties": {"ends": {"$ref": "#/$defs/pair"}},
            "required": ["ends"],
            "additionalProperties": false,
        }),
    ]
}

/// Whether a value is what a schema of this file says, by hand.
fn valid(schema: &Value, value: &Value, defs: &Value) -> bool {
    if let Some(name) = schema["$ref"].as_str() {
        return valid(&defs[name.rsplit('/').next().unwrap()], value, defs);
    }
    if let Some(options) = schema["anyOf"].as_array() {
        return options.iter().any(|option| valid(option, value, defs));
    }
    if let Some(options) = schema["enum"].as_array() {
        return options.contains(value);
    }
    if let Some(only) = schema.get("const") {
        return only == value;
    }
    let number = |key: &str| schema[key].as_u64();
    match schema["type"].as_str().unwrap() {
        "boolean" => value.is_boolean(),
        "integer" => value.as_u64().is_some_and(|v| number("minimum").unwrap() <= v && v <= number("maximum").unwrap()),
        "string" => value.as_str().is_some_and(|v| v.chars().count() as u64 <= number("maxLength").unwrap()),
        "array" => value.as_array().is_some_and(|v| {
            let len = v.len() as u64;
            let fits = number("minItems").unwrap() <= len && len <= number("maxItems").unwrap();
            fits && v.iter().all(|item| valid(&schema["items"], item, defs))
        }),
        "object" => value.as_object().is_some_and(|fields| {
            let required = schema["required"].as_array().unwrap();
            required.iter().all(|name| fields.contains_key(name.as_str().unwrap()))
                && fields
                    .iter()
                    .all(|(name, v)| schema["properties"].get(name).is_some_and(|property| valid(property, v, defs)))
        }),
        other => panic!("{other}"),
    }
}

fn check(schema: &Value, text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
    assert!(valid(schema, &value, &schema["$defs"]), "{text:?} is not {schema}");
}

/// Everything that a reader gets.
fn told(session: &mut Session<'_, CpuOps>, prompt: &[u32], params: &GenerateParams) -> (Vec<String>, Vec<u32>, u64) {
    let mut events = Vec::new();
    let answer = session.generate(prompt, params, &NEVER, &mut |event| {
        if !matches!(event, Event::Prompt { .. } | Event::Round(_)) {
            events.push(format!("{event:?}"));
        }
    });
    let answer = answer.unwrap();
    events.push(format!("{:?} {:?} {}", answer.finish, answer.stop_text, answer.thinking_tokens));
    events.push(answer.text);
    (events, answer.tokens, session.state().fingerprint())
}

fn session<'e>(engine: &'e Engine<CpuOps>, params: SpeculationParams) -> Session<'e, CpuOps> {
    engine.session(2048, 32).with_checkpoints(CheckpointParams::none()).with_speculation(params)
}

fn drafting(source: Source, sampling: SpecSampling) -> SpeculationParams {
    let policy = Settings { source, fixed: Some(3), max_rows: 4, ..Settings::default() };
    SpeculationParams { policy, sampling, ..SpeculationParams::default() }
}

#[test]
fn answers_are_what_the_schema_says() {
    let (tiny, nano) = (engine(&tiny_that_chats()), nano_with_draft_layer());
    let asked = "<|im_start|>user\nWhat is the capital of France? Answer in JSON.<|im_end|>\n<|im_start|>assistant\n\
                 <think>\n\n</think>\n\n";
    let asked = nano.tokenizer().encode(asked, Special::Parse);
    for (engine, prompt, seeds) in [(&tiny, noise(5, 30), 6), (&nano, asked, 3)] {
        for (schema, seed) in schemas().iter().flat_map(|s| (0..seeds).map(move |seed| (s, seed))) {
            let temp = [0.0, 0.7, 1.5][seed as usize % 3];
            let modes = [
                SpeculationParams::none(),
                drafting(Source::Both, SpecSampling::Noise),
                drafting(Source::Both, SpecSampling::Reject),
            ];
            for speculation in modes {
                let params = GenerateParams {
                    sampling: SamplingParams { temp, seed, ..SamplingParams::default() },
                    constraint: Some(Constraint::Json(schema.clone())),
                    ..GenerateParams::default()
                };
                let answer = session(engine, speculation).generate(&prompt, &params, &NEVER, &mut |_| ()).unwrap();
                assert_eq!(answer.finish, Finish::Stop, "{}", answer.text);
                check(schema, &answer.text);
            }
        }
    }
}

/// The constraint is for the answer: thinking is free but cannot end it, and is closed by its budget.
#[test]
fn thinking_comes_before_the_constraint() {
    let engine = engine(&tiny_that_chats());
    let id = |literal: &str| engine.tokenizer().id_of(literal).unwrap();
    let prompt = [noise(7, 20), vec![id("<think>")]].concat();
    for seed in 0..12 {
        let schema = schemas().swap_remove(seed as usize % 5);
        // Who would end the answer at once if that were possible.
        let logit_bias = vec![(id("<|im_end|>"), 50.0)];
        let params = GenerateParams {
            sampling: SamplingParams { temp: 1.0, seed, logit_bias, ..SamplingParams::default() },
            constraint: Some(Constraint::Json(schema.clone())),
            think_budget: Some(9),
            ..GenerateParams::default()
        };
        let answer =
            session(&engine, SpeculationParams::none()).generate(&prompt, &params, &NEVER, &mut |_| ()).unwrap();
        assert!(answer.thinking_tokens <= 9 && answer.tokens.contains(&id("</think>")));
        check(&schema, &answer.text);
    }
}

#[test]
fn a_grammar_can_ask_for_marks_after_blank_lines() {
    let engine = nano_with_draft_layer();
    let asked = "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n<think>\n";
    let prompt = engine.tokenizer().encode(asked, Special::Parse);
    let grammar = r#"start: <tool_call> "\n{\"name\": \"" ("add" | "sub") "\"}\n" </tool_call>"#;
    let params = GenerateParams {
        constraint: Some(Constraint::Lark(grammar.to_owned())),
        max_tokens: 200,
        ..GenerateParams::default()
    };
    let plain = told(&mut session(&engine, SpeculationParams::none()), &prompt, &params);
    assert!(plain.0.iter().any(|e| e == "Mark(\"<tool_call>\")"), "{:?}", plain.0);
    let text = plain.0.last().unwrap();
    assert!(text.starts_with("<tool_call>\n{\"name\": \"") && text.ends_with("\"}\n</tool_call>"), "{text:?}");
    let fast = told(&mut session(&engine, drafting(Source::Mtp, SpecSampling::Noise)), &prompt, &params);
    assert_eq!(plain, fast);
}

type Case = (u32, usize, (Vec<String>, Option<usize>, Option<usize>), (Option<usize>, bool), (f32, u64), f32);

fn cases() -> impl Strategy<Value = Case> {
    (
        any::<u32>(),
        1usize..60,
        (
            proptest::collection::vec("[a-e \"\\]]{1,3}", 0..3),
            proptest::option::of(0usize..12),
            proptest::option::of(0usize..3),
        ),
        (proptest::option::of(0usize..5), any::<bool>()),
        (prop_oneof![Just(0.0f32), 0.3f32..1.5], any::<u64>()),
        -30f32..30.0,
    )
}

/// The parameters of a case. Its stop texts are random ones, and a piece of what would be said without them.
fn params(case: &Case, said: &str) -> GenerateParams {
    let (seed, max_tokens, (stop, think_budget, logprobs), (schema, _), (temp, noise), bias) = case;
    let mut stop = stop.clone();
    let from = *seed as usize % 7;
    let piece: String = said.chars().skip(from).take(1 + from % 4).collect();
    if seed % 3 == 0 && !piece.is_empty() {
        stop.push(piece);
    }
    let logit_bias = vec![(seed % 256, *bias), (97, *bias / 4.0)];
    GenerateParams {
        sampling: SamplingParams { temp: *temp, seed: *noise, logit_bias, repeat_penalty: 1.1, ..Default::default() },
        max_tokens: *max_tokens,
        stop,
        constraint: schema.map(|i| Constraint::Json(schemas().swap_remove(i))),
        think_budget: *think_budget,
        logprobs: *logprobs,
        ..GenerateParams::default()
    }
}

/// Cases on the random model.
fn count() -> u32 {
    std::env::var("STRATA_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

fn run(cases_run: u32, test: impl Fn(Case) -> Result<(), TestCaseError>) {
    let config = Config { cases: cases_run, failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(&cases(), test).unwrap();
}

#[test]
fn right_and_wrong_drafts_change_nothing() {
    let engine = engine(&tiny_that_chats());
    let open = engine.tokenizer().id_of("<think>").unwrap();
    let vocab = engine.model().config().vocab as u32;
    run(count(), |case| {
        let mut prompt = noise(case.0, 1 + case.0 as usize % 30);
        prompt.extend(case.3.1.then_some(open));
        let free = params(&case, "");
        let said = told(&mut session(&engine, SpeculationParams::none()), &prompt, &free).0.pop().unwrap();
        let params = params(&case, &said);
        let plain = told(&mut session(&engine, SpeculationParams::none()), &prompt, &params);
        let own = drafts(case.0, prompt.len(), plain.1.clone(), vocab, engine.stop_ids()[0]);
        let fast = told(&mut session(&engine, SpeculationParams::default()).with_own_drafts(own), &prompt, &params);
        prop_assert_eq!(plain, fast);
        Ok(())
    });
}

#[test]
fn the_draft_layer_and_lookup_change_nothing() {
    let engine = nano_with_draft_layer();
    let texts = [
        "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n<think>\n",
        "<|im_start|>user\nTell me a story about a fox.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "[1, 2, 3, 4], [1, 2, 3, 4], [1, 2,",
    ];
    run(count() / 10, |case| {
        let prompt = engine.tokenizer().encode(texts[case.0 as usize % 3], Special::Parse);
        let said = told(&mut session(&engine, SpeculationParams::none()), &prompt, &params(&case, "")).0.pop().unwrap();
        let params = params(&case, &said);
        let plain = told(&mut session(&engine, SpeculationParams::none()), &prompt, &params);
        let source = [Source::Mtp, Source::Lookup, Source::Both][case.0 as usize / 3 % 3];
        let fast = told(&mut session(&engine, drafting(source, SpecSampling::Noise)), &prompt, &params);
        prop_assert_eq!(plain, fast);
        Ok(())
    });
}
