//! References within a tool's schema.

use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;

/// Keywords whose value is data, in which nothing is a reference.
const DATA: [&str; 5] = ["const", "enum", "default", "examples", "example"];
/// Keywords that hold schemas by name.
const NAMED: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];
/// Keywords that hold schemas for others to refer to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// What a reference points at; `None` if that is nothing within the schema.
pub(super) fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    match reference.strip_prefix('#')? {
        "" | "/" => Some(root),
        pointer => root.pointer(&decoded(pointer)?),
    }
}

/// Text without percent signs of URLs.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// A part of a schema as a schema of its own: what it refers to comes along, be it the whole.
///
/// # Errors
/// The reference that points at nothing.
pub(super) fn alone(part: &Value, root: &Value) -> Result<Value, String> {
    let mut needed = Needed::default();
    let mut whole = needed.rewritten(part);
    let mut definitions = Map::new();
    while let Some(reference) = needed.order.get(definitions.len()).copied() {
        let found = target(root, reference).ok_or_else(|| reference.to_owned())?;
        let found = needed.rewritten(found);
        definitions.insert(definitions.len().to_string(), found);
    }
    if let Value::Object(schema) = &mut whole
        && !definitions.is_empty()
    {
        schema.insert("$defs".to_owned(), definitions.into());
    }
    Ok(whole)
}

/// References that were met, each once; a definition is named by its place among them.
#[derive(Default)]
struct Needed<'a> {
    order: Vec<&'a str>,
    places: HashMap<&'a str, usize>,
}

impl<'a> Needed<'a> {
    /// The schema with its references to the definitions that it will have.
    fn rewritten(&mut self, schema: &'a Value) -> Value {
        match schema {
            Value::Array(items) => items.iter().map(|item| self.rewritten(item)).collect(),
            Value::Object(fields) => {
                let fields = fields.iter().filter(|(key, _)| !DEFINITIONS.contains(&key.as_str()));
                fields.map(|(key, value)| (key.clone(), self.field(key, value))).collect::<Map<_, _>>().into()
            }
            other => other.clone(),
        }
    }

    fn field(&mut self, key: &str, value: &'a Value) -> Value {
        match value {
            Value::String(reference) if key == "$ref" => {
                let place = *self.places.entry(reference).or_insert(self.order.len());
                if place == self.order.len() {
                    self.order.push(reference);
                }
                json!(format!("#/$defs/{place}"))
            }
            value if DATA.contains(&key) => value.clone(),
            Value::Object(schemas) if NAMED.contains(&key) => schemas
                .iter()
                .map(|(name, schema)| (name.clone(), self.rewritten(schema)))
                .collect::<Map<_, _>>()
                .into(),
            value => self.rewritten(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_followed_wherever_they_lead() {
        let root = json!({"properties": {"a/b": {"type": "null"}, "c d": {"type": "string"}}, "$defs": {"x~y": true}});
        assert_eq!(target(&root, "#"), Some(&root));
        assert_eq!(target(&root, "#/properties/a~1b"), Some(&json!({"type": "null"})));
        assert_eq!(target(&root, "#/properties/c%20d/type"), Some(&json!("string")));
        assert_eq!(target(&root, "#/$defs/x~0y"), Some(&json!(true)));
        for nowhere in ["#/$defs/z", "#name", "other.json#/a", "https://example.org/x", "#/properties/c%2", "#/%ff"] {
            assert_eq!(target(&root, nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn what_a_part_refers_to_comes_along() {
        let root = json!({
            "type": "object",
            "properties": {
                "a": {"type": "array", "items": {"$ref": "#/$defs/b"}, "default": [{"$ref": "#/$defs/gone"}]},
                "$ref": {"type": "object", "properties": {"$ref": {"$ref": "#"}, "$defs": {"type": "null"}}},
            },
            "$defs": {"b": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/properties/a"}]}, "unused": {}},
        });
        let part = |key: &str| alone(&root["properties"][key], &root);
        let expected = json!({
            "type": "array", "items": {"$ref": "#/$defs/0"}, "default": [{"$ref": "#/$defs/gone"}],
            "$defs": {
                "0": {"anyOf": [{"$ref": "#/$defs/0"}, {"$ref": "#/$defs/1"}]},
                "1": {"type": "array", "items": {"$ref": "#/$defs/0"}, "default": [{"$ref": "#/$defs/gone"}]},
            },
        });
        assert_eq!(part("a"), Ok(expected));
        // Properties may have the names of keywords.
        let named = part("$ref").expect("whole");
        assert_eq!(named["properties"]["$ref"], json!({"$ref": "#/$defs/0"}));
        assert_eq!(named["properties"]["$defs"], json!({"type": "null"}));
        assert_eq!(named["$defs"]["0"]["properties"]["a"]["items"], json!({"$ref": "#/$defs/1"}));
        assert_eq!(alone(&json!({"items": {"$ref": "#/gone"}}), &root), Err("#/gone".to_owned()));
    }
}
