//! Reading the fields of a request.
//!
//! Fields that nobody knows are ignored, `null` is as good as absent, and a field with something in it that cannot be
//! used is refused by its name.

use crate::backend::Refusal;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// An object of a request, and where in the request it is.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
}

impl<'a> Fields<'a> {
    /// The request itself.
    pub(crate) fn root(map: &'a Map<String, Value>) -> Fields<'a> {
        Fields { map, path: String::new() }
    }

    /// An object at a path.
    pub(crate) fn of(value: &'a Value, path: String) -> Result<Fields<'a>, Refusal> {
        match value {
            Value::Object(map) => Ok(Fields { map, path }),
            _ => Err(wrong(&path, "an object", value)),
        }
    }

    /// The object itself.
    pub(crate) fn map(&self) -> &'a Map<String, Value> {
        self.map
    }

    /// A field's full name.
    pub(crate) fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// A field that is there.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// A field that has to be there.
    pub(crate) fn need(&self, key: &str) -> Result<&'a Value, Refusal> {
        self.get(key).ok_or_else(|| {
            let name = self.name(key);
            Refusal::param(name.clone(), format!("{name} is missing"))
        })
    }

    /// A text.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, Refusal> {
        self.read(key, "a string", Value::as_str)
    }

    /// A text that has to be there.
    pub(crate) fn need_text(&self, key: &str) -> Result<&'a str, Refusal> {
        self.need(key)?;
        self.text(key).map(Option::unwrap_or_default)
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, Refusal> {
        self.read(key, "true or false", Value::as_bool)
    }

    /// A number within bounds.
    pub(crate) fn number(&self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f32>, Refusal> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        self.read(key, &expected, |v| v.as_f64().filter(|n| range.contains(n)).map(|n| n as f32))
    }

    /// A whole number within bounds.
    pub(crate) fn whole(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Refusal> {
        let expected = match *range.end() {
            u64::MAX => format!("a whole number of at least {}", range.start()),
            end => format!("a whole number from {} to {end}", range.start()),
        };
        self.read(key, &expected, |v| whole(v).filter(|n| range.contains(n)))
    }

    /// An object.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Fields<'a>>, Refusal> {
        let Some(value) = self.get(key) else { return Ok(None) };
        Fields::of(value, self.name(key)).map(Some)
    }

    /// A list, each item with its full name.
    pub(crate) fn list(&self, key: &str) -> Result<Option<Vec<(String, &'a Value)>>, Refusal> {
        let name = self.name(key);
        let items = self.read(key, "a list", Value::as_array)?;
        Ok(items.map(|items| items.iter().enumerate().map(|(i, item)| (format!("{name}[{i}]"), item)).collect()))
    }

    /// Refuses a field that is there and is none of these values.
    pub(crate) fn only(&self, key: &str, allowed: &[Value], why: &str) -> Result<(), Refusal> {
        let name = self.name(key);
        match self.get(key) {
            Some(value) if !allowed.contains(value) => Err(Refusal::param(name.clone(), format!("{name}: {why}"))),
            _ => Ok(()),
        }
    }

    fn read<T>(&self, key: &str, expected: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, Refusal> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| wrong(&self.name(key), expected, value))
    }
}

/// A refusal of a value that is not what was expected.
pub(crate) fn wrong(name: &str, expected: &str, found: &Value) -> Refusal {
    Refusal::param(name, format!("{name} is {}; expected {expected}", describe(found)))
}

/// A whole number, also one that was written as `5.0`. One of more than 64 bits is as good as the largest.
fn whole(value: &Value) -> Option<u64> {
    let float = || value.as_f64().filter(|f| f.fract() == 0.0 && *f >= 0.0).map(|f| f as u64);
    value.as_u64().or_else(float)
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) if text.chars().count() <= 40 => format!("the string {text:?}"),
        Value::String(_) => "a long string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn null_is_absent_and_wrong_is_refused_by_name() -> Result<(), Refusal> {
        let body = json!({"a": null, "n": "5", "f": 5.0, "o": {"deep": [1]}, "t": 3.5, "huge": 1e30});
        let map = body.as_object().cloned().unwrap_or_default();
        let fields = Fields::root(&map);
        assert_eq!(fields.text("a")?, None);
        assert_eq!(fields.whole("f", 0..=9)?, Some(5));
        assert_eq!(fields.whole("huge", 1..=u64::MAX)?, Some(u64::MAX), "programs send it for no limit");
        let refused = fields.whole("huge", 0..=20).expect_err("too large");
        assert_eq!(refused.message, "huge is 1e+30; expected a whole number from 0 to 20");
        let refused = fields.whole("n", 1..=u64::MAX).expect_err("a string");
        assert_eq!(refused.message, "n is the string \"5\"; expected a whole number of at least 1");
        assert_eq!(fields.number("t", 0.0..=2.0).expect_err("too large").param.as_deref(), Some("t"));
        let inner = fields.object("o")?.expect("there");
        assert_eq!(inner.list("deep")?.expect("there")[0].0, "o.deep[0]");
        assert_eq!(inner.need_text("gone").expect_err("missing").message, "o.gone is missing");
        Ok(())
    }
}
