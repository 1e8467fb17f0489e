//! `strata serve` under load: 32 clients, each of which must get the answer that it would get alone.

#[path = "../../../server/tests/common/crowd.rs"]
mod crowd;

use crate::serve::Server;
use crowd::Question;
use serde_json::{Value, json};

const QUESTIONS: [&str; 8] = [
    "What is the capital of France?",
    "Tell me a story about a fox.",
    "Count to ten.",
    "What is 12 + 30?",
    "Tell me a story about a hen and a hill.",
    "What is the capital of Italy?",
    "Name three colours.",
    "Who are you?",
];

/// Tokens of an answer at most.
const MOST: usize = 60;

/// STRATA_LOAD_SECONDS has them go on for longer: with it, run this with `--release` and `--nocapture`.
#[test]
fn thirty_two_clients_get_what_each_would_get_alone() {
    let server = Server::start(&["--parallel", "4"]);
    let alone: Vec<String> = QUESTIONS
        .iter()
        .map(|question| {
            let messages = json!([{"role": "user", "content": question}]);
            let reply = server.post(&json!({"messages": messages, "temperature": 0, "max_tokens": MOST}));
            let reply: Value = serde_json::from_str(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap();
            reply["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(alone[0], "The capital of France is Paris.");
    assert!(alone.iter().enumerate().all(|(i, text)| !text.is_empty() && !alone[..i].contains(text)), "{alone:?}");
    let tally = crowd::run(server.address(), server.process(), crowd::seconds(2.0), |client, round| {
        let at = (client + round * 3) % QUESTIONS.len();
        Question { text: QUESTIONS[at].to_owned(), max_tokens: MOST, answer: alone[at].clone() }
    });
    println!("nano, 4 answers at once: {}", tally.line());
    assert!(tally.requests >= crowd::CLIENTS);
    tally.must_be_bounded();
    let (code, err) = server.end();
    assert_eq!(code, Some(0), "{err}");
}
