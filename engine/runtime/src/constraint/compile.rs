//! From a constraint to what follows it, within bounds.
//!
//! The library bounds the size of grammars and the work on expressions itself. It follows references by recursion,
//! though, as deep as a schema leads it, so the stack is a large one and the depth has a limit. That is for schemas by
//! themselves; whoever puts several into a grammar has them [checked](Constraint::check) first.

use super::Constraint;
use super::endless::endless;
use super::levels::levels;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory, panic_utils};
use serde_json::{Value, json};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Bytes of a schema or grammar at most.
const LONGEST: usize = 2 << 20;

/// Levels of lists and objects inside one another at most, those that references lead to included.
const LEVELS: usize = 20_000;

/// Bytes of the stack; only what is used of it takes memory. In a debug build twice as many levels were seen to fit.
const STACK: usize = 256 << 20;

/// White space between the parts of a JSON text, when the schema says nothing about it. Without a bound a model that
/// has lost its way can write line breaks until its limit.
const WHITE_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,48}";

/// What makes parsers for a vocabulary of these tokens.
///
/// # Errors
/// The library cannot hold it.
pub(super) fn factory(words: &[Vec<u8>], stop_ids: &[u32]) -> Result<ParserFactory, String> {
    let build = AssertUnwindSafe(|| {
        let count = u32::try_from(words.len()).unwrap_or(u32::MAX);
        let mut trie = TokTrie::from(&TokRxInfo::new(count, INVALID_TOKEN), words);
        if !stop_ids.is_empty() {
            trie = trie.with_eos_tokens(stop_ids);
        }
        // Tokens are never forced: what the grammar leaves open, their division included, is the model's choice.
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&env)?;
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(factory)
    });
    // It asserts what it takes for granted of a vocabulary.
    panic_utils::catch_unwind(build).map_err(|e| super::reason(&e.to_string()))
}

/// What follows a text from its beginning.
///
/// # Errors
/// Why the constraint cannot be followed.
pub(super) fn compile(factory: &ParserFactory, constraint: &Constraint) -> Result<Matcher, String> {
    let bytes = match constraint {
        Constraint::Json(schema) => schema.to_string().len(),
        Constraint::Lark(grammar) => grammar.len(),
    };
    if bytes > LONGEST {
        return Err(format!("it has {bytes} bytes, and at most {LONGEST} are taken"));
    }
    let work = || {
        let grammar = match constraint {
            Constraint::Json(schema) if levels(schema) > LEVELS => {
                return Err(format!("it leads more than {LEVELS} levels deep"));
            }
            Constraint::Json(schema) if endless(schema) => {
                return Err("it refers to itself without end, so that no finite text is of it".to_owned());
            }
            Constraint::Json(schema) => TopLevelGrammar::from_json_schema(with_white_space(schema.clone())),
            Constraint::Lark(grammar) => TopLevelGrammar::from_lark(grammar.clone()),
        };
        let parser = factory.create_parser(grammar).map_err(|e| e.to_string())?;
        Ok(Matcher::new(Ok(parser)))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("schema".into()).stack_size(STACK);
        let started =
            thread.spawn_scoped(scope, work).map_err(|e| format!("a thread for it could not be started: {e}"))?;
        started.join().unwrap_or_else(|_| Err("following it broke off".to_owned()))
    })
}

/// The schema with bounded white space, unless it says itself how it is to be followed.
fn with_white_space(mut schema: Value) -> Value {
    if let Value::Object(fields) = &mut schema {
        fields.entry("x-guidance").or_insert_with(|| json!({"whitespace_pattern": WHITE_SPACE}));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a schema; empty if it can be followed.
    fn said(schema: Value) -> String {
        Constraint::Json(schema).check().err().map(|e| e.to_string()).unwrap_or_default()
    }

    /// Objects in objects, each by a reference: four levels of JSON each.
    fn chain(length: usize) -> Value {
        let next = |n: usize| json!({"type": "object", "properties": {"x": {"items": {"$ref": format!("#/$defs/{}", n + 1)}, "type": "array"}}});
        let mut chain: serde_json::Map<String, Value> = (0..length).map(|n| (n.to_string(), next(n))).collect();
        chain.insert(length.to_string(), json!({"type": "integer"}));
        json!({"$ref": "#/$defs/0", "$defs": chain})
    }

    /// Lists in lists, a hundred levels by themselves before each reference.
    fn deep(length: usize) -> Value {
        let inside = |n: usize| {
            let last = json!({"$ref": format!("#/$defs/{}", n + 1)});
            (0..100).fold(last, |items, _| json!({"type": "array", "items": items}))
        };
        let mut lists: serde_json::Map<String, Value> = (0..length).map(|n| (n.to_string(), inside(n))).collect();
        lists.insert(length.to_string(), json!({"type": "integer"}));
        json!({"$ref": "#/$defs/0", "$defs": lists})
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_a_reason() {
        let itself = json!({"$ref": "#"});
        for (schema, reason) in [
            (itself.clone(), "without end"),
            (json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}), "without end"),
            (json!({"anyOf": [itself, itself]}), "without end"),
            (json!({"type": "object", "properties": {"a": itself}, "required": ["a"]}), "without end"),
            (json!({"$ref": "#/nowhere"}), "nowhere"),
            (json!({"$ref": "https://example.org/schema"}), "#/"),
            (json!({"type": "nothing"}), "nothing"),
            (json!({"type": "string", "pattern": "(?=a)b"}), "look-around"),
            (json!({"type": "string", "pattern": "^a$", "maxLength": 0}), ""),
            (json!({"type": "string", "maxLength": 1_000_000_000_000_u64}), ""),
            (json!({"not": {"type": "string"}}), "not"),
            (json!({"enum": []}), ""),
            (json!(false), ""),
            (json!({"enum": vec!["x".repeat(1000); 3000]}), "bytes"),
            (chain(6000), "levels deep"),
            (deep(195), "too large"),
        ] {
            let said = said(schema.clone());
            assert!(
                said.starts_with("the constraint cannot be followed: ") && said.contains(reason),
                "{schema}: {said:?}"
            );
        }
        let wrong = Constraint::Lark("start: nowhere".to_owned()).check();
        assert!(matches!(wrong, Err(crate::Error::BadConstraint(_))), "{wrong:?}");
        let nothing = Constraint::Lark("start: T\nT: \"a\" & \"b\"".to_owned()).check();
        assert!(matches!(nothing, Err(crate::Error::BadConstraint(_))), "{nothing:?}");
    }

    #[test]
    fn large_schemas_are_followed_on_any_stack() {
        for schema in [
            // As many levels as there may be, or almost.
            chain(4900),
            deep(80),
            json!({"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"type": "array", "items": {"$ref": "#"}}}}),
            json!({"type": "string", "maxLength": 1_000_000, "pattern": "^[^x]*$"}),
            json!({"type": "array", "minItems": 1_000_000, "items": {"type": "integer"}}),
        ] {
            assert_eq!(said(schema), "");
        }
    }
}
