//! How deep a schema leads whoever follows it.

use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Levels of lists and objects inside one another at most, on any way through a schema that follows each reference once.
pub(super) fn levels(schema: &Value) -> usize {
    let mut walk = Walk::default();
    let own = walk.depth(schema);
    let targets = walk.references.iter().map(|reference| match *reference {
        "#" | "#/" => own,
        _ => {
            let target = reference.strip_prefix('#').and_then(|pointer| schema.pointer(pointer));
            target.and_then(|target| walk.depths.get(&std::ptr::from_ref(target))).copied().unwrap_or(0)
        }
    });
    targets.fold(own, usize::saturating_add)
}

#[derive(Default)]
struct Walk<'a> {
    /// Of each list and object.
    depths: HashMap<*const Value, usize>,
    references: HashSet<&'a str>,
}

impl<'a> Walk<'a> {
    fn depth(&mut self, value: &'a Value) -> usize {
        let inner = match value {
            Value::Array(items) => items.iter().map(|item| self.depth(item)).max(),
            Value::Object(fields) => {
                self.references.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().map(|field| self.depth(field)).max()
            }
            _ => return 0,
        };
        let depth = inner.unwrap_or(0) + 1;
        self.depths.insert(std::ptr::from_ref(value), depth);
        depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_lead_deeper() {
        assert_eq!(levels(&json!(true)), 0);
        assert_eq!(levels(&json!({"items": {"items": [{}]}})), 4);
        let list = json!({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"items": {"$ref": "#"}}}});
        // The whole, itself again, and both definitions.
        assert_eq!(levels(&list), 4 + 4 + 2 + 2);
        assert_eq!(levels(&json!({"$ref": "#/gone"})), 1);
    }
}
