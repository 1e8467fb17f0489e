//! The texts that a schema allows for values which are no lists or objects, as expressions of Lark terminals.
//!
//! Strings, numbers, booleans and null are looked at apart. A keyword of a schema says something about one of them or
//! all, so every schema comes to a set of texts for each; `allOf`, `anyOf` and `not` are what they are for sets.

use super::patterns::{format, pattern};
use super::refs::target;
use super::typing::Kinds;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Levels of references and unions that are looked into, and schemas in all.
const DEPTH: usize = 32;
const SCHEMAS: usize = 4096;
/// Longest expression, in bytes.
const LONGEST: usize = 256 << 10;

/// The texts of whole numbers and of numbers.
const INTEGER: &str = "/-?(0|[1-9][0-9]*)/";
const NUMBER: &str = r"/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/";
/// What is read as a boolean or as null.
const BOOLEAN: &str = "/true|false|True|False/";
const NULLS: &str = "/null|None/";
/// Longest expression, with its repetitions written out, beside which something may be ruled out: that takes time and
/// memory for each place in it.
const LONGEST_RULED: usize = 4000;

/// Terminals that expressions use: any text that can be told from the tag that closes the value, and one whose first
/// visible character opens no list or object.
pub(super) fn terminals() -> String {
    let mut tail = "(?:[^<>][^<]*)?".to_owned();
    for c in "/parameter".chars().rev() {
        let c = if c == '/' { "\\/".to_owned() } else { c.to_string() };
        tail = format!("(?:[^<{c}][^<]*|{c}{tail})?");
    }
    format!("WRITTEN: /[^<]*(?:<{tail})*/ & /(?s:(?:.*[^\\r])?)/\nUNLISTED: /\\s*(?:[^\\s\\[{{](?s:.*))?/\n")
}

/// Some texts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Texts {
    None,
    All,
    /// These, at least one.
    Words(BTreeSet<String>),
    /// Those of an expression that stands by itself.
    Some(String),
    /// They cannot be told, for this reason.
    Unknown(String),
}

use Texts::{All, None as Nothing, Some as Those, Unknown, Words};

impl Texts {
    fn and(self, other: Texts) -> Texts {
        match (self, other) {
            (Nothing, _) | (_, Nothing) => Nothing,
            (All, texts) | (texts, All) => texts,
            (Unknown(why), _) | (_, Unknown(why)) => Unknown(why),
            (Words(a), Words(b)) => words(a.intersection(&b).cloned().collect()),
            (a, b) => those(format!("({} & {})", a.expression(), b.expression())),
        }
    }

    fn or(self, other: Texts) -> Texts {
        match (self, other) {
            (All, _) | (_, All) => All,
            (Nothing, texts) | (texts, Nothing) => texts,
            (Unknown(why), _) | (_, Unknown(why)) => Unknown(why),
            (Words(mut a), Words(b)) => {
                a.extend(b);
                Words(a)
            }
            (a, b) => those(format!("({} | {})", a.expression(), b.expression())),
        }
    }

    fn not(self) -> Texts {
        match self {
            Nothing => All,
            All => Nothing,
            Unknown(why) => Unknown(why),
            some => those(format!("(~{})", some.expression())),
        }
    }

    /// An expression that stands by itself; of those that have none, nothing.
    fn expression(self) -> String {
        match self {
            Those(expression) => expression,
            Words(words) => format!("({})", words.iter().map(|word| literal(word)).collect::<Vec<_>>().join(" | ")),
            Nothing | All | Unknown(_) => String::new(),
        }
    }
}

fn words(words: BTreeSet<String>) -> Texts {
    if words.is_empty() { Nothing } else { Words(words) }
}

fn those(expression: String) -> Texts {
    if expression.len() > LONGEST { Unknown("it is too large".to_owned()) } else { Those(expression) }
}

/// A text itself.
pub(super) fn literal(text: &str) -> String {
    // Lark takes JSON's strings, but this character only as a number.
    json!(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A regular expression.
fn regex(expression: &str) -> String {
    format!("/{}/", expression.replace('/', "\\/").replace('\n', "\\n").replace('\r', "\\r"))
}

/// For each type its texts.
#[derive(Debug, Clone)]
struct Scalars {
    string: Texts,
    number: Texts,
    boolean: Texts,
    null: Texts,
}

impl Scalars {
    /// The same for every type.
    fn all(texts: &Texts) -> Scalars {
        let texts = || texts.clone();
        Scalars { string: texts(), number: texts(), boolean: texts(), null: texts() }
    }

    fn with(self, other: Scalars, join: impl Fn(Texts, Texts) -> Texts) -> Scalars {
        Scalars {
            string: join(self.string, other.string),
            number: join(self.number, other.number),
            boolean: join(self.boolean, other.boolean),
            null: join(self.null, other.null),
        }
    }

    fn and(self, other: Scalars) -> Scalars {
        self.with(other, Texts::and)
    }

    fn or(self, other: Scalars) -> Scalars {
        self.with(other, Texts::or)
    }

    fn not(self) -> Scalars {
        self.with(Scalars::all(&Nothing), |texts, _| texts.not())
    }

    /// All values of a type.
    fn kind(name: &str) -> Scalars {
        let none = Scalars::all(&Nothing);
        match name {
            "string" => Scalars { string: All, ..none },
            "number" => Scalars { number: All, ..none },
            "integer" => Scalars { number: Those(INTEGER.to_owned()), ..none },
            "boolean" => Scalars { boolean: All, ..none },
            "null" => Scalars { null: All, ..none },
            _ => none,
        }
    }

    /// One value.
    fn value(value: &Value) -> Scalars {
        let (none, one) = (Scalars::all(&Nothing), |text: String| Words([text].into()));
        match value {
            Value::String(text) => Scalars { string: one(text.clone()), ..none },
            Value::Number(number) => Scalars { number: one(number.to_string()), ..none },
            Value::Bool(flag) => Scalars { boolean: one(flag.to_string()), ..none },
            Value::Null => Scalars { null: All, ..none },
            _ => none,
        }
    }
}

/// The texts of a schema, for values that may be of these kinds; `None` if any text will do.
///
/// # Errors
/// Why they cannot be told, as a clause.
pub(super) fn texts(schema: &Value, root: &Value, kinds: Kinds) -> Result<Option<String>, String> {
    let mut look = Look { root, left: SCHEMAS, length: 0 };
    let Scalars { string, number, boolean, null } = look.of(schema, DEPTH);
    if kinds.only_string() && string == All {
        return Ok(None);
    }
    let mut all = match string {
        Words(texts) => words(texts.into_iter().filter(|text| can_be_written(text, kinds)).collect()),
        string => {
            let mut base = Those("WRITTEN".to_owned());
            if kinds.object || kinds.array {
                base = base.and(Those("UNLISTED".to_owned()));
            }
            // What is read as something else is no string, and need not be what the schema says of that.
            let looks =
                [(kinds.number, &number, NUMBER), (kinds.boolean, &boolean, BOOLEAN), (kinds.null, &null, NULLS)];
            for (_, _, look) in looks.iter().filter(|(may, texts, _)| *may && **texts != All) {
                base = base.and(Those(format!("(/\\s*/ {look} /\\s*/)")).not());
            }
            string.and(base)
        }
    };
    let others =
        [(kinds.number, number, NUMBER), (kinds.boolean, boolean, "/true|false/"), (kinds.null, null, "/null/")];
    for (_, texts, widest) in others.into_iter().filter(|(may, ..)| *may) {
        all = all.or(texts.and(Those(widest.to_owned())));
    }
    match all {
        Unknown(why) => Err(why),
        Nothing => Err("it allows no value".to_owned()),
        all => {
            let expression = all.expression();
            if look.length > LONGEST_RULED && expression.contains('~') {
                return Err("it is too long for something to be ruled out in it".to_owned());
            }
            Ok(Some(expression))
        }
    }
}

/// Whether a string is read as it is when it is written.
fn can_be_written(text: &str, kinds: Kinds) -> bool {
    let as_string = kinds.only_string() || super::typing::json(text, kinds).starts_with('"');
    as_string && !text.contains("</parameter>") && !text.ends_with('\r')
}

struct Look<'a> {
    root: &'a Value,
    /// Schemas that may still be looked at.
    left: usize,
    /// How long all expressions are with their repetitions written out.
    length: usize,
}

impl Look<'_> {
    fn of(&mut self, schema: &Value, depth: usize) -> Scalars {
        let fields = match schema {
            Value::Bool(true) => return Scalars::all(&All),
            Value::Bool(false) => return Scalars::all(&Nothing),
            Value::Object(fields) => fields,
            _ => return unknown("a schema is neither an object nor true or false"),
        };
        if depth == 0 || self.left == 0 {
            return unknown("it refers to itself or others without end");
        }
        self.left -= 1;
        fields.iter().fold(Scalars::all(&All), |all, (key, value)| {
            let more = self.keyword(key, value, fields, depth - 1);
            all.and(more)
        })
    }

    /// What one keyword says.
    fn keyword(&mut self, key: &str, value: &Value, fields: &Map<String, Value>, depth: usize) -> Scalars {
        let none = || Scalars::all(&Nothing);
        let strings = |texts: Texts| Scalars { string: texts, ..Scalars::all(&All) };
        let count =
            || value.as_u64().or_else(|| value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0).map(|n| n as u64));
        match (key, value) {
            ("type", Value::String(name)) => Scalars::kind(name),
            ("type", Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).fold(none(), |all, name| all.or(Scalars::kind(name)))
            }
            ("const", value) => Scalars::value(value),
            ("enum", Value::Array(values)) => values.iter().fold(none(), |all, value| all.or(Scalars::value(value))),
            ("pattern", Value::String(text)) => strings(match pattern(text) {
                Ok((expression, length)) => {
                    self.length = self.length.saturating_add(length);
                    those(regex(&expression))
                }
                Err(why) => Unknown(format!("the pattern {text:?} {why}")),
            }),
            ("format", Value::String(name)) => strings(match format(name) {
                Some(expression) => those(regex(&expression)),
                None => Unknown(format!("the format {name:?} is not known")),
            }),
            ("minLength" | "maxLength", _) => {
                let Some(n) = count().and_then(|n| u32::try_from(n).ok()) else { return strings(wrong(key)) };
                self.length = self.length.saturating_add(n as usize);
                let bounds = if key == "minLength" { format!("{n},") } else { format!("0,{n}") };
                strings(those(format!("/(?s:.{{{bounds}}})/")))
            }
            ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf", _) => {
                let number = Unknown(format!("{key} is not known where the value may be a string, too"));
                Scalars { number, ..Scalars::all(&All) }
            }
            ("$ref", Value::String(reference)) => match target(self.root, reference) {
                Some(schema) => self.of(schema, depth),
                None => unknown(&format!("the reference {reference:?} points at nothing in the tool's schema")),
            },
            ("allOf", Value::Array(parts)) => {
                parts.iter().fold(Scalars::all(&All), |all, part| all.and(self.of(part, depth)))
            }
            ("anyOf", Value::Array(parts)) => parts.iter().fold(none(), |all, part| all.or(self.of(part, depth))),
            ("oneOf", Value::Array(parts)) => {
                let parts: Vec<Scalars> = parts.iter().map(|part| self.of(part, depth)).collect();
                one_of(&parts)
            }
            ("not", schema) => self.of(schema, depth).not(),
            ("if", schema) => {
                let holds = self.of(schema, depth);
                let mut branch =
                    |key: &str| fields.get(key).map_or(Scalars::all(&All), |schema| self.of(schema, depth));
                let (then, otherwise) = (branch("then"), branch("else"));
                holds.clone().not().or(then).and(holds.or(otherwise))
            }
            ("type" | "enum" | "pattern" | "format" | "$ref" | "allOf" | "anyOf" | "oneOf", _) => {
                Scalars::all(&wrong(key))
            }
            ("$dynamicRef" | "$recursiveRef", _) => unknown(&format!("{key} is not known")),
            // About lists and objects, or about nothing.
            _ => Scalars::all(&All),
        }
    }
}

/// The texts that exactly one of the parts has.
fn one_of(parts: &[Scalars]) -> Scalars {
    let (mut once, mut more) = (Scalars::all(&Nothing), Scalars::all(&Nothing));
    for part in parts {
        more = more.or(once.clone().and(part.clone()));
        once = once.or(part.clone());
    }
    once.and(more.not())
}

fn wrong(key: &str) -> Texts {
    Unknown(format!("{key} is not what it has to be"))
}

fn unknown(why: &str) -> Scalars {
    Scalars::all(&Unknown(why.to_owned()))
}
