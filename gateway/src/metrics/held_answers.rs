//! Metrics of answers that are held to a form.

use prometheus::{IntCounterVec, Opts, Registry};
use repartee_engine_api::{AnswerForm, Command};

/// Number of answers by the form that they are held to.
#[derive(Debug)]
pub struct HeldAnswerMetrics(IntCounterVec);

impl HeldAnswerMetrics {
    /// Creates the metrics with a value of 0.
    pub fn new() -> Result<Self, prometheus::Error> {
        let answers = Opts::new("repartee_held_answers_total", "Answers that were held to a form, by form");
        let answers = IntCounterVec::new(answers, &["form"])?;
        for form in ["call", "json_object", "json_schema"] {
            answers.with_label_values(&[form]);
        }
        Ok(Self(answers))
    }

    /// Adds them to `registry`.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.0.clone()))
    }

    /// Counts the answer that a command asks for, if it is held to a form.
    pub fn count(&self, command: &Command) {
        let (Command::Respond(respond) | Command::BeginSpeculation { respond, .. }) = command else { return };
        let form = match respond.form {
            AnswerForm::Free => return,
            AnswerForm::Calls | AnswerForm::Call(_) => "call",
            AnswerForm::JsonObject => "json_object",
            AnswerForm::JsonSchema(_) => "json_schema",
        };
        self.0.with_label_values(&[form]).inc();
    }
}
