//! The list of models, which names the model if none is set.

use serde::Deserialize;
use serde_json::error::Category;

use crate::failure::ChatFailure;
use crate::quote::Quoter;

/// Number of models that an error names.
const MAX_NAMED: usize = 8;
/// Maximum length of a model's name, in bytes.
const MAX_NAME: usize = 1_024;

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ModelEntry>,
}

#[derive(Deserialize)]
struct ModelEntry {
    id: String,
}

/// Returns the only model of a list.
///
/// # Errors
/// The list is malformed, or has none or several models.
pub(crate) fn only_model(body: &[u8], quoter: &Quoter) -> Result<String, ChatFailure> {
    let mut list: ModelList = serde_json::from_slice(body).map_err(|error| {
        let reason = format!("the list of models: {}", quoter.quote(&error.to_string()));
        match error.classify() {
            Category::Eof => ChatFailure::IncompleteJson { reason },
            Category::Data => ChatFailure::InvalidShape { reason },
            Category::Io | Category::Syntax => ChatFailure::InvalidJson { reason },
        }
    })?;
    match (list.data.len(), list.data.pop()) {
        (1, Some(model)) if !model.id.is_empty() && model.id.len() <= MAX_NAME => Ok(model.id),
        (0 | 1, _) => Err(ChatFailure::NoModel),
        (_, last) => {
            let models = list.data.iter().chain(&last).take(MAX_NAMED).map(|model| quoter.quote(&model.id));
            Err(ChatFailure::SeveralModels { models: models.collect() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<String, ChatFailure> {
        only_model(body.as_bytes(), &Quoter::default())
    }

    #[test]
    fn one_model_is_taken() {
        let body = r#"{"object": "list", "data": [{"id": "small", "object": "model"}], "models": []}"#;
        assert_eq!(read(body), Ok("small".to_owned()));
    }

    #[test]
    fn several_models_are_named() {
        let found = read(r#"{"data": [{"id": "small"}, {"id": "large"}]}"#).unwrap_err();
        assert_eq!(found, ChatFailure::SeveralModels { models: vec!["small".to_owned(), "large".to_owned()] });
        assert!(found.to_string().contains("small, large"), "{found}");
        let many = format!("{{\"data\": [{}]}}", vec![r#"{"id": "m"}"#; 100].join(","));
        assert!(matches!(read(&many), Err(ChatFailure::SeveralModels { models }) if models.len() == MAX_NAMED));
    }

    #[test]
    fn other_lists_are_errors() {
        for body in [r#"{"data": []}"#, r#"{"data": [{"id": ""}]}"#] {
            assert_eq!(read(body), Err(ChatFailure::NoModel), "{body}");
        }
        assert!(matches!(read(r#"{"data": [{"#), Err(ChatFailure::IncompleteJson { .. })));
        assert!(matches!(read("models"), Err(ChatFailure::InvalidJson { .. })));
        assert!(matches!(read(r#"{"models": []}"#), Err(ChatFailure::InvalidShape { .. })));
    }
}
