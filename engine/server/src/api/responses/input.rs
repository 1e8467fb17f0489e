//! The items of a conversation.

use crate::api::fields::{Fields, wrong};
use crate::api::openai::messages::text;
use crate::api::turns::{Call, Role, Turn};
use crate::backend::Refusal;
use serde_json::Value;

/// Types of parts whose text is read.
const TEXTS: [&str; 6] = ["input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"];

/// Reads `instructions` and `input`.
pub(crate) fn read(fields: &Fields<'_>) -> Result<Vec<Turn>, Refusal> {
    let mut turns = Vec::new();
    if let Some(instructions) = fields.text("instructions")? {
        turns.push(Turn::new(Role::System, instructions));
    }
    match fields.get("input") {
        None => {}
        Some(Value::String(text)) => turns.push(Turn::new(Role::User, text)),
        Some(Value::Array(_)) => {
            for (at, value) in fields.list("input")?.unwrap_or_default() {
                item(&Fields::of(value, at)?, &mut turns)?;
            }
        }
        Some(other) => return Err(wrong("input", "a string or a list of items", other)),
    }
    // Clients probe with nothing to answer.
    if turns.iter().all(|t| t.role == Role::System) {
        turns.push(Turn::new(Role::User, ""));
    }
    Ok(turns)
}

fn item(item: &Fields<'_>, turns: &mut Vec<Turn>) -> Result<(), Refusal> {
    match item.text("type")?.unwrap_or("message") {
        "message" => message(item, turns),
        "reasoning" => {
            let key = if item.list("content")?.is_some_and(|c| !c.is_empty()) { "content" } else { "summary" };
            let thought = content(item, key)?;
            add_line(&mut assistant(turns).thinking, &thought);
            Ok(())
        }
        "function_call" => {
            let id = item.need_text("call_id")?;
            let call = Call::parse(id, item.need_text("name")?, item.text("arguments")?.unwrap_or_default());
            assistant(turns).calls.push(call);
            Ok(())
        }
        "function_call_output" => {
            let id = item.need_text("call_id")?.to_owned();
            turns.push(Turn { result_of: Some(id), ..Turn::new(Role::Tool, content(item, "output")?) });
            Ok(())
        }
        "item_reference" => {
            let at = item.name("type");
            Err(Refusal::param(at, "items are not kept; send the item itself instead of a reference to it"))
        }
        other => {
            let at = item.name("type");
            let message =
                format!("{at} is {other:?}; known are message, reasoning, function_call, function_call_output");
            Err(Refusal::param(at, message))
        }
    }
}

fn message(item: &Fields<'_>, turns: &mut Vec<Turn>) -> Result<(), Refusal> {
    let role = match item.need_text("role")? {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => {
            let at = item.name("role");
            let message = format!("{at} is {other:?}, and none of: system, developer, user, assistant");
            return Err(Refusal::param(at, message));
        }
    };
    item.need("content")?;
    let text = content(item, "content")?;
    match role {
        Role::Assistant => add_line(&mut assistant(turns).text, &text),
        role => turns.push(Turn::new(role, text)),
    }
    Ok(())
}

fn content(item: &Fields<'_>, key: &str) -> Result<String, Refusal> {
    item.get(key).map_or(Ok(String::new()), |value| text(value, &item.name(key), &TEXTS))
}

/// The assistant's turn that items of one answer belong to.
fn assistant(turns: &mut Vec<Turn>) -> &mut Turn {
    if turns.last().is_none_or(|t| t.role != Role::Assistant) {
        turns.push(Turn::new(Role::Assistant, ""));
    }
    let last = turns.len() - 1;
    &mut turns[last]
}

fn add_line(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push('\n');
    }
    text.push_str(more);
}
