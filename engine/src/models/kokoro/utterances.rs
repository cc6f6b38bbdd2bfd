//! Utterances of a clause: ids of its phonemes, as many as the model takes at once.

use super::config::Config;

/// Most phonemes of an utterance, some fifteen seconds: its sound is computed as a whole, and a longer one would delay
/// its first sample.
const MOST: usize = 200;

/// Cuts phonemes into utterances, behind the last space within the limit. Symbols that the model does not know are
/// left out.
pub fn utterances(phonemes: &str, config: &Config) -> Vec<Vec<u32>> {
    let most = MOST.min(config.most_phonemes()).max(1);
    let known: Vec<(char, u32)> =
        phonemes.chars().filter_map(|symbol| Some((symbol, *config.vocab.get(&symbol)?))).collect();
    let mut rest = &known[..];
    let mut utterances = Vec::new();
    while rest.iter().any(|(symbol, _)| symbol.is_alphabetic()) {
        let cut = if rest.len() <= most {
            rest.len()
        } else {
            rest[..most].iter().rposition(|(symbol, _)| *symbol == ' ').map_or(most, |at| at + 1)
        };
        let (own, after) = rest.split_at(cut);
        if own.iter().any(|(symbol, _)| symbol.is_alphabetic()) {
            utterances.push(own.iter().map(|(_, id)| *id).collect());
        }
        rest = after;
    }
    utterances
}
