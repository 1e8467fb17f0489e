//! Chat templates: messages into the text a model was trained on.
//!
//! Templates are Jinja programs that come with the model file. They run with the environment that transformers gives
//! them (`trim_blocks`, `lstrip_blocks`, Python's string methods, `tojson`, `raise_exception`, `strftime_now`).
//!
//! # What a template can do to its host
//!
//! A file may hold anything, so compiling and rendering end with a text or an error: within about a second beyond
//! what the length of the conversation justifies, and within about 128 MB and a multiple of the conversation's bytes.
//!
//! - Compiling: the text, each tag, each name, chains of `elif` and nested macros are bounded before anything is
//!   parsed ([`compile`]), which bounds how deep the parser, the compiler and the dropping of the tree go; they run on
//!   a stack for that depth. Statements and brackets are bounded by the parser. Constants that the compiler would
//!   compute are no larger than their text.
//! - Values: all lists and dictionaries are those of [`values`]. They know their depth and their size with shared
//!   parts counted each time, both are bounded, and what is not data cannot be in them. So they are trees: walking,
//!   printing, comparing, hashing and dropping one ends, within its size and the stack. Nothing is lazy: what the
//!   engine leaves lazy becomes a list at once. Since namespaces hold only data too, no reference leads back to itself
//!   and everything is freed.
//! - Time: each instruction costs fuel. Those whose work grows with their operands, which are the operators of
//!   [`operators`], iteration, slices, and every filter, test, function and method of [`builtins`] (there are no
//!   others), pay for it before they run. The rest takes constant time.
//! - Memory: text is paid for when it is created, lists and dictionaries while they exist, from one budget; what
//!   could exceed it is refused before it is created.
//!
//! What is not bounded: the engine itself is trusted to do what its instructions say. If it panics, that is an error.
//!
//! What templates lose by it: other templates (`include`, `import`, `extends`, `block`), `autoescape`, `*` before an
//! argument, lists of constants that are multiplied, `break` and `continue` out of a block inside the loop, lists of
//! macros or namespaces, and filters that no chat template uses (such as `groupby`).

mod builtins;
mod checks;
mod clock;
mod compile;
mod guard;
mod operators;
mod python;
mod values;

use crate::error::show_text;
use crate::tokenizer::{Prompt, SpecialLiterals};
use crate::value::Metadata;
use minijinja::value::{Kwargs, Rest};
use minijinja::{AutoEscape, Environment, Error as JinjaError, ErrorKind, State, Value as JinjaValue, machinery};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;
use values::Budget;

/// The metadata key holding a file's template.
const KEY: &str = "tokenizer.chat_template";
/// Budget of a rendering in the engine's units of an instruction or 64 bytes, some tenths of a second. What grows with
/// the conversation is far above what real templates use.
const FUEL_BASE: u64 = 1_000_000;
const FUEL_PER_MESSAGE: u64 = 4_000;
const FUEL_PER_BYTE: u64 = 4;
/// Budget of a rendering in bytes, of which growing texts take up to three times as much for a moment. Templates copy a
/// message's text some ten times.
const MEMORY_BASE: u64 = 40 << 20;
const MEMORY_PER_BYTE: u64 = 32;
/// Frames of loops and macros inside one another; a macro that calls itself in a loop takes seven each time. Variables
/// are looked for in all of them.
const RECURSION: usize = 200;
/// Enough for the deepest template that is accepted. Only what is used of it takes memory.
const STACK: usize = 64 << 20;
/// Longest message of an error, in characters.
const MAX_MESSAGE: usize = 240;

/// Why a conversation could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template is not valid Jinja.
    #[error("the chat template cannot be read: {0}")]
    Syntax(String),
    /// The template itself refused the conversation, with this message.
    #[error("the chat template refused the conversation: {0}")]
    Refused(String),
    /// The template broke off, for instance because a message lacks what it uses.
    #[error("the chat template cannot render this conversation: {0}")]
    Failed(String),
    /// The template used more time or memory than any conversation needs.
    #[error("the chat template was stopped: it took far more time or memory than this conversation can need")]
    Endless,
    /// The inputs use every character that could keep special tokens in them from being recognised.
    #[error("the conversation holds special tokens and every private-use character, so its text cannot be protected")]
    Unprotectable,
}

/// What a rendering depends on besides the messages.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Whether the prompt ends with the beginning of an answer. True by default.
    pub add_generation_prompt: bool,
    /// The template's switch for thinking; `None` leaves it to the template.
    pub enable_thinking: Option<bool>,
    /// Tool definitions, each as its JSON object; none by default.
    pub tools: Vec<Value>,
    /// Further variables, such as `reasoning_effort` or `preserve_thinking`. They cannot replace the ones above.
    pub extra: Map<String, Value>,
    /// The moment for `strftime_now`, printed in UTC; `None` is now.
    pub now: Option<SystemTime>,
}

impl Default for RenderOptions {
    fn default() -> Self {
        RenderOptions {
            add_generation_prompt: true,
            enable_thinking: None,
            tools: Vec::new(),
            extra: Map::new(),
            now: None,
        }
    }
}

/// A chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: String,
    /// `bos_token` and its like, which templates print.
    tokens: BTreeMap<&'static str, String>,
}

impl ChatTemplate {
    /// Checks a template.
    ///
    /// # Errors
    ///
    /// When it is not valid Jinja, or too large or too deep to be a chat template.
    pub fn new(source: impl Into<String>) -> Result<Self, TemplateError> {
        let source = source.into();
        on_deep_stack(|| compile::compile(&source).map(drop), TemplateError::Syntax)?;
        Ok(ChatTemplate { source, tokens: BTreeMap::new() })
    }

    /// Reads the template of a file.
    ///
    /// # Errors
    ///
    /// When the file has none, or one that [`new`](Self::new) refuses.
    pub fn from_metadata(meta: &Metadata) -> crate::Result<Self> {
        let mut template = Self::new(meta.str(KEY)?).map_err(|e| meta.invalid(format!("key {KEY}: {e}")))?;
        let tokens = meta.opt_strings("tokenizer.ggml.tokens")?.unwrap_or_default();
        for (name, key) in [
            ("bos_token", "tokenizer.ggml.bos_token_id"),
            ("eos_token", "tokenizer.ggml.eos_token_id"),
            ("pad_token", "tokenizer.ggml.padding_token_id"),
        ] {
            let id = meta.opt_u64(key)?.and_then(|id| usize::try_from(id).ok());
            if let Some(token) = id.and_then(|id| tokens.get(id)) {
                template.tokens.insert(name, token.clone());
            }
        }
        Ok(template)
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation: `messages` are objects with `role`, `content`, `reasoning_content`, `tool_calls` and
    /// whatever else the template reads. Arguments of tool calls may be objects or, as in OpenAI's API, JSON text.
    ///
    /// A special literal in any string of the messages, tools or extra variables is text in the prompt, never a token,
    /// and the template does not recognise it either: reasoning belongs in `reasoning_content`, not between `<think>`
    /// and `</think>` in `content`. A literal that forms only where a user's text meets the template's own is not
    /// caught; templates that put their delimiters on lines of their own leave no such place.
    ///
    /// Takes some tenths of a millisecond for ordinary templates, on a thread of its own.
    ///
    /// # Errors
    ///
    /// When the template refuses the conversation, fails on it, or does not end.
    pub fn render(
        &self,
        literals: &SpecialLiterals,
        messages: &[Value],
        options: &RenderOptions,
    ) -> Result<Prompt, TemplateError> {
        let messages = Value::Array(messages.iter().map(|m| with_parsed_arguments(m).into_owned()).collect());
        let tools = Value::Array(options.tools.clone());
        let extra = Value::Object(options.extra.clone());
        let inputs = [&messages, &tools, &extra];
        let marker = guard::choose_marker(literals, &inputs, &self.source);
        let marker = marker.map_err(|guard::NoMarkerLeft| TemplateError::Unprotectable)?;
        let [messages, tools, extra] = inputs.map(|input| match marker {
            Some(marker) => Cow::Owned(guard::break_up(input, literals, marker)),
            None => Cow::Borrowed(input),
        });

        let inputs = [&*messages, &*tools, &*extra];
        let text = on_deep_stack(|| self.fill(inputs, options, marker), TemplateError::Failed)?;
        Ok(Prompt::marked(text, marker))
    }

    /// The text for inputs that are protected already.
    ///
    /// Compiled again each time: that takes less than any answer, and instructions borrow their text.
    fn fill(
        &self,
        inputs: [&Value; 3],
        options: &RenderOptions,
        marker: Option<char>,
    ) -> Result<String, TemplateError> {
        let count = inputs.iter().map(|v| v.as_array().map_or(0, Vec::len) as u64).sum::<u64>();
        let bytes = inputs.iter().map(|v| text_bytes(v)).sum::<u64>();
        let budget = Budget::new(MEMORY_BASE + MEMORY_PER_BYTE * bytes);
        let instructions = compile::compile(&self.source)?;
        let context = self.context(inputs, options).map_err(explain)?;

        let mut env = Environment::empty();
        // Errors name what is undefined.
        env.set_debug(true);
        env.set_recursion_limit(RECURSION);
        env.set_fuel(Some(FUEL_BASE + FUEL_PER_MESSAGE * count + FUEL_PER_BYTE * bytes));
        operators::install(&mut env, &budget);
        builtins::install(&mut env, &budget);
        let store = Arc::clone(&budget);
        env.add_function("raise_exception", move |state: &State, message: JinjaValue| -> Result<(), JinjaError> {
            operators::create(&store, state, operators::text_cost(&message))?;
            let message = Raised(message.to_string());
            Err(JinjaError::new(ErrorKind::InvalidOperation, "raise_exception").with_source(message))
        });
        // Numbers print as in Python, also those that need an exponent there.
        let store = Arc::clone(&budget);
        env.set_formatter(move |out, state, value| {
            let bytes = operators::text_cost(value);
            store.hold(bytes)?;
            operators::pay(state, bytes)?;
            minijinja::escape_formatter(out, state, &python::printable(value))
        });
        let now = options.now;
        let store = Arc::clone(&budget);
        env.add_function("strftime_now", move |state: &State, format: &str| -> Result<String, JinjaError> {
            operators::create(&store, state, 8 * format.len() as u64)?;
            Ok(clock::strftime(format, now.unwrap_or_else(SystemTime::now)))
        });
        env.add_filter("tojson", move |state: &State, value: &JinjaValue, args: Rest<JinjaValue>, kwargs: Kwargs| {
            let json = python::tojson(&budget, state, value, args, &kwargs, marker)?;
            budget.adopt(state, json)
        });

        let mut text = String::new();
        let mut out = machinery::make_string_output(&mut text);
        machinery::eval(&env, &instructions, context, &BTreeMap::new(), &mut out, AutoEscape::None)
            .map(drop)
            .map_err(explain)?;
        Ok(text)
    }

    /// The variables of a rendering.
    fn context(
        &self,
        [messages, tools, extra]: [&Value; 3],
        options: &RenderOptions,
    ) -> Result<JinjaValue, JinjaError> {
        let given = Budget::new(u64::MAX);
        let mut context: BTreeMap<&str, JinjaValue> = BTreeMap::new();
        context.extend(self.tokens.iter().map(|(name, token)| (*name, JinjaValue::from(token.as_str()))));
        for (name, value) in extra.as_object().into_iter().flatten() {
            context.insert(name, to_jinja(value, &given, 0)?);
        }
        context.insert("messages", to_jinja(messages, &given, 0)?);
        // Templates ask `if tools` and `tools is none`, so no tools is none and not an empty list.
        let tools = if options.tools.is_empty() { JinjaValue::from(()) } else { to_jinja(tools, &given, 0)? };
        context.insert("tools", tools);
        context.entry("documents").or_insert(JinjaValue::from(()));
        context.insert("add_generation_prompt", options.add_generation_prompt.into());
        if let Some(thinking) = options.enable_thinking {
            context.insert("enable_thinking", thinking.into());
        }
        Ok(JinjaValue::from(context))
    }
}

/// Runs on a thread whose stack is deep enough for what templates may nest; `lost` is for a thread that did not start
/// or panicked.
fn on_deep_stack<T: Send>(
    run: impl FnOnce() -> Result<T, TemplateError> + Send,
    lost: fn(String) -> TemplateError,
) -> Result<T, TemplateError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("template".to_owned()).stack_size(STACK).spawn_scoped(scope, run);
        let thread = thread.map_err(|e| lost(format!("no thread can be started for it ({e})")))?;
        thread.join().unwrap_or_else(|_| Err(lost("the template engine stopped working on it".to_owned())))
    })
}

/// The message of a template's `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn explain(error: JinjaError) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(at) = cause {
        if let Some(Raised(message)) = at.downcast_ref() {
            return TemplateError::Refused(short(message));
        }
        if at.downcast_ref::<JinjaError>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return TemplateError::Endless;
        }
        cause = at.source();
    }
    TemplateError::Failed(sentence(&error))
}

/// What went wrong and in which line of the template.
fn sentence(error: &JinjaError) -> String {
    let what = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    match error.line() {
        Some(line) => short(&format!("line {line}: {what}")),
        None => short(&what),
    }
}

/// Text of a template for a message: its beginning, made visible.
fn short(text: &str) -> String {
    let beginning = |text: &str| text.char_indices().nth(MAX_MESSAGE).map_or(text.len(), |(end, _)| end);
    let mut shown = show_text(&text[..beginning(text)]);
    let end = beginning(&shown);
    if beginning(text) < text.len() || end < shown.len() {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// The message with tool-call arguments that are JSON text of an object as that object: templates walk through the
/// arguments, while OpenAI's API carries them as text. Other text stays as it is.
fn with_parsed_arguments(message: &Value) -> Cow<'_, Value> {
    let text_of = |call: &Value| call.get("function").unwrap_or(call).get("arguments").is_some_and(Value::is_string);
    let calls = message.get("tool_calls").and_then(Value::as_array);
    if !calls.is_some_and(|calls| calls.iter().any(text_of)) {
        return Cow::Borrowed(message);
    }
    let mut message = message.clone();
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        let function = if call.get("function").is_some() { call.get_mut("function") } else { Some(call) };
        if let Some(arguments) = function.and_then(|f| f.get_mut("arguments"))
            && let Some(parsed) = arguments.as_str().and_then(|text| serde_json::from_str::<Map<_, _>>(text).ok())
        {
            *arguments = Value::Object(parsed);
        }
    }
    Cow::Owned(message)
}

/// A JSON value as the template sees it, objects in their order.
fn to_jinja(value: &Value, given: &Arc<Budget>, depth: u32) -> Result<JinjaValue, JinjaError> {
    if depth > values::MAX_DEPTH {
        return Err(JinjaError::new(ErrorKind::InvalidOperation, "a value is nested too deep"));
    }
    Ok(match value {
        Value::Null => JinjaValue::from(()),
        Value::Bool(v) => JinjaValue::from(*v),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(v), _) => JinjaValue::from(v),
            (_, Some(v)) => JinjaValue::from(v),
            _ => n.as_f64().map_or(JinjaValue::UNDEFINED, JinjaValue::from),
        },
        Value::String(text) => JinjaValue::from(text.as_str()),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_jinja(item, given, depth + 1));
            given.sequence(items.collect::<Result<_, _>>()?, false)?
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, v)| Ok((key.as_str().into(), to_jinja(v, given, depth + 1)?)));
            given.dict(fields.collect::<Result<Vec<_>, JinjaError>>()?)?
        }
    })
}

/// Bytes of text in a value, keys included.
fn text_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(key, v)| key.len() as u64 + text_bytes(v)).sum(),
        _ => 0,
    }
}
