//! Stage between a language model and a model that speaks: turns the text of the one into the streamed text of the
//! other, in words that can be spoken. It computes nothing; each model has its own tokens.

use crate::device::Device;
use crate::model::PromptTemplate;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::stage::{BatchEntry, EdgeKind, Outbox, ResponseParams, RunnableRows, Stage, StageItem};
use crate::text::{TextEncoder, TextError, TextStream, Tokenizer};
use repartee_engine_api::SessionError;
use repartee_spoken::{SpokenOptions, SpokenPiece, SpokenText};

/// Name of the stage.
const STAGE: &str = "voice_text";

/// The stage before the slots are known.
pub struct BridgePart {
    /// Tokenizer of the language model.
    pub text: Tokenizer,
    /// Tokenizer of the model that speaks.
    pub speech: Tokenizer,
    /// Prompt template of the model that speaks.
    pub template: Box<dyn PromptTemplate>,
    /// Options of spoken text; `None` if the model that speaks gets the text as it is written.
    pub spoken: Option<SpokenOptions>,
}

impl<O: Device> StagePart<O> for BridgePart {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn slot_bytes(&self, _: usize) -> SlotBytes {
        SlotBytes::default()
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let slots = (0..at.slots.total()).map(|_| None).collect();
        Box::new(VoiceBridge { part: *self, slots })
    }
}

/// The stage with the text of each slot.
struct VoiceBridge {
    part: BridgePart,
    /// Text on its way, from the begin of a response to its end.
    slots: Vec<Option<Passing>>,
}

/// Text of one response on its way to the voice.
struct Passing {
    /// Decoder of the language model's tokens.
    text: TextStream,
    /// Spoken form of the text; `None` if it is spoken as it is written.
    spoken: Option<Box<SpokenText>>,
    /// Encoder for the voice.
    speech: TextEncoder,
}

impl VoiceBridge {
    /// Begins a response of the voice; its text streams in.
    fn begin(&mut self, slot: usize, params: ResponseParams, out: &mut Outbox) {
        let BridgePart { text, speech, template, spoken } = &self.part;
        // A given text is spoken as it is written; who gives it makes it speakable, if anyone does.
        let spoken = spoken.clone().filter(|_| !params.streamed).map(SpokenText::new).map(Box::new);
        self.slots[slot] = Some(Passing { text: text.stream(), spoken, speech: speech.encoder() });
        let elements = template.render(&[], None, true);
        let read = vec![true; elements.len()];
        // The language model has the limits of the text, and its sampling.
        let response = Some(ResponseParams { streamed: true, max_tokens: u32::MAX, sampling: None, ..params });
        out.push((slot, StageItem::Prompt { elements, read, response }));
    }

    /// Passes the text of a token on, or without one what the decoders hold back.
    fn pass(&mut self, slot: usize, token: Option<u32>, out: &mut Outbox) {
        let Some(passing) = &mut self.slots[slot] else { return };
        let encoded = match token {
            Some(id) => passing.encode(id),
            None => passing.rest(&self.part.text),
        };
        self.give(slot, encoded, out);
    }

    /// Passes text on that came without tokens.
    fn say(&mut self, slot: usize, text: &str, out: &mut Outbox) {
        let Some(passing) = &mut self.slots[slot] else { return };
        let encoded = passing.speak(text);
        self.give(slot, encoded, out);
    }

    fn give(&mut self, slot: usize, encoded: Result<Vec<u32>, TextError>, out: &mut Outbox) {
        match encoded {
            Ok(ids) if ids.is_empty() => {}
            Ok(ids) => {
                let elements = self.part.template.streamed(&ids).unwrap_or_default();
                out.push((slot, StageItem::Streamed(elements)));
            }
            Err(error) => {
                self.slots[slot] = None;
                let error = SessionError::bad("text", "not speakable", error.to_string());
                out.push((slot, StageItem::Fail(error)));
            }
        }
    }
}

impl Passing {
    /// Encodes the text that a token makes certain.
    fn encode(&mut self, id: u32) -> Result<Vec<u32>, TextError> {
        self.text.push(id).map_or(Ok(Vec::new()), |piece| self.speak(&piece))
    }

    /// Encodes the spoken form of a piece of text, as far as it is certain.
    fn speak(&mut self, written: &str) -> Result<Vec<u32>, TextError> {
        match &mut self.spoken {
            Some(spoken) => encode_pieces(&mut self.speech, spoken.push(written)),
            None => self.speech.push(written),
        }
    }

    /// Encodes the text that was held back, and begins a new text; `tokenizer` is the language model's.
    fn rest(&mut self, tokenizer: &Tokenizer) -> Result<Vec<u32>, TextError> {
        let held = std::mem::replace(&mut self.text, tokenizer.stream()).finish();
        let mut ids = held.map_or(Ok(Vec::new()), |piece| self.speak(&piece))?;
        if let Some(spoken) = &mut self.spoken {
            ids.extend(encode_pieces(&mut self.speech, spoken.finish())?);
        }
        ids.extend(self.speech.finish()?);
        Ok(ids)
    }
}

/// Encodes pieces of spoken text.
fn encode_pieces(speech: &mut TextEncoder, pieces: Vec<SpokenPiece>) -> Result<Vec<u32>, TextError> {
    let text: String = pieces.into_iter().map(|piece| piece.text).collect();
    if text.is_empty() { Ok(Vec::new()) } else { speech.push(&text) }
}

impl Stage for VoiceBridge {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Text
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Prompt
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match item {
            StageItem::Begin(params) => self.begin(slot, params, out),
            StageItem::Token(id) => self.pass(slot, Some(id), out),
            StageItem::Text { text, .. } => self.say(slot, &text, out),
            // What was said before a tool call is spoken while the call is written.
            StageItem::TextPause => {
                self.pass(slot, None, out);
                if self.slots[slot].is_some() {
                    out.push((slot, StageItem::StreamedPause));
                }
            }
            StageItem::End(end) => {
                self.pass(slot, None, out);
                if self.slots[slot].take().is_some() {
                    out.push((slot, StageItem::StreamedEnd(end)));
                }
            }
            StageItem::Abort => {
                self.slots[slot] = None;
                out.push((slot, StageItem::Abort));
            }
            // The voice does not read the language model's prompt.
            _ => {}
        }
    }

    fn runnable_rows(&self, _: usize) -> RunnableRows {
        RunnableRows::NONE
    }

    fn max_rows(&self) -> usize {
        1
    }

    fn max_items(&self) -> usize {
        1
    }

    fn launch(&mut self, _: &[BatchEntry], _: &mut Outbox) {}

    fn spoken_text(&self) -> Option<&SpokenOptions> {
        self.part.spoken.as_ref()
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
    }
}

#[cfg(test)]
mod tests {
    use repartee_spoken::SpokenOptions;

    use repartee_engine_api::AnswerForm;

    use super::*;
    use crate::elements::ElementValue;
    use crate::models::parts::clause_reader::ClauseTemplate;
    use crate::stage::StageEnd;

    const WRITTEN: &str = "It costs **$3.50**, see [the list](https://a.example/list).";
    const SPOKEN: &str = "It costs three dollars and fifty cents, see the list.";

    fn bridge(spoken: Option<SpokenOptions>) -> VoiceBridge {
        let text = Tokenizer::of_bytes().unwrap();
        let part = BridgePart { speech: text.clone(), text, template: Box::new(ClauseTemplate), spoken };
        VoiceBridge { part, slots: vec![None] }
    }

    fn begin() -> StageItem {
        let voice = "any".to_owned();
        StageItem::Begin(ResponseParams {
            response: 1,
            seed: 2,
            voice,
            audio: true,
            streamed: false,
            max_tokens: 100,
            tools: [].into(),
            form: AnswerForm::Free,
            held: None,
            sampling: None,
        })
    }

    fn tokens(text: &str) -> Vec<StageItem> {
        text.bytes().map(|byte| StageItem::Token(u32::from(byte))).collect()
    }

    /// Items of the bridge: text as it streams in, `|` for a pause, `#` for the end.
    fn passed(bridge: &mut VoiceBridge, items: Vec<StageItem>) -> String {
        let mut out = Outbox::new();
        items.into_iter().for_each(|item| bridge.accept(0, item, &mut out));
        let byte = |element: &crate::elements::Element| match element.value {
            ElementValue::Token(id) => u8::try_from(id).unwrap(),
            _ => panic!("{element:?}"),
        };
        let shown = |(_, item): (usize, StageItem)| match item {
            StageItem::Streamed(elements) => String::from_utf8(elements.iter().map(byte).collect()).unwrap(),
            StageItem::StreamedPause => "|".to_owned(),
            StageItem::StreamedEnd(StageEnd::Stop) => "#".to_owned(),
            StageItem::Prompt { response: Some(params), .. } if params.streamed => String::new(),
            other => panic!("{other:?}"),
        };
        out.into_iter().map(shown).collect()
    }

    fn response(parts: [&str; 2]) -> Vec<StageItem> {
        let [before, after] = parts.map(tokens);
        let pause = (!after.is_empty()).then_some(StageItem::TextPause);
        let end = StageItem::End(StageEnd::Stop);
        [begin()].into_iter().chain(before).chain(pause).chain(after).chain([end]).collect()
    }

    #[test]
    fn the_voice_gets_words_to_speak() {
        let mut spoken = bridge(Some(SpokenOptions::default()));
        for _ in 0..2 {
            assert_eq!(passed(&mut spoken, response([WRITTEN, ""])), format!("{SPOKEN}#"));
        }
        assert_eq!(passed(&mut bridge(None), response([WRITTEN, ""])), format!("{WRITTEN}#"));
    }

    #[test]
    fn a_given_text_stays_as_written() {
        let mut bridge = bridge(Some(SpokenOptions::default()));
        let mut items = response([WRITTEN, ""]);
        if let StageItem::Begin(params) = &mut items[0] {
            params.streamed = true;
        }
        assert_eq!(passed(&mut bridge, items), format!("{WRITTEN}#"));
        assert_eq!(passed(&mut bridge, response([WRITTEN, ""])), format!("{SPOKEN}#"), "an answer");
    }

    #[test]
    fn words_leave_as_soon_as_they_are_certain() {
        let mut bridge = bridge(Some(SpokenOptions::default()));
        let items = |text| [begin()].into_iter().chain(tokens(text)).collect::<Vec<_>>();
        assert_eq!(passed(&mut bridge, items("One two thr")), "One");
        assert_eq!(passed(&mut bridge, items("It costs $3")), "It", "the price may go on");
    }

    #[test]
    fn a_pause_passes_everything_before_it() {
        let mut bridge = bridge(Some(SpokenOptions::default()));
        assert_eq!(
            passed(&mut bridge, response(["I count to 3", "That is $5"])),
            "I count to three|That is five dollars#"
        );
    }

    #[test]
    fn an_abort_leaves_no_text_behind() {
        let mut bridge = bridge(Some(SpokenOptions::default()));
        let mut out = Outbox::new();
        [begin()].into_iter().chain(tokens("old 5")).for_each(|item| bridge.accept(0, item, &mut out));
        bridge.accept(0, StageItem::Abort, &mut out);
        assert!(matches!(out.last(), Some((0, StageItem::Abort))));
        assert_eq!(passed(&mut bridge, response(["new", ""])), "new#");
    }
}
