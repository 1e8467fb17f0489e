//! Settings: one value for each knob, and where it came from.

use crate::error::ConfigError;
use crate::knob::{Knob, Value};
use crate::layer::{Layer, Origin};
use crate::registry::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

mod experts;
mod server;

pub use experts::Experts;
pub use server::Server;

/// The engine's knobs, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// `None` = the built-in model.
    pub model: Option<PathBuf>,
    /// Room for prompt and answer; 0 = the model's trained context.
    pub ctx: usize,
    /// Threads that compute; 0 = one for each physical core.
    pub threads: usize,
    /// Instructions of the CPU kernels; `auto` = the fastest that the processor has.
    pub isa: String,
    /// Prompt tokens read in one pass.
    pub prefill_chunk: usize,
    /// `auto`, `cpu`, `cuda` or `cuda:N`.
    pub device: String,
    /// Bytes of the GPU's memory to plan with; `None` = what is free.
    pub vram_budget: Option<u64>,
    /// The profile of experts; `None` = there is none.
    pub expert_profile: Option<PathBuf>,
}

/// What is kept of conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// Tokens of a long prompt between checkpoints; 0 = none inside it.
    pub checkpoint_every: usize,
    /// Checkpoints of a conversation at most.
    pub checkpoints: usize,
    /// Memory for the checkpoints of a conversation, in MiB.
    pub checkpoint_ram: usize,
    /// Conversations kept in memory at most.
    pub conversations: usize,
    /// Memory for all conversations together, in MiB.
    pub conversation_ram: usize,
    /// The folder of parked conversations; `None` = nothing is parked.
    pub park: Option<PathBuf>,
    /// Room for parked conversations, in MiB.
    pub park_disk: usize,
}

/// How answers are drafted.
#[derive(Debug, Clone, PartialEq)]
pub struct Speculation {
    /// Drafts of each round; `None` = as many as are worth their time, 0 = none.
    pub spec: Option<usize>,
    /// `both`, `mtp`, `lookup` or `none`.
    pub draft: String,
    /// The least probability of the draft layer's drafts; 0 = any.
    pub draft_floor: f32,
    /// `None` = the model file's own draft layer, or `mtp.gguf` beside it.
    pub draft_model: Option<PathBuf>,
    /// `auto`, `whole` or `per-stream`.
    pub draft_norm: String,
    /// `noise` or `reject`.
    pub spec_sampling: String,
}

/// How tokens are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 = the likeliest token.
    pub temp: f32,
    /// 0 = off.
    pub top_k: usize,
    /// 1 = off.
    pub top_p: f32,
    /// 0 = off.
    pub min_p: f32,
    /// 1 = off.
    pub repeat_penalty: f32,
    /// Tokens the repeat penalty looks back on; 0 = none.
    pub repeat_last_n: usize,
    /// 0 = off.
    pub presence_penalty: f32,
    /// 0 = off.
    pub frequency_penalty: f32,
    /// `None` = another one on each run.
    pub seed: Option<u64>,
    /// 0 = until the answer ends or the context is full.
    pub max_tokens: usize,
}

/// How a conversation is put to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chat {
    /// The system message.
    pub system: Option<String>,
    /// `None` = as the chat template has it.
    pub think: Option<bool>,
}

/// One value for each knob, and where it came from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The engine's knobs.
    pub engine: Engine,
    /// Which experts are resident.
    pub experts: Experts,
    /// What is kept of conversations.
    pub cache: Cache,
    /// How answers are drafted.
    pub speculation: Speculation,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// How requests are served.
    pub server: Server,
    /// How a conversation is put to the model.
    pub chat: Chat,
    values: Resolved,
    chosen: Vec<(&'static Knob, String)>,
    warnings: Vec<String>,
}

impl Settings {
    /// Weighs the sources against each other: flags win over the environment, that over the file, that over what the
    /// model file suggests, and that over the defaults.
    pub fn resolve(flags: Layer, env: Layer, file: Layer, model_suggested: Layer) -> Result<Settings, ConfigError> {
        Settings::weighed([flags, env, file, model_suggested, Layer::defaults()?])
    }

    fn weighed(layers: [Layer; 5]) -> Result<Settings, ConfigError> {
        let warnings = layers.iter().flat_map(|l| l.warnings()).cloned().collect();
        let mut values = Resolved::default();
        for knob in KNOBS {
            let first = layers.iter().find_map(|l| Some((l.get(knob)?.clone(), l.origin().clone())));
            values.0.extend(first.map(|v| (knob.key, v)));
        }
        let by_default = |knob: &Knob| values.0.get(knob.key).is_some_and(|(_, origin)| *origin == Origin::Default);
        let result = |knob: &Knob| layers.iter().find_map(|l| l.result(knob)).map(String::from);
        let chosen = KNOBS.iter().filter(|k| by_default(k)).filter_map(|&k| Some((k, result(k)?))).collect();
        Ok(Settings {
            engine: Engine {
                model: values.get(&MODEL).and_then(Value::as_path).map(Into::into),
                ctx: values.int(&CTX)?,
                threads: values.int(&THREADS)?,
                isa: values.text(&ISA)?,
                prefill_chunk: values.int(&PREFILL_CHUNK)?,
                device: values.text(&DEVICE)?,
                vram_budget: values.get(&VRAM_BUDGET).and_then(Value::as_u64),
                expert_profile: values.get(&EXPERT_PROFILE).and_then(Value::as_path).map(Into::into),
            },
            experts: Experts::new(&values)?,
            cache: Cache {
                checkpoint_every: values.int(&CHECKPOINT_EVERY)?,
                checkpoints: values.int(&CHECKPOINTS)?,
                checkpoint_ram: values.int(&CHECKPOINT_RAM)?,
                conversations: values.int(&CONVERSATIONS)?,
                conversation_ram: values.int(&CONVERSATION_RAM)?,
                park: values.get(&PARK).and_then(Value::as_path).map(Into::into),
                park_disk: values.int(&PARK_DISK)?,
            },
            speculation: Speculation {
                spec: values.get(&SPEC).and_then(Value::as_u64).map(|n| n as usize),
                draft: values.text(&DRAFT)?,
                draft_floor: values.float(&DRAFT_FLOOR)?,
                draft_model: values.get(&DRAFT_MODEL).and_then(Value::as_path).map(Into::into),
                draft_norm: values.text(&DRAFT_NORM)?,
                spec_sampling: values.text(&SPEC_SAMPLING)?,
            },
            sampling: Sampling {
                temp: values.float(&TEMP)?,
                top_k: values.int(&TOP_K)?,
                top_p: values.float(&TOP_P)?,
                min_p: values.float(&MIN_P)?,
                repeat_penalty: values.float(&REPEAT_PENALTY)?,
                repeat_last_n: values.int(&REPEAT_LAST_N)?,
                presence_penalty: values.float(&PRESENCE_PENALTY)?,
                frequency_penalty: values.float(&FREQUENCY_PENALTY)?,
                seed: values.get(&SEED).and_then(Value::as_u64),
                max_tokens: values.int(&MAX_TOKENS)?,
            },
            server: Server::new(&values)?,
            chat: Chat {
                system: values.get(&SYSTEM).and_then(Value::as_str).map(String::from),
                think: values.get(&THINK).and_then(Value::as_bool),
            },
            values,
            chosen,
            warnings,
        })
    }

    /// The value of a knob; `None` when it is left unset.
    pub fn get(&self, knob: &Knob) -> Option<&Value> {
        self.values.get(knob)
    }

    /// The value of a knob of the section `experts` as text, by its name in the section; `None` when it is unset.
    pub fn expert_knob(&self, name: &str) -> Option<String> {
        find(&format!("experts.{name}")).and_then(|knob| self.get(knob)).map(Value::to_string)
    }

    /// Where a knob's value came from; `None` when it is left unset.
    pub fn origin(&self, knob: &Knob) -> Option<&Origin> {
        self.values.0.get(knob.key).map(|(_, origin)| origin)
    }

    /// Every knob with its value and where that came from, in the registry's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Knob, Option<(&Value, &Origin)>)> {
        KNOBS.iter().map(|&k| (k, self.values.0.get(k.key).map(|(value, origin)| (value, origin))))
    }

    /// The knobs that have their default, where a result of the laboratory chose that, and the result's name: a folder
    /// below `results/`.
    pub fn chosen_by_results(&self) -> impl Iterator<Item = (&'static Knob, &str)> {
        self.chosen.iter().map(|(knob, result)| (*knob, result.as_str()))
    }

    /// [`Settings::chosen_by_results`] as a line for the start of a program; `None` when there is none.
    pub fn said_of_results(&self) -> Option<String> {
        let one = |(knob, result): (&Knob, &str)| format!("{} (results/{result})", knob.key);
        let list: Vec<String> = self.chosen_by_results().map(|(k, r)| one((k, r))).collect();
        (!list.is_empty()).then(|| format!("defaults chosen by experiments: {}", list.join(", ")))
    }

    /// Sentences the user should see: variables nearly named like a setting, suggestions passed over.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

#[derive(Debug, Clone, Default)]
struct Resolved(BTreeMap<&'static str, (Value, Origin)>);

impl Resolved {
    fn get(&self, knob: &Knob) -> Option<&Value> {
        self.0.get(knob.key).map(|(value, _)| value)
    }

    fn int(&self, knob: &Knob) -> Result<usize, ConfigError> {
        let value = self.get(knob).and_then(Value::as_u64).and_then(|v| usize::try_from(v).ok());
        value.ok_or_else(|| ConfigError::Missing { name: knob.key.into() })
    }

    fn maybe_int(&self, knob: &Knob) -> Option<usize> {
        self.get(knob).and_then(Value::as_u64).and_then(|v| usize::try_from(v).ok())
    }

    fn truth(&self, knob: &Knob) -> Result<bool, ConfigError> {
        let value = self.get(knob).and_then(Value::as_bool);
        value.ok_or_else(|| ConfigError::Missing { name: knob.key.into() })
    }

    fn text(&self, knob: &Knob) -> Result<String, ConfigError> {
        let value = self.get(knob).and_then(Value::as_str).map(String::from);
        value.ok_or_else(|| ConfigError::Missing { name: knob.key.into() })
    }

    fn float(&self, knob: &Knob) -> Result<f32, ConfigError> {
        let value = self.get(knob).and_then(Value::as_f64).map(|v| v as f32);
        value.ok_or_else(|| ConfigError::Missing { name: knob.key.into() })
    }
}

impl Value {
    /// The value of a whole number.
    pub fn as_u64(&self) -> Option<u64> {
        if let Value::Int(v) = self { Some(*v) } else { None }
    }

    /// The value of a number, whole or not.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Int(v) => Some(*v as f64),
            Value::Float(v) => Some(*v),
            _ => None,
        }
    }

    /// The value of a yes or no.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(v) = self { Some(*v) } else { None }
    }

    /// The value of a path.
    pub fn as_path(&self) -> Option<&Path> {
        if let Value::Path(v) = self { Some(v) } else { None }
    }

    /// The value of a text or a choice.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::Text(v) = self { Some(v) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> [Layer; 4] {
        let file = Origin::File("strata.toml".into());
        [Origin::Flag, Origin::Env, file, Origin::Model].map(Layer::empty)
    }

    fn resolve([flags, env, file, model]: [Layer; 4]) -> Settings {
        Settings::resolve(flags, env, file, model).unwrap()
    }

    #[test]
    fn nothing_set_gives_the_defaults() {
        let s = resolve(empty());
        let want = Engine {
            model: None,
            ctx: 8192,
            threads: 0,
            isa: "auto".into(),
            prefill_chunk: 0,
            device: "auto".into(),
            vram_budget: None,
            expert_profile: None,
        };
        assert_eq!(s.engine, want);
        assert_eq!((s.sampling.temp, s.sampling.top_k, s.sampling.top_p), (0.0, 20, 0.95));
        assert_eq!((s.sampling.seed, &s.chat.system, s.chat.think), (None, &None, None));
        for (knob, value) in s.iter() {
            match value {
                Some((_, origin)) => assert_eq!(origin, &Origin::Default, "{}", knob.key),
                None => assert!(knob.unset.is_some(), "{}", knob.key),
            }
        }
    }

    #[test]
    fn each_source_wins_over_those_after_it() {
        // Removing the strongest source one by one hands the value to the next.
        let text = ["5", "4", "3", "2"];
        for first in 0..=4 {
            let mut layers = empty();
            for i in first..4 {
                layers[i].set(&TEMP, TEMP.parse(text[i]).unwrap());
            }
            let origin = layers.get(first).map_or(Origin::Default, |l| l.origin().clone());
            let s = resolve(layers);
            assert_eq!(s.sampling.temp, text.get(first).map_or(0.0, |t| t.parse().unwrap()));
            assert_eq!(s.origin(&TEMP), Some(&origin));
            assert_eq!(s.origin(&TOP_K), Some(&Origin::Default));
        }
    }

    #[test]
    fn a_default_that_a_result_chose_says_so_while_it_holds() {
        let mut text = include_str!("../defaults.toml").to_owned();
        text.push_str("\n[results]\n\"engine.ctx\" = \"010-context\"\n");
        let said = |flags: Layer| {
            let [_, env, file, model] = empty();
            let defaults = Layer::defaults_of(&text).unwrap();
            Settings::weighed([flags, env, file, model, defaults]).unwrap().said_of_results()
        };
        let mut flags = Layer::empty(Origin::Flag);
        let line = "defaults chosen by experiments: engine.ctx (results/010-context)";
        assert_eq!(said(flags.clone()).as_deref(), Some(line));
        flags.set(&CTX, CTX.parse("5").unwrap());
        assert_eq!(said(flags), None);
    }

    #[test]
    fn three_states_of_think() {
        for (text, want) in [("true", true), ("false", false)] {
            let mut layers = empty();
            layers[0].set(&THINK, THINK.parse(text).unwrap());
            assert_eq!(resolve(layers).chat.think, Some(want));
        }
    }

    #[test]
    fn every_knob_reaches_its_field() {
        let mut layers = empty();
        layers[2] = Layer::from_toml(
            "x.toml",
            "[engine]\nmodel = 'm.gguf'\nctx = 1\nthreads = 2\nisa = 'scalar'\nprefill_chunk = 3\n\
             device = 'cuda:1'\nvram_budget = '4KiB'\nexpert_profile = 'p.json'\n[cache]\ncheckpoint_every = 1\n\
             checkpoints = 2\ncheckpoint_ram = 3\nconversations = 4\nconversation_ram = 5\npark = 'p'\n\
             park_disk = 6\n[speculation]\nspec = 3\ndraft = 'mtp'\ndraft_floor = 0.5\ndraft_model = 'd'\n\
             draft_norm = 'whole'\nspec_sampling = 'reject'\n[sampling]\ntemp = 0.5\ntop_k = 5\ntop_p = 0.25\n\
             min_p = 0.125\nrepeat_penalty = 1.5\nrepeat_last_n = 9\npresence_penalty = -1\nfrequency_penalty = 2\n\
             seed = 12\nmax_tokens = 13\n[chat]\nsystem = 's'\nthink = true",
        )
        .unwrap();
        let s = resolve(layers);
        // The experts' and the server's have tests of their own.
        let given = s.iter().filter(|(knob, _)| !["experts", "server"].contains(&knob.section()));
        let mut origins = given.map(|(_, v)| v.map(|(_, origin)| origin));
        assert!(origins.all(|origin| origin == Some(&Origin::File("x.toml".into()))));
        let want = Engine {
            model: Some("m.gguf".into()),
            ctx: 1,
            threads: 2,
            isa: "scalar".into(),
            prefill_chunk: 3,
            device: "cuda:1".into(),
            vram_budget: Some(4096),
            expert_profile: Some("p.json".into()),
        };
        assert_eq!(s.engine, want);
        let want = Cache {
            checkpoint_every: 1,
            checkpoints: 2,
            checkpoint_ram: 3,
            conversations: 4,
            conversation_ram: 5,
            park: Some("p".into()),
            park_disk: 6,
        };
        assert_eq!(s.cache, want);
        let want = Speculation {
            spec: Some(3),
            draft: "mtp".into(),
            draft_floor: 0.5,
            draft_model: Some("d".into()),
            draft_norm: "whole".into(),
            spec_sampling: "reject".into(),
        };
        assert_eq!(s.speculation, want);
        let want = Sampling {
            temp: 0.5,
            top_k: 5,
            top_p: 0.25,
            min_p: 0.125,
            repeat_penalty: 1.5,
            repeat_last_n: 9,
            presence_penalty: -1.0,
            frequency_penalty: 2.0,
            seed: Some(12),
            max_tokens: 13,
        };
        assert_eq!(s.sampling, want);
        assert_eq!(s.chat, Chat { system: Some("s".into()), think: Some(true) });
    }
}
