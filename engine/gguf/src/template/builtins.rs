//! The filters, tests, functions and methods that templates have, each paid for before it runs.
//!
//! Only what is listed here exists: the environment starts empty.

use super::operators::{compare, contains, count, create, length, namespace, pay, text_cost};
use super::python;
use super::values::{Budget, pairs};
use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters, tests};
use minijinja_contrib::pycompat;
use std::sync::Arc;

/// Widest field that `str.format` pads to.
const MAX_WIDTH: u64 = 10_000;
/// Most items of a `range`.
const MAX_RANGE: usize = 100_000;

/// What a filter or test costs besides its result.
type Cost = fn(&Budget, &State, &[Value]) -> Result<(), Error>;

/// Gives the environment everything that templates may call, except what depends on the rendering.
pub(super) fn install(env: &mut Environment<'_>, budget: &Arc<Budget>) {
    let all: [(&str, Cost, Value); 42] = [
        ("length", constant, Value::from_function(filters::length)),
        ("count", constant, Value::from_function(filters::length)),
        ("default", constant, Value::from_function(filters::default)),
        ("d", constant, Value::from_function(filters::default)),
        ("first", constant, Value::from_function(filters::first)),
        ("abs", constant, Value::from_function(filters::abs)),
        ("int", constant, Value::from_function(filters::int)),
        ("float", constant, Value::from_function(filters::float)),
        ("round", round, Value::from_function(filters::round)),
        ("bool", constant, Value::from_function(filters::bool)),
        ("attr", text, Value::from_function(filters::attr)),
        ("lower", text, Value::from_function(filters::lower)),
        ("upper", text, Value::from_function(filters::upper)),
        ("title", text, Value::from_function(filters::title)),
        ("capitalize", text, Value::from_function(filters::capitalize)),
        ("safe", text, Value::from_function(filters::safe)),
        ("escape", text, Value::from_function(filters::escape)),
        ("e", text, Value::from_function(filters::escape)),
        ("string", text, Value::from_function(string)),
        ("trim", strip, Value::from_function(filters::trim)),
        ("replace", replace, Value::from_function(filters::replace)),
        ("split", split, Value::from_function(filters::split)),
        ("indent", indent, Value::from_function(filters::indent)),
        ("format", format, Value::from_function(filters::format)),
        ("join", join, Value::from_function(filters::join)),
        ("list", items, Value::from_function(filters::list)),
        ("items", items, Value::from_function(filters::items)),
        ("reverse", items, Value::from_function(filters::reverse)),
        ("last", constant, Value::from_function(last)),
        ("map", items, Value::from_function(filters::map)),
        ("select", items, Value::from_function(filters::select)),
        ("reject", items, Value::from_function(filters::reject)),
        ("selectattr", items, Value::from_function(filters::selectattr)),
        ("rejectattr", items, Value::from_function(filters::rejectattr)),
        ("batch", items, Value::from_function(filters::batch)),
        ("sum", sum, Value::from_function(filters::sum)),
        ("min", sort, Value::from_function(filters::min)),
        ("max", sort, Value::from_function(filters::max)),
        ("sort", sort, Value::from_function(filters::sort)),
        ("unique", sort, Value::from_function(filters::unique)),
        ("dictsort", sort, Value::from_function(filters::dictsort)),
        ("slice", slices, Value::from_function(filters::slice)),
    ];
    for (name, cost, filter) in all {
        let budget = Arc::clone(budget);
        env.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let args = args.into_values();
            cost(&budget, state, &args)?;
            let result = filter.call(state, &args).map_err(|e| at_fault(e, "filter", name))?;
            budget.adopt(state, result)
        });
    }
    install_tests(env, budget);
    let store = Arc::clone(budget);
    env.add_function("range", move |state: &State, from: i64, to: Option<i64>, step: Option<i64>| {
        range(&store, state, from, to, step)
    });
    let store = Arc::clone(budget);
    env.add_function("dict", move |state: &State, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
        let args = args.into_values();
        for (key, _) in args.iter().flat_map(pairs) {
            pay(state, 64 + text_cost(&key))?;
        }
        store.dict(args.iter().flat_map(pairs))
    });
    env.add_function("namespace", namespace);
    let store = Arc::clone(budget);
    env.set_unknown_method_callback(move |state, value, name, args| {
        method_cost(&store, state, value, name, args)?;
        let result = pycompat::unknown_method_callback(state, value, name, args)?;
        store.adopt(state, result)
    });
}

fn install_tests(env: &mut Environment<'_>, budget: &Arc<Budget>) {
    let all: [(&str, Cost, Value); 40] = [
        ("defined", free, Value::from_function(tests::is_defined)),
        ("undefined", free, Value::from_function(tests::is_undefined)),
        ("none", free, Value::from_function(tests::is_none)),
        ("boolean", free, Value::from_function(tests::is_boolean)),
        ("true", free, Value::from_function(tests::is_true)),
        ("false", free, Value::from_function(tests::is_false)),
        ("odd", free, Value::from_function(tests::is_odd)),
        ("even", free, Value::from_function(tests::is_even)),
        ("divisibleby", free, Value::from_function(tests::is_divisibleby)),
        ("number", free, Value::from_function(tests::is_number)),
        ("integer", free, Value::from_function(tests::is_integer)),
        ("float", free, Value::from_function(tests::is_float)),
        ("string", free, Value::from_function(tests::is_string)),
        ("mapping", free, Value::from_function(tests::is_mapping)),
        ("iterable", constant, Value::from_function(tests::is_iterable)),
        // In Python strings and dictionaries are sequences too.
        ("sequence", free, Value::from_function(is_sequence)),
        ("safe", free, Value::from_function(tests::is_safe)),
        ("filter", text, Value::from_function(tests::is_filter)),
        ("test", text, Value::from_function(tests::is_test)),
        ("lower", text, Value::from_function(tests::is_lower)),
        ("upper", text, Value::from_function(tests::is_upper)),
        ("startingwith", text, Value::from_function(tests::is_startingwith)),
        ("endingwith", text, Value::from_function(tests::is_endingwith)),
        ("sameas", compare, Value::from_function(tests::is_sameas)),
        ("in", contains, Value::from_function(tests::is_in)),
        ("eq", compare, Value::from_function(tests::is_eq)),
        ("equalto", compare, Value::from_function(tests::is_eq)),
        ("==", compare, Value::from_function(tests::is_eq)),
        ("ne", compare, Value::from_function(tests::is_ne)),
        ("!=", compare, Value::from_function(tests::is_ne)),
        ("lt", compare, Value::from_function(tests::is_lt)),
        ("lessthan", compare, Value::from_function(tests::is_lt)),
        ("<", compare, Value::from_function(tests::is_lt)),
        ("le", compare, Value::from_function(tests::is_le)),
        ("<=", compare, Value::from_function(tests::is_le)),
        ("gt", compare, Value::from_function(tests::is_gt)),
        ("greaterthan", compare, Value::from_function(tests::is_gt)),
        (">", compare, Value::from_function(tests::is_gt)),
        ("ge", compare, Value::from_function(tests::is_ge)),
        (">=", compare, Value::from_function(tests::is_ge)),
    ];
    for (name, cost, test) in all {
        let budget = Arc::clone(budget);
        env.add_test(name, move |state: &mut State, args: Rest<ValueOrKwargs>| -> Result<bool, Error> {
            let args = args.into_values();
            cost(&budget, state, &args)?;
            Ok(test.call(state, &args).map_err(|e| at_fault(e, "test", name))?.is_true())
        });
    }
}

/// The error with the name of what raised it.
fn at_fault(error: Error, what: &str, name: &str) -> Error {
    let detail = match error.detail() {
        Some(detail) => format!("{detail} in the {what} {name}"),
        None => format!("in the {what} {name}"),
    };
    Error::new(error.kind(), detail).with_source(error)
}

fn string(value: &Value) -> Value {
    match value.kind() {
        ValueKind::String => value.clone(),
        _ => Value::from(python::printable(value).to_string()),
    }
}

fn last(value: &Value) -> Result<Value, Error> {
    match (value.as_str(), value.len()) {
        (Some(text), _) => Ok(text.chars().next_back().map_or(Value::UNDEFINED, Value::from)),
        (None, Some(0)) => Ok(Value::UNDEFINED),
        (None, Some(n)) if value.kind() == ValueKind::Seq => value.get_item_by_index(n - 1),
        _ => Err(Error::new(ErrorKind::InvalidOperation, format!("{} has no last item", value.kind()))),
    }
}

fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String)
}

fn range(budget: &Arc<Budget>, state: &State, from: i64, to: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let refused = |what: &'static str| Err(Error::new(ErrorKind::InvalidOperation, what));
    let (from, to) = to.map_or((0, from), |to| (from, to));
    let step = step.unwrap_or(1);
    if step == 0 {
        return refused("range() with a step of 0");
    }
    let distance = if step > 0 { i128::from(to) - i128::from(from) } else { i128::from(from) - i128::from(to) };
    let step_size = i128::from(step).abs();
    let count = usize::try_from((distance.max(0) + step_size - 1) / step_size).unwrap_or(usize::MAX);
    if count > MAX_RANGE {
        return refused("range() with too many items");
    }
    state.consume_fuel(count as u64 / 2)?;
    budget.sequence((0..count).map(|i| Value::from(from + i as i64 * step)).collect(), false)
}

fn free(_: &Budget, _: &State, _: &[Value]) -> Result<(), Error> {
    Ok(())
}

/// Reads only text.
fn constant(_: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    pay(state, args.iter().map(|v| length(v) as u64).sum())
}

/// Goes through up to a thousand decimal digits.
fn round(_: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    state.consume_fuel(if args.len() > 1 { 600 } else { 60 })
}

/// Reads all its arguments and makes a text of them.
fn text(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    create(budget, state, args.iter().map(text_cost).sum::<u64>().saturating_mul(6))
}

/// Visits each item, with attributes and names of filters in the arguments.
fn items(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    let each: u64 = args.iter().skip(1).map(|v| 32 * if v.is_kwargs() { text_cost(v) } else { length(v) as u64 }).sum();
    let bytes = args.first().map_or(0, |v| 64 * length(v) as u64 + (64 + each).saturating_mul(count(v)));
    create(budget, state, bytes + each)
}

/// Compares each item with some others.
fn sort(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    items(budget, state, args)?;
    let Some(all) = args.first() else { return Ok(()) };
    let rounds = u64::from(count(all).max(length(all) as u64).checked_ilog2().unwrap_or(0)) + 2;
    pay(state, text_cost(all).saturating_mul(2 * rounds))
}

/// Only of numbers: adding up lists copies them again and again.
fn sum(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    items(budget, state, args)?;
    let start = args.iter().skip(1).filter(|v| !v.is_kwargs()).nth(1).cloned();
    let named = args.last().filter(|v| v.is_kwargs()).and_then(|v| v.get_attr("start").ok());
    if [start, named].into_iter().flatten().any(|v| !v.is_undefined() && !v.is_number()) {
        return Err(Error::new(ErrorKind::InvalidOperation, "the filter sum adds up numbers only"));
    }
    Ok(())
}

fn slices(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    items(budget, state, args)?;
    let lists = args.get(1).and_then(Value::as_usize).unwrap_or(0) as u64;
    create(budget, state, lists.saturating_mul(128))
}

fn join(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    items(budget, state, args)?;
    let Some(all) = args.first() else { return Ok(()) };
    let separator: u64 = args.iter().skip(1).map(text_cost).sum();
    let items = count(all) + length(all) as u64;
    create(budget, state, text_cost(all).saturating_add(separator.saturating_mul(items)))
}

/// Characters at the ends are compared with each of the given ones.
fn strip(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    text(budget, state, args)?;
    let [all, chars, ..] = args else { return Ok(()) };
    pay(state, text_cost(all).saturating_mul(text_cost(chars)))
}

fn replace(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    text(budget, state, args)?;
    let [all, old, new, ..] = args else { return Ok(()) };
    let matches = match (all.as_str(), old.as_str()) {
        (Some(all), Some(old)) => all.matches(old).count() as u64,
        _ => text_cost(all) + 1,
    };
    create(budget, state, text_cost(all).saturating_add(matches.saturating_mul(text_cost(new))))
}

fn split(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    text(budget, state, args)?;
    let Some(all) = args.first() else { return Ok(()) };
    let pieces = match (all.as_str(), args.get(1).and_then(Value::as_str)) {
        (Some(all), Some(separator)) => all.matches(separator).count() as u64,
        (Some(all), None) => all.split_whitespace().count() as u64,
        (None, _) => text_cost(all),
    };
    create(budget, state, 96 * (pieces + 1))
}

fn indent(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    text(budget, state, args)?;
    let named = args.last().filter(|v| v.is_kwargs()).and_then(|v| v.get_attr("width").ok());
    let width = named.or_else(|| args.get(1).cloned()).and_then(|v| v.as_usize()).unwrap_or(4) as u64;
    let lines = args.first().and_then(Value::as_str).map_or(1, |t| t.bytes().filter(|&b| b == b'\n').count() as u64);
    create(budget, state, width.saturating_mul(lines + 2))
}

/// What Python's methods of strings, lists and dictionaries cost.
fn method_cost(budget: &Budget, state: &State, value: &Value, name: &str, args: &[Value]) -> Result<(), Error> {
    let all: Vec<Value> = std::iter::once(value).chain(args).cloned().collect();
    match (value.kind(), name) {
        (ValueKind::String, "strip" | "lstrip" | "rstrip") => strip(budget, state, &all),
        (ValueKind::String, "replace") => replace(budget, state, &all),
        (ValueKind::String, "split") => split(budget, state, &all),
        (ValueKind::String, "splitlines") => split(budget, state, &[value.clone(), Value::from("\n")]),
        (ValueKind::String, "join") => match args {
            [items] => join(budget, state, &[items.clone(), value.clone()]),
            _ => Ok(()),
        },
        (ValueKind::String, "format") => format(budget, state, &all),
        (ValueKind::String, _) => text(budget, state, &all),
        (ValueKind::Map, "keys" | "values" | "items") => items(budget, state, &all),
        (ValueKind::Seq, "count") => match args {
            [needle] => contains(budget, state, &[needle.clone(), value.clone()]),
            _ => Ok(()),
        },
        _ => pay(state, args.iter().map(text_cost).sum()),
    }
}

/// Fields of a layout have a width or a precision, and each can print any argument.
fn format(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    let layout = args.first().and_then(Value::as_str).unwrap_or_default();
    let braces = layout.split('{').skip(1).map(|field| field.split('}').next().unwrap_or_default());
    let percents = layout.split('%').skip(1);
    let (mut fields, mut widest) = (1, 0u64);
    for field in braces.chain(percents.map(|f| f.split(|c: char| c.is_alphabetic()).next().unwrap_or_default())) {
        fields += 1;
        let runs = field.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
        widest = runs.map(|run| run.parse().unwrap_or(u64::MAX)).fold(widest, u64::max);
    }
    if widest > MAX_WIDTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "a number is too large for format"));
    }
    let each = 4 * widest + 512 + args.iter().map(text_cost).sum::<u64>();
    create(budget, state, (layout.len() as u64).saturating_add(each.saturating_mul(fields)))
}
