//! How tokens are chosen: the fields that interfaces share.

use super::fields::{Fields, wrong};
use crate::backend::{ModelInfo, Refusal};
use crate::ids::seed;
use crate::options::Options;
use serde_json::Value;
use std::ops::RangeInclusive;
use strata_runtime::{GenerateParams, SamplingParams};

/// Stop texts at most, and bytes of each.
const STOPS: usize = 16;
const STOP_BYTES: usize = 1024;
/// Below it a whole number that is written as `5.0` is that number, and no neighbour of it.
const EXACT: f64 = 9e15;

/// What a request says about how its answer is generated, but for what interfaces have different names for.
pub(crate) fn params(fields: &Fields<'_>, options: &Options, model: &ModelInfo) -> Result<GenerateParams, Refusal> {
    let given = &options.sampling;
    let float = |key: &str, range: RangeInclusive<f64>, default: f32| {
        fields.number(key, range).map(|value| value.unwrap_or(default))
    };
    let repeat = if fields.get("repeat_penalty").is_some() { "repeat_penalty" } else { "repetition_penalty" };
    let sampling = SamplingParams {
        temp: float("temperature", 0.0..=2.0, given.temp)?,
        top_k: top_k(fields)?.unwrap_or(given.top_k),
        top_p: float("top_p", 0.0..=1.0, given.top_p)?,
        min_p: float("min_p", 0.0..=1.0, given.min_p)?,
        repeat_penalty: float(repeat, 0.1..=10.0, given.repeat_penalty)?,
        repeat_last_n: given.repeat_last_n,
        presence_penalty: float("presence_penalty", -2.0..=2.0, given.presence_penalty)?,
        frequency_penalty: float("frequency_penalty", -2.0..=2.0, given.frequency_penalty)?,
        seed: match fields.get("seed") {
            None => seed(),
            Some(value) => {
                let negative = value.as_i64().map(|seed| seed as u64);
                let float = || value.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < EXACT).map(|f| f as i64 as u64);
                let seed = value.as_u64().or(negative).or_else(float);
                seed.ok_or_else(|| wrong("seed", "a whole number of at most 64 bits", value))?
            }
        },
        logit_bias: logit_bias(fields, model)?,
    };
    Ok(GenerateParams { sampling, max_tokens: options.max_tokens, ..GenerateParams::default() })
}

/// A limit of tokens by one of its names, the first that is there. -1, which several clients send, is no limit.
pub(crate) fn limit(fields: &Fields<'_>, names: &[&str]) -> Result<Option<usize>, Refusal> {
    let Some(name) = names.iter().find(|n| fields.get(n).is_some()) else { return Ok(None) };
    if fields.get(name).and_then(Value::as_i64) == Some(-1) {
        return Ok(Some(0));
    }
    let limit = fields.whole(name, 1..=u64::MAX)?;
    Ok(limit.map(|l| usize::try_from(l).unwrap_or(usize::MAX)))
}

/// Stop texts: one, or a list of at most so many.
pub(crate) fn stop(fields: &Fields<'_>, key: &str, most: Option<usize>) -> Result<Vec<String>, Refusal> {
    let texts = match fields.get(key) {
        None => Vec::new(),
        Some(text @ Value::String(_)) => vec![(fields.name(key), text)],
        Some(Value::Array(_)) => fields.list(key)?.unwrap_or_default(),
        Some(other) => return Err(wrong(&fields.name(key), "a string or a list of strings", other)),
    };
    let most = most.unwrap_or(STOPS);
    if texts.len() > most {
        return Err(Refusal::param(key, format!("{key} has {} texts; at most {most} are taken", texts.len())));
    }
    let text = |(name, value): &(String, &Value)| match value {
        Value::String(text) => checked(name, text),
        other => Err(wrong(name, "a string", other)),
    };
    texts.iter().map(text).collect()
}

fn checked(name: &str, text: &str) -> Result<String, Refusal> {
    match text.len() {
        0 => Err(Refusal::param(name, format!("{name} is empty, and an empty text would stop every answer"))),
        1..=STOP_BYTES => Ok(text.to_owned()),
        n => Err(Refusal::param(name, format!("{name} has {n} bytes; at most {STOP_BYTES} are taken"))),
    }
}

/// 0 and -1 keep all.
fn top_k(fields: &Fields<'_>) -> Result<Option<usize>, Refusal> {
    if fields.get("top_k").and_then(Value::as_i64) == Some(-1) {
        return Ok(Some(0));
    }
    let k = fields.whole("top_k", 0..=u64::MAX)?;
    Ok(k.map(|k| usize::try_from(k).unwrap_or(usize::MAX)))
}

fn logit_bias(fields: &Fields<'_>, model: &ModelInfo) -> Result<Vec<(u32, f32)>, Refusal> {
    let Some(biases) = fields.object("logit_bias")? else { return Ok(Vec::new()) };
    let token = |key: &String| {
        let name = biases.name(key);
        let token = key.parse().ok().filter(|&t: &u32| (t as usize) < model.vocab);
        let token = token.ok_or_else(|| {
            let message =
                format!("{name}: {key:?} is no token; tokens are numbers from 0 to {}", model.vocab.saturating_sub(1));
            Refusal::param(name, message)
        })?;
        Ok((token, biases.number(key, -100.0..=100.0)?.unwrap_or(0.0)))
    };
    biases.map().keys().map(token).collect()
}
