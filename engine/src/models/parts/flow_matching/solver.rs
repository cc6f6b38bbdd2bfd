//! Solver of ordinary differential equations with fixed steps: fourth-order Runge-Kutta by the 3/8 rule. A device
//! evaluates the slopes.
//!
//! The solver itself evaluates nothing: it gives the value and time of the next evaluation and continues with its
//! result. So a scheduler may run other work between any two evaluations.

/// Evaluations of a step.
const EVALUATIONS_PER_STEP: usize = 4;

/// Step times, shared by all solves.
#[derive(Debug, Clone, PartialEq)]
pub struct Rk4 {
    /// Times of the steps' bounds.
    points: Vec<f32>,
}

impl Rk4 {
    /// Creates a solver with steps between consecutive points, of which there are at least two.
    pub fn new(points: Vec<f32>) -> Self {
        debug_assert!(points.len() > 1, "a solve has a step");
        Self { points }
    }

    /// Number of evaluations in a whole solve.
    pub fn evaluations(&self) -> usize {
        EVALUATIONS_PER_STEP * (self.points.len() - 1)
    }

    /// Distinct times of evaluations in ascending order: a step ends when the next one begins.
    pub fn times(&self) -> Vec<f32> {
        let steps = self.points.windows(2).flat_map(|step| {
            let length = step[1] - step[0];
            [step[0], step[0] + length * (1.0 / 3.0), step[0] + length * (2.0 / 3.0)]
        });
        steps.chain(self.points.last().copied()).collect()
    }

    /// Length of a step.
    fn length(&self, step: usize) -> f32 {
        self.points[step + 1] - self.points[step]
    }
}

/// State of a solve between two evaluations.
#[derive(Debug, Clone, PartialEq)]
pub struct OdeState {
    /// Value at the start of the current step.
    value: Vec<f32>,
    /// Slopes of the current step.
    slopes: Vec<Vec<f32>>,
    step: usize,
}

impl OdeState {
    /// Starts a solve from `value`.
    pub fn new(value: Vec<f32>) -> Self {
        Self { value, slopes: Vec::with_capacity(EVALUATIONS_PER_STEP), step: 0 }
    }

    /// Number of evaluations done.
    pub fn evaluated(&self) -> usize {
        EVALUATIONS_PER_STEP * self.step + self.slopes.len()
    }

    /// Index in [`Rk4::times`] of the next evaluation's time.
    pub fn time(&self) -> usize {
        (EVALUATIONS_PER_STEP - 1) * self.step + self.slopes.len()
    }

    /// Value at which the next evaluation takes place.
    pub fn input(&self, rk4: &Rk4) -> Vec<f32> {
        let length = rk4.length(self.step);
        let third = 1.0 / 3.0;
        let value = self.value.iter().enumerate();
        match &self.slopes[..] {
            [] => self.value.clone(),
            [k1] => value.map(|(i, y)| y + length * k1[i] * third).collect(),
            [k1, k2] => value.map(|(i, y)| y + length * (k2[i] - k1[i] * third)).collect(),
            [k1, k2, k3, ..] => value.map(|(i, y)| y + length * (k1[i] - k2[i] + k3[i])).collect(),
        }
    }

    /// Continues with the slope of that evaluation; returns the result after the last one.
    pub fn advance(&mut self, rk4: &Rk4, slope: Vec<f32>) -> Option<&[f32]> {
        debug_assert_eq!(slope.len(), self.value.len(), "a slope is as long as its value");
        self.slopes.push(slope);
        if let [k1, k2, k3, k4] = &self.slopes[..] {
            let length = rk4.length(self.step);
            for (i, y) in self.value.iter_mut().enumerate() {
                *y += (k1[i] + 3.0 * (k2[i] + k3[i]) + k4[i]) * length / 8.0;
            }
            self.slopes.clear();
            self.step += 1;
        }
        (self.evaluated() == rk4.evaluations()).then_some(&self.value[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// y' = t y, with the solution a e^(t²/2).
    #[test]
    fn error_falls_with_the_fourth_power() {
        let error = |steps: usize| {
            let rk4 = Rk4::new((0..=steps).map(|i| 2.0 * i as f32 / steps as f32).collect());
            let times = rk4.times();
            assert_eq!((times.len(), rk4.evaluations()), (3 * steps + 1, 4 * steps));
            let mut solve = OdeState::new(vec![1.0, -2.0]);
            for evaluation in 0..rk4.evaluations() {
                assert_eq!(solve.evaluated(), evaluation);
                let time = times[solve.time()];
                let slope = solve.input(&rk4).iter().map(|y| y * time).collect();
                let done = solve.advance(&rk4, slope).map(<[f32]>::to_vec);
                assert_eq!(done.is_some(), evaluation + 1 == rk4.evaluations());
                if let Some(value) = done {
                    let truth = 2f32.exp();
                    assert!((value[1] + 2.0 * value[0]).abs() < 1e-5, "the numbers are solved side by side");
                    return (value[0] - truth).abs();
                }
            }
            unreachable!("the last evaluation gives the value")
        };
        let (coarse, fine) = (error(4), error(8));
        assert!(coarse < 2e-2 && fine < coarse / 10.0, "{coarse} {fine}");
    }
}
