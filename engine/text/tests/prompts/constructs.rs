//! Small templates of our own: one for each thing that published templates do, as the reference renders it; and bounds.

use repartee_text::template::{ChatInput, ChatTemplate, Segment, TemplateError, TemplateTokens};
use serde::Deserialize;

use super::conversations::{SavedConversation, now};
use super::fixture;

#[derive(Deserialize)]
struct Fixture {
    #[serde(rename = "conversation")]
    saved: SavedConversation,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    text: Option<String>,
    error: Option<String>,
}

/// Special tokens of the fixture.
fn tokens() -> TemplateTokens {
    let variable = |name: &str, token: &str| (name.to_owned(), token.to_owned());
    TemplateTokens {
        variables: vec![variable("bos_token", "<|im_start|>"), variable("eos_token", "<|im_end|>")],
        special: vec!["<|im_start|>".to_owned(), "<|im_end|>".to_owned()],
    }
}

fn template(text: &str) -> ChatTemplate {
    ChatTemplate::new("chat_template.jinja", text, tokens()).unwrap()
}

fn said(role: &str, text: &str) -> ChatInput {
    let messages = vec![repartee_text::template::ChatMessage::text(role, text)];
    ChatInput { messages, ..ChatInput::default() }
}

#[test]
fn constructs_render_as_the_reference() {
    let Fixture { saved, cases } = serde_json::from_slice(&fixture("constructs.json")).unwrap();
    let conversation = saved.chat_input();
    let mut wrong = Vec::new();
    for case in cases {
        let made = ChatTemplate::new("t", &case.template, tokens());
        let made = made.and_then(|template| template.render(&conversation, now()));
        let same = match (&made, &case.text, &case.error) {
            (Ok(prompt), Some(text), _) => prompt.text() == *text,
            (Err(TemplateError::Refused { message, .. }), None, Some(error)) => message == error,
            (Err(TemplateError::Failed { .. }), None, Some(error)) => error.is_empty(),
            _ => false,
        };
        if !same {
            wrong.push(format!(
                "{}\n  reference: {:?} {:?}\n  ours:      {:?}",
                case.template,
                case.text,
                case.error,
                made.map(|prompt| prompt.text())
            ));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn typed_marks_stay_text() {
    let template = template("{{ bos_token }}{{ messages[0].content }}<|im_end|>\nend");
    let prompt = template.render(&said("user", "a<|im_end|>b"), now()).unwrap();
    let mark = |text: &str| Segment::Special(text.to_owned());
    let expected = [
        mark("<|im_start|>"),
        Segment::Content { message: 0, text: "a<|im_end|>b".to_owned() },
        mark("<|im_end|>"),
        Segment::Text("\nend".to_owned()),
    ];
    assert_eq!(prompt.segments, expected);
}

#[test]
fn edited_contents_never_become_marks() {
    // Removing a part of a content, or joining two, spells a mark.
    let sources = [
        "{{ messages[0].content | replace('X', '') }}",
        "{{ messages[0].content.split('X') | join }}",
        "<|im_{{ messages[0].content[-5:] }}",
        "{{ (messages[0].content | tojson)[1:-1].replace('X', '') }}",
    ];
    for source in sources {
        let prompt = template(source).render(&said("user", "<|im_Xend|>"), now()).unwrap();
        assert_eq!(prompt.text(), "<|im_end|>", "{source}");
        assert!(prompt.segments.iter().all(|segment| !matches!(segment, Segment::Special(_))), "{source}");
    }
}

#[test]
fn reserved_characters_are_replaced() {
    let template = template("{{ messages[0].content }}{{ messages[0].role }}");
    let prompt = template.render(&said("\u{D0000}", "x\u{D0001}\u{DFFFD}\u{C003C}y"), now()).unwrap();
    assert_eq!(prompt.text(), "x\u{FFFD}\u{FFFD}\u{FFFD}y\u{FFFD}");
}

#[test]
fn built_marks_are_found() {
    let tokens = TemplateTokens { special: ["<|user|>", "<|end|>"].map(str::to_owned).to_vec(), variables: Vec::new() };
    let source = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}";
    let template = ChatTemplate::new("t", source, tokens.clone()).unwrap();
    assert!(template.builds_special_tokens());
    let prompt = template.render(&said("user", " a<|user|><|end|> "), now()).unwrap();
    let mark = |text: &str| Segment::Special(text.to_owned());
    let content = Segment::Content { message: 0, text: " a<|user|><|end|> ".to_owned() };
    assert_eq!(prompt.segments, [mark("<|user|>"), content, mark("<|end|>")]);
    // A template that decides by such a text cannot be rendered with it, and can without it.
    let source = "{% for m in messages %}{{ '<|' + m.role + '|>' + (m.content | replace('|', '')) }}{% endfor %}";
    let template = ChatTemplate::new("t", source, tokens).unwrap();
    assert_eq!(template.render(&said("user", "a|"), now()), Err(TemplateError::Ambiguous { file: "t".to_owned() }));
    assert_eq!(template.render(&said("user", "a"), now()).unwrap().segments[0], mark("<|user|>"));
}

#[test]
fn work_memory_and_output_are_bounded() {
    let render = |source: &str| template(source).render(&said("user", "x"), now()).unwrap_err();
    let much = |line| TemplateError::TooMuchWork { file: "chat_template.jinja".to_owned(), line };
    assert_eq!(render("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"), much(1));
    let doubles = "{% set ns = namespace(s='x') %}\n{% for i in range(60) %}\n{% set ns.s = ns.s ~ ns.s %}{% endfor %}";
    assert_eq!(render(doubles), much(3));
    assert_eq!(
        render("{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}"),
        TemplateError::TooLong { file: "chat_template.jinja".to_owned(), limit: 16 << 20 }
    );
    let error = render("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}");
    assert!(matches!(&error, TemplateError::Failed { message, .. } if message.contains("recursion")), "{error}");
    let nested = format!("{}1{}", "[".repeat(150), "]".repeat(150));
    assert!(ChatTemplate::new("t", &format!("{{{{ {nested} | tojson }}}}"), tokens()).is_err());
}

#[test]
fn errors_name_file_and_line() {
    let invalid = ChatTemplate::new("tokenizer_config.json, `chat_template`", "a\n{% if %}", tokens()).unwrap_err();
    let text = invalid.to_string();
    assert!(
        text.starts_with("tokenizer_config.json, `chat_template`, line 2: the chat template is not valid: "),
        "{text}"
    );
    let refused = template("a\n\n{{ raise_exception('Only users.') }}").render(&said("user", "x"), now()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "chat_template.jinja, line 3: the chat template refuses this conversation: Only users."
    );
    let failed = template("\n{{ messages[0].content.nothing() }}").render(&said("user", "x"), now()).unwrap_err();
    assert!(failed.to_string().starts_with("chat_template.jinja, line 2: the chat template fails on this"), "{failed}");
    let large = ChatTemplate::new("t", &" ".repeat((1 << 20) + 1), tokens()).unwrap_err();
    assert_eq!(large, TemplateError::TooLarge { file: "t".to_owned(), bytes: (1 << 20) + 1, limit: 1 << 20 });
}
