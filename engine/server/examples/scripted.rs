//! Serves scripted answers, for tests of clients: `cargo run -p strata-server --example scripted [KEY]`.
//!
//! Prints its address. What it answers depends on words in the last message:
//!
//! | word | answer |
//! |---|---|
//! | `weather` | a call of `get_weather` for Paris, and one for Rome if the message has `and`; with a result, a sentence |
//! | `emoji` | characters of several bytes |
//! | `count` | the numbers from one to ten |
//! | `slow` | a hundred words, one every 20 ms |
//! | `canary NAME.` | a hundred tokens with the name, one every 2 ms |
//! | `die` | two words, and then the engine fails |
//! | `vanish` | two words, and then the engine is gone without a word |
//! | `busy`, `loading` | refused |
//! | `soon NAME` | refused twice, since the model is loaded, and then answered |
//!
//! A request that asks for JSON gets some, one that asks for thinking some of that, and a prompt that was seen before
//! counts as read.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use strata_runtime::{Constraint, Finish};
use strata_server::backend::{Refusal, RefusalKind, Request};
use strata_server::scripted::{Script, Scripted, Step};
use strata_server::{Options, serve};

fn main() -> std::io::Result<()> {
    let keys = std::env::args().skip(1).collect();
    // How often each prompt was asked, by its hash: what is kept of a request must stay small.
    let asked = Mutex::new(HashMap::new());
    let backend = Scripted::new(move |request| {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let times: &mut usize = asked.entry(hash(&request.prompt.tokens)).or_default();
        *times += 1;
        let cached = if *times > 1 { request.prompt.tokens.len() - 1 } else { 0 };
        script(request, *times).map(|script| Script { cached, ..limited(script, request) })
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("http://{}", listener.local_addr()?);
        let options = Options { keys, heartbeat: Duration::from_millis(100), ..Options::default() };
        serve(listener, Arc::new(backend), options, std::future::pending()).await
    })
}

fn hash(tokens: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    tokens.hash(&mut hasher);
    hasher.finish()
}

/// What is answered to a prompt that is asked for the `time`-th time.
fn script(request: &Request, time: usize) -> Result<Script, Refusal> {
    let prompt: String = request.prompt.tokens.iter().filter_map(|&t| char::from_u32(t)).collect();
    let message = prompt.trim_end().rsplit('\n').next().unwrap_or_default();
    let has = |word: &str| message.contains(word);
    if has("busy") || has("loading") || has("soon") && time < 3 {
        let kind = if has("busy") { RefusalKind::Busy } else { RefusalKind::NotReady };
        let refusal = Refusal::new(kind, "not now");
        return Err(Refusal { retry_after: Some(Duration::from_millis(50)), ..refusal });
    }
    let mut steps = vec![Step::Prompt(request.prompt.tokens.len() / 2), Step::Prompt(request.prompt.tokens.len())];
    if request.params.think_budget.is_some() {
        steps.extend(words("Let me see.\n").map(Step::Think));
    }
    if let Some(Constraint::Json(_)) = request.params.constraint {
        steps.extend(words("{\"name\": \"Jon\", \"age\": 6}").map(Step::Text));
    } else if has("\"role\":\"tool\"") {
        steps.extend(words("It is 18 degrees.").map(Step::Text));
    } else if has("weather") && prompt.contains("get_weather") {
        let cities = if has(" and ") { vec!["Paris", "Rome"] } else { vec!["Paris"] };
        for city in cities {
            steps.push(Step::Mark("<tool_call>".to_owned()));
            let call = format!(
                "\n<function=get_weather>\n<parameter=city>\n{city}\n</parameter>\n<parameter=options>\n\
                 {{\"days\": [1, 2], \"unit\": \"<C>\"}}\n</parameter>\n</function>\n"
            );
            steps.extend(call.split_inclusive(' ').map(|piece| Step::Text(piece.to_owned())));
            steps.extend([Step::Mark("</tool_call>".to_owned()), Step::Text("\n".to_owned())]);
        }
    } else if has("emoji") {
        steps.extend(["🙂", "你", "好", " 👩‍👩‍👧", "!"].map(|piece| Step::Text(piece.to_owned())));
    } else if has("count") {
        steps.extend(words("one two three four five six seven eight nine ten").map(Step::Text));
    } else if has("slow") {
        let word = [Step::Text("word ".to_owned()), Step::Wait(Duration::from_millis(20))];
        steps.extend(std::iter::repeat_n(word, 100).flatten());
    } else if let Some((_, name)) = message.split_once("canary ") {
        let name = name.split('.').next().unwrap_or_default();
        let token = |i| [Step::Text(format!("{name}-{i} ")), Step::Wait(Duration::from_millis(2))];
        steps.extend((0..100).flat_map(token));
    } else if has("vanish") {
        steps.extend(words("I am ").map(Step::Text));
        steps.push(Step::Vanish);
    } else if has("die") {
        steps.extend(words("I am ").map(Step::Text));
        steps.push(Step::Fail(Refusal::new(RefusalKind::Engine, "the engine died")));
    } else {
        steps.extend(words("Hello there, friend.").map(Step::Text));
    }
    Ok(Script::new(steps))
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_inclusive(' ').map(str::to_owned)
}

/// Ends a script at a limit of tokens or a stop text, as an engine would.
fn limited(script: Script, request: &Request) -> Script {
    let (mut text, mut tokens, mut steps) = (String::new(), 0, Vec::new());
    for step in script.steps {
        if let Step::Text(piece) | Step::Think(piece) | Step::Mark(piece) = &step {
            tokens += 1;
            if request.params.max_tokens > 0 && tokens > request.params.max_tokens {
                return Script { steps, finish: Finish::Length, ..Script::new([]) };
            }
            let before = text.len();
            text.push_str(piece);
            let stop = request.params.stop.iter().find_map(|stop| text.find(stop.as_str()).map(|at| (at, stop)));
            if let Some((at, stop)) = stop {
                steps.push(Step::Text(text[before.min(at)..at].to_owned()));
                let stop_text = Some(stop.clone());
                return Script { steps, finish: Finish::StopText, stop_text, ..Script::new([]) };
            }
        }
        steps.push(step);
    }
    Script::new(steps)
}
