//! Tokens: the words of the text without layout, each with the written text that it stands for.

use std::ops::Range;

use crate::characters::{CharacterClass, class, is_unspaced};
use crate::layout::{LayoutItem, Pause};

/// Maximum length of a token, in bytes. A longer word is passed on in parts, as it is written.
pub const MAX_TOKEN: usize = 256;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Word of the text.
    Word,
    /// Part of a word that is too long to have rules.
    LongWord,
    /// Number of an item, with its mark.
    ListNumber,
    /// Box of a task; true if it is checked.
    TaskBox(bool),
    /// Block of code.
    CodeBlock,
}

/// Word of the text without layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub kind: TokenKind,
    /// Text without emoji and invisible characters; may be empty.
    pub text: String,
    /// Bytes of the written text.
    pub written: Range<usize>,
    /// True if no space separates it from the token before it.
    pub glued: bool,
    /// True if some of it is code.
    pub code: bool,
    /// First emoji in it.
    pub picture: Option<char>,
    /// True for the first token of a line.
    pub begins_line: bool,
    /// True for the first token of a cell.
    pub begins_cell: bool,
}

/// Output of the builder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenItem {
    /// Token that nothing can be added to.
    Token(Token),
    /// Pause between two tokens.
    Pause(Pause, Range<usize>),
}

/// Builder of tokens.
#[derive(Debug, Default)]
pub struct TokenBuilder {
    open: Option<Token>,
    /// Beginning of the silent marks that touch the next token.
    marks: Option<Range<usize>>,
    begins_line: bool,
    begins_cell: bool,
    /// True if the next token continues the word before it.
    glue: bool,
    /// True behind an emoji within a word.
    behind_picture: bool,
}

impl TokenBuilder {
    /// Takes an item; adds what is complete to `items`.
    pub fn push(&mut self, item: LayoutItem, items: &mut Vec<TokenItem>) {
        match item {
            LayoutItem::Text { character, written, code } => self.text(character, written, code, items),
            LayoutItem::Silent { written } => self.silent(written),
            LayoutItem::Space => self.close(items),
            LayoutItem::Line => {
                self.close(items);
                self.begins_line = true;
            }
            LayoutItem::Pause { pause, written } => {
                self.close(items);
                self.begins_cell = pause == Pause::Cell;
                items.push(TokenItem::Pause(pause, written));
            }
            LayoutItem::ListNumber { digits, mark, written } => {
                self.whole(TokenKind::ListNumber, format!("{digits}{mark}"), written, items);
            }
            LayoutItem::TaskBox { done, written } => {
                self.whole(TokenKind::TaskBox(done), String::new(), written, items);
            }
            LayoutItem::CodeBlock { written } => self.whole(TokenKind::CodeBlock, String::new(), written, items),
        }
    }

    /// Ends the open token.
    pub fn finish(&mut self, items: &mut Vec<TokenItem>) {
        self.close(items);
    }

    fn text(&mut self, character: char, written: Range<usize>, code: bool, items: &mut Vec<TokenItem>) {
        // A joiner joins emoji; between letters it is a letter.
        let joins = self.behind_picture && character == '\u{200D}';
        match class(character) {
            _ if joins => return self.silent(written),
            CharacterClass::Invisible => return self.silent(written),
            CharacterClass::Picture => {
                let token = self.open_token(&written);
                token.picture = token.picture.or(Some(character));
                token.written.end = written.end;
                self.behind_picture = true;
                return;
            }
            CharacterClass::Text => {}
        }
        let mut kind = TokenKind::Word;
        let last = self.open.as_ref().and_then(|token| token.text.chars().next_back());
        if let (Some(last), Some(token)) = (last, &mut self.open) {
            let unspaced = is_unspaced(character) || is_unspaced(last);
            let long = token.text.len() + character.len_utf8() > MAX_TOKEN;
            let words = self.behind_picture && last.is_alphanumeric() && character.is_alphanumeric();
            if long && !unspaced {
                (token.kind, kind) = (TokenKind::LongWord, TokenKind::LongWord);
            }
            if unspaced || long || words {
                self.close(items);
                self.glue = !words;
            }
        }
        self.behind_picture = false;
        let token = self.open_token(&written);
        if kind == TokenKind::LongWord {
            token.kind = kind;
        }
        token.text.push(character);
        token.written.end = written.end;
        token.code |= code;
    }

    /// Returns the open token, or a new one that begins with the marks before it.
    fn open_token(&mut self, written: &Range<usize>) -> &mut Token {
        let marks = self.marks.take();
        let (begins_line, begins_cell, glued) = (&mut self.begins_line, &mut self.begins_cell, &mut self.glue);
        self.open.get_or_insert_with(|| Token {
            kind: TokenKind::Word,
            text: String::new(),
            written: marks.map_or(written.start, |marks| marks.start)..written.end,
            glued: std::mem::take(glued),
            code: false,
            picture: None,
            begins_line: std::mem::take(begins_line),
            begins_cell: std::mem::take(begins_cell),
        })
    }

    fn silent(&mut self, written: Range<usize>) {
        match (&mut self.open, &mut self.marks) {
            (Some(token), _) => token.written.end = written.end,
            (None, Some(marks)) => marks.end = written.end,
            (None, None) => self.marks = Some(written),
        }
    }

    /// Adds a token that no other characters belong to.
    fn whole(&mut self, kind: TokenKind, text: String, written: Range<usize>, items: &mut Vec<TokenItem>) {
        self.close(items);
        let token = self.open_token(&written);
        (token.kind, token.text) = (kind, text);
        self.close(items);
    }

    fn close(&mut self, items: &mut Vec<TokenItem>) {
        (self.marks, self.glue, self.behind_picture) = (None, false, false);
        items.extend(self.open.take().map(TokenItem::Token));
    }
}
