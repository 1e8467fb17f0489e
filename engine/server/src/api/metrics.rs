//! `GET /metrics`, as Prometheus reads it.

use crate::App;
use crate::backend::{State as Backend, Status};
use crate::http::connections::ConnectionCounts;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use std::fmt::{Display, Write};

/// Tells everything that is counted.
pub(crate) async fn handle(State(app): State<App>) -> impl IntoResponse {
    let ready = app.backend.state() == Backend::Ready;
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text(&app.backend.status(), ready, app.connections.counts()),
    )
}

struct Text(String);

impl Text {
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP strata_{name} {help}\n# TYPE strata_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "strata_{name}");
        for (i, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if i == 0 { "{" } else { "," });
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A metric with one sample for each value of a label.
    fn each<T: Display>(
        &mut self,
        head: (&str, &str, &str),
        label: &str,
        values: impl IntoIterator<Item = (String, T)>,
    ) {
        self.metric(head.0, head.1, head.2);
        for (text, value) in values {
            self.sample(head.0, &[(label, &text)], value);
        }
    }
}

fn text(s: &Status, ready: bool, connections: ConnectionCounts) -> String {
    let mut t = Text(String::new());
    t.one("ready", "gauge", "Whether requests are answered.", u8::from(ready));
    t.one("uptime_seconds", "gauge", "Time since the start.", s.uptime);
    t.each(
        ("weights_bytes", "gauge", "Bytes of weights by where they lie."),
        "tier",
        [("ram", s.tiers.ram), ("vram", s.tiers.vram), ("file", s.tiers.file)].map(|(n, v)| (n.to_owned(), v)),
    );
    t.one("connections_open", "gauge", "Connections that are served.", connections.open);
    t.one("connections_limit", "gauge", "Connections that are served at most.", connections.limit);
    t.one("connections_refused_total", "counter", "Connections that were one too many.", connections.refused);
    t.one("queue_waiting", "gauge", "Requests that wait.", s.queue.waiting);
    t.one("queue_running", "gauge", "Requests that are answered now.", s.queue.running);
    t.one("queue_limit", "gauge", "Requests that may wait at most.", s.queue.limit);
    let c = &s.counters;
    t.one("requests_total", "counter", "Requests that were taken.", c.requests);
    t.one("prompt_tokens_total", "counter", "Tokens of prompts.", c.prompt_tokens);
    t.one("cached_tokens_total", "counter", "Tokens of prompts that needed no reading.", c.cached_tokens);
    t.one("output_tokens_total", "counter", "Tokens of answers.", c.output_tokens);
    t.one("cancelled_total", "counter", "Requests that were cancelled.", c.cancelled);
    let kind = |kind| serde_json::to_value(kind).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let refused = c.refused.iter().map(|(k, n)| (kind(k), n));
    t.each(("refused_total", "counter", "Requests that were refused or failed."), "kind", refused);
    if let Some(last) = s.speeds.last() {
        t.one("prompt_tokens_per_second", "gauge", "Reading speed of the last answer.", last.prompt_rate);
        t.one("output_tokens_per_second", "gauge", "Writing speed of the last answer.", last.output_rate);
    }
    t.one("draft_tokens_proposed_total", "counter", "Tokens that were guessed.", s.drafts.proposed);
    t.one("draft_tokens_accepted_total", "counter", "Guesses that were right.", s.drafts.accepted);
    t.one("rounds_total", "counter", "Passes over the model.", s.drafts.rounds);
    let k = &s.conversations;
    t.one("conversations", "gauge", "Conversations that are kept.", k.kept);
    t.one("conversations_bytes", "gauge", "Bytes that they take.", k.bytes);
    let fates = [("started", k.started), ("resumed", k.resumed), ("branched", k.branched), ("evicted", k.evicted)];
    let fates = fates.map(|(name, n)| (name.to_owned(), n));
    t.each(("conversations_total", "counter", "What became of conversations."), "fate", fates);
    let degraded = s.degradations.iter().map(|d| (d.name.clone(), d.count));
    t.each(("degradations_total", "counter", "What is worse than it could be."), "name", degraded);
    if let Some(round) = s.rounds.last() {
        let branches = round.branches.iter().map(|b| (b.name.clone(), b.ms / 1e3));
        t.each(("round_seconds", "gauge", "Times of the last pass by what took them."), "branch", branches);
    }
    if !s.expert_cache.is_empty() {
        let layers = |value: fn(&crate::backend::LayerCache) -> u64| {
            s.expert_cache.iter().map(move |l| (l.layer.to_string(), value(l)))
        };
        t.each(("expert_cache_hits_total", "counter", "Experts that were found."), "layer", layers(|l| l.hits));
        t.each(
            ("expert_cache_lookups_total", "counter", "Experts that were looked for."),
            "layer",
            layers(|l| l.lookups),
        );
    }
    t.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Degradation, LayerCache, RefusalKind};

    #[test]
    fn every_line_is_a_sample_or_a_comment() {
        let mut status = Status::default();
        status.counters.refused.insert(RefusalKind::TooLong, 3);
        status.degradations.push(Degradation { name: "odd \"name\"".to_owned(), count: 1, text: String::new() });
        status.expert_cache.push(LayerCache { layer: 7, hits: 1, lookups: 2 });
        let text = text(&status, true, ConnectionCounts { open: 1, limit: 2, refused: 0 });
        for line in text.lines() {
            let sample = line
                .rsplit_once(' ')
                .is_some_and(|(name, value)| name.starts_with("strata_") && value.parse::<f64>().is_ok());
            assert!(line.starts_with("# ") || sample, "{line}");
        }
        assert!(text.contains("strata_refused_total{kind=\"too_long\"} 3\n"), "{text}");
        assert!(text.contains("strata_degradations_total{name=\"odd \\\"name\\\"\"} 1\n"));
        assert!(text.contains("strata_expert_cache_lookups_total{layer=\"7\"} 2\n"));
    }
}
