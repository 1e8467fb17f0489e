//! The messages of a chat.

use crate::api::fields::{Fields, wrong};
use crate::api::turns::{Call, Role, Turn};
use crate::backend::Refusal;
use serde_json::Value;

/// Reads `messages`.
pub(crate) fn read(fields: &Fields<'_>) -> Result<Vec<Turn>, Refusal> {
    fields.need("messages")?;
    let messages = fields.list("messages")?.unwrap_or_default();
    messages.into_iter().map(|(at, message)| turn(&Fields::of(message, at)?)).collect()
}

fn turn(message: &Fields<'_>) -> Result<Turn, Refusal> {
    let role = match message.need_text("role")? {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" | "function" => Role::Tool,
        other => {
            let at = message.name("role");
            let message = format!("{at} is {other:?}, and none of: system, developer, user, assistant, tool");
            return Err(Refusal::param(at, message));
        }
    };
    let content = match message.get("content") {
        // What an assistant's message is about may be its calls alone.
        None if role == Role::Assistant => String::new(),
        None => {
            let at = message.name("content");
            return Err(Refusal::param(
                at.clone(),
                format!("{at} is missing; a string or a list of parts was expected"),
            ));
        }
        Some(content) => text(content, &message.name("content"), &["text", "refusal"])?,
    };
    let mut turn = Turn::new(role, content);
    match role {
        Role::Assistant => {
            let thinking = message.text("reasoning_content")?.or(message.text("reasoning").ok().flatten());
            turn.thinking = thinking.unwrap_or_default().to_owned();
            for (at, call) in message.list("tool_calls")?.unwrap_or_default() {
                turn.calls.push(self::call(&Fields::of(call, at)?)?);
            }
        }
        Role::Tool => {
            let name = if message.get("tool_call_id").is_some() { "tool_call_id" } else { "name" };
            turn.result_of = message.text(name)?.map(str::to_owned);
        }
        Role::System | Role::User => {}
    }
    Ok(turn)
}

fn call(call: &Fields<'_>) -> Result<Call, Refusal> {
    let id = call.text("id")?.unwrap_or_default();
    let Some(function) = call.object("function")? else {
        let at = call.name("function");
        return Err(Refusal::param(at.clone(), format!("{at} is missing; only calls of functions are known")));
    };
    let name = function.need_text("name")?;
    match function.get("arguments") {
        Some(object @ Value::Object(_)) => {
            Ok(Call { id: id.to_owned(), name: name.to_owned(), arguments: object.clone() })
        }
        _ => Ok(Call::parse(id, name, function.text("arguments")?.unwrap_or_default())),
    }
}

/// The text of a content: a string, or a list of parts of these types, whose field `text` holds it.
pub(crate) fn text(content: &Value, at: &str, types: &[&str]) -> Result<String, Refusal> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let part = |(i, part): (usize, &Value)| {
                let part = Fields::of(part, format!("{at}[{i}]"))?;
                let kind = part.text("type")?.unwrap_or("text");
                if !types.contains(&kind) {
                    let name = part.name("type");
                    let message = format!("{name} is {kind:?}; this model reads text only");
                    return Err(Refusal::param(name, message));
                }
                let key = if kind == "refusal" { "refusal" } else { "text" };
                Ok(part.text(key)?.unwrap_or_default().to_owned())
            };
            let parts: Vec<String> = parts.iter().enumerate().map(part).collect::<Result<_, _>>()?;
            Ok(parts.join("\n"))
        }
        other => Err(wrong(at, "a string or a list of parts", other)),
    }
}
