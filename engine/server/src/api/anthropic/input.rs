//! The messages of a conversation, and what the system says.

use crate::api::fields::{Fields, wrong};
use crate::api::turns::{Call, Role, Turn};
use crate::backend::Refusal;
use serde_json::{Value, json};

/// How a line begins that a client puts before its system prompt, other in every request. With it no prompt would have
/// the beginning of the one before.
const VOLATILE: &str = "x-anthropic-billing-header:";

/// Blocks that say nothing to this model: what other servers' tools left, and thinking that is sealed.
const IGNORED: [&str; 9] = [
    "redacted_thinking",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "container_upload",
];

/// Reads `system` and `messages`.
pub(crate) fn read(fields: &Fields<'_>) -> Result<Vec<Turn>, Refusal> {
    let mut turns = Vec::new();
    let system = system(fields)?;
    if !system.is_empty() {
        turns.push(Turn::new(Role::System, system));
    }
    fields.need("messages")?;
    for (at, message) in fields.list("messages")?.unwrap_or_default() {
        let message = Fields::of(message, at)?;
        match message.need_text("role")? {
            "user" => user(&message, &mut turns)?,
            "assistant" => assistant(&message, &mut turns)?,
            "system" => {
                let blocks = blocks(&message, "content")?;
                turns.push(Turn::new(Role::System, join(&blocks)?));
            }
            other => {
                let at = message.name("role");
                let message = format!("{at} is {other:?}, and none of: user, assistant");
                return Err(Refusal::param(at, message));
            }
        }
    }
    if turns.last().is_some_and(|t| t.role == Role::Assistant) {
        let message = "the conversation ends with the assistant; an answer cannot be begun for the model";
        return Err(Refusal::param("messages", message));
    }
    Ok(turns)
}

fn system(fields: &Fields<'_>) -> Result<String, Refusal> {
    if fields.get("system").is_none() {
        return Ok(String::new());
    }
    let mut texts = Vec::new();
    for (i, block) in blocks(fields, "system")?.iter().enumerate() {
        let text = text(block)?;
        let text = match i == 0 && text.starts_with(VOLATILE) {
            true => text.split_once('\n').map_or("", |(_, rest)| rest.trim_start_matches('\n')),
            false => text,
        };
        if !text.is_empty() {
            texts.push(text.to_owned());
        }
    }
    Ok(texts.join("\n"))
}

/// A block: its type and its fields.
type Block<'a> = (&'a str, Fields<'a>);

/// The blocks of a content; a string is one block of text.
fn blocks<'a>(fields: &Fields<'a>, key: &str) -> Result<Vec<Block<'a>>, Refusal> {
    let at = fields.name(key);
    match fields.need(key)? {
        // The object that holds the string is read as if it were a block.
        Value::String(_) => Ok(vec![("", fields.clone())]),
        Value::Array(_) => {
            let block = |(at, block)| {
                let block = Fields::of(block, at)?;
                Ok((block.need_text("type")?, block))
            };
            fields.list(key)?.unwrap_or_default().into_iter().map(block).collect()
        }
        other => Err(wrong(&at, "a string or a list of blocks", other)),
    }
}

/// The text of a block that has to be one.
fn text<'a>((kind, block): &Block<'a>) -> Result<&'a str, Refusal> {
    match *kind {
        "" => {
            let string = |key| block.get(key).and_then(Value::as_str);
            Ok(string("content").or(string("system")).unwrap_or_default())
        }
        "text" => block.need_text("text"),
        other => Err(unknown(block, other)),
    }
}

fn join(blocks: &[Block<'_>]) -> Result<String, Refusal> {
    Ok(blocks.iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn unknown(block: &Fields<'_>, kind: &str) -> Refusal {
    let at = block.name("type");
    Refusal::param(at.clone(), format!("{at} is {kind:?}; this model reads text only"))
}

fn user(message: &Fields<'_>, turns: &mut Vec<Turn>) -> Result<(), Refusal> {
    let (mut results, mut texts) = (Vec::new(), Vec::new());
    for block in blocks(message, "content")? {
        let (kind, fields) = &block;
        match *kind {
            "tool_result" => results.push(result(fields)?),
            "document" => texts.push(document(fields)?.to_owned()),
            kind if IGNORED.contains(&kind) => {}
            _ => texts.push(text(&block)?.to_owned()),
        }
    }
    let only_results = !results.is_empty() && texts.is_empty();
    turns.extend(results);
    if only_results {
        return Ok(());
    }
    let text = texts.join("\n");
    match turns.last_mut().filter(|t| t.role == Role::User) {
        Some(before) => add_line(&mut before.text, &text),
        None => turns.push(Turn::new(Role::User, text)),
    }
    Ok(())
}

/// A document whose text is in the request.
fn document<'a>(block: &Fields<'a>) -> Result<&'a str, Refusal> {
    let source = block.object("source")?;
    match source.as_ref().map(|s| (s.get("type").and_then(Value::as_str), s)) {
        Some((Some("text"), source)) => source.need_text("data"),
        _ => Err(unknown(block, "document")),
    }
}

fn result(block: &Fields<'_>) -> Result<Turn, Refusal> {
    let id = block.need_text("tool_use_id")?;
    let content = match block.get("content") {
        None => String::new(),
        Some(_) => join(&blocks(block, "content")?)?,
    };
    let failed = block.flag("is_error")?.unwrap_or(false);
    let content = if failed { format!("Error: {content}") } else { content };
    Ok(Turn { result_of: Some(id.to_owned()), ..Turn::new(Role::Tool, content) })
}

fn assistant(message: &Fields<'_>, turns: &mut Vec<Turn>) -> Result<(), Refusal> {
    let mut turn = match turns.pop() {
        Some(before) if before.role == Role::Assistant => before,
        before => {
            turns.extend(before);
            Turn::new(Role::Assistant, "")
        }
    };
    for block in blocks(message, "content")? {
        let (kind, fields) = &block;
        match *kind {
            "thinking" => add_line(&mut turn.thinking, fields.text("thinking")?.unwrap_or_default()),
            "tool_use" => turn.calls.push(Call {
                id: fields.need_text("id")?.to_owned(),
                name: fields.need_text("name")?.to_owned(),
                arguments: match fields.get("input") {
                    Some(object @ Value::Object(_)) => object.clone(),
                    None => json!({}),
                    Some(other) => return Err(wrong(&fields.name("input"), "an object", other)),
                },
            }),
            kind if IGNORED.contains(&kind) => {}
            _ => add_line(&mut turn.text, text(&block)?),
        }
    }
    turns.push(turn);
    Ok(())
}

fn add_line(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push('\n');
    }
    text.push_str(more);
}
