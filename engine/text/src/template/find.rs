//! The chat template in a checkpoint's files, and the tokens that it is given.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::chat_template::MAX_TEMPLATE;
use super::error::TemplateError;

/// File that is a template.
pub const JINJA_FILE: &str = "chat_template.jinja";
/// Tokenizer's configuration, which may hold a template.
pub const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// Processor's file, which holds a template.
pub const PROCESSOR_FILE: &str = "chat_template.json";
/// Name of the template that is used if no other is asked for.
const DEFAULT: &str = "default";
/// Name of the template for conversations with tools.
const TOOL_USE: &str = "tool_use";
/// Upper bound of named templates.
const MAX_NAMED: usize = 64;

/// A template's text and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateText {
    /// File, and field if it has fields.
    pub file: String,
    /// Text of the template.
    pub text: String,
}

/// Templates of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedTemplates {
    /// Template of conversations.
    pub default: TemplateText,
    /// Template of conversations with tools, if it is another one.
    pub tool_use: Option<TemplateText>,
}

impl PublishedTemplates {
    /// Takes one text, such as the field `tokenizer.chat_template` of a GGUF file.
    pub fn given(file: impl Into<String>, text: impl Into<String>) -> Self {
        Self { default: TemplateText { file: file.into(), text: text.into() }, tool_use: None }
    }

    /// Template of a conversation with or without tools.
    pub fn of_tools(&self, tools: bool) -> &TemplateText {
        self.tool_use.as_ref().filter(|_| tools).unwrap_or(&self.default)
    }
}

/// A field `chat_template`.
#[derive(Deserialize)]
#[serde(untagged)]
enum TemplateField {
    Text(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// The fields of tokenizer_config.json that prompts need.
#[derive(Deserialize)]
struct ConfigFields {
    #[serde(default)]
    chat_template: Option<TemplateField>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// Reads a file of a checkpoint by its name; `None` if there is no such file.
pub type ReadFile<'a, E> = dyn FnMut(&str) -> Result<Option<Vec<u8>>, E> + 'a;

/// Finds the templates in a checkpoint's files: chat_template.jinja, else `chat_template` of tokenizer_config.json,
/// else of chat_template.json. `read` returns a file's bytes, `None` if there is no such file; `label` names a file in
/// errors.
///
/// # Errors
///
/// If `read` fails, or a file does not hold a template.
pub fn find<E: From<TemplateError>>(
    read: &mut ReadFile<'_, E>,
    label: &dyn Fn(&str) -> String,
) -> Result<Option<PublishedTemplates>, E> {
    if let Some(bytes) = read(JINJA_FILE)? {
        let file = label(JINJA_FILE);
        let unreadable =
            |error: std::str::Utf8Error| TemplateError::Unreadable { file: file.clone(), message: error.to_string() };
        let text = std::str::from_utf8(&bytes).map_err(unreadable)?;
        return Ok(Some(PublishedTemplates::given(file.clone(), text)));
    }
    for name in [TOKENIZER_CONFIG, PROCESSOR_FILE] {
        if let Some(bytes) = read(name)?
            && let Some(found) = in_config(&bytes, &label(name))?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Finds the templates in the field `chat_template` of a JSON file; `None` if it has none.
///
/// # Errors
///
/// If the file is not JSON, or the field is neither a text nor a list of named texts with one named `default`.
pub fn in_config(bytes: &[u8], file: &str) -> Result<Option<PublishedTemplates>, TemplateError> {
    let file = format!("{file}, `chat_template`");
    let unreadable = |message: String| TemplateError::Unreadable { file: file.clone(), message };
    let fields: ConfigFields = serde_json::from_slice(bytes).map_err(|error| unreadable(error.to_string()))?;
    let named = match fields.chat_template {
        None => return Ok(None),
        Some(TemplateField::Text(text)) => return Ok(Some(PublishedTemplates::given(file, text))),
        Some(TemplateField::Named(named)) => named,
    };
    if named.len() > MAX_NAMED {
        return Err(unreadable(format!("{} templates are listed, at most {MAX_NAMED} are read", named.len())));
    }
    let found = |name: &str| {
        let found = named.iter().find(|template| template.name == name)?;
        Some(TemplateText { file: format!("{file} `{name}`"), text: found.template.clone() })
    };
    // A list of one needs no name.
    let only = || match &named[..] {
        [only] => Some(TemplateText { file: file.clone(), text: only.template.clone() }),
        _ => None,
    };
    let default = found(DEFAULT).or_else(only);
    let default = default.ok_or_else(|| unreadable(format!("none of the listed templates is named `{DEFAULT}`")))?;
    Ok(Some(PublishedTemplates { default, tool_use: found(TOOL_USE) }))
}

/// Variables with a token in tokenizer_config.json or special_tokens_map.json: `bos_token` and the like, a text or an
/// object with the field `content`.
///
/// # Errors
///
/// If the file is not JSON.
pub fn token_variables(bytes: &[u8], file: &str) -> Result<Vec<(String, String)>, TemplateError> {
    let unreadable =
        |error: serde_json::Error| TemplateError::Unreadable { file: file.to_owned(), message: error.to_string() };
    let fields: ConfigFields = serde_json::from_slice(bytes).map_err(unreadable)?;
    let token = |(name, value): (String, Value)| {
        let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
        (name.ends_with("_token") && text.len() <= MAX_TEMPLATE).then(|| (name, text.to_owned()))
    };
    Ok(fields.other.into_iter().filter_map(token).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Result<Option<PublishedTemplates>, TemplateError> {
        let mut read = |name: &str| {
            let file = files.iter().find(|(file, _)| *file == name);
            Ok(file.map(|(_, text)| text.as_bytes().to_vec()))
        };
        find(&mut read, &|name| format!("folder/{name}"))
    }

    #[test]
    fn templates_are_found_in_their_order() {
        let config = (TOKENIZER_CONFIG, r#"{"chat_template": "of config", "bos_token": "<s>"}"#);
        let processor = (PROCESSOR_FILE, r#"{"chat_template": "of processor"}"#);
        let jinja = (JINJA_FILE, "of file");
        let text = |files: &[(&str, &str)]| found(files).unwrap().map(|found| (found.default.file, found.default.text));
        let expected = |file: &str, text: &str| Some((file.to_owned(), text.to_owned()));
        assert_eq!(text(&[config, processor, jinja]), expected("folder/chat_template.jinja", "of file"));
        assert_eq!(text(&[config, processor]), expected("folder/tokenizer_config.json, `chat_template`", "of config"));
        assert_eq!(
            text(&[(TOKENIZER_CONFIG, "{}"), processor]),
            expected("folder/chat_template.json, `chat_template`", "of processor")
        );
        assert_eq!(text(&[(TOKENIZER_CONFIG, r#"{"chat_template": null}"#)]), None);
    }

    #[test]
    fn named_templates_are_chosen_by_tools() {
        let listed =
            r#"{"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]}"#;
        let both = in_config(listed.as_bytes(), "c").unwrap().unwrap();
        assert_eq!((both.of_tools(false).text.as_str(), both.of_tools(true).text.as_str()), ("D", "T"));
        assert_eq!(both.of_tools(true).file, "c, `chat_template` `tool_use`");
        let one = in_config(br#"{"chat_template": [{"name": "rag", "template": "R"}]}"#, "c").unwrap().unwrap();
        assert_eq!(one.of_tools(true).text, "R");
    }

    #[test]
    fn wrong_fields_are_refused_by_name() {
        let message = |json: &str| in_config(json.as_bytes(), "c").unwrap_err().to_string();
        let two = r#"{"chat_template": [{"name": "a", "template": "A"}, {"name": "b", "template": "B"}]}"#;
        assert_eq!(
            message(two),
            "c, `chat_template`: no chat template can be read: none of the listed templates is named `default`"
        );
        assert!(message(r#"{"chat_template": 3}"#).starts_with("c, `chat_template`: no chat template can be read: "));
        assert!(message("{").starts_with("c, `chat_template`: no chat template can be read: EOF"));
    }

    #[test]
    fn token_variables_are_texts_or_objects() {
        let json =
            br#"{"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "pad_token": null, "x": "y"}"#;
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(token_variables(json, "c").unwrap(), [pair("bos_token", "<s>"), pair("eos_token", "</s>")]);
    }
}
