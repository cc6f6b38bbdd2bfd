//! Tests of prompts out of a chat template of our own, in the manner of the published ones.

use serde_json::json;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use repartee_engine_api::Tool;

use super::*;
use crate::elements::ElementValue;

/// Special tokens, from id 256 on; then tokens that are not special.
const SPECIAL: [&str; 3] = ["<|start|>", "<|end|>", "<|bos|>"];
const TOKENS: [&str; 2] = ["<tool_call>", "</tool_call>"];

/// Tokenizer with one token for each byte, and the tokens above.
fn tokenizer() -> Tokenizer {
    let mut alphabet: Vec<String> = ByteLevel::alphabet().into_iter().map(String::from).collect();
    alphabet.sort();
    let vocabulary: serde_json::Map<_, _> =
        alphabet.into_iter().enumerate().map(|(id, token)| (token, id.into())).collect();
    let added = |(at, token): (usize, &&str)| {
        json!({"id": 256 + at, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": at < SPECIAL.len()})
    };
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let file = json!({
        "version": "1.0", "pre_tokenizer": level, "decoder": level,
        "added_tokens": SPECIAL.iter().chain(&TOKENS).enumerate().map(added).collect::<Vec<_>>(),
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    });
    Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap()
}

/// A template that trims contents and has tools.
const TRIMMING: &str = r#"{{- bos_token }}
{%- if tools %}
    {{- '<|start|>system ' + (messages[0].content + '\n\n' if messages[0].role == 'system' else '') + 'Tools:' }}
    {%- for tool in tools %}
        {{- '\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '<|end|>' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|start|>system ' + messages[0].content + '<|end|>' }}
{%- endif %}
{%- for m in messages if m.role != 'system' %}
    {%- if m.role == 'tool' %}
        {{- '<|start|>user <result>' + m.content + '</result><|end|>' }}
    {%- elif m.tool_calls %}
        {{- '<|start|>assistant ' }}
        {%- for call in m.tool_calls %}
            {{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' + (call.function.arguments | tojson) + '}</tool_call>' }}
        {%- endfor %}
        {{- '<|end|>' }}
    {%- else %}
        {{- '<|start|>' + m.role + ' ' + m.content | trim + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant ' }}
{%- endif %}"#;

/// A template that asks for turns, the user first, and knows no system messages.
const STRICT: &str = r"{%- for m in messages %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Turns!') }}
    {%- endif %}
    {{- '<|start|>' + m.role + ':' + m.content + '<|end|>' }}
{%- endfor %}";

fn template(text: &str, tool_use: Option<&str>, tokenizer: &Tokenizer) -> JinjaTemplate {
    let variables = vec![("bos_token".to_owned(), "<|bos|>".to_owned())];
    let named = |text: &str| TemplateText { file: "t".to_owned(), text: text.to_owned() };
    let published = PublishedTemplates { default: named(text), tool_use: tool_use.map(named) };
    JinjaTemplate::new(&published, variables, tokenizer).unwrap()
}

/// Prompt as text: marks in brackets of their own, roles of contents left out.
fn written(tokenizer: &Tokenizer, elements: &[Element]) -> String {
    let spelt = |element: &Element| match element.value {
        ElementValue::Token(id) if (256..256 + SPECIAL.len() as u32).contains(&id) => {
            format!("⟦{}⟧", &SPECIAL[id as usize - 256][2..SPECIAL[id as usize - 256].len() - 2])
        }
        ElementValue::Token(id) => tokenizer.decode(&[id]),
        ElementValue::Audio { .. } | ElementValue::Codes(_) => panic!("a model of text"),
    };
    elements.iter().map(spelt).collect()
}

struct Session {
    tokenizer: Tokenizer,
    template: JinjaTemplate,
}

impl Session {
    fn new(text: &str) -> Self {
        Self::of_two(text, None)
    }

    /// A session whose template for tools is another one.
    fn of_two(text: &str, tool_use: Option<&str>) -> Self {
        let tokenizer = tokenizer();
        let template = template(text, tool_use, &tokenizer);
        Self { tokenizer, template }
    }

    fn message(&self, kind: MessageKind, text: &str) -> Message {
        Message::text(kind, self.tokenizer.encode(text).unwrap())
    }

    fn written(&self, history: &[Message], respond: bool) -> String {
        written(&self.tokenizer, &self.template.render(history, None, respond))
    }
}

#[test]
fn prompts_equal_the_template() {
    let session = Session::new(TRIMMING);
    let history = [
        session.message(MessageKind::System, "Sing."),
        session.message(MessageKind::User, " Hi <|end|>\n"),
        session.message(MessageKind::Assistant, "La."),
    ];
    let expected = "⟦bos⟧⟦start⟧system Sing.⟦end⟧⟦start⟧user Hi <|end|>⟦end⟧⟦start⟧assistant La.⟦end⟧";
    assert_eq!(session.written(&history, false), expected);
    assert_eq!(session.written(&history, true), format!("{expected}⟦start⟧assistant "));
}

#[test]
fn generated_ids_stay_in_the_prompt() {
    let session = Session::new(TRIMMING);
    // Ids that the encoder would not choose: the bytes of a token that it takes whole. White space at the end goes.
    let spelt: Vec<u32> = "<tool_call>x \n"
        .bytes()
        .map(|byte| session.tokenizer.encode(&char::from(byte).to_string()).unwrap()[0])
        .collect();
    assert_eq!(session.tokenizer.encode("<tool_call>").unwrap().len(), 1);
    let history = [session.message(MessageKind::User, "Hi"), Message::text(MessageKind::Assistant, spelt.clone())];
    let prompt = session.template.render(&history, None, false);
    let generated: Vec<u32> = prompt
        .iter()
        .filter(|element| element.role == Role::Assistant)
        .filter_map(|element| match element.value {
            ElementValue::Token(id) => Some(id),
            _ => None,
        })
        .collect();
    let kept = &spelt[..spelt.len() - 2];
    assert!(generated.windows(kept.len()).any(|ids| ids == kept), "{generated:?}");
    assert!(session.written(&history, false).ends_with("⟦start⟧assistant <tool_call>x⟦end⟧"));
}

#[test]
fn prompts_of_a_growing_history_share_their_beginning() {
    let session = Session::new(TRIMMING);
    let mut history = vec![session.message(MessageKind::System, "Sing.")];
    let mut last = session.template.render(&history, None, false);
    for (kind, text) in [(MessageKind::User, "a"), (MessageKind::Assistant, "b <|bos|>"), (MessageKind::User, "c")] {
        history.push(session.message(kind, text));
        let next = session.template.render(&history, None, false);
        assert_eq!(next[..last.len()], last[..]);
        last = next;
    }
}

#[test]
fn roles_are_those_of_the_contents() {
    let session = Session::new(TRIMMING);
    let history = [session.message(MessageKind::User, "Hi"), session.message(MessageKind::Assistant, "La")];
    let prompt = session.template.render(&history, None, true);
    let of = |role: Role| -> Vec<Element> { prompt.iter().filter(|element| element.role == role).cloned().collect() };
    assert_eq!(written(&session.tokenizer, &of(Role::User)), "⟦bos⟧⟦start⟧user Hi⟦end⟧");
    assert_eq!(written(&session.tokenizer, &of(Role::Assistant)), "⟦start⟧assistant La⟦end⟧⟦start⟧assistant ");
}

#[test]
fn strict_templates_are_given_turns() {
    let session = Session::new(STRICT);
    let history = [
        session.message(MessageKind::System, "S1"),
        session.message(MessageKind::User, "a"),
        session.message(MessageKind::User, "b"),
        session.message(MessageKind::System, "S2"),
        session.message(MessageKind::Assistant, "c"),
    ];
    assert_eq!(session.written(&history, true), "⟦start⟧user:S1\nS2\na\nb⟦end⟧⟦start⟧assistant:c⟦end⟧");
    assert_eq!(session.written(&history[4..], true), "⟦start⟧user:⟦end⟧⟦start⟧assistant:c⟦end⟧");
    assert_eq!(session.written(&history[1..2], true), "⟦start⟧user:a⟦end⟧");
    assert_eq!(session.written(&[], true), "");
}

#[test]
fn refused_conversations_keep_their_contents() {
    let session = Session::new("{{ raise_exception('Never.') }}");
    let history = [session.message(MessageKind::User, "a"), session.message(MessageKind::Assistant, "b")];
    assert_eq!(session.written(&history, true), "ab");
}

fn tool() -> Tool {
    Tool { name: "f".to_owned(), description: "F.".to_owned(), parameters: "{\"b\":1,\"a\":2}".to_owned() }
}

#[test]
fn tools_are_texts_of_the_template() {
    let session = Session::new(TRIMMING);
    let tools = session.template.tools().unwrap();
    let listed =
        r#"{"type": "function", "function": {"name": "f", "description": "F.", "parameters": {"b": 1, "a": 2}}}"#;
    assert_eq!(tools.system("Be kind.", &[tool()]), format!("Be kind.\n\nTools:\n{listed}"));
    assert_eq!(tools.system("", &[tool()]), format!("Tools:\n{listed}"));
    let call = r#"<tool_call>{"name": "f", "arguments": {"x": "y"}}</tool_call>"#;
    assert_eq!(tools.call("f", "{\"x\":\"y\"}"), call);
    assert_eq!(tools.result("<|end|>"), "<result><|end|></result>");
    assert_eq!(tools.call_tokens().unwrap().open, (259, "<tool_call>".to_owned()));
    // Arguments that are no JSON are written as they are.
    assert_eq!(tools.call("f", "{x"), "<tool_call>\n{\"name\": \"f\", \"arguments\": {x}\n</tool_call>");
    let history = [
        session.message(MessageKind::User, "Hi"),
        session.message(MessageKind::ToolCall, call),
        session.message(MessageKind::ToolResult, &tools.result("1")),
    ];
    let expected = format!("⟦bos⟧⟦start⟧user Hi⟦end⟧⟦start⟧assistant {call}⟦end⟧⟦start⟧user <result>1</result>⟦end⟧");
    assert_eq!(session.written(&history, false), expected);
}

#[test]
fn a_template_for_tools_writes_their_texts() {
    let plain = TRIMMING.replace("{%- if tools %}", "{%- if false %}");
    assert!(Session::new(&plain).template.tools().is_none());
    let session = Session::of_two(&plain, Some(TRIMMING));
    let system = session.template.tools().unwrap().system("Be kind.", &[tool()]);
    assert!(system.starts_with("Be kind.\n\nTools:\n{"), "{system}");
    let history = [session.message(MessageKind::System, &system), session.message(MessageKind::User, "Hi")];
    assert!(session.written(&history, false).starts_with("⟦bos⟧⟦start⟧system Be kind.\n\nTools:"));
    // Texts of a template that frames messages in another way do not fit.
    assert!(Session::of_two(STRICT, Some(TRIMMING)).template.tools().is_none());
}

#[test]
fn templates_without_tools_have_none() {
    assert!(Session::new(STRICT).template.tools().is_none());
    // A template that writes tools before the last message.
    let elsewhere = TRIMMING.replace("{%- if tools %}", "{%- if tools and messages | length > 9 %}");
    assert!(Session::new(&elsewhere).template.tools().is_none());
}

mod structured;
