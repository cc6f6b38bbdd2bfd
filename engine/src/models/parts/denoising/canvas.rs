//! Canvas of an utterance: places behind its prompt that are masked at first. The refinement steps of a block draw a choice
//! for each masked place and settle those of the highest probability, so many that the last step settles the rest.
//!
//! Guidance leads away from the logits of the empty canvas behind the same prompt. These are the same in every step, and the
//! first step has no others, so they are computed once: the pair of passes that the reference runs in each step gives the same
//! numbers.

use std::ops::Range;

/// Sizes of refinement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RefinementPlan {
    /// Places of the canvas.
    pub canvas: usize,
    /// Places of a block; the last one may have fewer.
    pub block: usize,
    /// Refinement steps of a block, at least one.
    pub steps: usize,
    /// Strength of guidance, 0 for none.
    pub guidance: f32,
    /// Divisor of the logits, above 0.
    pub temperature: f32,
}

impl RefinementPlan {
    /// Places that step `step` of a block of `places` settles.
    fn settled(&self, places: usize, step: usize) -> usize {
        places / self.steps + usize::from(step < places % self.steps)
    }
}

/// Result of a refinement step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refined {
    /// A logit is not finite.
    NotFinite,
    /// The block has masks left.
    Open,
    /// The block is whole: its choices.
    Block(Vec<u32>),
}

/// A canvas behind its prompt.
#[derive(Debug, Clone)]
pub struct Canvas {
    plan: RefinementPlan,
    /// Ids of the prompt and of the canvas.
    ids: Vec<u32>,
    prompt: usize,
    /// Choices of the block's places, as far as they are settled.
    choices: Vec<Option<u32>>,
    /// First place of the block, and its next step.
    first: usize,
    step: usize,
    /// Steps of all blocks so far.
    steps: u64,
    /// Logits of the empty canvas; none before the first step.
    empty: Vec<f32>,
}

impl Canvas {
    /// Creates a canvas of masks.
    pub fn new(prompt: &[u32], mask: u32, plan: RefinementPlan) -> Self {
        let masks = std::iter::repeat_n(mask, plan.canvas);
        let ids = prompt.iter().copied().chain(masks).collect();
        let choices = vec![None; plan.block.min(plan.canvas)];
        Self { plan, ids, prompt: prompt.len(), choices, first: 0, step: 0, steps: 0, empty: Vec::new() }
    }

    /// Ids of all positions.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Positions whose logits the next step takes: those of the whole canvas in the first step, of the block in others.
    pub fn wanted(&self) -> Range<usize> {
        if self.empty.is_empty() {
            return self.prompt..self.ids.len();
        }
        let from = self.prompt + self.first;
        from..from + self.choices.len()
    }

    /// True once every block is whole.
    pub fn is_whole(&self) -> bool {
        self.first >= self.plan.canvas
    }

    /// Refines the block with the logits of the wanted positions. `uniform` gives the number that draws the choice of a step and
    /// a place, `id` the id of a choice on the canvas.
    pub fn refine(&mut self, logits: &[f32], uniform: impl Fn(u64, usize) -> f32, id: impl Fn(u32) -> u32) -> Refined {
        if logits.is_empty() || logits.iter().any(|logit| !logit.is_finite()) {
            return Refined::NotFinite;
        }
        let width = logits.len() / self.wanted().len();
        let is_first = self.empty.is_empty();
        if is_first {
            self.empty = logits.to_vec();
        }
        let mut drawn = Vec::new();
        for at in (0..self.choices.len()).filter(|&at| self.choices[at].is_none()) {
            let place = self.first + at;
            let empty = &self.empty[place * width..][..width];
            let own = if is_first { empty } else { &logits[at * width..][..width] };
            let guided = empty.iter().zip(own).map(|(empty, own)| empty + (self.plan.guidance + 1.0) * (own - empty));
            let scaled: Vec<f32> = guided.map(|logit| logit / self.plan.temperature).collect();
            let (choice, chance) = draw(&scaled, uniform(self.steps, place));
            drawn.push((at, choice, chance));
        }
        // The earlier of equal ones first.
        drawn.sort_by(|a, b| b.2.total_cmp(&a.2));
        for &(at, choice, _) in drawn.iter().take(self.plan.settled(self.choices.len(), self.step)) {
            self.choices[at] = Some(choice);
            self.ids[self.prompt + self.first + at] = id(choice);
        }
        (self.step, self.steps) = (self.step + 1, self.steps + 1);
        if self.choices.iter().any(Option::is_none) {
            return Refined::Open;
        }
        self.first += self.choices.len();
        self.step = 0;
        let next = vec![None; self.plan.block.min(self.plan.canvas - self.first)];
        Refined::Block(std::mem::replace(&mut self.choices, next).into_iter().flatten().collect())
    }
}

/// Draws a choice by a number from 0 to 1; returns it with its probability.
fn draw(logits: &[f32], number: f32) -> (u32, f64) {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let parts: Vec<f64> = logits.iter().map(|logit| f64::from(logit - most).exp()).collect();
    let sum: f64 = parts.iter().sum();
    let (mut reached, mut choice) = (0.0, 0);
    for (at, part) in parts.iter().enumerate() {
        reached += part / sum;
        choice = at;
        if reached > f64::from(number) {
            break;
        }
    }
    (u32::try_from(choice).unwrap_or(u32::MAX), parts[choice] / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: RefinementPlan = RefinementPlan { canvas: 5, block: 3, steps: 2, guidance: 0.0, temperature: 1.0 };

    /// Logits that prefer choice `1` at all `places`, more so at later ones.
    fn rising(places: Range<usize>) -> Vec<f32> {
        places.flat_map(|place| [0.0, place as f32 + 1.0]).collect()
    }

    #[test]
    fn confident_places_are_settled_first() {
        let mut canvas = Canvas::new(&[7, 8], 9, PLAN);
        assert_eq!((canvas.ids(), canvas.wanted()), (&[7, 8, 9, 9, 9, 9, 9][..], 2..7));
        // Two of the three in the first step, the rest in the second.
        assert_eq!(canvas.refine(&rising(0..5), |_, _| 0.9, |choice| choice + 20), Refined::Open);
        assert_eq!((canvas.ids(), canvas.wanted()), (&[7, 8, 9, 21, 21, 9, 9][..], 2..5));
        assert_eq!(canvas.refine(&rising(0..3), |_, _| 0.1, |choice| choice + 20), Refined::Block(vec![0, 1, 1]));
        assert_eq!((canvas.ids(), canvas.wanted()), (&[7, 8, 20, 21, 21, 9, 9][..], 5..7));
        assert!(!canvas.is_whole());
        assert_eq!(canvas.refine(&rising(3..5), |_, _| 0.9, |choice| choice + 20), Refined::Open);
        assert_eq!(canvas.refine(&rising(3..5), |_, _| 0.9, |choice| choice + 20), Refined::Block(vec![1, 1]));
        assert!(canvas.is_whole());
    }

    #[test]
    fn guidance_leads_away_from_the_empty_canvas() {
        let chosen = |guidance: f32| {
            let plan = RefinementPlan { canvas: 2, block: 1, steps: 1, guidance, temperature: 1.0 };
            let mut canvas = Canvas::new(&[7], 9, plan);
            canvas.refine(&[0.0, 0.0, 2.0, 0.0], |_, _| 0.5, |choice| choice);
            canvas.refine(&[1.0, 0.0], |_, _| 0.5, |choice| choice)
        };
        // 2 + (1.5 + 1) (1 - 2) is below 0.
        assert_eq!(chosen(0.0), Refined::Block(vec![0]));
        assert_eq!(chosen(1.5), Refined::Block(vec![1]));
    }

    #[test]
    fn logits_that_are_not_finite_settle_nothing() {
        let mut canvas = Canvas::new(&[7], 9, PLAN);
        let logits = [&rising(0..4)[..], &[f32::NAN, 0.0]].concat();
        assert_eq!(canvas.refine(&logits, |_, _| 0.5, |choice| choice), Refined::NotFinite);
        assert_eq!(canvas.ids(), [7, 9, 9, 9, 9, 9]);
    }
}
