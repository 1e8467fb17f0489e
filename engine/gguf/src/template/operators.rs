//! What the engine's operators cost, paid before they run.
//!
//! The names begin with a character that no name in a template has. Each takes the operands and gives them back.

use super::values::{Budget, Namespace, pairs, shape};
use minijinja::value::{Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::sync::Arc;

/// Bytes of a frame's variables that a macro keeps.
const CLOSURE: u64 = 512;
/// Most bytes that a byte of text takes when a list that holds it is written out, escaped.
const ESCAPED: u64 = 8;

pub(super) const ADD: &str = "#add";
pub(super) const MUL: &str = "#mul";
pub(super) const CONCAT: &str = "#concat";
pub(super) const COMPARE: &str = "#compare";
/// Of `a < b < c` all but the last comparison.
pub(super) const CHAIN: &str = "#chain";
pub(super) const CONTAINS: &str = "#contains";
pub(super) const ITEM: &str = "#item";
pub(super) const SLICE: &str = "#slice";
/// Of `**` in a call.
pub(super) const MERGE: &str = "#merge";
pub(super) const CHANGED: &str = "#changed";
/// Takes one value and gives it back.
pub(super) const ITERATE: &str = "#iterate";
/// Takes a value that the engine made and gives it back as data.
pub(super) const ADOPT: &str = "#adopt";
/// Takes a list of keys and values and gives the dictionary.
pub(super) const DICT: &str = "#dict";
/// Takes a value, a namespace and a name and gives nothing.
pub(super) const SET: &str = "#set";
/// Gives nothing.
pub(super) const ENCLOSE: &str = "#enclose";

type Cost = fn(&Budget, &State, &[Value]) -> Result<(), Error>;

/// Gives the environment the names above.
pub(super) fn install(env: &mut Environment<'_>, budget: &Arc<Budget>) {
    let costs: [(&str, Cost); 10] = [
        (ADD, add),
        (MUL, mul),
        (CONCAT, concat),
        (COMPARE, compare),
        (CHAIN, chain),
        (CONTAINS, contains),
        (ITEM, item),
        (SLICE, slice),
        (MERGE, concat),
        (CHANGED, changed),
    ];
    for (name, cost) in costs {
        let budget = Arc::clone(budget);
        env.add_filter(name, move |state: &State, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let mut args = args.into_values();
            cost(&budget, state, &args)?;
            // The engine unpacks from the last to the first.
            args.reverse();
            Ok(Value::from(Tuple::from(args)))
        });
    }
    env.add_filter(ITERATE, |state: &State, value: ValueOrKwargs| -> Result<Value, Error> {
        pay(state, length(&value) as u64)?;
        Ok(value.into_value())
    });
    let store = Arc::clone(budget);
    env.add_filter(ADOPT, move |state: &State, value: Value| store.adopt(state, value));
    let store = Arc::clone(budget);
    env.add_filter(DICT, move |state: &State, flat: Value| -> Result<Value, Error> {
        let items: Vec<Value> = flat.try_iter()?.collect();
        pay(state, items.iter().step_by(2).map(text_cost).sum())?;
        store.dict(items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())))
    });
    env.add_filter(SET, |value: Value, target: Value, name: &str| -> Result<(), Error> {
        let Some(namespace) = target.downcast_object_ref::<Namespace>() else {
            let what = format!("can only assign to namespaces, not {}", target.kind());
            return Err(Error::new(ErrorKind::InvalidOperation, what));
        };
        namespace.set(name, value)
    });
    let store = Arc::clone(budget);
    env.add_filter(ENCLOSE, move |state: &State, _: Value| -> Result<(), Error> {
        store.hold(CLOSURE)?;
        pay(state, CLOSURE)
    });
}

/// Takes fuel for bytes read or written, at the engine's own rate.
pub(super) fn pay(state: &State, bytes: u64) -> Result<(), Error> {
    state.consume_fuel(bytes / 64)
}

/// Takes fuel for bytes about to be created and makes sure that they can be held.
pub(super) fn create(budget: &Budget, state: &State, bytes: u64) -> Result<(), Error> {
    budget.fits(bytes)?;
    pay(state, bytes)
}

/// Bytes of a string.
pub(super) fn length(value: &Value) -> usize {
    value.as_str().map_or(0, str::len)
}

/// Items of a list or dictionary.
pub(super) fn count(value: &Value) -> u64 {
    if shape(value).is_some() && value.as_object().is_some() { value.len().unwrap_or(0) as u64 } else { 0 }
}

/// Bytes of a value as text, at most; reading, hashing and comparing it take no more.
pub(super) fn text_cost(value: &Value) -> u64 {
    if value.is_kwargs() {
        let cost = |value: &Value| if value.is_kwargs() { 64 } else { text_cost(value) };
        return pairs(value).map(|(name, value)| cost(&name) + cost(&value)).sum();
    }
    match (value.as_str(), shape(value)) {
        (Some(text), _) => text.len() as u64,
        (None, Some(shape)) if value.as_object().is_some() => ESCAPED * shape.weight,
        _ => 64,
    }
}

fn add(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    let bytes: u64 = args.iter().map(|v| length(v) as u64 + 32 * count(v)).sum();
    create(budget, state, bytes)
}

fn mul(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    let [a, b] = args else { return Ok(()) };
    let times = |v: &Value| v.as_i64().map_or(1, |n| n.max(0) as u64);
    let bytes = |v: &Value| length(v) as u64 + 32 * count(v);
    create(budget, state, (bytes(a) + bytes(b)).saturating_mul(times(a)).saturating_mul(times(b)))
}

fn concat(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    create(budget, state, args.iter().map(text_cost).sum())
}

pub(super) fn compare(_: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    let [a, b] = args else { return Ok(()) };
    match (a.as_object(), b.as_object()) {
        // Containers of other kinds than data compare by what they enumerate or print.
        (Some(_), Some(_)) if shape(a).is_none() || shape(b).is_none() => {
            Err(Error::new(ErrorKind::InvalidOperation, "only text, numbers, lists and dictionaries can be compared"))
        }
        (Some(_), Some(_)) if count(a) > 0 && count(b) > 0 => pay(state, text_cost(a).saturating_add(text_cost(b))),
        (None, None) => pay(state, length(a).min(length(b)) as u64),
        _ => Ok(()),
    }
}

fn chain(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    compare(budget, state, args)?;
    contains(budget, state, args)
}

pub(super) fn contains(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    let [needle, all] = args else { return Ok(()) };
    if all.as_str().is_some() {
        return create(budget, state, length(all) as u64 + text_cost(needle));
    }
    if needle.as_object().is_some() && shape(needle).is_none() {
        return compare(budget, state, &[needle.clone(), needle.clone()]);
    }
    let each = 32 + text_cost(needle);
    let comparisons = match all.kind() {
        ValueKind::Map => each,
        _ => text_cost(all).min(count(all).saturating_mul(each)),
    };
    pay(state, comparisons)
}

fn item(_: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    let [from, key] = args else { return Ok(()) };
    pay(state, length(from) as u64 + text_cost(key))
}

fn slice(budget: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    let from = args.first().map_or(0, |v| 4 * length(v) as u64 + 32 * count(v));
    create(budget, state, from)
}

/// `loop.changed` keeps its arguments, and `loop.cycle` gives one of them back.
fn changed(_: &Budget, state: &State, args: &[Value]) -> Result<(), Error> {
    let args = args.get(1..).unwrap_or_default();
    if args.iter().any(|v| shape(v).is_none()) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "loop.changed and loop.cycle take text, numbers, lists and dictionaries",
        ));
    }
    pay(state, args.iter().map(|v| text_cost(v).saturating_mul(2)).sum())
}

/// The function `namespace(defaults, name=value, …)`.
pub(super) fn namespace(state: &State, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let namespace = Namespace::default();
    for defaults in args.into_values() {
        if defaults.kind() != ValueKind::Map {
            let what = format!("namespace() takes keyword arguments, not {}", defaults.kind());
            return Err(Error::new(ErrorKind::InvalidOperation, what));
        }
        for (name, value) in pairs(&defaults) {
            state.consume_fuel(4)?;
            namespace.set(name.as_str().unwrap_or_default(), value)?;
        }
    }
    Ok(Value::from_object(namespace))
}
