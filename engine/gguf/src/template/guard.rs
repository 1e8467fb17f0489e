//! Keeps special-token literals in users' text from becoming tokens.

use crate::tokenizer::SpecialLiterals;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Characters that may serve as the marker: noncharacters, which no text should have, then the private-use area.
fn candidates() -> impl Iterator<Item = char> {
    ('\u{FDD0}'..='\u{FDEF}').chain('\u{E000}'..='\u{F8FF}')
}

fn is_candidate(c: char) -> bool {
    matches!(c, '\u{FDD0}'..='\u{FDEF}' | '\u{E000}'..='\u{F8FF}')
}

/// Every candidate character occurs in the inputs.
pub(super) struct NoMarkerLeft;

/// The marker for these inputs: `None` when no input holds a literal, and then nothing needs to be marked.
pub(super) fn choose_marker(
    literals: &SpecialLiterals,
    inputs: &[&Value],
    template: &str,
) -> Result<Option<char>, NoMarkerLeft> {
    let mut found = false;
    inputs.iter().for_each(|value| each_string(value, &mut |text| found = found || literals.occur_in(text)));
    if !found {
        return Ok(None);
    }
    let mut used = HashSet::new();
    let mut note = |text: &str| used.extend(text.chars().filter(|&c| is_candidate(c)));
    note(template);
    literals.iter().for_each(&mut note);
    inputs.iter().for_each(|value| each_string(value, &mut note));
    candidates().find(|c| !used.contains(c)).map(Some).ok_or(NoMarkerLeft)
}

fn each_string(value: &Value, f: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => f(text),
        Value::Array(items) => items.iter().for_each(|item| each_string(item, f)),
        Value::Object(fields) => fields.iter().for_each(|(key, field)| {
            f(key);
            each_string(field, f);
        }),
        _ => {}
    }
}

/// The value with the marker inside every literal of every string and key.
///
/// Roles and keys that are plain words stay as they are even if the vocabulary has such a word as an added token:
/// templates compare them with their own text.
pub(super) fn break_up(value: &Value, literals: &SpecialLiterals, marker: char) -> Value {
    let text = |text: &str| literals.break_up(text, marker).into_owned();
    match value {
        Value::String(s) => Value::String(text(s)),
        Value::Array(items) => items.iter().map(|item| break_up(item, literals, marker)).collect(),
        Value::Object(fields) => {
            let mut out = Map::new();
            for (key, field) in fields {
                let field = match field {
                    Value::String(role) if key == "role" && is_word(role) => field.clone(),
                    _ => break_up(field, literals, marker),
                };
                out.insert(if is_word(key) { key.clone() } else { text(key) }, field);
            }
            Value::Object(out)
        }
        other => other.clone(),
    }
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}
