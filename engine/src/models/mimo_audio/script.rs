//! Order of text and speech: each position is a text token, or a patch of speech where the empty token is drawn. The model
//! has learnt to say five tokens and five patches in turn; nothing forces it.

use crate::models::parts::interleaved::{InterleavingScript, PositionKind, SampledPosition};
use crate::stage::ResponseParams;

/// Most patches of a response for each of its tokens; a patch takes 160 ms, a token about twice that.
const PATCHES_PER_TOKEN: usize = 5;
/// Patches of a response of any length: ten seconds.
const LEAST_PATCHES: usize = 64;

/// Ids of a checkpoint that the order depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchScript {
    /// Id in whose place a patch stands.
    pub empty: u32,
    /// Ids that end a response.
    pub ends: Vec<u32>,
}

/// Text tokens that are said.
#[derive(Debug, Clone, Copy, Default)]
pub struct Said(u32);

impl InterleavingScript for PatchScript {
    type Said = Said;

    /// Not used: the empty id decides.
    fn first(&self) -> PositionKind {
        PositionKind::Text
    }

    fn empty(&self) -> Option<u32> {
        Some(self.empty)
    }

    fn text(&self, Said(tokens): &mut Said, params: &ResponseParams, id: u32) -> SampledPosition {
        if self.ends.contains(&id) {
            return SampledPosition::End;
        }
        if *tokens >= params.max_tokens {
            return SampledPosition::Full;
        }
        *tokens += 1;
        SampledPosition::Said(PositionKind::Text)
    }

    /// A response that is not spoken has its patches, because its text goes with them, but does not say them.
    fn frame(&self, _: &mut Said, params: &ResponseParams, _: &mut [u32]) -> SampledPosition {
        let next = PositionKind::Text;
        if params.audio { SampledPosition::Said(next) } else { SampledPosition::Mark(next) }
    }

    fn positions(&self, max_tokens: usize, _: bool) -> usize {
        // The last position finds that all tokens are said.
        max_tokens + PATCHES_PER_TOKEN * max_tokens + LEAST_PATCHES + 1
    }
}

/// Most patches of a response of at most `positions` positions.
pub fn most_patches(positions: usize) -> usize {
    positions.saturating_sub(LEAST_PATCHES) / (1 + PATCHES_PER_TOKEN) * PATCHES_PER_TOKEN + LEAST_PATCHES
}

#[cfg(test)]
mod tests {
    use repartee_engine_api::AnswerForm;

    use super::*;

    fn params(max_tokens: u32, audio: bool) -> ResponseParams {
        ResponseParams {
            response: 0,
            seed: 0,
            voice: String::new(),
            audio,
            streamed: false,
            tools: Vec::new().into(),
            form: AnswerForm::Free,
            held: None,
            max_tokens,
            sampling: None,
        }
    }

    #[test]
    fn ends_and_limits_end_a_response() {
        let script = PatchScript { empty: 9, ends: vec![3, 4] };
        let (said, next) = (&mut Said::default(), PositionKind::Text);
        let (spoken, written) = (params(2, true), params(2, false));
        assert_eq!(script.text(said, &spoken, 3), SampledPosition::End);
        assert_eq!(script.text(said, &spoken, 5), SampledPosition::Said(next));
        assert_eq!(script.frame(said, &spoken, &mut [1; 4]), SampledPosition::Said(next));
        assert_eq!(script.frame(said, &written, &mut [1; 4]), SampledPosition::Mark(next), "drawn, not said");
        assert_eq!(script.text(said, &spoken, 6), SampledPosition::Said(next));
        assert_eq!(script.frame(said, &spoken, &mut [1; 4]), SampledPosition::Said(next), "of the last token");
        assert_eq!(script.text(said, &spoken, 7), SampledPosition::Full, "two tokens are said");
        assert!(script.positions(10, true) > 10 + 64);
    }
}
