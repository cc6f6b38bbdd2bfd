//! Solvers of ordinary differential equations with fixed steps. A device evaluates the slopes.
//!
//! A solver itself evaluates nothing: it gives the value and time of the next evaluation and continues with its result.
//! So a scheduler may run other work between any two evaluations.

/// Rule of a solver's steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// One evaluation a step, at its start.
    Euler,
    /// Two evaluations a step: at its start, and in its middle.
    Midpoint,
    /// Fourth-order Runge-Kutta by the 3/8 rule: four evaluations a step.
    RungeKutta,
}

impl Rule {
    /// Evaluations of a step.
    fn evaluations(self) -> usize {
        match self {
            Self::Euler => 1,
            Self::Midpoint => 2,
            Self::RungeKutta => 4,
        }
    }

    /// Times of a step's evaluations, as parts of its length. The end of a step is the start of the next one.
    fn times(self) -> &'static [f32] {
        match self {
            Self::Euler => &[0.0],
            Self::Midpoint => &[0.0, 0.5],
            Self::RungeKutta => &[0.0, 1.0 / 3.0, 2.0 / 3.0],
        }
    }
}

/// Rule and step times, shared by all solves.
#[derive(Debug, Clone, PartialEq)]
pub struct Solver {
    rule: Rule,
    /// Times of the steps' bounds.
    points: Vec<f32>,
}

impl Solver {
    /// Creates a solver with steps between consecutive points, of which there are at least two.
    pub fn new(rule: Rule, points: Vec<f32>) -> Self {
        debug_assert!(points.len() > 1, "a solve has a step");
        Self { rule, points }
    }

    /// Number of evaluations in a whole solve.
    pub fn evaluations(&self) -> usize {
        self.rule.evaluations() * (self.points.len() - 1)
    }

    /// Most vectors of a solve at once: the value, the slopes of a step, and the input of an evaluation.
    pub fn vectors(&self) -> usize {
        2 + self.rule.evaluations()
    }

    /// Distinct times of evaluations in ascending order.
    pub fn times(&self) -> Vec<f32> {
        let steps = self.points.windows(2).flat_map(|step| {
            let length = step[1] - step[0];
            self.rule.times().iter().map(move |part| step[0] + length * part)
        });
        // The last evaluation of a Runge-Kutta step is at its end.
        let end = self.points.last().copied().filter(|_| self.rule == Rule::RungeKutta);
        steps.chain(end).collect()
    }

    /// Length of a step.
    fn length(&self, step: usize) -> f32 {
        self.points[step + 1] - self.points[step]
    }
}

/// State of a solve between two evaluations.
#[derive(Debug, Clone, PartialEq)]
pub struct Solve {
    /// Value at the start of the current step.
    value: Vec<f32>,
    /// Slopes of the current step.
    slopes: Vec<Vec<f32>>,
    step: usize,
}

impl Solve {
    /// Starts a solve from `value`.
    pub fn new(value: Vec<f32>) -> Self {
        Self { value, slopes: Vec::new(), step: 0 }
    }

    /// Value at the start of the current step; the result after the last one.
    pub fn value(&self) -> &[f32] {
        &self.value
    }

    /// Number of evaluations done.
    pub fn evaluated(&self, solver: &Solver) -> usize {
        solver.rule.evaluations() * self.step + self.slopes.len()
    }

    /// Index in [`Solver::times`] of the next evaluation's time.
    pub fn time(&self, solver: &Solver) -> usize {
        solver.rule.times().len() * self.step + self.slopes.len()
    }

    /// Value at which the next evaluation takes place.
    pub fn input(&self, solver: &Solver) -> Vec<f32> {
        let length = solver.length(self.step);
        let third = 1.0 / 3.0;
        let value = self.value.iter().enumerate();
        match (solver.rule, &self.slopes[..]) {
            (_, []) | (Rule::Euler, _) => self.value.clone(),
            (Rule::Midpoint, [k1, ..]) => value.map(|(i, y)| y + length * k1[i] * 0.5).collect(),
            (Rule::RungeKutta, [k1]) => value.map(|(i, y)| y + length * k1[i] * third).collect(),
            (Rule::RungeKutta, [k1, k2]) => value.map(|(i, y)| y + length * (k2[i] - k1[i] * third)).collect(),
            (Rule::RungeKutta, [k1, k2, k3, ..]) => value.map(|(i, y)| y + length * (k1[i] - k2[i] + k3[i])).collect(),
        }
    }

    /// Continues with the slope of that evaluation; returns the result after the last one.
    pub fn advance(&mut self, solver: &Solver, slope: Vec<f32>) -> Option<&[f32]> {
        debug_assert_eq!(slope.len(), self.value.len(), "a slope is as long as its value");
        self.slopes.push(slope);
        let length = solver.length(self.step);
        let value = self.value.iter_mut().enumerate();
        match (solver.rule, &self.slopes[..]) {
            (Rule::Euler, [slope]) | (Rule::Midpoint, [_, slope]) => value.for_each(|(i, y)| *y += slope[i] * length),
            (Rule::RungeKutta, [k1, k2, k3, k4]) => {
                value.for_each(|(i, y)| *y += (k1[i] + 3.0 * (k2[i] + k3[i]) + k4[i]) * length / 8.0);
            }
            _ => return None,
        }
        self.slopes.clear();
        self.step += 1;
        (self.step + 1 == solver.points.len()).then_some(&self.value[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Solves y' = t y, with the solution a e^(t²/2), in `steps` steps up to 2; returns the relative error.
    fn error(rule: Rule, steps: usize) -> f32 {
        let solver = Solver::new(rule, (0..=steps).map(|i| 2.0 * i as f32 / steps as f32).collect());
        let times = solver.times();
        assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
        let mut solve = Solve::new(vec![1.0, -2.0]);
        for evaluation in 0..solver.evaluations() {
            assert_eq!(solve.evaluated(&solver), evaluation);
            let time = times[solve.time(&solver)];
            let slope = solve.input(&solver).iter().map(|y| y * time).collect();
            let done = solve.advance(&solver, slope).map(<[f32]>::to_vec);
            assert_eq!(done.is_some(), evaluation + 1 == solver.evaluations());
            if let Some(value) = done {
                assert!((value[1] + 2.0 * value[0]).abs() < 1e-5, "the numbers are solved side by side");
                return (value[0] / 2f32.exp() - 1.0).abs();
            }
        }
        unreachable!("the last evaluation gives the value")
    }

    #[test]
    fn error_falls_with_the_order_of_the_rule() {
        for (rule, order, steps, most) in
            [(Rule::Euler, 1, 64, 0.1), (Rule::Midpoint, 2, 32, 0.01), (Rule::RungeKutta, 4, 4, 0.003)]
        {
            let (coarse, fine) = (error(rule, steps), error(rule, 2 * steps));
            let (fell, ratio) = (2f32.powi(order), coarse / fine);
            assert!(coarse < most && (0.7 * fell..1.1 * fell).contains(&ratio), "{rule:?} {coarse} {fine}");
        }
    }
}
