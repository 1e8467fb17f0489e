//! A coding agent's conversation, asked turn by turn as agents do: each turn reads only what is new.

use crate::serve::Server;
use serde_json::{Value, json};

/// Tokens between what was known and what could be reused: the beginning of an answer is not part of a finished one.
const SLACK: u64 = 8;

/// Tokens of a prompt, and those of them that needed no reading.
fn asked(server: &Server, agent: &Value, time: usize, messages: &[Value]) -> (u64, u64) {
    // No two requests have the same first line.
    let volatile = format!("x-anthropic-billing-header: cc_version=2.1.{time}; cch={:05x};", time * 40_503 % 0xfffff);
    let rules: Vec<&str> = agent["system"].as_array().unwrap().iter().map(|rule| rule.as_str().unwrap()).collect();
    let reply = server.post_to(
        "/v1/messages?beta=true",
        &json!({
            "model": "any", "max_tokens": 4, "temperature": 0, "tools": agent["tools"], "messages": messages,
            "system": [{"type": "text", "text": format!("{volatile}\n{}", rules.join("\n\n"))}],
        }),
    );
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let reply: Value = serde_json::from_str(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let count = |name: &str| reply["usage"][name].as_u64().unwrap();
    (count("input_tokens") + count("cache_read_input_tokens"), count("cache_read_input_tokens"))
}

#[test]
fn each_turn_of_a_coding_agent_reads_only_what_is_new() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/agent.json");
    let agent: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let messages = agent["messages"].as_array().unwrap();
    let server = Server::start(&["--ctx", "16384"]);
    let mut turns: Vec<(usize, u64)> = Vec::new();
    for at in (0..messages.len()).filter(|&at| messages[at]["role"] == "user") {
        let (prompt, cached) = asked(&server, &agent, at, &messages[..=at]);
        match turns.last() {
            None => assert!(cached == 0 && prompt > 1500, "{cached} of {prompt}"),
            Some((_, known)) => {
                assert!(cached + SLACK >= *known, "message {at}: {cached} of {known} known tokens were reused");
                assert!(cached < prompt, "message {at}: there is something to read");
            }
        }
        turns.push((at, prompt));
        // What agents ask on the side has another beginning, and must cost the conversation nothing.
        if at % 6 == 0 {
            let aside = json!([{"role": "user", "content": format!("Give a title to: {}", messages[0]["content"])}]);
            let reply = server.post_to("/v1/messages", &json!({"max_tokens": 4, "messages": aside}));
            assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        }
    }
    assert!(turns.len() > 10);
    // The user takes a message back and says something else.
    let at = agent["edited_at"].as_u64().unwrap() as usize;
    let (_, before) = turns.iter().rfind(|(turn, _)| *turn < at).unwrap();
    let mut edited = messages[..at].to_vec();
    edited.push(agent["edited"].clone());
    let (prompt, cached) = asked(&server, &agent, 99, &edited);
    assert!(cached + SLACK >= *before && cached < prompt, "{cached} of {before} tokens before the edit were reused");
    // The abandoned turns are still known.
    let (last, known) = turns.last().unwrap();
    let (_, cached) = asked(&server, &agent, 100, &messages[..=*last]);
    assert!(cached + SLACK >= *known, "{cached} of {known} tokens of the branch that was left were reused");
}
