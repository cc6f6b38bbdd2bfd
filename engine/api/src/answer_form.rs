//! Form that an answer is held to.

/// Form of an answer's text, or of its calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AnswerForm {
    /// The model decides.
    #[default]
    Free,
    /// At least one call of a function.
    Calls,
    /// A call of the function of this name.
    Call(String),
    /// A JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema(JsonSchema),
}

/// Schema of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonSchema {
    /// Name of the form.
    pub name: String,
    /// Sentence for the model about what the form is for; empty for none.
    pub description: String,
    /// The schema, as JSON text.
    pub schema: String,
    /// True if the answer has to fit the schema exactly; `None` if the request does not say.
    pub strict: Option<bool>,
}
