//! `GET /v1/models`, in a form that OpenAI's and Anthropic's clients both read.

use crate::App;
use crate::backend::{Refusal, RefusalKind, State as Backend};
use crate::http::errors::ApiError;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde_json::{Value, json};

/// Lists the model, also while it is loaded.
pub(crate) async fn list(State(app): State<App>) -> Json<Value> {
    let model = describe(&app);
    let id = model["id"].clone();
    // Codex looks for `models`, with names of its own for what is in it.
    let brief = json!({
        "slug": id, "name": id, "model": id, "display_name": id, "type": "model",
        "context_window": model["context_window"], "capabilities": ["completion"],
    });
    Json(json!({
        "object": "list", "data": [model], "models": [brief],
        "has_more": false, "first_id": id, "last_id": id,
    }))
}

/// Tells of one model.
pub(crate) async fn one(
    State(app): State<App>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let id = readable(id);
    let model = describe(&app);
    if model["id"] == id.as_str() {
        return Ok(Json(model));
    }
    let message = format!("there is no model {id:?}; {} is served", model["id"]);
    Err(Refusal { param: Some("model".to_owned()), ..Refusal::new(RefusalKind::NotFound, message) }.into())
}

/// The last part of a path; what is no text stands for nothing that there could be.
pub(crate) fn readable(part: Result<Path<String>, PathRejection>) -> String {
    part.map_or_else(|_| "\u{fffd}".to_owned(), |Path(part)| part)
}

fn describe(app: &App) -> Value {
    let info = app.backend.model();
    let (id, created) = info.as_ref().map_or((app.options.name.as_str(), 0), |m| (m.id.as_str(), m.created));
    let state = match app.backend.state() {
        Backend::Empty => "empty",
        Backend::Ready => "ready",
        Backend::Loading { .. } => "loading",
        Backend::Failed(_) => "failed",
        Backend::Stopping => "stopping",
    };
    let mut model = json!({
        "id": id, "object": "model", "created": created, "owned_by": "strata", "type": "model", "display_name": id,
        "created_at": date(created), "state": state, "loaded": info.is_some(),
    });
    if let Some(info) = info {
        for name in ["context_length", "context_window", "max_model_len", "max_input_tokens"] {
            model[name] = json!(info.context);
        }
        model["vocab_size"] = json!(info.vocab);
        model["can_think"] = json!(info.can_think);
    }
    model
}

/// A moment as RFC 3339 has it, in UTC.
fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years of the proleptic Gregorian calendar begin in March here, so that the leap day is the last one.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(super::date(0), "1970-01-01T00:00:00Z");
        assert_eq!(super::date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(super::date(1_796_000_000), "2026-11-30T00:53:20Z");
    }
}
