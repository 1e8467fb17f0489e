//! `response_format` and `text.format`: what an answer's text must be.

use crate::api::fields::{Fields, wrong};
use crate::backend::Refusal;
use crate::tools::Format;
use serde_json::{Value, json};

/// Reads a format; `holder` names the object within it that holds a schema, if that is another.
pub(crate) fn format(format: Option<Fields<'_>>, holder: Option<&str>) -> Result<Format, Refusal> {
    let Some(format) = format else { return Ok(Format::Text) };
    match format.need_text("type")? {
        "text" => Ok(Format::Text),
        "json_object" => Ok(Format::Json(json!({"type": "object"}))),
        "json_schema" => {
            let holder = match holder {
                Some(key) => Fields::of(format.need(key)?, format.name(key))?,
                None => format,
            };
            match holder.need("schema")? {
                schema @ Value::Object(_) => Ok(Format::Json(schema.clone())),
                other => Err(wrong(&holder.name("schema"), "an object", other)),
            }
        }
        other => {
            let name = format.name("type");
            let message = format!("{name} is {other:?}, and none of: text, json_object, json_schema");
            Err(Refusal::param(name, message))
        }
    }
}
