//! Recording what the engine does: the flags, the file, and what the trace says of the settings.

use crate::device::{self, Machine};
use crate::output;
use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strata_config::registry::{ADMISSION, COPY_ROUNDS, INSERT_BUDGET, ISA, POLICY, PREFILL_CHUNK, SCOPE, THREADS};
use strata_config::{Origin, Settings};
use strata_gguf::{Gguf, show_path};
use strata_model::CacheStart;
use strata_policy::cache::{CacheParams, Capacity};
use strata_runtime::{About, CacheWatch, Engine, Error, Recorded, Recording};
use strata_trace::{KnobValue, PartFile};

/// `--trace FILE`, and `--force` for it.
pub(crate) fn args() -> [Arg; 2] {
    let file = Arg::new("trace").long("trace").value_name("FILE").value_parser(value_parser!(PathBuf));
    [
        file.help("Record which experts every token uses, and how long each part of a round takes"),
        force().requires("trace").help("Replace the file of --trace if there is one"),
    ]
}

/// `--force`
pub(crate) fn force() -> Arg {
    Arg::new("force").long("force").action(ArgAction::SetTrue).help("Replace the file if there is one")
}

/// Checks the expert cache that the settings ask for. Returns what the user should know: that its settings do nothing
/// without a size, or, without a GPU and if nothing is `recorded`, that only recordings hold what a cache would do.
///
/// # Errors
/// It cannot be. It is worth knowing before a large model is read.
pub(crate) fn check_cache(settings: &Settings, recorded: bool) -> Result<Option<&'static str>> {
    let gpu = device::number(settings).is_some() && strata_cuda::Device::count() > 0;
    // A GPU's cache is as large as there is room for, unless something is said.
    let sized = ["slots", "vram", "bytes"].iter().any(|name| settings.expert_knob(name).is_some());
    let knob = |name: &str| match name {
        "slots" if gpu && !sized => Some("1".to_owned()),
        _ => settings.expert_knob(name),
    };
    let Some(params) = CacheParams::from_knobs(knob).map_err(Error::from)? else {
        let asked = [&POLICY, &SCOPE, &ADMISSION, &COPY_ROUNDS, &INSERT_BUDGET]
            .iter()
            .any(|knob| settings.origin(knob).is_some_and(|origin| *origin != Origin::Default));
        return Ok(
            asked.then_some("there is no expert cache without a size (--slots or --vram), so its settings do nothing")
        );
    };
    params.must_be_causal().map_err(Error::from)?;
    Ok((!recorded && !gpu).then_some(
        "no GPU is used that could hold experts, and there is no recording (--trace) to say which it would hold",
    ))
}

/// A file that is to be written, and may be.
pub(crate) struct Target {
    path: PathBuf,
    replace: bool,
}

impl Target {
    /// The file of `--trace`, if that was given.
    pub(crate) fn of(matches: &ArgMatches) -> Result<Option<Target>> {
        let path = matches.get_one::<PathBuf>("trace");
        path.map(|path| Target::new(path, matches.get_flag("force"))).transpose()
    }

    /// # Errors
    /// There is such a file, or one of a writing that was broken off, and it may not be replaced; or no folder for it. It
    /// is worth knowing before a large model is read.
    pub(crate) fn new(path: &Path, replace: bool) -> Result<Target> {
        let part = PartFile::part_of(path);
        if let Some(other) = [path, &part].into_iter().find(|p| PartFile::is_no_file(p)) {
            bail!("{} is not a regular file", show_path(other));
        }
        if !replace && let Some(there) = [path, &part].into_iter().find(|p| p.symlink_metadata().is_ok()) {
            bail!("{} exists already; --force replaces it", show_path(there));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            bail!("{} is no folder to write {} into", show_path(folder), show_path(path));
        }
        Ok(Target { path: path.into(), replace })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins the file.
    pub(crate) fn create(&self) -> Result<PartFile> {
        Ok(PartFile::create(&self.path, self.replace)?)
    }

    /// Records what the engine does from now on. `hardware` is the machine's profile, if it was measured.
    pub(crate) fn record<'e, O: Machine>(
        &self,
        gguf: &Gguf,
        engine: &'e Engine<O>,
        settings: &Settings,
        hardware: Option<String>,
    ) -> Result<Tracing<'e, O>> {
        Ok(Tracing { engine, started: self.start(gguf, engine, settings, hardware)? })
    }

    /// The same, for an engine that is not there for as long as the recording is.
    pub(crate) fn start<O: Machine>(
        &self,
        gguf: &Gguf,
        engine: &Engine<O>,
        settings: &Settings,
        hardware: Option<String>,
    ) -> Result<Started> {
        let program = concat!("strata ", env!("CARGO_PKG_VERSION"));
        let mut knobs = knobs(engine, settings);
        let cache = O::restart_cache(engine)?;
        if let Some(CacheStart { params: CacheParams { capacity: Capacity::Slots(slots), .. }, .. }) = &cache {
            // What there is room for, however that was asked for.
            ["vram", "bytes"].iter().for_each(|name| drop(knobs.remove(&format!("experts.{name}"))));
            let (value, origin) = (slots.to_string(), "device".to_owned());
            knobs.insert("experts.slots".to_owned(), KnobValue { value, origin });
        }
        let mut about = About::of(gguf, engine, program, knobs)?;
        about.meta.hardware = hardware;
        about.meta.resident = cache.map(|cache| cache.resident).unwrap_or_default();
        let file = self.create()?;
        let (recorder, recording) = Recording::start(file, about, settings.engine.prefill_chunk)?;
        engine.record(recorder);
        Ok(Started { recording, path: self.path.clone() })
    }
}

/// A recording that goes on.
pub(crate) struct Started {
    recording: Recording<PartFile>,
    path: PathBuf,
}

impl Started {
    /// Its file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What its expert cache counts.
    pub(crate) fn cache(&self) -> CacheWatch {
        self.recording.cache()
    }

    /// Ends the trace and gives it its name. Says what is missing in it.
    pub(crate) fn finish(self) -> Result<Recorded> {
        let (file, recorded) = self.recording.finish()?;
        file.finish()?;
        if let Some(warning) = recorded.warning() {
            output::note(&format!("warning: {}: {warning}", show_path(&self.path)));
        }
        Ok(recorded)
    }
}

/// A recording of this engine that goes on.
pub(crate) struct Tracing<'e, O: Machine> {
    engine: &'e Engine<O>,
    started: Started,
}

impl<O: Machine> Tracing<'_, O> {
    /// Ends the trace and gives it its name. Says what is missing in it.
    pub(crate) fn finish(self) -> Result<Recorded> {
        self.engine.stop_recording();
        self.started.finish()
    }

    /// Ends the trace if the work is done; if not, leaves what was recorded under the other name, and says so.
    pub(crate) fn end<T>(self, outcome: Result<T>) -> Result<(T, Recorded)> {
        let done = match outcome {
            Ok(done) => done,
            Err(e) => {
                self.engine.stop_recording();
                let Started { recording, path } = self.started;
                drop(recording);
                output::note(&format!("note: what was recorded is in {}", show_path(&PartFile::part_of(&path))));
                return Err(e);
            }
        };
        Ok((done, self.finish()?))
    }

    /// Its file.
    pub(crate) fn path(&self) -> &Path {
        self.started.path()
    }
}

/// What was recorded, in a line.
pub(crate) fn summary(path: &Path, recorded: &Recorded) -> String {
    let hits = recorded.cache.filter(|cache| cache.accesses > 0).map(|cache| {
        let share = 100.0 * cache.hits as f64 / cache.accesses as f64;
        format!(", {share:.1} % of expert uses are hits")
    });
    format!(
        "{}: {}, {}, {}{}",
        show_path(path),
        output::count(recorded.rounds as usize, "round"),
        output::count(recorded.tokens as usize, "token"),
        output::bytes(recorded.bytes),
        hits.unwrap_or_default()
    )
}

/// The settings with where they came from; what the program found out itself in place of `auto`.
fn knobs<O: Machine>(engine: &Engine<O>, settings: &Settings) -> BTreeMap<String, KnobValue> {
    let ops = engine.model().ops();
    let mut knobs = BTreeMap::new();
    for (knob, found) in settings.iter() {
        let Some((value, origin)) = found.filter(|_| !knob.secret) else { continue };
        let value = match knob.key {
            key if key == THREADS.key => ops.cpu().pool().threads().to_string(),
            key if key == PREFILL_CHUNK.key => settings.engine.prefill_chunk.to_string(),
            key if key == ISA.key => ops.cpu().isa().name().to_owned(),
            _ => value.to_string(),
        };
        knobs.insert(knob.key.to_owned(), KnobValue { value, origin: origin.to_string() });
    }
    knobs
}
