//! Tools: what a request offers, what the model calls, and what it may call.

pub(crate) mod grammar;
pub(crate) mod parser;
mod typing;

use crate::backend::{ModelInfo, Refusal};
use serde_json::{Map, Value, json};
use strata_runtime::Constraint;

/// The literals between which a model calls a tool.
pub(crate) const CALL: (&str, &str) = ("<tool_call>", "</tool_call>");

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// The schema of its arguments.
    pub(crate) parameters: Value,
    /// Whether calls must follow the schema.
    pub(crate) strict: bool,
}

impl Tool {
    /// As chat templates list it.
    fn for_template(&self) -> Value {
        let mut function = Map::new();
        function.insert("name".to_owned(), json!(self.name));
        if let Some(description) = &self.description {
            function.insert("description".to_owned(), json!(description));
        }
        function.insert("parameters".to_owned(), self.parameters.clone());
        json!({"type": "function", "function": function})
    }
}

/// What the model has to do with its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// What it likes.
    #[default]
    Auto,
    /// Call none.
    None,
    /// Call at least one.
    Required,
    /// Call this one.
    Named(String),
}

/// What an answer's text must be.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Format {
    /// Any text.
    #[default]
    Text,
    /// JSON that a schema allows.
    Json(Value),
}

/// The tools of a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tools {
    pub(crate) list: Vec<Tool>,
    pub(crate) choice: Choice,
    /// Takes the first call only.
    pub(crate) single: bool,
}

impl Tools {
    /// As chat templates list them. Tools that must not be called are listed too, where that can be forbidden, so that
    /// the prompt's beginning stays the same.
    pub(crate) fn for_template(&self, model: &ModelInfo) -> Vec<Value> {
        if self.choice == Choice::None && !marked(model) {
            return Vec::new();
        }
        self.list.iter().map(Tool::for_template).collect()
    }

    /// Whether calls are looked for in the answer.
    pub(crate) fn callable(&self) -> bool {
        !self.list.is_empty() && self.choice != Choice::None
    }

    /// The literal that must not come, if calls are forbidden and tools are listed.
    pub(crate) fn forbidden(&self, model: &ModelInfo) -> Option<&'static str> {
        (self.choice == Choice::None && !self.list.is_empty() && marked(model)).then_some(CALL.0)
    }

    /// What the answer must be, given the format that its text must have. `at` names the list of tools in errors.
    ///
    /// # Errors
    /// A call is asked for and there is no such tool, or a schema cannot be enforced with this model.
    pub(crate) fn constraint(
        &self,
        format: &Format,
        model: &ModelInfo,
        at: &str,
    ) -> Result<Option<Constraint>, Refusal> {
        let all: Vec<&Tool> = self.list.iter().collect();
        let json = match format {
            Format::Json(schema) => Some(schema),
            Format::Text => None,
        };
        let grammar =
            |tools: &[&Tool], free| Some(Constraint::Lark(grammar::lark(tools, free, marked(model), !self.single)));
        Ok(match (&self.choice, json) {
            (Choice::Required, _) if all.is_empty() => {
                return Err(Refusal::param("tool_choice", "tool_choice asks for a call, but there are no tools"));
            }
            (Choice::Required, _) => grammar(&all, grammar::Free::Nothing),
            (Choice::Named(name), _) => match self.list.iter().find(|t| t.name == *name) {
                None => {
                    let message = format!("tool_choice names {name:?}, which is none of the tools");
                    return Err(Refusal::param("tool_choice", message));
                }
                Some(tool) => grammar(&[tool], grammar::Free::Nothing),
            },
            (Choice::Auto, Some(schema)) if !all.is_empty() => grammar(&all, grammar::Free::Json(schema)),
            (Choice::Auto, None) if all.iter().any(|t| t.strict) => {
                if !marked(model) {
                    let message = "strict tools need tool_choice \"required\" with this model, whose vocabulary has no token \
                                   that opens a call";
                    return Err(Refusal::param(at, message));
                }
                grammar(&all, grammar::Free::Text)
            }
            (Choice::Auto | Choice::None, _) => json.cloned().map(Constraint::Json),
        })
    }
}

/// Whether a call is opened by a token that no text can make.
pub(crate) fn marked(model: &ModelInfo) -> bool {
    model.marks.iter().any(|m| m == CALL.0)
}
