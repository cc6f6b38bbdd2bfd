//! Assembly of a model: parts with loaded weights become stages once their memory says how many slots fit.
//!
//! A family names its parts in order, from the one that reads the prompt to the one that makes samples or text
//! ([`Pipeline`]); [`Assembly`] computes the context and the slots, and gives each stage a device with buffers of its
//! own, because stages run in parallel.

use std::sync::Arc;

use super::memory::{SlotBytes, fit_slots};
use super::slot_rows::SlotRows;
use crate::cascade::later_stage::LaterStage;
use crate::config::EngineConfig;
use crate::device::Device;
use crate::elements::{AudioRows, Element, Message};
use crate::model::{AudioFrontEnd, Codec, Hearing, Model, PromptTemplate, SlotCounts, Voices};
use crate::models::load_error::LoadError;
use crate::recogniser::Recogniser;
use crate::stage::Stage;
use crate::text::Tokenizer;

/// A stage before the number of slots is known.
pub trait StagePart<O: Device>: Send {
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

/// A recogniser before the number of slots is known.
pub trait RecogniserPart<O: Device>: Send {
    /// Name of the recogniser; see [`Recogniser::name`].
    fn name(&self) -> &'static str;
    /// Settings of the recogniser in the engine's configuration.
    fn settings(&self) -> &'static [&'static str] {
        &[]
    }
    /// Bytes of a slot: sound, encoded windows, keys and values.
    fn slot_bytes(&self) -> usize;
    /// Makes the recogniser with `slots` slots, on a device with buffers of its own.
    fn place(self: Box<Self>, ops: O, slots: usize) -> Box<dyn Recogniser>;
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
    /// Geometry of the audio output; `None` for a model that answers with text alone.
    pub codec: Option<Codec>,
    /// Default upper bound of text tokens of a response; `None` for the context.
    pub max_tokens: Option<u32>,
}

impl ModelFrame {
    /// Frame of a model that only hears: it has no prompts and no voices.
    pub fn recogniser(tokenizer: Tokenizer) -> Self {
        let (template, voices) = (Box::new(NoPrompt), Box::new(Vec::new()));
        Self { tokenizer, template, voices, codec: None, max_tokens: None }
    }
}

/// Template of a model without prompts.
struct NoPrompt;

impl PromptTemplate for NoPrompt {
    fn render(&self, _: &[Message], _: Option<&[Arc<AudioRows>]>, _: bool) -> Vec<Element> {
        Vec::new()
    }
}

/// Audio input before the number of slots is known.
enum HearingPart<O: Device> {
    /// Rows of a number of bytes each.
    Rows(AudioFrontEnd, usize),
    Text(Box<dyn RecogniserPart<O>>),
}

/// Parts of a model, in the order of its stages.
pub struct Pipeline<O: Device> {
    ops: O,
    hearing: Option<HearingPart<O>>,
    /// Stages that share a prompt's positions; more than one run of them if a later model reads another prompt.
    runs: Vec<Vec<Box<dyn StagePart<O>>>>,
}

impl<O: Device> Pipeline<O> {
    /// Creates a pipeline without parts.
    pub fn new(ops: &O) -> Self {
        Self { ops: ops.with_own_buffers(), hearing: None, runs: vec![Vec::new()] }
    }

    /// Adds the audio input, which encodes to rows of `width` numbers.
    #[must_use]
    pub fn audio_input(mut self, audio: AudioFrontEnd, width: usize) -> Self {
        self.hearing = Some(HearingPart::Rows(audio, width * size_of::<f32>()));
        self
    }

    /// Adds a recogniser, which hears audio as text.
    #[must_use]
    pub fn recogniser(mut self, part: impl RecogniserPart<O> + 'static) -> Self {
        self.hearing = Some(HearingPart::Text(Box::new(part)));
        self
    }

    /// Takes over the audio input of another pipeline.
    #[must_use]
    pub fn hearing_of(mut self, other: Self) -> Self {
        self.hearing = other.hearing;
        self
    }

    /// True if it has audio input of its own.
    pub fn takes_audio(&self) -> bool {
        self.hearing.is_some()
    }

    /// True if it is a recogniser alone.
    pub fn only_hears(&self) -> bool {
        matches!(self.hearing, Some(HearingPart::Text(_))) && self.runs.iter().all(Vec::is_empty)
    }

    /// Appends a stage.
    #[must_use]
    pub fn stage(mut self, part: impl StagePart<O> + 'static) -> Self {
        if let Some(run) = self.runs.last_mut() {
            run.push(Box::new(part));
        }
        self
    }

    /// Appends the stages of a pipeline that reads prompts of its own. The audio input stays this one's.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        self.runs.extend(other.runs);
        self
    }

    /// Puts another stage in the place of the first one, which it gets.
    #[must_use]
    pub fn first_stage(mut self, wrap: impl FnOnce(Box<dyn StagePart<O>>) -> Box<dyn StagePart<O>>) -> Self {
        if let Some(run) = self.runs.first_mut().filter(|run| !run.is_empty()) {
            let first = run.remove(0);
            run.insert(0, wrap(first));
        }
        self
    }

    /// Completes the parts to a model without slots.
    pub fn with(self, frame: ModelFrame) -> Assembly<O> {
        Assembly { pipeline: self, frame }
    }
}

/// A model with loaded weights, before its slots are known.
pub struct Assembly<O: Device> {
    /// Parts of the stages.
    pub pipeline: Pipeline<O>,
    /// Tokenizer, template, voices and rates.
    pub frame: ModelFrame,
}

impl<O: Device> Assembly<O> {
    /// Builds the model.
    ///
    /// # Errors
    ///
    /// If a setting names no stage, or not even one slot fits into the memory.
    pub fn build(self, settings: &EngineConfig) -> Result<Model, LoadError> {
        let Self { pipeline: Pipeline { ops, hearing, runs }, frame } = self;
        let mut names: Vec<_> = runs.iter().flatten().map(|part| (part.name(), part.settings())).collect();
        if let Some(HearingPart::Text(recogniser)) = &hearing {
            names.push((recogniser.name(), recogniser.settings()));
        }
        settings.check_stages(&names)?;
        let context = |run: &Vec<Box<dyn StagePart<O>>>| {
            let most = run.iter().filter_map(|part| part.most_positions()).min();
            settings.session_tokens.min(most.unwrap_or(usize::MAX))
        };
        let contexts: Vec<usize> = runs.iter().map(context).collect();
        let mut bytes = match &hearing {
            None => SlotBytes::default(),
            Some(HearingPart::Rows(audio, position)) => {
                SlotBytes { position: *position, fixed: audio.encoder.unfinished_bytes() }
            }
            Some(HearingPart::Text(recogniser)) => SlotBytes { position: 0, fixed: recogniser.slot_bytes() },
        };
        for (at, (run, &context)) in runs.iter().zip(&contexts).enumerate() {
            for SlotBytes { position, fixed } in run.iter().map(|part| part.slot_bytes(context)) {
                // Only the first run grows with the context of the session.
                bytes = bytes
                    + match at {
                        0 => SlotBytes { position, fixed },
                        _ => SlotBytes { position: 0, fixed: position * context + fixed },
                    };
            }
        }
        let slots = fit_slots(settings, contexts.first().copied().unwrap_or(0), bytes)?;
        let mut stages = Vec::with_capacity(names.len());
        for (at, (run, context)) in runs.into_iter().zip(contexts).enumerate() {
            let slots = if at == 0 { slots } else { SlotCounts { context, ..slots } };
            let mut handed = None;
            for part in run {
                let stage = part.place(Placement { ops: ops.with_own_buffers(), slots, handed: &mut handed });
                stages.push(if at == 0 { stage } else { Box::new(LaterStage(stage)) });
            }
        }
        let hearing = hearing.map(|hearing| match hearing {
            HearingPart::Rows(audio, _) => Hearing::Rows(audio),
            // One slot for each session, and others for complete audio.
            HearingPart::Text(part) => {
                let slots = slots.sessions + slots.out_of_band.max(1);
                Hearing::Text(part.place(ops.with_own_buffers(), slots))
            }
        });
        let max_tokens = frame.max_tokens.unwrap_or(u32::try_from(slots.context).unwrap_or(u32::MAX));
        Ok(Model {
            stages,
            hearing,
            tokenizer: frame.tokenizer,
            template: frame.template,
            voices: frame.voices,
            codec: frame.codec,
            max_tokens,
            answer_tokens: max_tokens,
            slots,
            pool: None,
        })
    }
}
