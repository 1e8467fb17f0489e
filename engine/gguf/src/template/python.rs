//! JSON as Python's `json.dumps` writes it, which is what models were trained on.

use super::operators;
use super::values::Budget;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use std::borrow::Cow;
use std::fmt::Write;

/// How `json.dumps` lays out a value.
struct Layout<'b> {
    /// Where the text being written has to fit.
    budget: &'b Budget,
    ensure_ascii: bool,
    /// Written as it is even when everything else is escaped to ASCII, because it is taken out of the text later.
    marker: Option<char>,
    sort_keys: bool,
    /// One level's indentation; `None` for one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
}

/// The filter `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`: transformers' definition,
/// which differs from Jinja's own by not escaping for HTML and by keeping the order of keys.
pub(super) fn tojson(
    budget: &Budget,
    state: &State,
    value: &Value,
    args: Rest<Value>,
    kwargs: &Kwargs,
    marker: Option<char>,
) -> Result<Value, Error> {
    let arg = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = kwargs.get(name)?;
        let value = named.or_else(|| args.get(at).cloned()).filter(|v| !v.is_none() && !v.is_undefined());
        operators::create(budget, state, value.as_ref().map_or(0, operators::text_cost))?;
        Ok(value)
    };
    let ensure_ascii = arg(0, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = match arg(1, "indent")? {
        None => None,
        Some(v) => Some(match v.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(u8::try_from(v)?.into()),
        }),
    };
    let separators = arg(2, "separators")?;
    let sort_keys = arg(3, "sort_keys")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    let (item_separator, key_separator) = match separators {
        Some(pair) => {
            let text = |i: usize| pair.get_item_by_index(i).map(|v| v.to_string());
            (text(0)?, text(1)?)
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let layout = Layout { budget, ensure_ascii, marker, sort_keys, indent, item_separator, key_separator };
    let mut out = String::new();
    layout.write(state, value, 0, &mut out)?;
    Ok(Value::from(out))
}

impl Layout<'_> {
    fn write(&self, state: &State, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        state.consume_fuel(4)?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
            ValueKind::Number => out.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => {
                self.string(state, value.as_str().unwrap_or_default(), out)?;
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let mut any = false;
                out.push('[');
                for item in value.try_iter()? {
                    self.gap(state, any, depth + 1, out)?;
                    self.write(state, &item, depth + 1, out)?;
                    any = true;
                }
                self.close(state, any, depth, ']', out)?;
            }
            ValueKind::Map => {
                let mut keys: Vec<(String, Value)> = Vec::new();
                for key in value.try_iter()? {
                    keys.push((key_text(&key)?, key));
                }
                if self.sort_keys {
                    keys.sort_by(|a, b| a.0.cmp(&b.0));
                }
                out.push('{');
                for (i, (text, key)) in keys.iter().enumerate() {
                    self.gap(state, i > 0, depth + 1, out)?;
                    self.string(state, text, out)?;
                    self.pay(state, self.key_separator.len(), out)?;
                    out.push_str(&self.key_separator);
                    self.write(state, &value.get_item(key)?, depth + 1, out)?;
                }
                self.close(state, !keys.is_empty(), depth, '}', out)?;
            }
            kind => {
                return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson of a value that is {kind}")));
            }
        }
        Ok(())
    }

    fn gap(&self, state: &State, separate: bool, depth: usize, out: &mut String) -> Result<(), Error> {
        if separate {
            self.pay(state, self.item_separator.len(), out)?;
            out.push_str(&self.item_separator);
        }
        self.line(state, depth, out)
    }

    fn close(&self, state: &State, any: bool, depth: usize, bracket: char, out: &mut String) -> Result<(), Error> {
        if any {
            self.line(state, depth, out)?;
        }
        out.push(bracket);
        Ok(())
    }

    fn line(&self, state: &State, depth: usize, out: &mut String) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            self.pay(state, depth * indent.len(), out)?;
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
        Ok(())
    }

    /// Takes fuel for bytes about to be written and makes sure that they fit.
    fn pay(&self, state: &State, bytes: usize, out: &str) -> Result<(), Error> {
        self.budget.fits((out.len() + bytes) as u64)?;
        operators::pay(state, 2 * bytes as u64)
    }

    fn string(&self, state: &State, text: &str, out: &mut String) -> Result<(), Error> {
        let most = text.bytes().map(|b| match b {
            b' '..=b'~' => 1 + usize::from(b == b'"' || b == b'\\'),
            0x80.. if !self.ensure_ascii => 1,
            _ => 6,
        });
        self.pay(state, most.sum(), out)?;
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || self.ensure_ascii && c > '~' && Some(c) != self.marker => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                        let _ = write!(out, "\\u{unit:04x}"); // Strings take all that is written.
                    });
                }
                c => out.push(c),
            }
        }
        out.push('"');
        Ok(())
    }
}

/// A key of an object: Python turns numbers, truth values and None into text.
fn key_text(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::Number if key.is_integer() => key.to_string(),
        ValueKind::Number => float(f64::try_from(key.clone())?),
        kind => return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson of a key that is {kind}"))),
    })
}

/// A float as the text Python prints for it; other values as they are.
pub(super) fn printable(value: &Value) -> Cow<'_, Value> {
    match f64::try_from(value.clone()) {
        Ok(x) if value.kind() == ValueKind::Number && !value.is_integer() && x.is_finite() => {
            Cow::Owned(Value::from(float(x)))
        }
        _ => Cow::Borrowed(value),
    }
}

/// A float as Python's `repr`: the shortest digits that read back as the number, with an exponent below 1e-4 and from
/// 1e16 on.
fn float(x: f64) -> String {
    if x.is_nan() {
        return "NaN".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    if x == 0.0 || (1e-4..1e16).contains(&x.abs()) {
        return format!("{x:?}");
    }
    // Rust writes 1e-5 and 1.5e22, Python 1e-05 and 1.5e+22.
    let text = format!("{x:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.strip_prefix('-') {
        Some(e) => format!("{digits}e-{e:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::float;

    #[test]
    fn floats_read_as_in_python() {
        let cases = [
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e22, "1.5e+22"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (1e100, "1e+100"),
            (123456789.125, "123456789.125"),
            (5e-324, "5e-324"),
        ];
        for (x, text) in cases {
            assert_eq!(float(x), text);
        }
    }
}
