//! What a parameter's text means, by the tool's schema.
//!
//! The template writes strings as they are and everything else as JSON, so the text alone does not tell `"5"` from `5`.

use serde::de::IgnoredAny;
use serde_json::Value;

/// Levels of references and unions that are looked into.
const DEPTH: usize = 8;

/// Types that a value may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    string: bool,
    number: bool,
    boolean: bool,
    null: bool,
    object: bool,
    array: bool,
}

impl Kinds {
    /// Whether it is a string, whatever it looks like.
    pub(super) fn only_string(self) -> bool {
        self == Kinds { string: true, ..Kinds::default() }
    }

    fn name(mut self, name: &str) -> Kinds {
        match name {
            "string" => self.string = true,
            "number" | "integer" => self.number = true,
            "boolean" => self.boolean = true,
            "null" => self.null = true,
            "object" => self.object = true,
            "array" => self.array = true,
            _ => {}
        }
        self
    }

    fn value(self, value: &Value) -> Kinds {
        self.name(match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        })
    }

    fn and(self, other: Kinds) -> Kinds {
        Kinds {
            string: self.string || other.string,
            number: self.number || other.number,
            boolean: self.boolean || other.boolean,
            null: self.null || other.null,
            object: self.object || other.object,
            array: self.array || other.array,
        }
    }
}

/// The types of a parameter; none if the schema does not tell.
pub(super) fn kinds(parameters: &Value, key: &str) -> Kinds {
    parameters.get("properties").and_then(|p| p.get(key)).map_or(Kinds::default(), |s| of(s, parameters, DEPTH))
}

fn of(schema: &Value, root: &Value, depth: usize) -> Kinds {
    let none = Kinds::default();
    if depth == 0 {
        return none;
    }
    match schema.get("type") {
        Some(Value::String(name)) => return none.name(name),
        Some(Value::Array(names)) => return names.iter().filter_map(Value::as_str).fold(none, Kinds::name),
        _ => {}
    }
    if let Some(value) = schema.get("const") {
        return none.value(value);
    }
    if let Some(Value::Array(values)) = schema.get("enum") {
        return values.iter().fold(none, Kinds::value);
    }
    if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#')) {
        return root.pointer(target).map_or(none, |target| of(target, root, depth - 1));
    }
    for union in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(parts)) = schema.get(union) {
            return parts.iter().map(|part| of(part, root, depth - 1)).fold(none, Kinds::and);
        }
    }
    if schema.get("properties").is_some() {
        return none.name("object");
    }
    none
}

/// The JSON of a value that may be something else than a string.
pub(super) fn json(text: &str, kinds: Kinds) -> String {
    let trimmed = text.trim();
    let unknown = kinds == Kinds::default();
    // As Python writes them.
    match trimmed {
        "True" if kinds.boolean => return "true".to_owned(),
        "False" if kinds.boolean => return "false".to_owned(),
        "None" if kinds.null => return "null".to_owned(),
        _ => {}
    }
    let fits = match trimmed.as_bytes().first() {
        Some(b'{') => kinds.object || unknown,
        Some(b'[') => kinds.array || unknown,
        Some(b't' | b'f') => kinds.boolean || unknown,
        Some(b'n') => kinds.null || unknown,
        Some(b'-' | b'0'..=b'9') => kinds.number || unknown,
        _ => false,
    };
    // The text itself: reading and writing it could lose digits.
    if fits && serde_json::from_str::<IgnoredAny>(trimmed).is_ok() { trimmed.to_owned() } else { quoted(text) }
}

/// A string of JSON.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A piece from the inside of a string of JSON.
pub(super) fn escaped(piece: &str) -> String {
    let quoted = quoted(piece);
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn typed(schema: Value, text: &str) -> String {
        let parameters = json!({"properties": {"p": schema}, "$defs": {"count": {"type": "integer"}}});
        let kinds = kinds(&parameters, "p");
        if kinds.only_string() { quoted(text) } else { json(text, kinds) }
    }

    #[test]
    fn the_schema_decides() {
        assert_eq!(typed(json!({"type": "string"}), "5"), "\"5\"");
        assert_eq!(typed(json!({"type": "integer"}), "5"), "5");
        assert_eq!(typed(json!({"type": "number"}), "12345678901234567890.25"), "12345678901234567890.25");
        assert_eq!(typed(json!({"type": "boolean"}), "True"), "true");
        assert_eq!(typed(json!({"type": "boolean"}), "perhaps"), "\"perhaps\"");
        assert_eq!(typed(json!({"type": ["string", "null"]}), "null"), "null");
        assert_eq!(typed(json!({"type": ["string", "null"]}), "5"), "\"5\"");
        assert_eq!(
            typed(json!({"anyOf": [{"type": "array"}, {"type": "string"}]}), "[1, {\"a\": 2}]"),
            "[1, {\"a\": 2}]"
        );
        assert_eq!(typed(json!({"$ref": "#/$defs/count"}), "7"), "7");
        assert_eq!(typed(json!({"enum": ["1", "2"]}), "1"), "\"1\"");
        assert_eq!(typed(json!({"type": "object"}), "{\"a\": }"), "\"{\\\"a\\\": }\"");
        assert_eq!(typed(json!({}), "{\"a\": 1}"), "{\"a\": 1}");
        assert_eq!(typed(json!({}), "true story"), "\"true story\"");
        assert_eq!(typed(json!({}), "\"quoted\""), "\"\\\"quoted\\\"\"");
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let parameters = json!({"properties": {"p": {"$ref": "#/properties/p"}}});
        assert_eq!(kinds(&parameters, "p"), Kinds::default());
    }
}
