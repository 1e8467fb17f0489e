//! Reads a profile and says what is wrong with it, with file, line and field.

use super::{AtThreads, HardwareProfile, Rule};
use crate::error::{ConfigError, quoted};
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Bytes of the largest profile that is read.
const LARGEST: u64 = 1 << 20;

impl HardwareProfile {
    /// The profile of a file.
    ///
    /// # Errors
    /// It cannot be read, or [`HardwareProfile::from_toml`] refuses it.
    pub fn from_file(path: &Path) -> Result<HardwareProfile, ConfigError> {
        let text = crate::layer::read_small(path, LARGEST)?;
        HardwareProfile::from_toml(&path.display().to_string(), &text)
    }

    /// The profile of a file's text.
    ///
    /// # Errors
    /// It is not TOML, a field is missing, has no such name or the wrong type, or [`HardwareProfile::check`] refuses a
    /// value. The sentence names the file, the line and the field.
    pub fn from_toml(file: &str, text: &str) -> Result<HardwareProfile, ConfigError> {
        let line = |at: usize| text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
        let table = DeTable::parse(text).ok();
        let profile: HardwareProfile = toml::from_str(text).map_err(|e| {
            let at = e.span().map(|span| span.start);
            let mut place = at.map_or_else(String::new, |at| format!(" line {}", line(at)));
            // The parser tells where a wrong value stands, and the table what it is called.
            if let Some(field) = table.as_ref().zip(at).and_then(|(table, at)| field_at(table.get_ref(), at)) {
                place += &format!(": {field}");
            }
            let reason = e.message().trim_end_matches('.').replace('\n', " ");
            ConfigError::Syntax { file: file.into(), place, reason }
        })?;
        profile.check_with(|field| {
            let at = table.as_ref().and_then(|table| offset_of(table.get_ref(), field));
            at.map_or_else(|| format!("{file}: {field}"), |at| format!("{file} line {}: {field}", line(at)))
        })?;
        Ok(profile)
    }

    /// Refuses what no machine has: a name of nothing, a number of threads of 0, a bandwidth that is 0, negative or not a
    /// number, a number without a source, a list whose numbers of threads do not increase.
    ///
    /// # Errors
    /// The first of these, with its field.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_with(|field| format!("profile {}: {field}", self.name))
    }

    fn check_with(&self, place: impl Fn(&str) -> String) -> Result<(), ConfigError> {
        let refuse = |field: &str, found: &str, expected: &str| Err(ConfigError::value(place(field), found, expected));
        for (field, text) in [("name", &self.name), ("description", &self.description)] {
            if text.trim().is_empty() {
                return refuse(field, text, "some words");
            }
        }
        for number in self.numbers() {
            let (v, field) = (number.value, number.field.as_str());
            let (fits, expected) = match number.rule {
                Rule::Positive => (v.is_finite() && v > 0.0, "a finite number above 0"),
                Rule::NotNegative => (v.is_finite() && v >= 0.0, "a finite number of at least 0"),
                Rule::Share => (v > 0.0 && v <= 1.0, "a number above 0 and at most 1"),
            };
            if !fits {
                return refuse(field, &v.to_string(), expected);
            }
            if number.source.trim().is_empty() {
                return refuse(field, number.source, "a source in words");
            }
        }
        if self.cpu.read_gb_s.is_empty() {
            return refuse("cpu.read_gb_s", "[]", "at least one number of threads");
        }
        let increases = |list: &[AtThreads]| {
            let before = |i: usize| if i == 0 { 0 } else { list[i - 1].threads };
            (0..list.len()).find(|i| list[*i].threads <= before(*i)).map(|i| (i, before(i) + 1, list[i].threads))
        };
        for (name, list) in [("read_gb_s", &self.cpu.read_gb_s), ("shared_gb_s", &self.cpu.shared_gb_s)] {
            if let Some((i, least, found)) = increases(list) {
                let field = format!("cpu.{name}[{i}].threads");
                return refuse(&field, &found.to_string(), &format!("at least {least}: numbers of threads increase"));
            }
        }
        for (i, kernel) in self.cpu.kernels.iter().enumerate() {
            for (name, found) in [("tokens", kernel.tokens), ("threads", kernel.threads)] {
                if found == 0 {
                    return refuse(&format!("cpu.kernels[{i}].{name}"), "0", "at least 1");
                }
            }
            let same = |other: &super::KernelRate| other.ty == kernel.ty && other.tokens == kernel.tokens;
            if self.cpu.kernels[..i].iter().any(same) {
                let found = format!("{} with {} tokens", kernel.ty, kernel.tokens);
                return refuse(&format!("cpu.kernels[{i}].ty"), &found, "each type and window once");
            }
        }
        if self.link.is_some() && self.gpu.is_none() {
            return Err(ConfigError::Value {
                name: place("link"),
                found: "a link without a [gpu]".into(),
                expected: "both, or none of them".into(),
            });
        }
        Ok(())
    }
}

/// The parts of a field's name: `cpu.read_gb_s[1].value`.
fn parts(field: &str) -> impl Iterator<Item = &str> {
    field.split(['.', '[', ']']).filter(|part| !part.is_empty())
}

/// Where a field's value starts, or as much of its path as is there.
fn offset_of(table: &DeTable<'_>, field: &str) -> Option<usize> {
    let mut names = parts(field);
    let mut here = table.get(names.next()?)?;
    for name in names {
        let inner = match here.get_ref() {
            DeValue::Table(table) => table.get(name),
            DeValue::Array(array) => name.parse().ok().and_then(|i: usize| array.get(i)),
            _ => None,
        };
        match inner {
            Some(inner) => here = inner,
            None => break,
        }
    }
    Some(here.span().start)
}

/// The name of the innermost value that holds this place. The place of a table in a file is its heading only, so tables are
/// searched whether they hold it or not.
fn field_at(table: &DeTable<'_>, at: usize) -> Option<String> {
    let mut named = None;
    for (key, value) in table {
        let shown = quoted(key.get_ref());
        let name = shown.trim_matches('"');
        if let Some(inner) = inside(value.get_ref(), at) {
            return Some(format!("{name}{inner}"));
        }
        if key.span().contains(&at) || value.span().contains(&at) {
            named = Some(name.to_owned());
        }
    }
    named
}

/// What stands behind the name of a value that holds this place in one of its parts: `.value`, `[2].threads`.
fn inside(value: &DeValue<'_>, at: usize) -> Option<String> {
    match value {
        DeValue::Table(table) => field_at(table, at).map(|inner| format!(".{inner}")),
        DeValue::Array(array) => array.iter().enumerate().find_map(|(i, value)| {
            let inner = inside(value.get_ref(), at);
            let here = || value.span().contains(&at).then(String::new);
            inner.or_else(here).map(|inner| format!("[{i}]{inner}"))
        }),
        _ => None,
    }
}
