//! How the value of a parameter is written, as far as its schema tells.
//!
//! Strings are written as they are, everything else as JSON. So what a schema says about strings, and what else could be
//! mistaken for one, is an expression of terminals ([`texts`](super::texts)); the rest is left to JSON.

use super::refs::alone;
use super::texts::{terminals, texts};
use super::typing::{Kinds, kinds};
use serde_json::{Map, Value, json};
use strata_runtime::Constraint;

/// The tag that closes a value, as a literal of Lark.
pub(super) const CLOSE: &str = r#""\n</parameter>\n""#;

/// Keywords that allow and forbid nothing.
const REMARKS: [&str; 12] = [
    "title",
    "description",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "$schema",
    "$defs",
    "definitions",
];

/// How a value is written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Form {
    /// Any text.
    Free,
    /// JSON of a schema.
    Json(Value),
    /// A text of an expression.
    Text(String),
    /// Either.
    Either(String, Value),
}

/// What there is to do about a schema that cannot be followed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lost {
    /// Why, as a clause.
    pub(super) why: String,
    /// The form that comes closest.
    pub(super) instead: Form,
}

impl Form {
    /// The form of the values of a schema that is part of a tool's.
    ///
    /// # Errors
    /// It cannot be followed.
    pub(super) fn of(schema: &Value, root: &Value) -> Result<Form, Lost> {
        let kinds = kinds(schema, root);
        let lost = |why: String| Lost { why, instead: Form::widest(schema, root) };
        let form = Form::told(schema, root, kinds).map_err(lost)?;
        form.check().map_err(lost)?;
        Ok(form)
    }

    fn told(schema: &Value, root: &Value, kinds: Kinds) -> Result<Form, String> {
        let says = |fields: &Map<String, Value>| fields.keys().any(|key| !REMARKS.contains(&key.as_str()));
        if kinds == Kinds::ANY && schema.as_object().map_or(*schema == Value::Bool(true), |fields| !says(fields)) {
            return Ok(Form::Free);
        }
        let json = |schema: &Value| {
            let nowhere = |reference| format!("the reference {reference:?} points at nothing in the tool's schema");
            alone(schema, root).map(bounded).map_err(nowhere)
        };
        if !kinds.string {
            return json(schema).map(Form::Json);
        }
        let text = texts(schema, root, kinds)?;
        let mut lists = Vec::new();
        lists.extend(kinds.array.then_some("array"));
        lists.extend(kinds.object.then_some("object"));
        Ok(match text {
            None => Form::Free,
            Some(text) if lists.is_empty() => Form::Text(text),
            Some(text) => Form::Either(text, json(&json!({"allOf": [schema, {"type": lists}]}))?),
        })
    }

    /// Everything of a schema's types.
    pub(super) fn widest(schema: &Value, root: &Value) -> Form {
        let kinds = kinds(schema, root);
        let names = [
            (kinds.number, "number"),
            (kinds.boolean, "boolean"),
            (kinds.null, "null"),
            (kinds.object, "object"),
            (kinds.array, "array"),
        ];
        let names: Vec<&str> = names.iter().filter(|(may, _)| *may).map(|(_, name)| *name).collect();
        if kinds.string { Form::Free } else { Form::Json(bounded(json!({"type": names}))) }
    }

    /// Whether it can be followed, and something is of this form.
    fn check(&self) -> Result<(), String> {
        match self {
            Form::Free => Ok(()),
            Form::Json(schema) => Constraint::Json(schema.clone()).check().map_err(|e| match e {
                strata_runtime::Error::BadConstraint(why) => why,
                other => other.to_string(),
            }),
            Form::Text(_) => {
                let grammar = format!("start: {}\n{}{}", self.usage("v"), self.rules("v"), terminals());
                // The reason would be about an expression that nobody wrote.
                Constraint::Lark(grammar).check().map_err(|_| "it allows no value, or is too complex".to_owned())
            }
            Form::Either(text, json) => {
                Form::Text(text.clone()).check()?;
                Form::Json(json.clone()).check()
            }
        }
    }

    /// What stands for a value with its closing tag in a rule; `name` is for rules of its own.
    pub(super) fn usage(&self, name: &str) -> String {
        match self {
            Form::Free => "value".to_owned(),
            Form::Json(schema) => format!("%json {schema} {CLOSE}"),
            Form::Text(_) => name.to_owned(),
            Form::Either(_, schema) => format!("({name} | %json {schema} {CLOSE})"),
        }
    }

    /// The rules that this needs.
    pub(super) fn rules(&self, name: &str) -> String {
        match self {
            Form::Free | Form::Json(_) => String::new(),
            Form::Text(text) | Form::Either(text, _) => format!("{name}[suffix={CLOSE}]: {text}\n"),
        }
    }
}

/// The schema with bounded white space: without a bound, a model that has lost its way can write line breaks until its
/// limit.
pub(super) fn bounded(mut schema: Value) -> Value {
    if let Value::Object(fields) = &mut schema {
        fields.entry("x-guidance").or_insert_with(|| json!({"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,48}"}));
    }
    schema
}
