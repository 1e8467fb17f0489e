//! How much a model thinks before it answers.
//!
//! Each interface has its own words for it. All come down to three things: whether the model thinks, what the chat
//! template is told about the effort, and how many tokens the thinking may take.

use crate::api::fields::Fields;
use crate::backend::{ModelInfo, Refusal};
use serde_json::{Map, Value, json};

/// How much is thought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Thinking {
    /// Whether at all; `None` leaves it to the template.
    pub(crate) think: Option<bool>,
    /// The template's `reasoning_effort`.
    pub(crate) effort: Option<&'static str>,
    /// Tokens at most.
    pub(crate) budget: Option<usize>,
}

/// Levels: name, what templates call it, tokens at most.
const LEVELS: [(&str, &str, Option<usize>); 6] = [
    ("minimal", "low", Some(512)),
    ("low", "low", Some(2_048)),
    ("medium", "medium", Some(8_192)),
    ("high", "high", None),
    ("xhigh", "high", None),
    ("max", "high", None),
];

impl Thinking {
    /// No thinking.
    pub(crate) const OFF: Thinking = Thinking { think: Some(false), effort: None, budget: None };

    /// What a level of effort means.
    pub(crate) fn level(level: &str, param: &str) -> Result<Thinking, Refusal> {
        if level == "none" {
            return Ok(Thinking::OFF);
        }
        let found = LEVELS.iter().find(|(name, ..)| *name == level);
        let &(_, effort, budget) = found.ok_or_else(|| {
            let levels: Vec<&str> = LEVELS.iter().map(|(name, ..)| *name).collect();
            Refusal::param(param, format!("{param} is {level:?}, and none of: none, {}", levels.join(", ")))
        })?;
        Ok(Thinking { think: Some(true), effort: Some(effort), budget })
    }

    /// What so many tokens mean.
    pub(crate) fn tokens(budget: usize) -> Thinking {
        if budget == 0 {
            return Thinking::OFF;
        }
        let effort = match budget {
            ..2_048 => "low",
            2_048..8_192 => "medium",
            _ => "high",
        };
        Thinking { think: Some(true), effort: Some(effort), budget: Some(budget) }
    }

    /// What a request to OpenAI's chat interface says: `reasoning_effort`, and as extensions `reasoning_budget_tokens`
    /// and `chat_template_kwargs`, whose entries that are not about thinking go into `extra`.
    pub(crate) fn of_chat(fields: &Fields<'_>, extra: &mut Map<String, Value>) -> Result<Thinking, Refusal> {
        let mut thinking = match fields.text("reasoning_effort")? {
            Some(level) => Thinking::level(level, "reasoning_effort")?,
            None => Thinking::default(),
        };
        if let Some(budget) = fields.whole("reasoning_budget_tokens", 0..=u64::MAX)? {
            thinking = Thinking::tokens(usize::try_from(budget).unwrap_or(usize::MAX));
        }
        if let Some(more) = fields.object("chat_template_kwargs")? {
            if let Some(think) = more.flag("enable_thinking")? {
                thinking.think = Some(think);
            }
            let others = more.map().iter().filter(|(key, _)| *key != "enable_thinking");
            extra.extend(others.map(|(key, value)| (key.clone(), value.clone())));
        }
        Ok(thinking)
    }

    /// What a request to Anthropic's interface says: `thinking`, and `output_config.effort` where it leaves the amount to
    /// the model. Without `thinking` there is none.
    pub(crate) fn of_messages(fields: &Fields<'_>) -> Result<Thinking, Refusal> {
        let effort = match fields.object("output_config")? {
            Some(config) => config.text("effort")?.map(|e| Thinking::level(e, "output_config.effort")).transpose()?,
            None => None,
        };
        let Some(thinking) = fields.object("thinking")? else { return Ok(Thinking::OFF) };
        match thinking.need_text("type")? {
            "disabled" => Ok(Thinking::OFF),
            "adaptive" => Ok(effort.unwrap_or(Thinking { think: Some(true), ..Thinking::default() })),
            "enabled" => {
                let budget = thinking.whole("budget_tokens", 1..=u64::MAX)?;
                let budget = budget.map(|b| Thinking::tokens(usize::try_from(b).unwrap_or(usize::MAX)));
                Ok(budget.or(effort).unwrap_or(Thinking { think: Some(true), ..Thinking::default() }))
            }
            other => {
                let message = format!("thinking.type is {other:?}, and none of: enabled, adaptive, disabled");
                Err(Refusal::param("thinking.type", message))
            }
        }
    }

    /// Fills in what the server was told, and leaves out what the model cannot do.
    pub(crate) fn for_model(mut self, model: &ModelInfo, default: Option<bool>) -> Thinking {
        if !model.can_think {
            return Thinking::default();
        }
        self.think = self.think.or(default);
        if self.think == Some(false) { Thinking::OFF } else { self }
    }

    /// Tells the template about the effort, unless the request did so itself.
    pub(crate) fn tell(&self, extra: &mut Map<String, Value>) {
        if let Some(effort) = self.effort {
            extra.entry("reasoning_effort").or_insert_with(|| json!(effort));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_asking_comes_to_the_same() -> Result<(), Refusal> {
        let chat = |body: Value| {
            let map = body.as_object().cloned().unwrap_or_default();
            Thinking::of_chat(&Fields::root(&map), &mut Map::new())
        };
        let messages = |body: Value| {
            let map = body.as_object().cloned().unwrap_or_default();
            Thinking::of_messages(&Fields::root(&map))
        };
        assert_eq!(chat(json!({}))?, Thinking::default());
        assert_eq!(chat(json!({"reasoning_effort": null}))?, Thinking::default());
        assert_eq!(chat(json!({"reasoning_effort": "none"}))?, Thinking::OFF);
        assert_eq!(chat(json!({"reasoning_effort": "low"}))?.budget, Some(2048));
        assert_eq!(chat(json!({"chat_template_kwargs": {"enable_thinking": false}}))?.think, Some(false));
        assert_eq!(chat(json!({"reasoning_effort": "vast"})).unwrap_err().param.as_deref(), Some("reasoning_effort"));
        assert_eq!(messages(json!({}))?, Thinking::OFF);
        assert_eq!(messages(json!({"thinking": {"type": "disabled"}}))?, Thinking::OFF);
        let enabled = messages(json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}))?;
        assert_eq!(enabled, Thinking { think: Some(true), effort: Some("low"), budget: Some(1024) });
        let adaptive = messages(json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}))?;
        assert_eq!(adaptive.effort, Some("medium"));
        assert!(messages(json!({"thinking": {"type": "sometimes"}})).is_err());
        Ok(())
    }

    #[test]
    fn a_model_that_cannot_think_is_not_asked_to() {
        let mut model = ModelInfo {
            id: "m".to_owned(),
            created: 0,
            context: 100,
            vocab: 10,
            longest_token: 4,
            has_template: true,
            can_think: false,
            marks: Vec::new(),
        };
        assert_eq!(Thinking::tokens(100).for_model(&model, Some(true)), Thinking::default());
        model.can_think = true;
        assert_eq!(Thinking::default().for_model(&model, Some(false)), Thinking::OFF);
        assert_eq!(Thinking::tokens(100).for_model(&model, Some(false)).budget, Some(100));
    }
}
