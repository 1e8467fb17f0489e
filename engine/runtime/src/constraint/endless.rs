//! Schemas that refer to themselves wherever a text could end.

use serde_json::{Map, Value};
use std::collections::HashSet;

/// Times that the whole schema is looked through at most. One is enough unless references go round in circles that lean
/// on each other.
const ROUNDS: usize = 32;

/// Whether no finite JSON text is of this schema, because of references that go round in a circle. What is wrong with it
/// otherwise does not matter here.
pub(super) fn endless(schema: &Value) -> bool {
    let mut finite = Finite { root: schema, ends: HashSet::new(), seen: HashSet::new() };
    for _ in 0..ROUNDS {
        let known = finite.ends.len();
        finite.seen.clear();
        if finite.ends(schema) {
            return false;
        }
        if finite.ends.len() == known {
            return true;
        }
    }
    false
}

struct Finite<'a> {
    root: &'a Value,
    /// References that finite texts meet.
    ends: HashSet<&'a str>,
    /// References that were followed in this round.
    seen: HashSet<&'a str>,
}

impl<'a> Finite<'a> {
    fn ends(&mut self, schema: &'a Value) -> bool {
        let Value::Object(schema) = schema else { return true };
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str)
            && !self.reference(reference)
        {
            return false;
        }
        let list = |key: &str| schema.get(key).and_then(Value::as_array);
        if list("allOf").is_some_and(|parts| !parts.iter().all(|part| self.ends(part))) {
            return false;
        }
        for union in ["anyOf", "oneOf"] {
            if list(union).is_some_and(|parts| !parts.is_empty() && !parts.iter().any(|part| self.ends(part))) {
                return false;
            }
        }
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => return true,
        };
        types.is_empty()
            || types.iter().any(|kind| match *kind {
                "object" => self.object(schema),
                "array" => self.array(schema),
                _ => true,
            })
    }

    fn reference(&mut self, reference: &'a str) -> bool {
        if self.ends.contains(reference) {
            return true;
        }
        if !self.seen.insert(reference) {
            return false;
        }
        let target = match reference {
            "#" | "#/" => Some(self.root),
            // One to nowhere is another's to complain about.
            _ => reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)),
        };
        let ends = target.is_none_or(|target| self.ends(target));
        if ends {
            self.ends.insert(reference);
        }
        ends
    }

    fn object(&mut self, schema: &'a Map<String, Value>) -> bool {
        let Some(required) = schema.get("required").and_then(Value::as_array) else { return true };
        let properties = schema.get("properties").and_then(Value::as_object);
        required.iter().filter_map(Value::as_str).all(|key| {
            let property = properties.and_then(|p| p.get(key)).or_else(|| schema.get("additionalProperties"));
            property.is_none_or(|property| self.ends(property))
        })
    }

    fn array(&mut self, schema: &'a Map<String, Value>) -> bool {
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let first = schema.get("prefixItems").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let needed = first.len().min(usize::try_from(least).unwrap_or(usize::MAX));
        let more = least > first.len() as u64;
        first.iter().take(needed).all(|item| self.ends(item))
            && (!more || schema.get("items").is_none_or(|items| self.ends(items)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn circles_without_a_way_out_are_found() {
        let needs = |key: &str, of: Value| json!({"type": "object", "properties": {key: of}, "required": [key]});
        let itself = json!({"$ref": "#"});
        for schema in [
            itself.clone(),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            json!({"anyOf": [itself, itself]}),
            json!({"allOf": [{"type": "string"}, itself]}),
            needs("next", itself.clone()),
            json!({"type": "array", "items": itself, "minItems": 1}),
            json!({"type": "array", "prefixItems": [{"type": "null"}, itself], "minItems": 2}),
            json!({"type": "object", "additionalProperties": itself, "required": ["x"]}),
        ] {
            assert!(endless(&schema), "{schema}");
        }
    }

    #[test]
    fn circles_with_a_way_out_are_not() {
        let itself = json!({"$ref": "#"});
        let leans = json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/b"}, "minItems": 1}, {"type": "null"}]},
            "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
        }});
        for schema in [
            json!({"type": "object", "properties": {"next": itself}}),
            json!({"type": ["object", "null"], "properties": {"next": itself}, "required": ["next"]}),
            json!({"type": "array", "items": itself}),
            json!({"type": "array", "prefixItems": [{"type": "null"}, itself], "minItems": 1}),
            json!({"anyOf": [{"type": "string"}, {"type": "array", "items": itself, "minItems": 1}]}),
            leans,
            json!({"$ref": "#/nowhere"}),
            json!(true),
        ] {
            assert!(!endless(&schema), "{schema}");
        }
    }
}
