//! A loaded model with what it needs to speak.

use crate::constraint::Grammars;
use crate::error::{Error, Result};
use crate::recorder::{Recorder, Slot};
use crate::session::Session;
use crate::speculation::Learned;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use strata_gguf::{ChatTemplate, Gguf, Tokenizer, Watch};
use strata_model::{DraftLayer, Model, Ops, Progress};

/// The literals between which a model thinks.
const THINK: (&str, &str) = ("<think>", "</think>");

/// The literal with which a model begins to call a tool.
const CALL: &str = "<tool_call>";

/// A model on a device, with its tokenizer and chat template.
pub struct Engine<O: Ops> {
    model: Model<O>,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    stop_ids: Vec<u32>,
    think: Option<(u32, u32)>,
    name: String,
    /// The files that weights are read from.
    files: Watch,
    warnings: Vec<String>,
    draft: Option<DraftLayer<O>>,
    learned: Mutex<Option<Learned>>,
    grammars: OnceLock<Result<Grammars, String>>,
    recorder: Slot,
}

impl<O: Ops> Engine<O> {
    /// Loads everything of a file.
    ///
    /// # Errors
    /// The file is not a complete model of the architecture, or its tokenizer cannot be used. A template that cannot
    /// be used is a warning: prompts can be given without one.
    pub fn load(gguf: &Gguf, ops: O, progress: &mut dyn FnMut(Progress)) -> Result<Engine<O>> {
        // The tokenizer first: it is quick, and a file without one need not be read further.
        let tokenizer = Tokenizer::from_metadata(gguf.meta())?;
        let model = Model::load(gguf, ops, progress)?;
        let (tokens, rows) = (tokenizer.vocab_size(), model.config().vocab);
        if tokens > rows {
            return Err(gguf
                .invalid(format!("the tokenizer has {tokens} tokens but token_embd.weight has {rows} rows"))
                .into());
        }
        let mut warnings = gguf.warnings().to_vec();
        warnings.extend_from_slice(model.warnings());
        warnings.extend_from_slice(tokenizer.warnings());
        let template =
            match gguf.meta().get("tokenizer.chat_template").map(|_| ChatTemplate::from_metadata(gguf.meta())) {
                None => None,
                Some(Ok(template)) => Some(template),
                Some(Err(e)) => {
                    warnings.push(format!("{e}; only prompts without a template (--raw) will work"));
                    None
                }
            };
        Ok(Engine {
            stop_ids: tokenizer.stop_ids(),
            think: tokenizer.id_of(THINK.0).zip(tokenizer.id_of(THINK.1)),
            name: gguf.name().to_owned(),
            files: Watch::of(gguf),
            model,
            tokenizer,
            template,
            warnings,
            draft: None,
            learned: Mutex::new(None),
            grammars: OnceLock::new(),
            recorder: Slot::new(),
        })
    }

    /// The model.
    pub fn model(&self) -> &Model<O> {
        &self.model
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The chat template, if the file has a usable one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// Gives the engine a draft layer: from a file of one, or a model file that carries it.
    ///
    /// # Errors
    /// The file has no draft layer, or one of another model.
    pub fn add_draft_layer(&mut self, file: &Gguf) -> Result<()> {
        self.draft = Some(DraftLayer::load(file, &self.model)?);
        self.files = std::mem::take(&mut self.files).and(Watch::of(file));
        Ok(())
    }

    /// The draft layer, if there is one.
    pub fn draft_layer(&self) -> Option<&DraftLayer<O>> {
        self.draft.as_ref()
    }

    /// Looks whether the files that weights are read from are still whole. Sessions do, before each pass over the model.
    ///
    /// # Errors
    /// One is shorter than when it was opened: nothing can be answered any more.
    pub fn check_files(&self) -> Result<()> {
        Ok(self.files.check()?)
    }

    /// What earlier sessions learned about drafting.
    pub(crate) fn learned(&self) -> MutexGuard<'_, Option<Learned>> {
        // It is replaced as a whole, so a panic elsewhere leaves it whole.
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has every answer of every session recorded from now on, until [`Engine::stop_recording`]. Of answers that run
    /// side by side one is recorded and the others are counted.
    pub fn record(&self, recorder: Box<Recorder>) {
        self.recorder.put(recorder);
    }

    /// Records no more. An answer that runs is recorded to its end.
    pub fn stop_recording(&self) {
        self.recorder.clear();
    }

    /// The place of the recorder.
    pub(crate) fn recorder(&self) -> &Slot {
        &self.recorder
    }

    /// Tokens that end an answer.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// The tokens that open and close thinking, if the vocabulary has them.
    pub fn think_ids(&self) -> Option<(u32, u32)> {
        self.think
    }

    /// The token that opens a call of a tool.
    pub(crate) fn call_id(&self) -> Option<u32> {
        self.tokenizer.id_of(CALL)
    }

    /// Makes what constrained answers need of the vocabulary, which takes a while for a large one and is done once. The
    /// first answer with a constraint would wait for it otherwise. If that cannot be had, such answers say why.
    pub fn prepare_constraints(&self) {
        // Kept either way.
        let _ = self.grammars();
    }

    /// Whether that is done.
    pub fn constraints_ready(&self) -> bool {
        self.grammars.get().is_some()
    }

    /// What constraints need, made when it is first asked for.
    pub(crate) fn grammars(&self) -> Result<&Grammars> {
        let made = self.grammars.get_or_init(|| Grammars::new(&self.tokenizer, &self.stop_ids));
        made.as_ref().map_err(|why| Error::Grammars(why.clone()))
    }

    /// The file's name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What was odd about the file and how it was read.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// A sequence of at most `context` tokens on this model, read in chunks of `chunk` tokens.
    pub fn session(&self, context: usize, chunk: usize) -> Session<'_, O> {
        Session::new(self, context, chunk)
    }
}
