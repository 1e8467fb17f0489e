//! Chat templates: messages into the text a model was trained on.
//!
//! Templates are Jinja programs that come with the model file. They run with the environment that transformers gives
//! them (`trim_blocks`, `lstrip_blocks`, Python's string methods, `tojson`, `raise_exception`, `strftime_now`), within
//! a budget of steps and memory, since a file may hold anything.

mod clock;
mod guard;
mod python;

use crate::error::show_text;
use crate::tokenizer::{Prompt, SpecialLiterals};
use crate::value::Metadata;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error as JinjaError, ErrorKind, State, Value as JinjaValue};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// The metadata key holding a file's template.
const KEY: &str = "tokenizer.chat_template";
/// The template's name within its environment.
const NAME: &str = "chat";

/// Budget of a rendering, in minijinja's units: one per step and per 64 bytes created. The base alone allows some
/// tenths of a second and 128 MB; what grows with the conversation is far above what real templates use.
const FUEL_BASE: u64 = 2_000_000;
const FUEL_PER_MESSAGE: u64 = 10_000;
const FUEL_PER_BYTE: u64 = 1;

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
    /// The template used more steps or memory than any conversation needs.
    #[error("the chat template was stopped: it ran far longer than this conversation can need")]
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

/// A compiled chat template.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    /// `bos_token` and its like, which templates print.
    tokens: BTreeMap<&'static str, String>,
}

impl ChatTemplate {
    /// Compiles a template.
    ///
    /// # Errors
    ///
    /// When it is not valid Jinja.
    pub fn new(source: impl Into<String>) -> Result<Self, TemplateError> {
        let source = source.into();
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|e| TemplateError::Syntax(sentence(&e)))?);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_function("raise_exception", |message: String| -> Result<JinjaValue, JinjaError> {
            Err(JinjaError::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
        });
        // In Python strings and dictionaries are sequences too.
        env.add_test("sequence", |v: &JinjaValue| {
            matches!(v.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String)
        });
        // Numbers print as in Python, also those that need an exponent there.
        env.set_formatter(|out, state, value| minijinja::escape_formatter(out, state, &python::printable(value)));
        env.add_filter("string", |v: &JinjaValue| match v.kind() {
            ValueKind::String => v.clone(),
            _ => JinjaValue::from(python::printable(v).to_string()),
        });
        env.add_template_owned(NAME, source.clone()).map_err(|e| TemplateError::Syntax(sentence(&e)))?;
        Ok(ChatTemplate { env, source, tokens: BTreeMap::new() })
    }

    /// Compiles the template of a file.
    ///
    /// # Errors
    ///
    /// When the file has none, or one that is not valid Jinja.
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

        let mut context: BTreeMap<&str, JinjaValue> = BTreeMap::new();
        context.extend(self.tokens.iter().map(|(name, token)| (*name, JinjaValue::from(token.as_str()))));
        if let Value::Object(extra) = &*extra {
            context.extend(extra.iter().map(|(name, v)| (name.as_str(), to_jinja(v))));
        }
        context.insert("messages", to_jinja(&messages));
        // Templates ask `if tools` and `tools is none`, so no tools is none and not an empty list.
        let tools = if options.tools.is_empty() { JinjaValue::from(()) } else { to_jinja(&tools) };
        context.insert("tools", tools);
        context.entry("documents").or_insert(JinjaValue::from(()));
        context.insert("add_generation_prompt", options.add_generation_prompt.into());
        if let Some(thinking) = options.enable_thinking {
            context.insert("enable_thinking", thinking.into());
        }

        let mut env = self.env.clone();
        let count = inputs.iter().map(|v| v.as_array().map_or(0, Vec::len) as u64).sum::<u64>();
        let bytes = inputs.iter().map(|v| text_bytes(v)).sum::<u64>();
        env.set_fuel(Some(FUEL_BASE + FUEL_PER_MESSAGE * count + FUEL_PER_BYTE * bytes));
        let now = options.now;
        env.add_function("strftime_now", move |format: &str| {
            clock::strftime(format, now.unwrap_or_else(SystemTime::now))
        });
        env.add_filter("tojson", move |state: &State, value: &JinjaValue, args: Rest<JinjaValue>, kwargs: Kwargs| {
            python::tojson(state, value, args, &kwargs, marker)
        });
        let template = env.get_template(NAME).map_err(explain)?;
        let text = template.render(JinjaValue::from(context)).map_err(explain)?;
        Ok(Prompt::marked(text, marker))
    }
}

/// The message of a template's `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn explain(error: JinjaError) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(at) = cause {
        if let Some(Raised(message)) = at.downcast_ref() {
            return TemplateError::Refused(show_text(message));
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
        Some(line) => show_text(&format!("line {line}: {what}")),
        None => show_text(&what),
    }
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
fn to_jinja(value: &Value) -> JinjaValue {
    match value {
        Value::Null => JinjaValue::from(()),
        Value::Bool(v) => JinjaValue::from(*v),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(v), _) => JinjaValue::from(v),
            (_, Some(v)) => JinjaValue::from(v),
            _ => n.as_f64().map_or(JinjaValue::UNDEFINED, JinjaValue::from),
        },
        Value::String(text) => JinjaValue::from(text.as_str()),
        Value::Array(items) => JinjaValue::from(items.iter().map(to_jinja).collect::<Vec<_>>()),
        Value::Object(fields) => JinjaValue::from_pairs(fields.iter().map(|(key, v)| (key.as_str(), to_jinja(v)))),
    }
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
