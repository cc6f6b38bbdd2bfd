//! Assembly of a model: parts with loaded weights become stages once their memory says how many slots fit.
//!
//! A family names its parts in order, from the one that reads the prompt to the one that makes samples; [`Pipeline`]
//! computes the context and the slots, and gives each stage a device with buffers of its own, because stages run in
//! parallel.

use super::memory::{SlotBytes, fit_slots};
use super::slot_rows::SlotRows;
use crate::config::EngineConfig;
use crate::device::Device;
use crate::model::{AudioFrontEnd, Codec, Model, PromptTemplate, SlotCounts, Voices};
use crate::models::load_error::LoadError;
use crate::stage::Stage;
use crate::text::Tokenizer;

/// A stage before the number of slots is known.
pub trait StagePart<O: Device> {
    /// Name of the stage.
    fn name(&self) -> &'static str;
    /// Settings of the stage in the engine's configuration.
    fn settings(&self) -> &'static [&'static str] {
        &[]
    }
    /// Most positions of a prompt and its response; `None` without a limit.
    fn most_positions(&self) -> Option<usize> {
        None
    }
    /// Memory of a slot with `context` positions.
    fn slot_bytes(&self, context: usize) -> SlotBytes;
    /// Makes the stage.
    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage>;
}

/// Device and slots of a stage.
pub struct Placement<'a, O: Device> {
    /// The device, with buffers of the stage's own.
    pub ops: O,
    /// Slots, and positions of each.
    pub slots: SlotCounts,
    /// Rows that the stage before left on the device; the one that leaves rows sets them.
    pub handed: &'a mut Option<SlotRows<O>>,
}

/// A model without its stages.
pub struct ModelFrame {
    /// Tokenizer of the checkpoint.
    pub tokenizer: Tokenizer,
    /// Template of the model's prompts.
    pub template: Box<dyn PromptTemplate>,
    /// Voices of the model.
    pub voices: Box<dyn Voices>,
    /// Geometry of the audio output.
    pub codec: Codec,
    /// Default upper bound of text tokens of a response; `None` for the context.
    pub max_tokens: Option<u32>,
}

/// Parts of a model, in the order of its stages.
pub struct Pipeline<'a, O: Device> {
    ops: &'a O,
    settings: &'a EngineConfig,
    audio: Option<AudioFrontEnd>,
    /// Bytes of a position of encoded audio.
    audio_bytes: usize,
    stages: Vec<Box<dyn StagePart<O>>>,
}

impl<'a, O: Device> Pipeline<'a, O> {
    /// Creates a pipeline without parts.
    pub fn new(ops: &'a O, settings: &'a EngineConfig) -> Self {
        Self { ops, settings, audio: None, audio_bytes: 0, stages: Vec::new() }
    }

    /// Adds the audio input, which encodes to rows of `width` numbers.
    #[must_use]
    pub fn audio_input(mut self, audio: AudioFrontEnd, width: usize) -> Self {
        self.audio = Some(audio);
        self.audio_bytes = width * size_of::<f32>();
        self
    }

    /// Appends a stage.
    #[must_use]
    pub fn stage(mut self, part: impl StagePart<O> + 'static) -> Self {
        self.stages.push(Box::new(part));
        self
    }

    /// Builds the model.
    ///
    /// # Errors
    ///
    /// If a setting names no stage, or not even one slot fits into the memory.
    pub fn build(self, frame: ModelFrame) -> Result<Model, LoadError> {
        let names: Vec<_> = self.stages.iter().map(|part| (part.name(), part.settings())).collect();
        self.settings.check_stages(&names)?;
        let most = self.stages.iter().filter_map(|part| part.most_positions()).min();
        let context = self.settings.session_tokens.min(most.unwrap_or(usize::MAX));
        let parts = self.stages.iter().map(|part| part.slot_bytes(context));
        let bytes = parts.fold(SlotBytes { position: self.audio_bytes, fixed: 0 }, |sum, part| sum + part);
        let slots = fit_slots(self.settings, context, bytes)?;
        let mut handed = None;
        let place = |part: Box<dyn StagePart<O>>| {
            part.place(Placement { ops: self.ops.with_own_buffers(), slots, handed: &mut handed })
        };
        Ok(Model {
            stages: self.stages.into_iter().map(place).collect(),
            audio: self.audio,
            tokenizer: frame.tokenizer,
            template: frame.template,
            voices: frame.voices,
            codec: frame.codec,
            max_tokens: frame.max_tokens.unwrap_or(u32::try_from(slots.context).unwrap_or(u32::MAX)),
            slots,
            pool: None,
        })
    }
}
