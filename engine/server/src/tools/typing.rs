//! What a parameter's text means, by the tool's schema.
//!
//! The template writes strings as they are and everything else as JSON, so the text alone does not tell `"5"` from `5`.

use super::refs::target;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Levels of references and unions that are looked into, and schemas in all.
const DEPTH: usize = 32;
const SCHEMAS: usize = 4096;

/// Types that a value may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    pub(super) string: bool,
    pub(super) number: bool,
    pub(super) boolean: bool,
    pub(super) null: bool,
    pub(super) object: bool,
    pub(super) array: bool,
}

impl Kinds {
    /// All of them.
    pub(super) const ANY: Kinds =
        Kinds { string: true, number: true, boolean: true, null: true, object: true, array: true };

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

    fn or(self, other: Kinds) -> Kinds {
        Kinds {
            string: self.string || other.string,
            number: self.number || other.number,
            boolean: self.boolean || other.boolean,
            null: self.null || other.null,
            object: self.object || other.object,
            array: self.array || other.array,
        }
    }

    fn and(self, other: Kinds) -> Kinds {
        Kinds {
            string: self.string && other.string,
            number: self.number && other.number,
            boolean: self.boolean && other.boolean,
            null: self.null && other.null,
            object: self.object && other.object,
            array: self.array && other.array,
        }
    }
}

/// The types that a value of a schema may have; all if it does not tell.
pub(super) fn kinds(schema: &Value, root: &Value) -> Kinds {
    let found = Look { root, left: SCHEMAS }.of(schema, DEPTH);
    if found == Kinds::default() { Kinds::ANY } else { found }
}

struct Look<'a> {
    root: &'a Value,
    /// Schemas that may still be looked at.
    left: usize,
}

impl Look<'_> {
    fn of(&mut self, schema: &Value, depth: usize) -> Kinds {
        let none = Kinds::default();
        let Value::Object(schema) = schema else {
            return if *schema == Value::Bool(false) { none } else { Kinds::ANY };
        };
        if depth == 0 || self.left == 0 {
            return Kinds::ANY;
        }
        self.left -= 1;
        let mut kinds = match schema.get("type") {
            Some(Value::String(name)) => none.name(name),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).fold(none, Kinds::name),
            _ => Kinds::ANY,
        };
        if let Some(value) = schema.get("const") {
            kinds = kinds.and(none.value(value));
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            kinds = kinds.and(values.iter().fold(none, Kinds::value));
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|r| target(self.root, r)) {
            kinds = kinds.and(self.of(target, depth - 1));
        }
        if let Some(Value::Array(parts)) = schema.get("allOf") {
            kinds = parts.iter().fold(kinds, |kinds, part| kinds.and(self.of(part, depth - 1)));
        }
        for union in ["anyOf", "oneOf"] {
            if let Some(Value::Array(parts)) = schema.get(union) {
                kinds = kinds.and(parts.iter().fold(none, |kinds, part| kinds.or(self.of(part, depth - 1))));
            }
        }
        // Schemas that leave out what goes without saying.
        for (keyword, kind) in [("properties", "object"), ("items", "array"), ("prefixItems", "array")] {
            if kinds == Kinds::ANY && schema.contains_key(keyword) {
                kinds = none.name(kind);
            }
        }
        kinds
    }
}

/// The JSON of a value that may be something else than a string.
pub(super) fn json(text: &str, kinds: Kinds) -> String {
    let trimmed = text.trim();
    // As Python writes them.
    match trimmed {
        _ if kinds == Kinds::ANY => {}
        "True" if kinds.boolean => return "true".to_owned(),
        "False" if kinds.boolean => return "false".to_owned(),
        "None" if kinds.null => return "null".to_owned(),
        _ => {}
    }
    let fits = match trimmed.as_bytes().first() {
        Some(b'{') => kinds.object,
        Some(b'[') => kinds.array,
        Some(b't' | b'f') => kinds.boolean,
        Some(b'n') => kinds.null,
        Some(b'-' | b'0'..=b'9') => kinds.number,
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
        let root = json!({"properties": {"p": schema}, "$defs": {"count": {"type": "integer"}}});
        let kinds = kinds(&root["properties"]["p"], &root);
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
        assert_eq!(typed(json!({"$ref": "#/properties/p/$defs/n", "$defs": {"n": {"type": "null"}}}), "null"), "null");
        assert_eq!(typed(json!({"enum": ["1", "2"]}), "1"), "\"1\"");
        assert_eq!(typed(json!({"allOf": [{"type": ["string", "integer"]}, {"type": "string"}]}), "7"), "\"7\"");
        assert_eq!(typed(json!({"type": ["string", "null"], "enum": ["null"]}), "null"), "\"null\"");
        assert_eq!(typed(json!({"items": {"type": "string"}}), "[1]"), "[1]");
        assert_eq!(typed(json!({}), "True"), "\"True\"");
        assert_eq!(typed(json!({"type": "object"}), "{\"a\": }"), "\"{\\\"a\\\": }\"");
        assert_eq!(typed(json!({}), "{\"a\": 1}"), "{\"a\": 1}");
        assert_eq!(typed(json!({}), "true story"), "\"true story\"");
        assert_eq!(typed(json!({}), "\"quoted\""), "\"\\\"quoted\\\"\"");
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let root = json!({"properties": {"p": {"$ref": "#/properties/p"}}});
        assert_eq!(kinds(&root["properties"]["p"], &root), Kinds::ANY);
        // A tree of references with more leaves than anybody could visit.
        let many = |next: usize| json!({"anyOf": vec![json!({"$ref": format!("#/$defs/{next}")}); 100]});
        let definitions: serde_json::Map<String, Value> = (0..20).map(|n| (n.to_string(), many(n + 1))).collect();
        let root = json!({"$ref": "#/$defs/0", "$defs": definitions});
        assert_eq!(kinds(&root, &root), Kinds::ANY);
    }
}
