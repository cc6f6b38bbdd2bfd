//! Tokens by their bytes: a tree of all, and for each place within a string the tokens that stay in it.

use std::collections::HashMap;

use super::error::FormError;
use super::grammar::Grammar;
use super::mask::Mask;
use super::string::Letter;

/// Most letters for which the tokens of at most so many are listed.
const COUNTED: usize = 16;

/// Tokens of a model with their bytes. Tokens without text are not among them.
#[derive(Debug)]
pub struct Vocabulary {
    size: usize,
    /// Tokens that end a text.
    stops: Vec<u32>,
    /// Bytes of each id.
    bytes: Vec<Box<[u8]>>,
    /// Tree of the tokens, each node before those below it.
    pub(crate) tree: Vec<TreeNode>,
    /// Ids of the tree's nodes.
    ids: Vec<u32>,
    /// Id of each byte that is a token.
    pub(crate) singles: [Option<u32>; 256],
    strings: Vec<StringTokens>,
    /// Tokens that stay within a string and have at most so many letters.
    counted: Vec<Mask>,
    /// Tokens of more letters, with their number.
    longer: Vec<(u32, u32)>,
}

/// Node of the tree of tokens.
#[derive(Debug, Clone, Copy)]
pub struct TreeNode {
    /// Last byte of the tokens that end here.
    pub byte: u8,
    /// Index after all nodes below it.
    pub end: u32,
    /// Ids of its tokens.
    ids: (u32, u32),
}

/// Tokens from a place within a string on.
#[derive(Debug)]
pub struct StringTokens {
    /// Tokens that stay within it.
    pub inside: Mask,
    /// Tokens that end it.
    pub closing: Vec<ClosingTokens>,
}

/// Tokens that end a string, with the same bytes behind its quote: their letters before the quote, and their ids.
pub type ClosingTokens = (Box<[u8]>, Vec<(u32, u32)>);

impl Vocabulary {
    /// Takes the tokens with text, for a model of `size` ids.
    ///
    /// # Errors
    ///
    /// If a printable letter of ASCII is no token.
    pub fn new(
        tokens: impl IntoIterator<Item = (u32, Vec<u8>)>,
        size: usize,
        stops: Vec<u32>,
    ) -> Result<Self, FormError> {
        let mut bytes = vec![Box::default(); size];
        let mut sorted: Vec<(Box<[u8]>, u32)> = Vec::new();
        for (id, token) in tokens {
            if !token.is_empty() && (id as usize) < size && !stops.contains(&id) {
                bytes[id as usize] = token.clone().into_boxed_slice();
                sorted.push((token.into(), id));
            }
        }
        sorted.sort_unstable();
        let mut singles = [None; 256];
        for (token, id) in &sorted {
            if let [byte] = token[..] {
                singles[usize::from(byte)].get_or_insert(*id);
            }
        }
        if let Some(byte) = (b' '..=b'~').find(|byte| singles[usize::from(*byte)].is_none()) {
            return Err(FormError::Unspellable { byte });
        }
        let (tree, ids) = tree(&sorted);
        let mut made = Self {
            size,
            stops,
            bytes,
            tree,
            ids,
            singles,
            strings: Vec::new(),
            counted: vec![Mask::new(size); COUNTED + 1],
            longer: Vec::new(),
        };
        made.strings = Letter::ALL.iter().map(|letter| made.string_tokens(*letter, &sorted)).collect();
        made.count(&sorted);
        Ok(made)
    }

    /// Checks that the texts of a form can be written.
    ///
    /// # Errors
    ///
    /// If a byte that it asks for is no token.
    pub fn check(&self, grammar: &Grammar) -> Result<(), FormError> {
        match grammar.fixed_bytes().find(|byte| self.singles[usize::from(*byte)].is_none()) {
            Some(byte) => Err(FormError::Unspellable { byte }),
            None => Ok(()),
        }
    }

    /// Number of ids of the model.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Tokens that end a text.
    pub fn stops(&self) -> &[u32] {
        &self.stops
    }

    /// Bytes of a token; `None` if it has no text.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        self.bytes.get(id as usize).map(|bytes| &bytes[..]).filter(|bytes| !bytes.is_empty())
    }

    /// Tokens of a node.
    pub(crate) fn ids_of(&self, node: TreeNode) -> &[u32] {
        &self.ids[node.ids.0 as usize..node.ids.1 as usize]
    }

    /// Tokens from a place within a string on.
    pub(crate) fn in_string(&self, letter: Letter) -> &StringTokens {
        &self.strings[letter.index()]
    }

    /// Adds the tokens that have at most `most` letters of a string that goes on.
    pub(crate) fn allow_letters(&self, most: u32, mask: &mut Mask) {
        mask.allow_all(&self.counted[(most as usize).min(COUNTED)]);
        for (letters, id) in self.longer.iter().take_while(|(letters, _)| *letters <= most) {
            debug_assert!(*letters as usize > COUNTED);
            mask.allow(*id);
        }
    }

    fn string_tokens(&self, start: Letter, sorted: &[(Box<[u8]>, u32)]) -> StringTokens {
        let mut inside = Mask::new(self.size);
        let mut closing: HashMap<&[u8], Vec<(u32, u32)>> = HashMap::new();
        for (token, id) in sorted {
            match letters(start, token) {
                Letters::Inside(_) => inside.allow(*id),
                Letters::Closed(letters, at) => closing.entry(&token[at..]).or_default().push((letters, *id)),
                Letters::Wrong => {}
            }
        }
        let mut closing: Vec<ClosingTokens> = closing.into_iter().map(|(rest, tokens)| (rest.into(), tokens)).collect();
        closing.sort_unstable();
        StringTokens { inside, closing }
    }

    fn count(&mut self, sorted: &[(Box<[u8]>, u32)]) {
        for (token, id) in sorted {
            let Letters::Inside(letters) = letters(Letter::Between, token) else { continue };
            if letters as usize > COUNTED {
                self.longer.push((letters, *id));
            }
            self.counted.iter_mut().skip(letters as usize).for_each(|mask| mask.allow(*id));
        }
        self.longer.sort_unstable();
    }
}

/// A token within a string.
enum Letters {
    /// The string goes on, after so many letters; one that has begun counts.
    Inside(u32),
    /// It is closed after so many letters, before the byte of this index.
    Closed(u32, usize),
    /// No string goes on so.
    Wrong,
}

fn letters(start: Letter, token: &[u8]) -> Letters {
    let (mut letter, mut count) = (start, 0);
    for (at, &byte) in token.iter().enumerate() {
        if letter == Letter::Between && byte == b'"' {
            return Letters::Closed(count, at + 1);
        }
        let Some((next, whole)) = letter.take(byte) else { return Letters::Wrong };
        letter = next;
        count += u32::from(whole);
    }
    Letters::Inside(count + u32::from(letter != Letter::Between))
}

/// Tree of sorted tokens.
fn tree(sorted: &[(Box<[u8]>, u32)]) -> (Vec<TreeNode>, Vec<u32>) {
    let mut tree: Vec<TreeNode> = Vec::new();
    // Nodes on the way to the last token.
    let mut path: Vec<usize> = Vec::new();
    let mut before: &[u8] = &[];
    for (at, (token, _)) in sorted.iter().enumerate() {
        let common = before.iter().zip(token).take_while(|(a, b)| a == b).count();
        close(&mut tree, &mut path, common);
        for &byte in &token[common..] {
            path.push(tree.len());
            tree.push(TreeNode { byte, end: 0, ids: (at as u32, at as u32) });
        }
        if let Some(&last) = path.last() {
            tree[last].ids.1 = at as u32 + 1;
        }
        before = token;
    }
    close(&mut tree, &mut path, 0);
    (tree, sorted.iter().map(|(_, id)| *id).collect())
}

/// Ends the nodes of a path but for the first `kept`.
fn close(tree: &mut [TreeNode], path: &mut Vec<usize>, kept: usize) {
    let end = tree.len() as u32;
    for node in path.drain(kept..) {
        tree[node].end = end;
    }
}
