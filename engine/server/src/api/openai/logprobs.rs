//! Log-probabilities in OpenAI's forms.

use serde_json::{Map, Value, json};
use strata_runtime::TokenLogprob;

/// The least that JSON should hold; clients take it as minus infinity.
const LEAST: f32 = -9999.0;

/// As chat has them.
pub(crate) fn chat(tokens: &[TokenLogprob]) -> Value {
    let one = |bytes: &[u8], logprob: f32| json!({"token": String::from_utf8_lossy(bytes), "logprob": finite(logprob), "bytes": bytes});
    let entry = |token: &TokenLogprob| {
        let mut entry = one(&token.bytes, token.logprob);
        entry["top_logprobs"] = token.top.iter().map(|(_, bytes, logprob)| one(bytes, *logprob)).collect();
        entry
    };
    tokens.iter().map(entry).collect()
}

/// As text completions have them; `offset` is where in the text, in characters, the first token begins.
pub(crate) fn completions(tokens: &[TokenLogprob], mut offset: usize) -> Value {
    let (mut texts, mut logprobs, mut tops, mut offsets) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for token in tokens {
        let text = String::from_utf8_lossy(&token.bytes).into_owned();
        let top: Map<String, Value> = token
            .top
            .iter()
            .map(|(_, bytes, logprob)| (String::from_utf8_lossy(bytes).into_owned(), json!(finite(*logprob))))
            .collect();
        offsets.push(offset);
        offset += text.chars().count();
        texts.push(text);
        logprobs.push(finite(token.logprob));
        tops.push(top);
    }
    json!({"tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets})
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LEAST }
}
