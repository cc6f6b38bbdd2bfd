//! The stage: given tokens in, tokens for the caller and clauses for the voice out. It computes nothing.

use repartee_engine_api::Role;
use repartee_spoken::{ClauseBounds, SpokenOptions};

use super::clause_stream::ClauseStream;
use crate::config::EngineConfig;
use crate::device::Device;
use crate::elements::Element;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::read_queue::{ReadItem, ReadQueue};
use crate::stage::{
    BatchEntry, ContextBudget, EdgeKind, Outbox, ResponseParams, RowKind, RunnableRows, Stage, StageItem,
};
use crate::text::Tokenizer;

/// Most tokens of one slot in one step.
const MAX_ROWS: usize = 8;

/// Name of the stage.
const STAGE: &str = "reader";

/// A stage that cuts given text into clauses, before the slots are known.
pub struct ClauseReaderPart {
    tokenizer: Tokenizer,
    options: Option<SpokenOptions>,
    bounds: ClauseBounds,
}

impl ClauseReaderPart {
    /// Creates a reader of the texts that `tokenizer` encodes, with the settings of spoken text.
    pub fn new(tokenizer: &Tokenizer, settings: &EngineConfig) -> Self {
        let (tokenizer, options) = (tokenizer.clone(), settings.spoken_text.options());
        Self { tokenizer, options, bounds: ClauseBounds::default() }
    }

    /// Cuts clauses within these bounds.
    #[must_use]
    pub fn with_bounds(self, bounds: ClauseBounds) -> Self {
        Self { bounds, ..self }
    }
}

impl<O: Device> StagePart<O> for ClauseReaderPart {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn slot_bytes(&self, _: usize) -> SlotBytes {
        SlotBytes::default()
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let slots = (0..at.slots.total()).map(|_| None).collect();
        Box::new(ClauseReader { part: *self, context: at.slots.context, slots })
    }
}

/// The stage with the response of each slot.
struct ClauseReader {
    part: ClauseReaderPart,
    /// Positions of a prompt.
    context: usize,
    slots: Vec<Option<ReadResponse>>,
}

/// A response that is read aloud.
struct ReadResponse {
    /// Text that is not read yet.
    text: ReadQueue,
    /// Clauses of the text; `None` for a text alone.
    clauses: Option<ClauseStream>,
}

impl ReadResponse {
    fn new(part: &ClauseReaderPart, params: &ResponseParams, prompt: &[Element]) -> Self {
        let ClauseReaderPart { tokenizer, options, bounds } = part;
        let clauses = params.audio.then(|| ClauseStream::new(tokenizer, options.as_ref(), *bounds));
        Self { text: ReadQueue::new(params, prompt), clauses }
    }

    /// Reads at most `rows` items; returns what they give, and true if the text has ended.
    fn read(&mut self, rows: usize) -> (Vec<StageItem>, bool) {
        let mut given = Vec::new();
        for item in self.text.by_ref().take(rows) {
            let clauses = match (item, &mut self.clauses) {
                (_, None) => Vec::new(),
                (ReadItem::Token(id), Some(clauses)) => clauses.push(id),
                (ReadItem::Pause | ReadItem::End(_), Some(clauses)) => clauses.finish(),
            };
            if let ReadItem::Token(id) = item {
                given.push(StageItem::Token(id));
            }
            given.extend(clauses.into_iter().map(StageItem::Clause));
            if let ReadItem::End(end) = item {
                given.push(StageItem::End(end));
                return (given, true);
            }
        }
        (given, false)
    }
}

impl Stage for ClauseReader {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Prompt
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Clauses
    }

    fn writes(&self) -> bool {
        false
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match (item, &mut self.slots[slot]) {
            (StageItem::Prompt { elements, response: Some(params), .. }, reading) => {
                *reading = Some(ReadResponse::new(&self.part, &params, &elements));
                let instructions: Vec<Element> =
                    elements.into_iter().filter(|element| element.role == Role::System).collect();
                if !instructions.is_empty() {
                    out.push((slot, StageItem::Context { from: 0, elements: instructions }));
                }
                out.push((slot, StageItem::Begin(params)));
            }
            (StageItem::Streamed(elements), Some(reading)) => reading.text.push(&elements),
            (StageItem::StreamedPause, Some(reading)) => reading.text.pause(),
            (StageItem::StreamedEnd(end), Some(reading)) => reading.text.end(end),
            (StageItem::Abort, reading) => {
                *reading = None;
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }

    /// A row for each item, and one for the end.
    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        RunnableRows::rows(self.slots[slot].as_ref().map_or(0, |reading| reading.text.rows()), RowKind::Decode)
    }

    fn max_rows(&self) -> usize {
        MAX_ROWS
    }

    /// The tokens: a clause makes no event.
    fn max_items(&self) -> usize {
        MAX_ROWS
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        for &BatchEntry { slot, rows } in work {
            let Some(reading) = &mut self.slots[slot] else { continue };
            let (given, ended) = reading.read(rows);
            out.extend(given.into_iter().map(|item| (slot, item)));
            if ended {
                self.slots[slot] = None;
            }
        }
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
    }

    fn spoken_text(&self) -> Option<&SpokenOptions> {
        self.part.options.as_ref()
    }

    fn context_budget(&self, prompt: &[Element], _: usize) -> Option<ContextBudget> {
        Some(ContextBudget { used: prompt.len(), limit: self.context })
    }
}

#[cfg(test)]
mod tests {
    use repartee_engine_api::AnswerForm;

    use super::*;
    use crate::stage::StageEnd;

    const TEXT: &str =
        "It costs $3.50, or 2 km of **wool**. Dr. Smith has sent 1,234 pieces, and we thank him for all of them!";

    fn reader() -> ClauseReader {
        let tokenizer = Tokenizer::of_bytes().unwrap();
        let part = ClauseReaderPart::new(&tokenizer, &EngineConfig::default());
        ClauseReader { part, context: 1000, slots: vec![None] }
    }

    fn params(streamed: bool, audio: bool, max_tokens: u32) -> ResponseParams {
        let (voice, tools) = ("any".to_owned(), [].into());
        ResponseParams {
            response: 1,
            seed: 2,
            voice,
            audio,
            streamed,
            tools,
            form: AnswerForm::Free,
            held: None,
            max_tokens,
            sampling: None,
        }
    }

    fn elements(reader: &ClauseReader, text: &str) -> Vec<Element> {
        let ids = reader.part.tokenizer.encode(text).unwrap();
        ids.into_iter().map(|id| Element::token(Role::User, id)).collect()
    }

    fn prompt(elements: Vec<Element>, params: ResponseParams) -> StageItem {
        StageItem::Prompt { read: vec![false; elements.len()], elements, response: Some(params) }
    }

    /// Runs the stage until it has nothing to do; returns the text, the clauses, and the end.
    fn run(reader: &mut ClauseReader, rows: usize) -> (String, Vec<String>, Option<StageEnd>) {
        let (mut ids, mut clauses, mut end) = (Vec::new(), Vec::new(), None);
        loop {
            let ready = reader.runnable_rows(0).rows.min(rows);
            let mut out = Outbox::new();
            reader.launch(&[BatchEntry { slot: 0, rows: ready }], &mut out);
            if out.is_empty() {
                return (reader.part.tokenizer.decode(&ids), clauses, end);
            }
            for (_, item) in out {
                assert_eq!(end, None, "{item:?} follows the end");
                match item {
                    StageItem::Token(id) => ids.push(id),
                    StageItem::Clause(text) => clauses.push(text),
                    StageItem::End(at) => end = Some(at),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_message_becomes_speakable_clauses() {
        let mut reader = reader();
        let message = elements(&reader, TEXT);
        reader.accept(0, prompt(message, params(false, true, 1000)), &mut Outbox::new());
        let (text, clauses, end) = run(&mut reader, 3);
        assert_eq!((text.as_str(), end), (TEXT, Some(StageEnd::Stop)));
        let expected = [
            "It costs three dollars and fifty cents,",
            "or two kilometers of wool. Doctor Smith has sent one thousand two hundred thirty-four pieces,",
            "and we thank him for all of them!",
        ];
        assert_eq!(clauses, expected);
    }

    #[test]
    fn any_split_gives_the_same_clauses() {
        let mut reader = reader();
        let message = elements(&reader, TEXT);
        reader.accept(0, prompt(message.clone(), params(false, true, 1000)), &mut Outbox::new());
        let whole = run(&mut reader, usize::MAX);
        for size in [1, 2, 7, 50] {
            reader.accept(0, prompt(Vec::new(), params(true, true, 1000)), &mut Outbox::new());
            let (mut text, mut clauses) = (String::new(), Vec::new());
            for piece in message.chunks(size) {
                reader.accept(0, StageItem::Streamed(piece.to_vec()), &mut Outbox::new());
                let (more, cut, end) = run(&mut reader, size);
                assert_eq!(end, None);
                text.push_str(&more);
                clauses.extend(cut);
            }
            reader.accept(0, StageItem::StreamedEnd(StageEnd::Stop), &mut Outbox::new());
            let (more, cut, end) = run(&mut reader, size);
            clauses.extend(cut);
            assert_eq!((text + &more, clauses, end), whole, "in pieces of {size}");
        }
    }

    #[test]
    fn a_pause_ends_the_clause() {
        let mut reader = reader();
        let [before, after] = ["Let me", " look."].map(|text| elements(&reader, text));
        reader.accept(0, prompt(Vec::new(), params(true, true, 1000)), &mut Outbox::new());
        reader.accept(0, StageItem::Streamed(before), &mut Outbox::new());
        assert_eq!(run(&mut reader, 8).1, Vec::<String>::new(), "the clause may go on");
        reader.accept(0, StageItem::StreamedPause, &mut Outbox::new());
        assert_eq!(run(&mut reader, 8).1, ["Let me"]);
        reader.accept(0, StageItem::Streamed(after), &mut Outbox::new());
        reader.accept(0, StageItem::StreamedEnd(StageEnd::Length), &mut Outbox::new());
        let (_, clauses, end) = run(&mut reader, 8);
        assert_eq!((clauses, end), (vec!["look.".to_owned()], Some(StageEnd::Length)));
    }

    #[test]
    fn a_limit_ends_the_text_early() {
        let mut reader = reader();
        let message = elements(&reader, "One two three four");
        reader.accept(0, prompt(message, params(false, true, 7)), &mut Outbox::new());
        let expected = ("One two".to_owned(), vec!["One two".to_owned()], Some(StageEnd::Length));
        assert_eq!(run(&mut reader, 3), expected);
    }

    #[test]
    fn a_text_alone_has_no_clauses() {
        let mut reader = reader();
        let message = elements(&reader, TEXT);
        reader.accept(0, prompt(message, params(false, false, 1000)), &mut Outbox::new());
        assert_eq!(run(&mut reader, 8), (TEXT.to_owned(), Vec::new(), Some(StageEnd::Stop)));
    }

    #[test]
    fn marks_alone_are_no_clause() {
        let mut reader = reader();
        let message = elements(&reader, "… – \u{1F600} (!)");
        reader.accept(0, prompt(message, params(false, true, 1000)), &mut Outbox::new());
        let (_, clauses, end) = run(&mut reader, 8);
        assert_eq!((clauses, end), (Vec::new(), Some(StageEnd::Stop)));
    }

    #[test]
    fn an_abort_drops_the_text() {
        let mut reader = reader();
        let message = elements(&reader, TEXT);
        reader.accept(0, prompt(message, params(false, true, 1000)), &mut Outbox::new());
        let mut out = Outbox::new();
        reader.accept(0, StageItem::Abort, &mut out);
        assert!(matches!(out[..], [(0, StageItem::Abort)]));
        assert_eq!(reader.runnable_rows(0).rows, 0);
    }
}
