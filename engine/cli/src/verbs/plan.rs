//! `strata plan`: what of a model would lie where.

use crate::device::ram::Ram;
use crate::device::{self, Purpose};
use crate::output::{self, Table, note};
use crate::{builtin, flags, load};
use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};
use std::path::PathBuf;
use strata_config::registry::{
    CHECKPOINTS, CONVERSATIONS, CTX, DEVICE, DRAFT, DRAFT_MODEL, MODEL, PREFILL_CHUNK, SLOTS, SPEC, VRAM_BUDGET,
};
use strata_config::{ConfigError, Origin, Settings};
use strata_cuda::Device;
use strata_gguf::Gguf;
use strata_model::plan::{self, Needs, Plan};
use strata_model::{ExpertPlace, ModelConfig};

const LONG_ABOUT: &str = "\
Show what of a model would lie where: on the GPU, in memory, on the SSD

Only headers are read, and the figures are those that `strata serve` loads by. With --vram-budget no GPU is needed: plan for \
another machine.";

const AFTER: &str = "\
After the dense weights, the conversations' parts and a reserve, experts take what is left of the GPU's memory. Where not \
all of them fit, conversations and their checkpoints get a quarter of it at most, or what one conversation needs. GB = 10^9 \
bytes, GiB = 2^30.

Examples:
  strata plan model.gguf
  strata plan model.gguf --vram-budget 12GiB --ram-budget 64GiB --ctx 32768
  strata plan model.gguf --vram-budget 24GiB --json";

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    let path = Arg::new(MODEL.key).value_name("MODEL").value_parser(value_parser!(PathBuf)).help(
        "A .gguf file, any shard of a set, or the folder of one model [default: nano, built in, unless settings name one]",
    );
    let command = Command::new("plan")
        .about("Show what of a model would lie where: GPU, memory, SSD")
        .long_about(LONG_ABOUT)
        .arg(path)
        .arg(
            Arg::new("ram-budget")
                .long("ram-budget")
                .value_name("BYTES")
                .help("Memory to plan with, as 64GiB [default: what is available here]"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON; its keys stay as they are"))
        .after_help(AFTER);
    flags::add_these(
        command,
        [
            &CTX,
            &PREFILL_CHUNK,
            &DEVICE,
            &VRAM_BUDGET,
            &SLOTS,
            &CHECKPOINTS,
            &CONVERSATIONS,
            &SPEC,
            &DRAFT,
            &DRAFT_MODEL,
        ],
    )
}

/// The plan of a machine.
struct Found {
    /// What computes.
    device: String,
    needs: Needs,
    plan: Option<Plan>,
    ram: Ram,
    /// Bytes of memory to plan with; `None` = not known.
    ram_budget: Option<u64>,
    warnings: Vec<String>,
}

/// Prints the plan.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let settings = flags::settings(matches, None)?;
    let asked = matches.get_one::<String>("ram-budget");
    let asked = asked.map(|text| {
        let bytes = VRAM_BUDGET.parse(text).ok().and_then(|value| value.as_u64());
        bytes.ok_or_else(|| ConfigError::value("--ram-budget", text, VRAM_BUDGET.kind.to_string()))
    });
    let asked = asked.transpose()?;
    let gguf = builtin::open_to_run(settings.engine.model.as_deref())?;
    let settings = flags::settings(matches, Some(&gguf))?;
    settings.warnings().iter().for_each(|w| note(&format!("warning: {w}")));
    let found = Found::new(&gguf, &settings, asked)?;
    if matches.get_flag("json") {
        return output::emit(&serde_json::to_string_pretty(&found.json())?);
    }
    output::emit(&found.text())?;
    found.warnings.iter().for_each(|w| note(&format!("warning: {w}")));
    Ok(())
}

/// The memory to plan with: its name, bytes, and those of them that stay free.
fn budget(number: usize, settings: &Settings) -> Result<(String, u64, u64)> {
    if let Some(bytes) = settings.engine.vram_budget {
        return Ok(("a GPU".into(), bytes, plan::reserve(bytes, false)));
    }
    let device = Device::open(number)?;
    let (free, _) = device.memory()?;
    Ok((device.name().to_owned(), free as u64, plan::reserve(free as u64, true)))
}

impl Found {
    fn new(gguf: &Gguf, settings: &Settings, ram_budget: Option<u64>) -> Result<Found> {
        let draft = load::draft(gguf, settings)?;
        let needs = Needs::of(gguf, draft.as_ref().map(|draft| draft.file(gguf)))?;
        let (c, config) = (&settings.cache, ModelConfig::from_gguf(gguf)?);
        let purpose = Purpose { context: None, conversations: c.conversations, checkpoints: c.checkpoints };
        let mut warnings = Vec::new();
        let planned = device::number(settings).map(|number| -> Result<(String, Plan)> {
            let (name, bytes, reserve) = budget(number, settings)?;
            let wish = device::wish(&config, &needs, settings, purpose, (bytes, reserve));
            Ok((name, Plan::new(&needs, wish)?))
        });
        let planned = match planned {
            None => None,
            Some(Ok(planned)) => Some(planned),
            Some(Err(e)) if settings.engine.device == "auto" => {
                warnings.push(format!("{e}; the CPU would compute"));
                None
            }
            Some(Err(e)) => return Err(e).context(format!("--device {} cannot be used", settings.engine.device)),
        };
        let (device, plan) = planned.map_or(("the CPU".to_owned(), None), |(name, plan)| (name, Some(plan)));
        let asked = settings.origin(&CTX).is_some_and(|origin| *origin != Origin::Default);
        if asked && settings.engine.ctx > config.context {
            warnings.push(format!(
                "the context is lowered from {} to {} tokens, what the model was trained for",
                settings.engine.ctx, config.context
            ));
        }
        if let Some(plan) = &plan {
            warnings.extend(device::reduced(plan));
            if plan.place == ExpertPlace::Host && plan.slots == 0 {
                warnings.push("the GPU has no room for a single expert; the CPU computes all of them".to_owned());
            }
        }
        let ram = Ram::here();
        let mut found = Found { device, needs, plan, ram, ram_budget: ram_budget.or(ram.usable()), warnings };
        if let Some(budget) = found.ram_budget.filter(|&budget| budget < found.in_memory()) {
            found.warnings.push(format!(
                "{} of weights do not fit {} of memory: what does not is read from the SSD again and again",
                output::bytes(found.in_memory()),
                output::bytes(budget)
            ));
        }
        Ok(found)
    }

    /// Bytes of weights that should be in memory while the model runs.
    fn in_memory(&self) -> u64 {
        match &self.plan {
            None => self.needs.experts_in_file + self.needs.rest_in_file,
            Some(plan) if plan.place == ExpertPlace::Host => self.needs.experts_in_file,
            Some(_) => 0,
        }
    }

    /// Parts on the GPU: a name, bytes, and a word.
    fn on_gpu(plan: &Plan) -> Vec<(&'static str, u64, String)> {
        let sequences = output::count(usize::try_from(plan.sequences).unwrap_or(usize::MAX), "sequence");
        let share = 100.0 * plan.slots as f64 / plan.experts.max(1) as f64;
        let (slots, all) = (output::grouped(plan.slots), output::grouped(plan.experts));
        vec![
            ("dense weights", plan.dense, "every token reads them".into()),
            ("draft layer", plan.draft, if plan.draft > 0 { "without its experts" } else { "there is none" }.into()),
            (
                "K/V and indexer caches",
                plan.caches,
                format!("{sequences} of {} tokens", output::grouped(plan.wish.context as u64)),
            ),
            ("recurrent states", plan.states, format!("with {} each", output::count(plan.checkpoints, "checkpoint"))),
            ("windows", plan.windows, format!("recorded, of up to {} rows", plan.wish.rows)),
            (
                "intermediate results",
                plan.scratch,
                match plan.chunk > plan.reserved {
                    false => format!("of {} of a prompt", output::count(plan.chunk, "token")),
                    true => {
                        let (reserved, chunk) = (plan.reserved, output::grouped(plan.chunk as u64));
                        format!("of {}; prompts are read {chunk} at a time", output::count(reserved, "token"))
                    }
                },
            ),
            ("reserve", plan.wish.reserve, "stays free".into()),
            ("expert slots", plan.slots_bytes, format!("{slots} of {all} experts ({share:.1} %)")),
            ("left", plan.free, "not planned for".into()),
        ]
    }

    fn text(&self) -> String {
        let mut out = String::new();
        let row = |table: &mut Table, name: &str, bytes: u64, word: &str| {
            table.row([name.to_owned(), output::bytes(bytes), word.to_owned()]);
        };
        if let Some(plan) = &self.plan {
            let mut table = Table::new("lrl");
            for (name, bytes, word) in Found::on_gpu(plan) {
                row(&mut table, name, bytes, &word);
            }
            row(&mut table, "all", plan.wish.budget, "");
            out.push_str(&format!("{}\n{}\n", self.device, table.render(2)));
        }
        let mut table = Table::new("lrl");
        let needs = &self.needs;
        let pageable = "pageable: mapped from the file";
        match &self.plan {
            Some(plan) if plan.place == ExpertPlace::Device => row(&mut table, "experts", 0, "all on the GPU"),
            Some(_) => {
                row(&mut table, "experts", needs.experts_in_file, "page-locked, which the GPU reads over the link")
            }
            None => row(&mut table, "experts", needs.experts_in_file, pageable),
        }
        if self.plan.is_none() {
            row(&mut table, "other weights", needs.rest_in_file, pageable);
        }
        match (self.ram_budget, self.ram_budget.and_then(|budget| budget.checked_sub(self.in_memory()))) {
            (Some(_), Some(left)) => row(&mut table, "left", left, "for conversations, programs, the system's cache"),
            (Some(budget), None) => row(&mut table, "all", budget, "less than the weights"),
            (None, _) => table.row(["all", "-", "the system does not say"]),
        }
        if let Some(limit) = self.ram.limit {
            row(&mut table, "limit", limit, "of the control group");
        }
        if let Some(lockable) = self.ram.lockable {
            row(&mut table, "lockable", lockable, "at most (RLIMIT_MEMLOCK)");
        }
        out.push_str(&format!("memory\n{}\n", table.render(2)));
        let mut table = Table::new("lrl");
        row(&mut table, "n-gram table", needs.table, "rows are looked up in place");
        if self.plan.is_some() {
            row(&mut table, "token embedding", needs.embedding, "rows are looked up in place");
        }
        out.push_str(&format!("SSD\n{}", table.render(2)));
        if self.plan.is_none() {
            out.push_str(&format!("\n{} would compute\n", self.device));
        }
        out
    }

    fn json(&self) -> Value {
        let (needs, ram) = (&self.needs, &self.ram);
        let gpu = self.plan.as_ref().map(|plan| {
            json!({
                "budget": plan.wish.budget,
                "reserve": plan.wish.reserve,
                "dense": plan.dense,
                "draft_layer": plan.draft,
                "caches": plan.caches,
                "states": plan.states,
                "windows": plan.windows,
                "scratch": plan.scratch,
                "sequences": plan.sequences,
                "conversations": plan.conversations,
                "checkpoints": plan.checkpoints,
                "context": plan.wish.context,
                "prefill_chunk": plan.chunk,
                "slots": plan.slots,
                "slot_bytes": needs.slot,
                "slots_bytes": plan.slots_bytes,
                "free": plan.free,
            })
        });
        json!({
            "device": self.device,
            "gpu": gpu,
            "experts": u64::try_from(needs.config.layers * needs.config.experts).unwrap_or(u64::MAX),
            "ram": {
                "budget": self.ram_budget,
                "pageable": if self.plan.is_some() { 0 } else { self.in_memory() },
                "pinned": if self.plan.is_some() { self.in_memory() } else { 0 },
                "available": ram.available,
                "limit": ram.limit,
                "lockable": ram.lockable,
            },
            "ssd": {
                "ngram_table": needs.table,
                "embedding": if self.plan.is_some() { needs.embedding } else { 0 },
            },
            "warnings": self.warnings,
        })
    }
}
