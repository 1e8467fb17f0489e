//! The settings that the studies `round` and `prefill` share: their axes, and what a point makes of them.

use super::values::{NumberOr, Values, word};
use super::{Described, Inputs};
use crate::check::{positive, share};
use crate::cost::counts::{HIT_POWER, hit_rate};
use crate::cost::{Acceptance, Composition, Constants, Copies, KvType, Machine, ModelShape, PromptConstants};
use crate::cost::{SlotPlan, Split, VramConstants, slots};
use crate::error::SimError;
use crate::fit::{reference_fraction, reference_kv};
use crate::input::text;
use crate::presets::{
    Published, machine_of_profile, machines, machines_of, models, models_of, named, nearest, parse, published,
};

/// The axes of both studies.
pub(crate) const AXES: &[Described] = &[
    Described {
        name: "machine",
        unit: "",
        help: "One that is described, or of the inputs `machines` and `profile`; unless given that of `profile`, or rtx5070",
    },
    Described {
        name: "model",
        unit: "",
        help: "A published model file, or one of the input `models`; Q2_0 unless given",
    },
    Described { name: "engine.ctx", unit: "tokens", help: "Context, filled; 4096 unless given" },
    Described {
        name: "kv",
        unit: "",
        help: "f16, int8, k8v4 or q4; auto, the default, is f16 up to 8192 tokens and int8 above",
    },
    Described {
        name: "kv_resident",
        unit: "tokens",
        help: "K/V in VRAM; auto, the default: all below 65536 tokens, 32768 from there",
    },
    Described { name: "vram_gb", unit: "GB", help: "Memory of the card; machine, the default: that of the machine" },
    Described {
        name: "experts.slots",
        unit: "experts",
        help: "Places in VRAM; auto, the default: what fits; published: the tables' of the nearest context",
    },
    Described {
        name: "hit_rate",
        unit: "",
        help: "Share of look-ups that hit; curve, the default: from slots by the published curve",
    },
    Described {
        name: "experts.split",
        unit: "",
        help: "fixed (the default), bandwidth or measured: the engine's rule for missed experts",
    },
    Described {
        name: "experts.pcie_share",
        unit: "",
        help: "Share that fixed copies over PCIe; auto, the default: 0.20 for Q2_0, 0.55 for others",
    },
    Described { name: "link_gb_s", unit: "GB/s", help: "Copies over PCIe; machine, the default: that of the machine" },
    Described { name: "speculation.spec", unit: "drafts", help: "Drafts of a round at most; 3 unless given" },
    Described {
        name: "acceptance",
        unit: "",
        help: "Share of offered drafts accepted; published (the default) by model and context; probe: 0.89, 0.86, 0.85, all offered",
    },
    Described {
        name: "composition",
        unit: "",
        help: "barrier (the default, the original engine), serial, overlapped or two-groups",
    },
    Described {
        name: "copies",
        unit: "",
        help: "in-turn (the default): after the resident experts; beside: on a stream of their own",
    },
    Described {
        name: "cpu_speed",
        unit: "",
        help: "CPU and main memory as a multiple of the machine's; 1 unless given",
    },
    Described {
        name: "gpu_speed",
        unit: "",
        help: "GPU and its memory as a multiple of the machine's; 1 unless given",
    },
];

/// What all studies of the cost model can read.
pub(crate) const INPUTS: &[(&str, bool)] =
    &[("profile", false), ("machines", false), ("models", false), ("constants", false)];

/// Machines, models, tables and constants.
pub(crate) struct Library {
    /// The name of the machine where none is named.
    machine: String,
    machines: Vec<Machine>,
    models: Vec<ModelShape>,
    published: Vec<Published>,
    constants: ConstantsFile,
}

/// The constants of all parts, as a file may give them.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ConstantsFile {
    round: Constants,
    prompt: PromptConstants,
    vram: VramConstants,
}

impl Library {
    /// The published ones, and those of the inputs before them: a name there hides a published one.
    pub(crate) fn read(inputs: &Inputs) -> Result<Library, SimError> {
        let mut all_machines = Vec::new();
        let mut machine = "rtx5070".to_owned();
        if let Some(path) = inputs.get("profile") {
            let profile = machine_of_profile(&path.display().to_string(), &text(path)?)?;
            machine.clone_from(&profile.name);
            all_machines.push(profile);
        }
        if let Some(path) = inputs.get("machines") {
            all_machines.extend(machines_of(&path.display().to_string(), &text(path)?)?);
        }
        all_machines.extend(machines()?);
        let mut all_models = Vec::new();
        if let Some(path) = inputs.get("models") {
            all_models.extend(models_of(&path.display().to_string(), &text(path)?)?);
        }
        all_models.extend(models()?);
        let constants = match inputs.get("constants") {
            Some(path) => parse(&path.display().to_string(), &text(path)?)?,
            None => ConstantsFile::default(),
        };
        constants.round.check()?;
        constants.prompt.check()?;
        Ok(Library { machine, machines: all_machines, models: all_models, published: published()?, constants })
    }
}

impl Library {
    /// The model files, those of the inputs first.
    pub(crate) fn models(&self) -> &[ModelShape] {
        &self.models
    }

    /// The model file of this name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn model(&self, name: &str) -> Result<&ModelShape, SimError> {
        named("axis model", &self.models, name, |m| &m.name)
    }
}

/// What may run at the same time.
pub(crate) enum Order {
    Composed(Composition),
    TwoGroups,
}

/// A point with everything looked up.
pub(crate) struct Setting {
    pub(crate) machine: Machine,
    pub(crate) model: ModelShape,
    pub(crate) constants: Constants,
    pub(crate) prompt: PromptConstants,
    pub(crate) context: f64,
    pub(crate) kv: KvType,
    pub(crate) slots: f64,
    /// `None`: from the slots.
    pub(crate) hits: Option<f64>,
    pub(crate) split: Split,
    /// Rows of a window at most.
    pub(crate) window: usize,
    pub(crate) acceptance: Acceptance,
    pub(crate) order: Order,
    pub(crate) copies: Copies,
}

/// Acceptance of drafts where nothing is published for a model: the mean of the tables.
const TYPICAL_ACCEPTANCE: f64 = 0.745;

impl Setting {
    /// The share of look-ups that find their expert resident: as given, or by the curve from the slots.
    ///
    /// # Errors
    /// As of [`hit_rate`].
    pub(crate) fn hit_rate(&self) -> Result<f64, SimError> {
        match self.hits {
            Some(hits) => Ok(hits),
            None => hit_rate(self.slots, self.model.pairs() as f64, HIT_POWER),
        }
    }

    /// # Errors
    /// A value cannot be, or nothing is known by a name.
    pub(crate) fn of(values: &Values, library: &Library) -> Result<Setting, SimError> {
        let model = library.model(values.text("model", "Q2_0")?)?.clone();
        Setting::of_model(values, library, model)
    }

    /// The same for a model that is found already.
    ///
    /// # Errors
    /// As [`Setting::of`].
    pub(crate) fn of_model(values: &Values, library: &Library, model: ModelShape) -> Result<Setting, SimError> {
        let name = values.text("machine", &library.machine)?;
        let mut machine = named("axis machine", &library.machines, name, |m| &m.name)?.clone();
        let mut constants = library.constants.round.clone();
        let context = values.int("engine.ctx", 4096, 0, 1 << 24)? as f64;
        let kv = match values.text("kv", "auto")? {
            "auto" => reference_kv(context),
            name => KvType::of(name).ok_or_else(|| word("kv", name, "auto, f16, int8, k8v4 or q4"))?,
        };
        change(&mut machine, &mut constants, values)?;
        let line = nearest(&library.published, &model.name, context);
        let slots = slots_of(values, &machine, &model, &library.constants.vram, line, context, kv)?;
        let hits = match values.number_or("hit_rate", "curve")? {
            NumberOr::Number(hits) => share("axis hit_rate", hits).map(|()| Some(hits))?,
            NumberOr::Word("curve") => None,
            NumberOr::Word(other) => return Err(word("hit_rate", other, "a number from 0 to 1, or curve")),
        };
        let fraction = match values.number_or("experts.pcie_share", "auto")? {
            NumberOr::Number(fraction) => fraction,
            NumberOr::Word("auto") => reference_fraction(&model.name),
            NumberOr::Word(other) => return Err(word("experts.pcie_share", other, "a number from 0 to 1, or auto")),
        };
        let acceptance = match values.number_or("acceptance", "published")? {
            NumberOr::Number(accepted) => Acceptance::published(accepted)?,
            NumberOr::Word("published") => Acceptance::published(line.map_or(TYPICAL_ACCEPTANCE, |l| l.acceptance))?,
            // Greedy acceptance of the first three drafts in the original engine's probe, without a floor.
            NumberOr::Word("probe") => Acceptance { offered: vec![1.0], accepted: vec![0.89, 0.86, 0.85] },
            NumberOr::Word(other) => return Err(word("acceptance", other, "a number from 0 to 1, published or probe")),
        };
        let order = match values.text("composition", "barrier")? {
            "barrier" => Order::Composed(Composition::Barrier),
            "serial" => Order::Composed(Composition::Serial),
            "overlapped" => Order::Composed(Composition::Overlapped),
            "two-groups" => Order::TwoGroups,
            other => return Err(word("composition", other, "barrier, serial, overlapped or two-groups")),
        };
        let copies = match values.text("copies", "in-turn")? {
            "in-turn" => Copies::InTurn,
            "beside" => Copies::Beside,
            other => return Err(word("copies", other, "in-turn or beside")),
        };
        Ok(Setting {
            split: Split::of(values.text("experts.split", "fixed")?, fraction)?,
            window: 1 + values.int("speculation.spec", 3, 0, 15)? as usize,
            prompt: library.constants.prompt.clone(),
            machine,
            model,
            constants,
            context,
            kv,
            slots,
            hits,
            acceptance,
            order,
            copies,
        })
    }
}

/// Other link, memory and speeds.
fn change(machine: &mut Machine, constants: &mut Constants, values: &Values) -> Result<(), SimError> {
    for (axis, field) in [("link_gb_s", &mut machine.link_gb_s), ("vram_gb", &mut machine.vram_gb)] {
        match values.number_or(axis, "machine")? {
            NumberOr::Number(number) => {
                positive(&format!("axis {axis}"), number)?;
                *field = number;
            }
            NumberOr::Word("machine") => {}
            NumberOr::Word(other) => return Err(word(axis, other, "a number above 0, or machine")),
        }
    }
    let (cpu, gpu) = (values.number("cpu_speed", 1.0)?, values.number("gpu_speed", 1.0)?);
    positive("axis cpu_speed", cpu)?;
    positive("axis gpu_speed", gpu)?;
    machine.cpu_gb_s *= cpu;
    machine.dram_gb_s *= cpu;
    machine.workers *= cpu;
    machine.vram_gb_s *= gpu;
    machine.tensor_tflops *= gpu;
    constants.node_us /= gpu;
    constants.row_us /= gpu;
    constants.select_ns /= gpu;
    machine.check()
}

fn slots_of(
    values: &Values,
    machine: &Machine,
    model: &ModelShape,
    constants: &VramConstants,
    line: Option<&Published>,
    context: f64,
    kv: KvType,
) -> Result<f64, SimError> {
    let resident = match values.number_or("kv_resident", "auto")? {
        NumberOr::Number(tokens) => tokens,
        NumberOr::Word("auto") if context < 65_536.0 => context,
        NumberOr::Word("auto") => 32_768.0,
        NumberOr::Word(other) => return Err(word("kv_resident", other, "a number of tokens, or auto")),
    };
    match values.number_or("experts.slots", "auto")? {
        NumberOr::Number(number) => Ok(number),
        NumberOr::Word("auto") => slots(machine, model, constants, SlotPlan { context, kv, resident, draft: true }),
        NumberOr::Word("published") => {
            let expected = "a number or auto: no slots are published for this model file";
            line.map(|line| line.slots).ok_or_else(|| word("experts.slots", "published", expected))
        }
        NumberOr::Word(other) => Err(word("experts.slots", other, "a number of experts, auto or published")),
    }
}
