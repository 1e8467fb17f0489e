//! Conversations, as chat templates want them.
//!
//! Templates take one system message, at the beginning, and results of tools as messages of their own behind the calls.
//! Interfaces are freer than that.

use crate::backend::Refusal;
use serde_json::{Map, Value, json};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    System,
    User,
    Assistant,
    Tool,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A call that an earlier answer made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    /// An object.
    pub(crate) arguments: Value,
}

impl Call {
    /// A call whose arguments are a text of JSON. What is no object, such as arguments that were cut, is kept as a text.
    pub(crate) fn parse(id: &str, name: &str, arguments: &str) -> Call {
        let object = match serde_json::from_str(arguments) {
            Ok(object @ Value::Object(_)) => object,
            _ if arguments.trim().is_empty() => json!({}),
            _ => json!({"arguments": arguments}),
        };
        Call { id: id.to_owned(), name: name.to_owned(), arguments: object }
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) role: Role,
    pub(crate) text: String,
    pub(crate) thinking: String,
    pub(crate) calls: Vec<Call>,
    /// The call whose result it is.
    pub(crate) result_of: Option<String>,
}

impl Turn {
    pub(crate) fn new(role: Role, text: impl Into<String>) -> Turn {
        Turn { role, text: text.into(), thinking: String::new(), calls: Vec::new(), result_of: None }
    }

    fn message(self) -> Value {
        let mut message = Map::new();
        message.insert("role".to_owned(), json!(self.role.name()));
        message.insert("content".to_owned(), json!(self.text));
        if !self.thinking.is_empty() {
            message.insert("reasoning_content".to_owned(), json!(self.thinking));
        }
        if !self.calls.is_empty() {
            let call = |c: Call| json!({"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}});
            message.insert("tool_calls".to_owned(), self.calls.into_iter().map(call).collect());
        }
        if let Some(call) = self.result_of {
            message.insert("tool_call_id".to_owned(), json!(call));
        }
        Value::Object(message)
    }
}

/// The messages of a conversation, as a template takes them. `at` names them in errors.
///
/// System messages at the beginning become one; later ones are said by the user, for templates drop or refuse them.
/// Results of several calls are put in the order of the calls.
///
/// # Errors
/// There is no message.
pub(crate) fn messages(turns: Vec<Turn>, at: &str) -> Result<Vec<Value>, Refusal> {
    let leading = turns.iter().take_while(|t| t.role == Role::System).count();
    if turns.len() == leading {
        return Err(Refusal::param(at, format!("{at} holds no message to answer")));
    }
    let mut turns = turns.into_iter();
    let system: Vec<String> = turns.by_ref().take(leading).map(|t| t.text).filter(|t| !t.is_empty()).collect();
    let mut all = Vec::new();
    if !system.is_empty() {
        all.push(Turn::new(Role::System, system.join("\n\n")));
    }
    all.extend(turns.map(|turn| if turn.role == Role::System { Turn { role: Role::User, ..turn } } else { turn }));
    order_results(&mut all);
    Ok(all.into_iter().map(Turn::message).collect())
}

fn order_results(turns: &mut [Turn]) {
    let mut at = 0;
    while at < turns.len() {
        let (before, rest) = turns.split_at_mut(at + 1);
        let results = rest.iter().take_while(|t| t.role == Role::Tool).count();
        if let Some(calls) = before.last().map(|t| &t.calls).filter(|c| c.len() > 1) {
            let place = |turn: &Turn| calls.iter().position(|c| Some(&c.id) == turn.result_of.as_ref());
            // Those of unknown calls stay behind the others.
            rest[..results].sort_by_key(|t| place(t).unwrap_or(usize::MAX));
        }
        at += results + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(of: &str) -> Turn {
        Turn { result_of: Some(of.to_owned()), ..Turn::new(Role::Tool, of) }
    }

    #[test]
    fn system_messages_are_joined_and_late_ones_are_said_by_the_user() -> Result<(), Refusal> {
        let turns = vec![
            Turn::new(Role::System, "a"),
            Turn::new(Role::System, ""),
            Turn::new(Role::System, "b"),
            Turn::new(Role::User, "c"),
            Turn::new(Role::System, "d"),
        ];
        let expected = json!([
            {"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "c"}, {"role": "user", "content": "d"}
        ]);
        assert_eq!(Value::from(messages(turns, "messages")?), expected);
        assert_eq!(messages(vec![Turn::new(Role::System, "a")], "input").unwrap_err().param.as_deref(), Some("input"));
        Ok(())
    }

    #[test]
    fn results_come_in_the_order_of_the_calls() -> Result<(), Refusal> {
        let mut asked = Turn::new(Role::Assistant, "");
        asked.calls = vec![Call::parse("1", "f", "{}"), Call::parse("2", "f", "")];
        let turns =
            vec![Turn::new(Role::User, "q"), asked, result("3"), result("2"), result("1"), Turn::new(Role::User, "z")];
        let texts: Vec<String> =
            messages(turns, "messages")?.iter().map(|m| m["content"].as_str().unwrap_or_default().to_owned()).collect();
        assert_eq!(texts, ["q", "", "1", "2", "3", "z"]);
        Ok(())
    }

    #[test]
    fn arguments_that_were_cut_are_kept() {
        assert_eq!(Call::parse("1", "f", "{\"a\":").arguments, json!({"arguments": "{\"a\":"}));
        assert_eq!(Call::parse("1", "f", "{\"a\": [1]}").arguments, json!({"a": [1]}));
    }
}
