//! Sentences: a text in parts that a voice speaks one after another, for a voice that streams text in but is trained on
//! short texts. The words of a sentence are passed on as they come.

use unicode_segmentation::UnicodeSegmentation as _;

/// Maximum length of a piece, in bytes. Models are trained on answers, which are short.
pub const MAX_PIECE: usize = 240;
/// Minimum of a limit, in bytes: a word or two.
const MIN_PIECE: usize = 40;

/// Output of the splitter, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentenceEnd {
    /// Text that begins or extends the piece; not empty.
    Text(String),
    /// End of the piece.
    End,
}

/// Splits a text that streams in into its sentences, and parts of long ones. The pieces do not depend on how the text is
/// split on arrival. A character is passed on once it is certain which piece it belongs to. Line breaks and repeated spaces
/// are dropped, and so are pieces without a letter or digit.
#[derive(Debug)]
pub struct SentenceSplitter {
    /// Maximum length of a piece, in bytes.
    limit: usize,
    /// Piece so far, with single spaces.
    piece: String,
    /// Number of its bytes that were passed on.
    sent: usize,
    /// Possible end of the sentence: the byte behind its last mark, until a letter or another mark decides.
    undecided: Option<usize>,
    /// True if a space precedes the next character.
    space: bool,
}

impl Default for SentenceSplitter {
    fn default() -> Self {
        Self::with_limit(MAX_PIECE)
    }
}

impl SentenceSplitter {
    /// Creates a splitter into pieces of at most `limit` bytes, between 40 and [`MAX_PIECE`].
    pub fn with_limit(limit: usize) -> Self {
        let limit = limit.clamp(MIN_PIECE, MAX_PIECE);
        Self { limit, piece: String::new(), sent: 0, undecided: None, space: false }
    }

    /// Length in bytes from which a piece ends at its next space.
    fn long(&self) -> usize {
        self.limit / 6 * 5
    }

    /// Adds a part of the text; returns the pieces that are certain now.
    pub fn push(&mut self, text: &str) -> Vec<SentenceEnd> {
        let mut cuts = Vec::new();
        for character in text.chars() {
            self.take(character, &mut cuts);
        }
        self.hand_over(self.sure(), &mut cuts);
        cuts
    }

    /// Ends the text and its last piece.
    pub fn finish(&mut self) -> Vec<SentenceEnd> {
        let mut cuts = Vec::new();
        self.end(self.piece.len(), &mut cuts);
        cuts
    }

    fn take(&mut self, character: char, cuts: &mut Vec<SentenceEnd>) {
        if character.is_whitespace() {
            if breaks_line(character) || self.piece.len() >= self.long() {
                self.end(self.piece.len(), cuts);
            }
            self.space = !self.piece.is_empty();
            return;
        }
        if std::mem::take(&mut self.space) {
            self.piece.push(' ');
        }
        while self.piece.len() + character.len_utf8() > self.limit {
            self.end(self.sure(), cuts);
        }
        self.piece.push(character);
        let mark = ends_sentences(character);
        if (mark || character.is_alphabetic())
            && let Some(sure) = self.undecided.take()
            && let Some(end) = self.bound(sure)
        {
            self.end(end, cuts);
        }
        if mark {
            self.undecided = Some(self.piece.len());
        }
    }

    /// Number of bytes that belong to this piece whatever follows.
    fn sure(&self) -> usize {
        self.undecided.unwrap_or(self.piece.len())
    }

    /// Returns the first end of a sentence at or after byte `from`.
    fn bound(&self, from: usize) -> Option<usize> {
        let bounds = self.piece.split_sentence_bound_indices();
        bounds.map(|(begin, _)| begin).find(|&begin| begin > 0 && begin >= from)
    }

    /// Ends the piece at byte `at`; the rest begins the next one.
    fn end(&mut self, at: usize, cuts: &mut Vec<SentenceEnd>) {
        let rest = self.piece[at..].trim_start().to_owned();
        self.hand_over(at, cuts);
        if self.sent > 0 {
            cuts.push(SentenceEnd::End);
        }
        *self = Self { piece: rest, ..Self::with_limit(self.limit) };
    }

    /// Passes on the text up to byte `to` that was not passed on yet.
    fn hand_over(&mut self, to: usize, cuts: &mut Vec<SentenceEnd>) {
        let ready = self.piece[..to].trim_end();
        // A piece of marks alone has nothing to read.
        let says = self.sent > 0 || ready.chars().any(char::is_alphanumeric);
        if says && ready.len() > self.sent {
            cuts.push(SentenceEnd::Text(ready[self.sent..].to_owned()));
            self.sent = ready.len();
        }
    }
}

fn breaks_line(character: char) -> bool {
    matches!(character, '\n'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// True if a sentence may end with this mark; the text around it decides (Unicode, annex 29).
fn ends_sentences(character: char) -> bool {
    const MARKS: &str = ".!?…‼⁇⁈⁉。！？．｡﹒﹖﹗؟۔।॥։።፧។။";
    MARKS.contains(character)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Splits a text that arrives in these parts, and returns its pieces.
    fn pieces<'a>(parts: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut sentences = SentenceSplitter::default();
        let mut cuts: Vec<SentenceEnd> = parts.into_iter().flat_map(|part| sentences.push(part)).collect();
        cuts.extend(sentences.finish());
        let (mut pieces, mut piece) = (Vec::new(), String::new());
        for cut in cuts {
            match cut {
                SentenceEnd::Text(text) => {
                    assert!(!text.is_empty());
                    piece.push_str(&text);
                }
                SentenceEnd::End => pieces.push(std::mem::take(&mut piece)),
            }
        }
        assert_eq!(piece, "", "every piece ends");
        pieces
    }

    #[test]
    fn text_is_read_by_sentences() {
        let text = "Hello there.  How are you?\nFine!\n(…)\nThird\tline \u{201c}it is.\u{201d} So. ";
        let expected = ["Hello there.", "How are you?", "Fine!", "Third line \u{201c}it is.\u{201d}", "So."];
        assert_eq!(pieces([text]), expected);
        assert_eq!(pieces([" ... \n -- "]), Vec::<String>::new());
        for whole in ["It costs 3.50 euros.", "It takes approx. 12 minutes, e.g. (at most) twelve."] {
            assert_eq!(pieces([whole]), [whole]);
        }
        assert_eq!(pieces(["你好。3个苹果！是吗？"]), ["你好。", "3个苹果！", "是吗？"]);
        assert_eq!(pieces(["Wait. 3.5 is it."]), ["Wait.", "3.5 is it."]);
    }

    #[test]
    fn long_sentences_are_cut_between_words() {
        let sentence = "word ".repeat(400);
        let cut = pieces([sentence.as_str()]);
        let whole = &cut[..cut.len() - 1];
        assert!(whole.iter().all(|piece| (200..=MAX_PIECE).contains(&piece.len())), "{cut:?}");
        assert_eq!(cut.join(" "), sentence.trim());
        let endless = "ä".repeat(2_000);
        let cut = pieces([endless.as_str()]);
        assert!(cut.iter().all(|piece| piece.len() <= MAX_PIECE), "{cut:?}");
        assert_eq!(cut.concat(), endless);
    }

    #[test]
    fn a_lower_limit_holds_for_every_piece() {
        let mut sentences = SentenceSplitter::with_limit(50);
        let mut cuts = sentences.push(&"one two three four five six seven eight nine ten ".repeat(9));
        cuts.extend(sentences.finish());
        let text = |cut: &SentenceEnd| if let SentenceEnd::Text(text) = cut { text.len() } else { 0 };
        let pieces: Vec<usize> =
            cuts.split(|cut| *cut == SentenceEnd::End).map(|piece| piece.iter().map(text).sum()).collect();
        assert!(pieces.iter().all(|bytes| *bytes <= 50), "{pieces:?}");
        assert!(pieces.len() > 8);
    }

    #[test]
    fn words_are_handed_over_as_they_come() {
        let mut sentences = SentenceSplitter::default();
        let text = |text: &str| SentenceEnd::Text(text.to_owned());
        assert_eq!(sentences.push("“"), []);
        assert_eq!(sentences.push("One tw"), [text("“One tw")]);
        assert_eq!(sentences.push("o. "), [text("o.")]);
        assert_eq!(sentences.push("3"), [], "of the next sentence, or not");
        assert_eq!(sentences.push(" Th"), [SentenceEnd::End, text("3 Th")]);
        assert_eq!(sentences.push("ree"), [text("ree")]);
        assert_eq!(sentences.finish(), [SentenceEnd::End]);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_pieces(
            text in "([a-zA-Z]{1,7}|[0-9.]{1,4}|[.!?…。\"“”()]{1,3}|[ \n]{1,3}|[äß你好]{1,90}|\\PC){0,120}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let characters: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let mut ends: Vec<usize> = cuts.iter().map(|cut| *cut.get(&characters)).collect();
            ends.push(text.len());
            ends.sort_unstable();
            let mut from = 0;
            let parts = ends.into_iter().map(|to| &text[std::mem::replace(&mut from, to)..to]);
            let whole = pieces([text.as_str()]);
            prop_assert_eq!(&pieces(parts), &whole);
            prop_assert!(whole.iter().all(|piece| piece.len() <= MAX_PIECE && piece.trim() == piece), "{:?}", &whole);
            // No letter or digit is lost.
            let said = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
            prop_assert_eq!(said(&whole.concat()), said(&text));
        }
    }
}
