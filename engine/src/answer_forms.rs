//! Forms that answers are held to, read on a thread of their own: the engine's does not wait for a large schema, nor for the
//! vocabulary, which is read for the first one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};

use repartee_engine_api::{AnswerForm, SessionError, Tool, WakeSignal};
use repartee_forms::{FormError, Grammar, Literal, Vocabulary};

use crate::held_form::{FormIds, HeldForm};
use crate::model::{PromptTemplate, ToolTemplate};
use crate::text::Tokenizer;

/// Most forms that wait to be read.
const MAX_WAITING: usize = 1024;
/// Stands for a function's name where a template writes a call.
const NAME: &str = "function-name-probe";
/// Stands for its arguments.
const ARGUMENTS: &str = "{\"argument-probe\": 1}";

/// Form of a requested response; read once it is set.
pub type PendingForm = Arc<OnceLock<Result<HeldForm, SessionError>>>;
type SharedVocabulary = Arc<OnceLock<Result<Arc<Vocabulary>, FormError>>>;

/// Reader of forms, for one model.
pub struct AnswerForms {
    ids: Option<FormIds>,
    tokenizer: Tokenizer,
    vocabulary: SharedVocabulary,
    wake: Option<WakeSignal>,
    jobs: Option<flume::Sender<FormJob>>,
}

/// Text of a form: what does not depend on a template any more.
enum FormText {
    Object,
    Schema(String),
    /// Literals, names with what follows them, each with the schema of its arguments, and literals.
    Calls(Vec<Literal>, Vec<(String, String)>, Vec<Literal>),
}

/// A form to be read.
struct FormJob {
    text: FormText,
    /// Closes reasoning text.
    close: Vec<Literal>,
    tokenizer: Tokenizer,
    ids: FormIds,
    /// Tokens that delimit a call or reasoning text.
    marks: Vec<u32>,
    vocabulary: SharedVocabulary,
    /// Gone if the response is.
    form: Weak<OnceLock<Result<HeldForm, SessionError>>>,
}

impl AnswerForms {
    /// Creates a reader that reads at once, without a thread; `ids` are `None` for a model that is held to none.
    pub fn new(ids: Option<FormIds>, tokenizer: Tokenizer) -> Self {
        Self { ids, tokenizer, vocabulary: SharedVocabulary::default(), wake: None, jobs: None }
    }

    /// Reads on a thread from now on, which wakes the engine.
    pub fn on_thread(&mut self, wake: WakeSignal) {
        self.wake = Some(wake);
    }

    /// Takes a form to be read, of a response with these functions; `None` if there is none.
    ///
    /// # Errors
    ///
    /// If the functions are not those of the form, the template writes calls in another way, or too many forms wait.
    pub fn request(
        &mut self,
        form: &AnswerForm,
        tools: &[Tool],
        template: &dyn PromptTemplate,
    ) -> Result<Option<PendingForm>, SessionError> {
        let Some(ids) = &self.ids else { return Ok(None) };
        let text = match form {
            AnswerForm::Free => return Ok(None),
            AnswerForm::JsonObject => FormText::Object,
            AnswerForm::JsonSchema(schema) => FormText::Schema(schema.schema.clone()),
            AnswerForm::Calls => calls(tools.iter(), template)?,
            AnswerForm::Call(name) => calls(tools.iter().filter(|tool| tool.name == *name), template)?,
        };
        let (pending, mut marks) = (PendingForm::default(), Vec::new());
        if let Some(tokens) = template.tools().and_then(|tools| tools.call_tokens()) {
            marks.extend([tokens.open.0, tokens.close.0]);
        }
        let mut close = Vec::new();
        if let Some(reasoning) = template.reasoning() {
            marks.extend(reasoning.open.into_iter().chain(reasoning.close));
            match reasoning.close {
                Some(id) => close.push(Literal::Mark(id)),
                None => close.extend(Literal::text(&reasoning.marks.close)),
            }
            close.extend(Literal::text("\n\n"));
        }
        let job = FormJob {
            text,
            close,
            tokenizer: self.tokenizer.clone(),
            ids: ids.clone(),
            marks,
            vocabulary: Arc::clone(&self.vocabulary),
            form: Arc::downgrade(&pending),
        };
        self.submit(job)?;
        Ok(Some(pending))
    }

    fn submit(&mut self, job: FormJob) -> Result<(), SessionError> {
        let Some(wake) = &self.wake else {
            job.read();
            return Ok(());
        };
        let jobs = self.jobs.get_or_insert_with(|| {
            let (jobs, arriving) = flume::bounded::<FormJob>(MAX_WAITING);
            let wake = wake.clone();
            let work = move || {
                for job in arriving {
                    job.read();
                    wake.signal();
                }
            };
            // Without a thread the queue is closed, and the form is refused.
            if let Err(error) = std::thread::Builder::new().name("forms".to_owned()).spawn(work) {
                tracing::error!(%error, "no thread for the forms of answers");
            }
            jobs
        });
        jobs.try_send(job).map_err(|_| SessionError::Busy("too many forms of answers wait to be read: ask again"))
    }
}

impl FormJob {
    /// Reads the form, unless nobody waits for it any more.
    fn read(self) {
        let Some(pending) = self.form.upgrade() else { return };
        let read = catch_unwind(AssertUnwindSafe(|| self.form()));
        let failed = |_| FormError::NotJson("it could not be read".to_owned());
        let form = read.unwrap_or_else(|panic| Err(failed(panic)));
        // Nobody else sets it.
        let _ = pending.set(form.map_err(|error| SessionError::BadForm(error.to_string())));
    }

    fn form(&self) -> Result<HeldForm, FormError> {
        let vocabulary = self.vocabulary.get_or_init(|| {
            let tokens = self.tokenizer.token_bytes().into_iter().filter(|(id, _)| !self.marks.contains(id));
            Vocabulary::new(tokens, self.ids.count, self.ids.stops.clone()).map(Arc::new)
        });
        let vocabulary = vocabulary.clone()?;
        let grammar = match &self.text {
            FormText::Object => Grammar::json_object(),
            FormText::Schema(schema) => Grammar::json(schema),
            FormText::Calls(before, texts, after) => {
                let texts = texts.iter().map(|(text, schema)| (text.clone(), &schema[..]));
                Grammar::one_of(before.clone(), texts, after.clone())
            }
        };
        let grammar = grammar?.after_optional(self.close.iter().copied());
        vocabulary.check(&grammar)?;
        Ok(HeldForm::new(grammar, vocabulary))
    }
}

/// Form of one call of a function.
fn calls<'a>(tools: impl Iterator<Item = &'a Tool>, template: &dyn PromptTemplate) -> Result<FormText, SessionError> {
    let of_calls: &dyn ToolTemplate = template.tools().ok_or(SessionError::NoTools)?;
    let call = of_calls.call(NAME, ARGUMENTS);
    let parts = call.split_once(NAME).and_then(|(before, rest)| {
        let (between, after) = rest.split_once(ARGUMENTS)?;
        Some((before, between, after))
    });
    let Some((before, between, after)) = parts.filter(|(before, ..)| before.ends_with('"')) else {
        let message = "the model's template writes calls in a form that they cannot be held to: `tool_choice` is `auto` or `none`";
        return Err(SessionError::BadForm(message.to_owned()));
    };
    let mut texts: Vec<(String, String)> = tools
        .map(|tool| {
            let name = serde_json::Value::from(&tool.name[..]).to_string();
            let name = name.trim_start_matches('"').strip_suffix('"').unwrap_or_default();
            (format!("{name}{between}"), arguments(tool))
        })
        .collect();
    texts.sort_unstable();
    // Of functions of one name the first counts.
    texts.dedup_by(|one, other| one.0 == other.0);
    if texts.is_empty() {
        return Err(SessionError::BadForm("a call is demanded, and there is no such function".to_owned()));
    }
    let tokens = of_calls.call_tokens();
    let literals = |text: &str| match tokens {
        None => Literal::text(text).collect(),
        Some(tokens) => {
            let marks = [&tokens.open, &tokens.close];
            let found = marks.iter().find_map(|(id, mark)| text.split_once(mark.as_str()).map(|parts| (*id, parts)));
            match found {
                None => Literal::text(text).collect(),
                Some((id, (before, after))) => {
                    Literal::text(before).chain([Literal::Mark(id)]).chain(Literal::text(after)).collect()
                }
            }
        }
    };
    let (before, mut after): (Vec<Literal>, Vec<Literal>) = (literals(before), literals(after));
    // What a template writes behind a call.
    let end = after.iter().rposition(|literal| *literal != Literal::Byte(b'\n')).map_or(0, |last| last + 1);
    after.truncate(end);
    Ok(FormText::Calls(before, texts, after))
}

/// Schema of a function's arguments. Those of a function without any are an empty object.
fn arguments(tool: &Tool) -> String {
    let schema: serde_json::Value = serde_json::from_str(&tool.parameters).unwrap_or_default();
    match schema.as_object() {
        Some(fields) if !fields.is_empty() => tool.parameters.clone(),
        _ => "{\"type\": \"object\", \"additionalProperties\": false}".to_owned(),
    }
}
