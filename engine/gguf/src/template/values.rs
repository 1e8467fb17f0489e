//! The values a template works on: trees of known size and depth, created within a budget of memory.

use minijinja::value::{DynObject, Enumerator, Object, ObjectExt, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Deepest nesting of lists and dictionaries. JSON as parsed nests at most 128 levels.
pub(super) const MAX_DEPTH: u32 = 200;
/// Bytes that an entry of a list or half an entry of a dictionary takes, with what its container takes.
const SLOT: u64 = 48;

/// Memory that a rendering may still take.
#[derive(Debug)]
pub(super) struct Budget {
    total: u64,
    left: AtomicU64,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Budget { total: bytes, left: AtomicU64::new(bytes) })
    }

    /// Takes memory for good: text is shared freely, so its end is not seen.
    pub(super) fn hold(&self, bytes: u64) -> Result<(), Error> {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.map(drop).map_err(|_| exhausted())
    }

    /// Fails if this many bytes, about to be created, could not be held.
    pub(super) fn fits(&self, bytes: u64) -> Result<(), Error> {
        if bytes > self.left.load(Ordering::Relaxed) { Err(exhausted()) } else { Ok(()) }
    }

    /// A list of data, or what Python makes a tuple.
    pub(super) fn sequence(self: &Arc<Self>, items: Vec<Value>, tuple: bool) -> Result<Value, Error> {
        let lease = self.lease(SLOT * (items.len() as u64 + 1))?;
        self.leased(items, tuple, lease)
    }

    fn leased(&self, items: Vec<Value>, tuple: bool, lease: Lease) -> Result<Value, Error> {
        let shape = self.shape_of(items.iter())?;
        Ok(Value::from_object(List { items, tuple, shape, _lease: lease }))
    }

    /// A dictionary of data in the order of the pairs; a key that comes again replaces the value.
    pub(super) fn dict(self: &Arc<Self>, given: impl IntoIterator<Item = (Value, Value)>) -> Result<Value, Error> {
        let mut lease = self.lease(SLOT)?;
        let mut pairs: Vec<(Value, Value)> = Vec::new();
        let mut index = HashMap::new();
        for (key, value) in given {
            shape(&key).ok_or_else(not_data)?;
            lease.grow(4 * SLOT)?;
            match index.get(&key) {
                Some(&at) => pairs[at] = (key, value),
                None => {
                    index.insert(key.clone(), pairs.len());
                    pairs.push((key, value));
                }
            }
        }
        let shape = self.shape_of(pairs.iter().flat_map(|(key, value)| [key, value]))?;
        Ok(Value::from_object(Dict { pairs, index, shape, _lease: lease }))
    }

    /// A value that the engine made, as one of this module: what is lazy is walked through here, once and paid for.
    pub(super) fn adopt(self: &Arc<Self>, state: &State, value: Value) -> Result<Value, Error> {
        let Some(object) = value.as_object() else {
            self.hold(value.as_str().map_or(0, str::len) as u64)?;
            return Ok(value);
        };
        let foreign = object.downcast_ref::<List>().is_none()
            && matches!(object.repr(), ObjectRepr::Seq | ObjectRepr::Iterable)
            && !value.is_kwargs();
        if !foreign {
            return Ok(value);
        }
        let mut lease = self.lease(SLOT)?;
        let mut items = Vec::new();
        for item in value.try_iter()?.checked() {
            state.consume_fuel(1)?;
            lease.grow(SLOT)?;
            items.push(self.adopt(state, item?)?);
        }
        self.leased(items, value.is_tuple(), lease)
    }

    fn lease(self: &Arc<Self>, bytes: u64) -> Result<Lease, Error> {
        let mut lease = Lease { budget: Arc::clone(self), bytes: 0 };
        lease.grow(bytes)?;
        Ok(lease)
    }

    fn shape_of<'v>(&self, children: impl Iterator<Item = &'v Value>) -> Result<Shape, Error> {
        let mut whole = Shape { depth: 0, weight: 16 };
        for child in children {
            let child = shape(child).ok_or_else(not_data)?;
            whole.depth = whole.depth.max(child.depth + 1);
            whole.weight = whole.weight.saturating_add(child.weight);
        }
        if whole.depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deep"));
        }
        if whole.weight > self.total { Err(exhausted()) } else { Ok(whole) }
    }
}

fn exhausted() -> Error {
    Error::from(ErrorKind::OutOfFuel)
}

fn not_data() -> Error {
    let what = "lists, dictionaries and namespaces hold only text, numbers, lists and dictionaries";
    Error::new(ErrorKind::InvalidOperation, what)
}

/// Memory given back when its container goes.
struct Lease {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Lease {
    fn grow(&mut self, bytes: u64) -> Result<(), Error> {
        self.budget.hold(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// How far a value reaches when it is written out, parts that occur several times counted each time.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    depth: u32,
    /// Bytes of text, and 16 for each value.
    pub(super) weight: u64,
}

/// The shape of data; `None` for the other things a template can hold (namespaces, macros, loops), which cannot be
/// part of a list, so values are trees.
pub(super) fn shape(value: &Value) -> Option<Shape> {
    match value.as_object() {
        None => Some(Shape { depth: 0, weight: 16 + value.as_str().map_or(0, str::len) as u64 }),
        Some(object) => {
            object.downcast_ref::<List>().map(|l| l.shape).or_else(|| object.downcast_ref::<Dict>().map(|d| d.shape))
        }
    }
}

/// A list, or what Python makes a tuple.
struct List {
    items: Vec<Value>,
    tuple: bool,
    shape: Shape,
    _lease: Lease,
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tuple, self.items.as_slice()) {
            (false, items) => f.debug_list().entries(items).finish(),
            (true, [item]) => write!(f, "({item:?},)"),
            (true, items) => {
                f.write_str("(")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item:?}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
        }
    }
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A dictionary.
struct Dict {
    pairs: Vec<(Value, Value)>,
    index: HashMap<Value, usize>,
    shape: Shape,
    _lease: Lease,
}

impl fmt::Debug for Dict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.pairs.iter().map(|(key, value)| (key, value))).finish()
    }
}

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.index.get(key).map(|&at| self.pairs[at].1.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.mapped_key_value_enumerator(|this| Box::new(this.pairs.iter().cloned()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.pairs.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What `namespace()` makes: the one thing a template can change, so it alone carries anything from one iteration of
/// a loop to the next. It holds data and is not data: no value can contain itself.
#[derive(Default)]
pub(super) struct Namespace(Mutex<BTreeMap<String, Value>>);

impl Namespace {
    pub(super) fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        shape(&value).ok_or_else(not_data)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value);
        Ok(())
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<namespace>")
    }
}

impl Object for Namespace {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key.as_str()?).cloned()
    }
}

/// The pairs of a dictionary or of keyword arguments; none for anything else.
pub(super) fn pairs(value: &Value) -> impl Iterator<Item = (Value, Value)> {
    let object = value.as_object().filter(|_| value.kind() == ValueKind::Map);
    object.and_then(DynObject::try_iter_pairs).into_iter().flatten()
}
