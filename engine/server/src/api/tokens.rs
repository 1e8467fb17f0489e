//! `POST /tokenize` and `POST /detokenize`.

use super::ask::model;
use super::fields::{Fields, wrong};
use crate::App;
use crate::backend::Refusal;
use crate::blocking::blocking;
use crate::http::body::Body;
use crate::http::errors::ApiError;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

/// `{"content": text}` to `{"tokens": [...]}`. With `"parse_special": true` literals of special tokens become them; with
/// `"with_pieces": true` each token comes with its text.
pub(crate) async fn tokenize(State(app): State<App>, Body(body): Body) -> Result<Json<Value>, ApiError> {
    let fields = Fields::root(&body);
    let text = fields.need_text("content")?.to_owned();
    let special = fields.flag("parse_special")?.unwrap_or(false);
    let pieces = fields.flag("with_pieces")?.unwrap_or(false);
    let tokens = blocking(move || {
        let tokens = app.backend.tokenize(&text, special)?;
        if !pieces {
            return Ok(json!(tokens));
        }
        let piece = |&id: &u32| Ok(json!({"id": id, "piece": app.backend.detokenize(&[id])?}));
        tokens.iter().map(piece).collect::<Result<Value, Refusal>>()
    });
    Ok(Json(json!({"tokens": tokens.await?})))
}

/// `{"tokens": [...]}` to `{"content": text}`.
pub(crate) async fn detokenize(State(app): State<App>, Body(body): Body) -> Result<Json<Value>, ApiError> {
    let fields = Fields::root(&body);
    let vocab = model(&app)?.vocab;
    fields.need("tokens")?;
    let token = |(at, value): (String, &Value)| {
        let token = value.as_u64().filter(|&t| t < vocab as u64).map(|t| t as u32);
        token.ok_or_else(|| wrong(&at, &format!("a whole number from 0 to {}", vocab.saturating_sub(1)), value))
    };
    let items = fields.list("tokens")?.unwrap_or_default();
    let tokens: Vec<u32> = items.into_iter().map(token).collect::<Result<_, _>>()?;
    Ok(Json(json!({"content": app.backend.detokenize(&tokens)?})))
}
