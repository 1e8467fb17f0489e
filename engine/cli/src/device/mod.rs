//! What computes: the choice between GPU and CPU, and what lies where once a model is loaded.

mod fill;
pub(crate) mod profile;
pub(crate) mod ram;

use crate::load::{self, Draft};
use crate::output;
use anyhow::{Context, Result, bail};
use profile::Profile;
use std::collections::HashMap;
use strata_config::Settings;
use strata_cpu::Cpu;
use strata_cuda::Device;
use strata_gguf::Gguf;
use strata_model::plan::{self, Needs, Plan, Wish};
use strata_model::{CacheStart, CpuOps, CudaOps, ExpertPlace, ModelConfig, RING};
use strata_runtime::Engine;
use strata_server::engine::SharedOps;

/// Tokens of a prompt that the CPU reads in one pass where nothing else is said; see defaults.toml.
const CPU_CHUNK: usize = 256;

/// A device as the verbs use it.
pub(crate) trait Machine: SharedOps + Sized {
    /// What the host computes with.
    fn cpu(&self) -> &Cpu;

    /// Sees to what must be done once a model is loaded, telling the share that is done, and says what lies where.
    ///
    /// # Errors
    /// The device failed, or has less room than it said.
    fn settle(engine: &Engine<Self>, placement: &Placement, quiet: bool, told: &dyn Fn(f32)) -> Result<Where>;

    /// Has the device's expert cache begin anew, if it has one that follows what is used; then it says what it begins with.
    ///
    /// # Errors
    /// There is no room on the device.
    fn restart_cache(_engine: &Engine<Self>) -> Result<Option<CacheStart>> {
        Ok(None)
    }
}

impl Machine for CpuOps {
    fn cpu(&self) -> &Cpu {
        CpuOps::cpu(self)
    }

    fn settle(engine: &Engine<CpuOps>, placement: &Placement, _quiet: bool, _told: &dyn Fn(f32)) -> Result<Where> {
        let needs = &placement.needs;
        let threads = output::count(CpuOps::cpu(engine.model().ops()).pool().threads(), "thread");
        Ok(Where {
            device: format!("the CPU, {threads}"),
            ram: needs.experts_in_file + needs.rest_in_file,
            file: needs.table,
            experts: experts(needs),
            ..Where::default()
        })
    }
}

impl Machine for CudaOps {
    fn restart_cache(engine: &Engine<CudaOps>) -> Result<Option<CacheStart>> {
        Ok(engine.model().restart_cache()?)
    }

    fn cpu(&self) -> &Cpu {
        CudaOps::cpu(self)
    }

    fn settle(engine: &Engine<CudaOps>, placement: &Placement, quiet: bool, told: &dyn Fn(f32)) -> Result<Where> {
        let needs = &placement.needs;
        let Some(gpu) = &placement.gpu else { bail!("a GPU was not planned for") };
        let host = gpu.plan.place == ExpertPlace::Host;
        let kept = if host { fill::slots(engine, gpu, needs, quiet, told)? } else { experts(needs) };
        let (all, device) = (experts(needs), engine.model().ops().device());
        let share = match host {
            true => format!("{} of {} experts, the others on the CPU", output::grouped(kept), output::grouped(all)),
            false => "all experts".to_owned(),
        };
        Ok(Where {
            device: format!("{} with {share}", device.name()),
            vram: device.held() as u64,
            ram: if host { needs.experts_in_file } else { 0 },
            file: needs.table + needs.embedding,
            kept,
            experts: all,
        })
    }
}

fn experts(needs: &Needs) -> u64 {
    needs.config.layers as u64 * needs.config.experts as u64
}

/// What lies where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Where {
    /// What computes, and which experts it has, in words.
    pub(crate) device: String,
    /// Bytes of the GPU's memory that are taken.
    pub(crate) vram: u64,
    /// Bytes of weights in memory.
    pub(crate) ram: u64,
    /// Bytes that are looked up in the file.
    pub(crate) file: u64,
    /// Experts on the GPU.
    pub(crate) kept: u64,
    /// Experts of all layers.
    pub(crate) experts: u64,
}

/// What a verb does with a model, as far as memory is concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Purpose {
    /// Tokens of a sequence; `None` = what the settings say.
    pub(crate) context: Option<usize>,
    /// Sequences that are kept.
    pub(crate) conversations: usize,
    /// Checkpoints of each.
    pub(crate) checkpoints: usize,
}

/// A GPU, and what is planned for it.
pub(crate) struct Gpu {
    pub(crate) device: Device,
    pub(crate) plan: Plan,
    profile: Option<Profile>,
    /// The settings of the expert cache, by their names in their section.
    cache: HashMap<&'static str, String>,
}

/// Where a model is going to run.
pub(crate) struct Placement {
    gpu: Option<Gpu>,
    /// Why that is not a GPU although one would have been welcome.
    why: Option<String>,
    /// What the user should know.
    warnings: Vec<String>,
    needs: Needs,
    pub(crate) draft: Option<Draft>,
}

/// Operations of one of the devices.
pub(crate) enum Chosen {
    Cpu(CpuOps),
    Cuda(Box<CudaOps>),
}

/// Does with the operations of the chosen device what is done with those of any.
macro_rules! on_device {
    ($placement:expr, $settings:expr, |$ops:ident| $body:expr) => {
        match $placement.ops($settings)? {
            $crate::device::Chosen::Cpu($ops) => $body,
            $crate::device::Chosen::Cuda(boxed) => {
                let $ops = *boxed;
                $body
            }
        }
    };
}
pub(crate) use on_device;

impl Placement {
    /// Chooses for a model: what the settings name, or the first GPU that can and has room.
    ///
    /// # Errors
    /// What is named cannot be had, or a file that is named is none.
    pub(crate) fn new(gguf: &Gguf, settings: &Settings, purpose: Purpose) -> Result<Placement> {
        let draft = load::draft(gguf, settings)?;
        let needs = Needs::of(gguf, draft.as_ref().map(|draft| draft.file(gguf)))?;
        let profile = settings.engine.expert_profile.as_deref();
        let profile = profile.map(|path| Profile::read(path, needs.config.layers, needs.config.experts)).transpose()?;
        let mut warnings = Vec::new();
        let mut why = None;
        let gpu = match number(settings) {
            None => None,
            Some(number) => match open(number, gguf, &needs, settings, purpose, &mut warnings) {
                Ok((device, plan)) => Some(Gpu { device, plan, profile, cache: cache(settings) }),
                Err(e) if is_auto(settings) => {
                    why = Some(e.to_string());
                    warnings.clear();
                    None
                }
                Err(e) => return Err(e).context(format!("--device {} cannot be used", settings.engine.device)),
            },
        };
        if let Some(plan) = gpu.as_ref().map(|gpu| &gpu.plan) {
            warnings.extend(reduced(plan));
        }
        Ok(Placement { gpu, why, warnings, needs, draft })
    }

    /// The plan for the GPU, if that is what computes.
    pub(crate) fn plan(&self) -> Option<&Plan> {
        self.gpu.as_ref().map(|gpu| &gpu.plan)
    }

    /// Why the CPU computes although the settings would have taken a GPU.
    pub(crate) fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// What a reason means, in a sentence.
    pub(crate) fn on_the_cpu(&self, why: &str) -> String {
        match why == strata_cuda::Error::NoDriver.to_string() {
            true => "no NVIDIA driver was found, so the CPU computes".to_owned(),
            false => format!("{why}; the CPU computes"),
        }
    }

    /// The same, unless there simply is no driver, which is nothing to warn of.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let no_driver = strata_cuda::Error::NoDriver.to_string();
        let why = self.why.iter().filter(|why| **why != no_driver);
        why.map(|why| self.on_the_cpu(why)).chain(self.warnings.iter().cloned()).collect()
    }

    /// What has become less than was asked.
    pub(crate) fn reductions(&self) -> &[String] {
        &self.warnings
    }

    /// The operations, with the threads and instructions of the settings.
    ///
    /// # Errors
    /// The processor lacks the instructions.
    pub(crate) fn ops(&self, settings: &Settings) -> Result<Chosen> {
        let cpu = Cpu::new(settings.engine.threads, load::isa(settings)?);
        Ok(match &self.gpu {
            None => Chosen::Cpu(CpuOps::on(cpu)),
            Some(gpu) => {
                let ops = CudaOps::new(gpu.device.clone(), cpu, gpu.plan.place);
                // Where there are few slots, experts pass through what is kept in reserve.
                ops.ring(usize::try_from(gpu.plan.wish.reserve / 2).unwrap_or(RING).min(RING));
                Chosen::Cuda(Box::new(ops))
            }
        })
    }

    /// The share of loading that is done when all layers are there: filling slots takes long as well.
    pub(crate) fn share_of_layers(&self) -> f32 {
        match self.plan() {
            Some(plan) if plan.place == ExpertPlace::Host => 0.5,
            _ => 1.0,
        }
    }

    /// Tokens of a prompt that are read in one pass.
    pub(crate) fn chunk(&self, settings: &Settings) -> usize {
        match (self.plan(), settings.engine.prefill_chunk) {
            (Some(plan), _) => plan.chunk,
            (None, 0) => CPU_CHUNK,
            (None, asked) => asked,
        }
    }

    /// The context to make room for: what was planned for a GPU, else what was asked.
    pub(crate) fn checked_context(&self, context: usize) -> usize {
        self.plan().map_or(context, |plan| plan.wish.context.min(context))
    }
}

/// The settings of the expert cache, by their names in their section.
fn cache(settings: &Settings) -> HashMap<&'static str, String> {
    let named = settings.iter().filter_map(|(knob, found)| Some((knob.key.strip_prefix("experts.")?, found?.0)));
    named.map(|(name, value)| (name, value.to_string())).collect()
}

fn is_auto(settings: &Settings) -> bool {
    settings.engine.device == "auto"
}

/// The number of the GPU that the settings name or would take; `None` for the CPU.
pub(crate) fn number(settings: &Settings) -> Option<usize> {
    match settings.engine.device.as_str() {
        "cpu" => None,
        name => Some(name.strip_prefix("cuda:").and_then(|n| n.parse().ok()).unwrap_or(0)),
    }
}

/// Opens a GPU and plans for what is free there.
fn open(
    number: usize,
    gguf: &Gguf,
    needs: &Needs,
    settings: &Settings,
    purpose: Purpose,
    warnings: &mut Vec<String>,
) -> Result<(Device, Plan)> {
    let device = Device::open(number)?;
    let (free, _) = device.memory()?;
    let free = free as u64;
    let asked = settings.engine.vram_budget;
    if let Some(asked) = asked.filter(|&asked| asked > free) {
        let (asked, free) = (output::bytes(asked), output::bytes(free));
        warnings.push(format!("--vram-budget is lowered from {asked} to {free}, what is free on {}", device.name()));
    }
    let budget = asked.unwrap_or(free).min(free);
    let reserve = plan::reserve(budget, asked.is_none_or(|asked| asked > free));
    let wish = wish(&ModelConfig::from_gguf(gguf)?, needs, settings, purpose, (budget, reserve));
    Ok((device, Plan::new(needs, wish)?))
}

/// What is asked of a GPU with so much memory, of which a part is kept free.
pub(crate) fn wish(
    config: &ModelConfig,
    needs: &Needs,
    settings: &Settings,
    purpose: Purpose,
    (budget, reserve): (u64, u64),
) -> Wish {
    let policy = load::speculation(settings).policy;
    let e = &settings.experts;
    let by_bytes = e.vram.map(|mib| ((mib as u64) << 20) / needs.slot.max(1));
    let asked = if settings.engine.ctx == 0 { config.context } else { settings.engine.ctx };
    Wish {
        budget,
        reserve,
        context: purpose.context.unwrap_or(asked).min(config.context),
        conversations: purpose.conversations,
        checkpoints: purpose.checkpoints,
        chunk: settings.engine.prefill_chunk,
        rows: policy.max_rows.clamp(1, plan::WINDOW_ROWS),
        slots: e.slots.map(|n| n as u64).or(by_bytes),
    }
}

/// What a plan gives less of than was asked.
pub(crate) fn reduced(plan: &Plan) -> Vec<String> {
    let mut said = Vec::new();
    if plan.conversations < plan.wish.conversations {
        said.push(format!(
            "the GPU has room for {} instead of {}",
            output::count(plan.conversations, "conversation"),
            output::grouped(plan.wish.conversations as u64)
        ));
    }
    if plan.checkpoints < plan.wish.checkpoints {
        said.push(format!(
            "the GPU has room for {} of a conversation instead of {}",
            output::count(plan.checkpoints, "checkpoint"),
            output::grouped(plan.wish.checkpoints as u64)
        ));
    }
    said
}
