//! The built-in model behind the server's boundary: turns, cancellation, refusals, and the end.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::json;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use strata_gguf::{Gguf, SafeTensors};
use strata_model::{CpuOps, draft_from_safetensors};
use strata_runtime::{
    CheckpointParams, Constraint, ConversationParams, Engine, Finish, GenerateParams, Prompt, SpeculationParams,
};
use strata_server::backend::{Backend, ChatInput, Event, Outcome, Refusal, RefusalKind, Request, State, Status, Tiers};
use strata_server::engine::{EngineBackend, EngineOptions, Loaded};
use tokio::sync::mpsc::UnboundedReceiver;

type Nano = EngineBackend<CpuOps>;
type Lines = Arc<Mutex<Vec<String>>>;

fn load() -> Loaded<CpuOps> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/model");
    let gguf = Gguf::open(&models.join("nano-IQ3_S.gguf")).unwrap();
    let mut engine = Engine::load(&gguf, CpuOps::new(1), &mut |_| ()).unwrap();
    let layers = engine.model().config().layers.len();
    let draft = SafeTensors::open(&models.join("nano-mtp.safetensors"), "mtp.").unwrap();
    engine.add_draft_layer(&draft_from_safetensors(&draft, layers).unwrap()).unwrap();
    let conversations = ConversationParams {
        context: 1024,
        chunk: 32,
        checkpoints: CheckpointParams::default(),
        count: 4,
        bytes: 1 << 30,
    };
    Loaded {
        id: "nano".to_owned(),
        engine: Arc::new(engine),
        conversations,
        speculation: SpeculationParams::default(),
        device: "the CPU".into(),
        tiers: Tiers { ram: 1, ..Tiers::default() },
        degradations: Vec::new(),
        expert_cache: None,
    }
}

fn start(change: impl FnOnce(&mut EngineOptions)) -> (Nano, Lines) {
    let lines = Lines::default();
    let log = Arc::clone(&lines);
    let log = Arc::new(move |line: &str| log.lock().unwrap().push(line.to_owned()));
    let mut options = EngineOptions { queue: 8, log, ..EngineOptions::default() };
    change(&mut options);
    let backend = Nano::start(options, |_| Ok(load())).unwrap();
    until(|| backend.state() == State::Ready);
    (backend, lines)
}

/// Waits for something that must come.
fn until(mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "it did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn chat(backend: &Nano, messages: serde_json::Value) -> Prompt {
    let messages = messages.as_array().unwrap().clone();
    backend.render(&ChatInput { messages, think: Some(false), ..ChatInput::default() }).unwrap()
}

fn question(backend: &Nano, text: &str) -> Prompt {
    chat(backend, json!([{"role": "user", "content": text}]))
}

fn request(client: &str, prompt: Prompt, max_tokens: usize) -> Request {
    let params = GenerateParams { max_tokens, ignore_stop: max_tokens > 40, ..GenerateParams::default() };
    Request { id: format!("request of {client}"), prompt, params, client: client.to_owned() }
}

/// An answer to its end.
fn text(mut events: UnboundedReceiver<Event>) -> (String, Result<Outcome, Refusal>) {
    let mut text = String::new();
    loop {
        match events.blocking_recv().unwrap() {
            Event::Text(piece) => text += &piece,
            Event::Done(outcome) => return (text, Ok(outcome)),
            Event::Failed(refusal) => return (text, Err(refusal)),
            _ => {}
        }
    }
}

fn ask(backend: &Nano, prompt: &Prompt, max_tokens: usize) -> (String, Outcome) {
    let (text, outcome) = text(backend.submit(request("someone", prompt.clone(), max_tokens)).unwrap());
    (text, outcome.unwrap())
}

fn idle(backend: &Nano) -> Status {
    until(|| {
        let queue = backend.status().queue;
        queue.running + queue.waiting == 0
    });
    backend.status()
}

#[test]
fn it_answers_and_counts() {
    let (backend, lines) = start(|_| ());
    let model = backend.model().unwrap();
    assert_eq!((model.id.as_str(), model.context, model.has_template, model.can_think), ("nano", 1024, true, true));
    assert!(model.marks.iter().any(|mark| mark == "<tool_call>"));
    let system = json!({"role": "system", "content": "You are a friendly assistant. ".repeat(20)});
    let first = chat(&backend, json!([system, {"role": "user", "content": "What is the capital of France?"}]));
    assert!(first.shared > 64);
    let (answer, outcome) = ask(&backend, &first, 40);
    assert_eq!((answer.as_str(), outcome.finish), ("The capital of France is Paris.", Finish::Stop));
    assert_eq!((outcome.miss, outcome.timings.cached_tokens), (None, 0));
    assert!(outcome.drafts.rounds > 0 && outcome.drafts.proposed >= outcome.drafts.accepted);
    // The next turn reads what is new.
    let turn = json!([system, {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": answer}, {"role": "user", "content": "And of Italy?"}]);
    let second = chat(&backend, turn);
    let (_, outcome) = ask(&backend, &second, 8);
    assert!(outcome.timings.cached_tokens + 16 > first.tokens.len(), "{outcome:?}");
    // Another system message shares nothing, and it is said where that begins.
    let other = chat(
        &backend,
        json!([{"role": "system", "content": "You are a friendly robot. ".repeat(20)},
        {"role": "user", "content": "What is the capital of France?"}]),
    );
    let (_, outcome) = ask(&backend, &other, 8);
    let miss = outcome.miss.unwrap();
    assert!(miss.contains("(system message); 0 tokens were reused"), "{miss}");
    assert!(lines.lock().unwrap().iter().any(|line| line.contains(&miss)));
    // The same question again but for its end, with nothing before it and with messages before it.
    let ask_twice = |before: &[serde_json::Value]| {
        let turn = |end: &str| {
            let text = format!("{} {end}", "Tell me a story about a fox and a hen. ".repeat(4));
            chat(&backend, json!([before, &[json!({"role": "user", "content": text})]].concat()))
        };
        ask(&backend, &turn("Be brief."), 2);
        ask(&backend, &turn("Take your time."), 2).1.miss.unwrap()
    };
    let history = [json!({"role": "user", "content": "Who?"}), json!({"role": "assistant", "content": "I."})];
    for before in [&[][..], &history, &[json!({"role": "system", "content": "Be kind."})]] {
        let miss = ask_twice(before);
        assert!(miss.contains("(last message)"), "{miss}");
    }
    let status = idle(&backend);
    assert_eq!((status.counters.requests, status.counters.cancelled, status.speeds.len()), (9, 0, 9));
    assert!(status.counters.cached_tokens > 0 && status.drafts.rounds > 0 && !status.rounds.is_empty());
    assert!(status.rounds.iter().all(|r| r.committed >= 1 && r.branches.len() == 3));
    assert!(status.conversations.kept <= 4 && status.conversations.started >= 2, "{status:?}");
    assert!(status.degradations.iter().any(|d| d.name == "prompt_reread"));
    // Tokens and back, with and without special ones.
    let plain = backend.tokenize("<|im_end|> ü", false).unwrap();
    let special = backend.tokenize("<|im_end|> ü", true).unwrap();
    assert!(special.len() < plain.len());
    assert!([plain, special].iter().all(|t| backend.detokenize(t).unwrap() == "<|im_end|> ü"));
    assert_eq!(backend.detokenize(&[u32::MAX]).unwrap_err().kind, RefusalKind::Invalid);
}

#[test]
fn the_vocabulary_is_ready_for_constraints_before_one_comes() {
    let loaded = load();
    let engine = Arc::clone(&loaded.engine);
    assert!(!engine.constraints_ready());
    let backend = Nano::start(EngineOptions::default(), |_| Ok(loaded)).unwrap();
    until(|| engine.constraints_ready());
    backend.shutdown(Duration::from_secs(60));
}

#[test]
fn turns_go_round_between_clients() {
    let (backend, _) = start(|options| options.queue = 16);
    let prompt = question(&backend, "Tell me a story about a fox.");
    let busy = backend.submit(request("first", prompt.clone(), 60)).unwrap();
    until(|| backend.status().queue.running == 1);
    let order = ["a", "a", "a", "b", "b"];
    let mut waiting: Vec<_> =
        order.iter().map(|client| (*client, backend.submit(request(client, prompt.clone(), 2)).unwrap())).collect();
    assert!(text(busy).1.is_ok());
    let mut done = Vec::new();
    until(|| {
        waiting.retain_mut(|(client, events)| match events.try_recv() {
            Ok(Event::Started { waited }) => {
                done.push((*client, waited));
                true
            }
            Ok(_) => true,
            Err(e) => e == tokio::sync::mpsc::error::TryRecvError::Empty,
        });
        waiting.is_empty()
    });
    done.sort_by_key(|(_, waited)| *waited);
    let clients: Vec<&str> = done.iter().map(|(client, _)| *client).collect();
    assert_eq!(clients, ["a", "b", "a", "b", "a"]);
}

/// How far a request comes before nobody listens any more.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Queued,
    Reading,
    FirstToken,
    MidAnswer,
}

fn leave_at(backend: &Nano, moment: Moment, prompt: &Prompt) {
    let mut events = backend.submit(request("leaver", prompt.clone(), 900)).unwrap();
    let mut pieces = 0;
    loop {
        let enough = match moment {
            Moment::Queued => true,
            Moment::Reading => {
                matches!(events.blocking_recv().unwrap(), Event::Prompt { read, of } if 0 < read && read < of)
            }
            Moment::FirstToken | Moment::MidAnswer => {
                pieces += usize::from(matches!(events.blocking_recv().unwrap(), Event::Text(_)));
                pieces >= if matches!(moment, Moment::FirstToken) { 1 } else { 9 }
            }
        };
        if enough {
            break;
        }
    }
}

#[test]
fn who_leaves_at_any_moment_disturbs_nobody() {
    let (backend, _) = start(|_| ());
    // New each time, so that there is something to read.
    let long = |n: usize| question(&backend, &format!("{n} {}", "Tell me a story about a fox and a hen. ".repeat(20)));
    let prompt = question(&backend, "What is the capital of France?");
    let (alone, _) = ask(&backend, &prompt, 40);
    let mut left = 0;
    for moment in [Moment::Queued, Moment::Reading, Moment::FirstToken, Moment::MidAnswer] {
        // While it waits behind another, that one goes on.
        let other = matches!(moment, Moment::Queued).then(|| backend.submit(request("b", prompt.clone(), 40)).unwrap());
        leave_at(&backend, moment, &long(left as usize));
        if let Some(other) = other {
            assert_eq!(text(other).0, alone);
        }
        assert_eq!(ask(&backend, &prompt, 40).0, alone, "after {moment:?}");
        left += 1;
        assert_eq!(idle(&backend).counters.cancelled, left, "{moment:?}");
    }
    // Leaving and asking again at once, with drafts all the time.
    for round in 0..20 {
        leave_at(&backend, [Moment::FirstToken, Moment::Reading, Moment::Queued][round % 3], &long(100 + round));
        assert_eq!(ask(&backend, &prompt, 40).0, alone, "round {round}");
    }
    assert_eq!(idle(&backend).counters.cancelled, left + 20);
}

#[test]
fn too_much_is_refused() {
    let (backend, _) = start(|options| options.queue = 2);
    let prompt = question(&backend, "Tell me a story about a fox.");
    let running = backend.submit(request("a", prompt.clone(), 900)).unwrap();
    until(|| backend.status().queue.running == 1);
    let waiting = [(); 2].map(|()| backend.submit(request("b", prompt.clone(), 2)).unwrap());
    let busy = backend.submit(request("c", prompt.clone(), 2)).unwrap_err();
    assert_eq!(busy.kind, RefusalKind::Busy);
    assert!(busy.retry_after.is_some_and(|wait| wait >= Duration::from_secs(1)));
    // A place is free as soon as somebody leaves.
    let [left, stays] = waiting;
    drop(left);
    let next = backend.submit(request("c", prompt.clone(), 2)).unwrap();
    drop(running);
    assert!(text(stays).1.is_ok() && text(next).1.is_ok());

    let refuse = |request: Request| backend.submit(request).unwrap_err();
    let long = refuse(request("a", vec![5; 1024].into(), 2));
    assert!(long.kind == RefusalKind::TooLong && long.message.contains("1024"), "{long:?}");
    assert_eq!(refuse(request("a", Prompt::default(), 2)).kind, RefusalKind::Invalid);
    assert_eq!(refuse(request("a", vec![u32::MAX].into(), 2)).param.as_deref(), Some("prompt"));
    let mut odd = request("a", prompt, 2);
    odd.params.constraint = Some(Constraint::Json(json!({"type": "nothing"})));
    let odd = refuse(odd);
    assert!(odd.kind == RefusalKind::Invalid && odd.message.contains("constraint") && odd.param.is_none(), "{odd:?}");
    for schema in [json!({"$ref": "#"}), json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})] {
        let mut endless = request("a", question(&backend, "Who?"), 2);
        endless.params.constraint = Some(Constraint::Json(schema));
        let endless = refuse(endless);
        assert!(endless.kind == RefusalKind::Invalid && endless.message.contains("without end"), "{endless:?}");
    }
    // What cannot fit in any way is not split into tokens.
    let blanks = |n: usize| ChatInput {
        messages: vec![json!({"role": "user", "content": format!("a{}b", " ".repeat(n))})],
        most: Some(1024),
        ..ChatInput::default()
    };
    let longest = backend.model().unwrap().longest_token;
    let long = backend.render(&blanks(1024 * longest)).unwrap_err();
    assert!(long.kind == RefusalKind::TooLong, "{long:?}");
    assert!(
        long.message.starts_with("prompt is too long: ") && long.message.contains(" tokens > 1023 maximum"),
        "{long:?}"
    );
    assert!(backend.render(&blanks(1000)).is_ok());
    let none = backend.render(&ChatInput::default());
    assert!(none.is_err());
    let refused = backend.status().counters.refused;
    assert_eq!((refused[&RefusalKind::Busy], refused[&RefusalKind::TooLong]), (1, 1));
    assert_eq!(refused[&RefusalKind::Invalid], 5);
}

#[test]
fn several_at_once_are_what_each_would_be_alone() {
    let questions =
        ["What is the capital of France?", "Tell me a story about a fox.", "What is 2 + 3?", "Count to ten."];
    let (backend, _) = start(|_| ());
    let alone: Vec<String> = questions.iter().map(|q| ask(&backend, &question(&backend, q), 30).0).collect();
    let (backend, _) = start(|options| options.parallel = 3);
    for _ in 0..3 {
        let submit = |q: &&str| backend.submit(request(q, question(&backend, q), 30)).unwrap();
        let running: Vec<_> = questions.iter().map(submit).collect();
        let together: Vec<String> = running.into_iter().map(|events| text(events).0).collect();
        assert_eq!(together, alone);
    }
    let kept = idle(&backend).conversations;
    assert!(kept.kept <= 4 && kept.resumed + kept.branched > 0, "{kept:?}");
}

#[test]
fn it_stops_when_told() {
    let (backend, _) = start(|_| ());
    let prompt = question(&backend, "Tell me a story about a fox.");
    // One that is soon done, one that is not, one that waits.
    for (tokens, finishes) in [(30, true), (950, false)] {
        let (backend, _) = start(|_| ());
        let mut running = backend.submit(request("a", prompt.clone(), tokens)).unwrap();
        let waiting = backend.submit(request("b", prompt.clone(), 2)).unwrap();
        assert!(matches!(running.blocking_recv(), Some(Event::Started { .. })));
        backend.shutdown(if finishes { Duration::from_secs(60) } else { Duration::ZERO });
        assert_eq!(backend.state(), State::Stopping);
        assert_eq!(text(waiting).1.unwrap_err().kind, RefusalKind::NotReady);
        match text(running).1 {
            Ok(outcome) => assert!(finishes && outcome.finish != Finish::Cancelled),
            Err(refusal) => assert!(!finishes && refusal.kind == RefusalKind::Cancelled),
        }
        let late = backend.submit(request("c", prompt.clone(), 2)).unwrap_err();
        assert_eq!(late.kind, RefusalKind::NotReady);
    }
    backend.shutdown(Duration::ZERO);
}

#[test]
fn loading_can_be_watched_and_can_fail() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let backend = Nano::start(EngineOptions::default(), move |share| {
        share(0.5);
        wait.recv().unwrap();
        Err("the file is damaged".to_owned())
    })
    .unwrap();
    until(|| backend.state() == State::Loading { share: 0.5 });
    assert!(backend.model().is_none());
    let early = backend.tokenize("x", false).unwrap_err();
    assert!(early.kind == RefusalKind::NotReady && early.retry_after.is_some());
    go.send(()).unwrap();
    until(|| backend.state() == State::Failed("the file is damaged".to_owned()));
    let late = backend.submit(request("a", vec![5].into(), 2)).unwrap_err();
    assert_eq!((late.kind, late.message.as_str()), (RefusalKind::Engine, "the file is damaged"));
    backend.shutdown(Duration::from_secs(60));

    let broken = Nano::start(EngineOptions::default(), |_| panic!("no such luck")).unwrap();
    until(|| matches!(broken.state(), State::Failed(why) if why.contains("no such luck")));
    assert_eq!(broken.status().model, None);
}

#[test]
fn a_panic_is_told_to_everybody() {
    let options = EngineOptions {
        // Called by the thread that answers, when a prompt leaves a conversation.
        log: Arc::new(|line| assert!(!line.contains("differs"), "out of order")),
        ..EngineOptions::default()
    };
    let backend = Nano::start(options, |_| Ok(load())).unwrap();
    until(|| backend.state() == State::Ready);
    let long = |n: usize| question(&backend, &format!("{n} {}", "Tell me a story about a fox and a hen. ".repeat(20)));
    ask(&backend, &long(1), 4);
    let running = backend.submit(request("a", long(2), 30)).unwrap();
    let waiting = backend.submit(request("b", long(2), 30)).unwrap();
    for events in [running, waiting] {
        let refusal = text(events).1.unwrap_err();
        assert!(refusal.kind == RefusalKind::Engine && refusal.message.contains("out of order"), "{refusal:?}");
    }
    assert!(matches!(backend.state(), State::Failed(why) if why.contains("out of order")));
    backend.shutdown(Duration::from_secs(60));
}

#[test]
fn a_stuck_answer_is_reported_until_it_gets_on() {
    // Every chunk takes longer than this.
    let (backend, lines) = start(|options| options.stuck_after = Duration::from_millis(1));
    let long = question(&backend, &"Tell me a story about a fox and a hen. ".repeat(30));
    let running = backend.submit(request("slow", long, 2)).unwrap();
    until(|| backend.status().degradations.iter().any(|d| d.name == "stuck" && d.text.contains("request of slow")));
    assert!(text(running).1.is_ok());
    assert!(idle(&backend).degradations.iter().all(|d| d.name != "stuck"));
    assert!(lines.lock().unwrap().iter().any(|line| line.contains("made no progress")));
}
