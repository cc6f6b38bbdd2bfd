//! One exchange: attempts until one brings a token, then the answer, event by event.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::Response;
use hyper::body::Incoming;
use hyper::http::response::Parts;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::answer_reader::AnswerReader;
use crate::base_url::{COMPLETIONS, MODELS};
use crate::client_core::ClientCore;
use crate::connection::Connection;
use crate::error::ChatError;
use crate::event::{ChatEvent, ExchangeStats};
use crate::failure::{BoundedPart, ChatFailure, TimeLimit};
use crate::models::only_model;
use crate::request::ChatRequest;
use crate::response::{
    RequestContext, chain, check_head, failure_of, failure_without_head, has_length, read_error_body,
};

/// Time limit for the body of an error.
const ERROR_BODY_TIME: Duration = Duration::from_secs(2);
/// Maximum frames that are read after the answer, until the body ends and its connection can serve again.
const MAX_REST: usize = 16;

/// Result that the caller receives.
pub(crate) type ChatResult = Result<ChatEvent, ChatError>;

/// End of an exchange before the answer's.
enum Interruption {
    Failed(ChatFailure),
    /// The caller is gone.
    Abandoned,
}

impl From<ChatFailure> for Interruption {
    fn from(failure: ChatFailure) -> Self {
        Self::Failed(failure)
    }
}

/// Response whose head has come.
struct OpenResponse {
    connection: Connection,
    response: Response<Incoming>,
    /// Time by which the first token has to come.
    first_token_at: Instant,
}

/// Body after the answer.
struct BodyRest {
    connection: Connection,
    body: Incoming,
    ended: bool,
}

impl BodyRest {
    /// Reads to the end of the body, if it is near, and keeps the connection.
    async fn recycle(mut self, core: &ClientCore) {
        let mut frames = 0;
        let read = async {
            while !self.ended && frames < MAX_REST {
                match self.body.frame().await {
                    Some(Ok(_)) => frames += 1,
                    Some(Err(_)) => break,
                    None => self.ended = true,
                }
            }
        };
        if timeout(core.times.after_finish, read).await.is_ok() && self.ended {
            core.pool.put(self.connection);
        }
    }
}

/// State of an exchange.
struct Exchange {
    core: Arc<ClientCore>,
    events: mpsc::Sender<ChatResult>,
    started: Instant,
    /// Time by which the whole exchange has to end.
    whole_at: Instant,
    stats: ExchangeStats,
}

/// Runs an exchange. Dropping the future closes its connection.
pub(crate) async fn run(core: Arc<ClientCore>, request: ChatRequest, events: mpsc::Sender<ChatResult>) {
    let started = Instant::now();
    let whole_at = started + core.times.whole;
    let mut exchange = Exchange { core, events, started, whole_at, stats: ExchangeStats::default() };
    match exchange.complete(&request).await {
        Ok(Some(rest)) => rest.recycle(&exchange.core).await,
        Ok(None) | Err(Interruption::Abandoned) => {}
        Err(Interruption::Failed(failure)) => {
            let error = ChatError::new(&exchange.core.connector.url, failure, exchange.stats());
            // Without a receiver nobody wants it.
            let _ = exchange.events.send(Err(error)).await;
        }
    }
}

impl Exchange {
    async fn complete(&mut self, request: &ChatRequest) -> Result<Option<BodyRest>, Interruption> {
        request.check().map_err(ChatFailure::from)?;
        loop {
            self.stats.attempts += 1;
            let failure = match self.attempt(request).await {
                Err(Interruption::Failed(failure)) if self.stats.time_to_first_token.is_none() => failure,
                ended => return ended,
            };
            let attempt = self.stats.attempts;
            let random = getrandom::u32().unwrap_or_default();
            let delay = self.core.retry.delay(attempt, &failure, random);
            match delay.filter(|delay| Instant::now() + *delay < self.whole_at) {
                None => return Err(Interruption::Failed(failure)),
                Some(delay) => {
                    self.emit(ChatEvent::Retry { attempt, delay, failure: Box::new(failure) }).await?;
                    sleep(delay).await;
                }
            }
        }
    }

    async fn attempt(&mut self, request: &ChatRequest) -> Result<Option<BodyRest>, Interruption> {
        let model = self.model(request).await?;
        let body = request.body(&model, self.core.max_tokens_field, self.core.limits.request);
        let sent = self.send(COMPLETIONS, Some(body.map_err(ChatFailure::from)?)).await?;
        let OpenResponse { connection, response, first_token_at } = sent;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            let failure = self.refusal(&head, body, COMPLETIONS, &model).await;
            if matches!(failure, ChatFailure::UnknownModel { .. }) {
                self.core.set_listed_model(None);
            }
            return Err(failure.into());
        }
        check_head(&head, &self.core.quoter)?;
        let rest = BodyRest { connection, body, ended: false };
        self.answer(rest, has_length(&head), first_token_at).await
    }

    /// Returns the model of the request, of the settings, or the only one that the server lists.
    async fn model(&mut self, request: &ChatRequest) -> Result<String, ChatFailure> {
        let set = request.model.as_ref().or(self.core.model.as_ref()).cloned();
        if let Some(model) = set.or_else(|| self.core.listed_model()) {
            return Ok(model);
        }
        let OpenResponse { connection, response, first_token_at } = self.send(MODELS, None).await?;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            return Err(self.refusal(&head, body, MODELS, "").await);
        }
        check_head(&head, &self.core.quoter)?;
        let limit = self.core.limits.json;
        let body = self.within(TimeLimit::FirstToken, first_token_at, Limited::new(body, limit).collect()).await?;
        let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => ChatFailure::Torn { reason: chain(&error) },
            Err(_) => ChatFailure::TooLarge { part: BoundedPart::Json, limit },
        })?;
        let model = only_model(&body.to_bytes(), &self.core.quoter)?;
        self.core.pool.put(connection);
        self.core.set_listed_model(Some(model.clone()));
        Ok(model)
    }

    /// Sends a request and waits for the head of its response. A request that fails over a used connection is sent once
    /// more over a new one, because the server may have closed the used one in between.
    async fn send(&mut self, endpoint: &str, body: Option<Bytes>) -> Result<OpenResponse, ChatFailure> {
        if let Some(connection) = self.core.pool.take() {
            self.stats.connection_reused = true;
            match self.send_over(connection, endpoint, body.clone()).await? {
                Ok(response) => return Ok(response),
                Err(error) if error.is_parse() => return Err(failure_without_head(&error)),
                Err(_) => {}
            }
        }
        self.stats.connection_reused = false;
        let begin = Instant::now();
        let connecting = self.core.connector.connect();
        let connection = self.within(TimeLimit::Connect, begin + self.core.times.connect, connecting).await??;
        self.stats.connect_time = Some(begin.elapsed());
        self.send_over(connection, endpoint, body).await?.map_err(|error| failure_without_head(&error))
    }

    async fn send_over(
        &self,
        mut connection: Connection,
        endpoint: &str,
        body: Option<Bytes>,
    ) -> Result<Result<OpenResponse, hyper::Error>, ChatFailure> {
        let request = self.core.request(endpoint, body)?;
        let first_token_at = Instant::now() + self.core.times.first_token;
        let exchange = async {
            connection.sender.ready().await?;
            connection.sender.send_request(request).await
        };
        let response = self.within(TimeLimit::FirstToken, first_token_at, exchange).await?;
        Ok(response.map(|response| OpenResponse { connection, response, first_token_at }))
    }

    /// Returns the failure of a response whose status is no success.
    async fn refusal(&self, head: &Parts, mut body: Incoming, endpoint: &str, model: &str) -> ChatFailure {
        let mut message = Vec::new();
        let at = self.whole_at.min(Instant::now() + ERROR_BODY_TIME);
        // A late message is left out.
        let _ = timeout_at(at, read_error_body(&mut body, &mut message)).await;
        let connector = &self.core.connector;
        let path = connector.url.path_of(endpoint);
        let proxy = connector.proxy.as_ref().filter(|_| connector.is_forwarded()).map(|proxy| proxy.name());
        let context =
            RequestContext { path: &path, model, key_sent: self.core.authorization.is_some(), proxy: proxy.as_deref() };
        failure_of(head, &message, context, &self.core.quoter)
    }

    /// Passes the answer on. Returns its body, if it ended as it should.
    async fn answer(
        &mut self,
        mut rest: BodyRest,
        has_length: bool,
        first_token_at: Instant,
    ) -> Result<Option<BodyRest>, Interruption> {
        let mut reader = AnswerReader::new(&self.core.limits, self.core.quoter.clone());
        let mut out = Vec::new();
        let (mut limit, mut at) = (TimeLimit::FirstToken, first_token_at);
        let mut finished_at = None;
        let mut broken = false;
        while !(reader.is_done() || rest.ended || broken) {
            let frame = self.within(limit, finished_at.unwrap_or(at), rest.body.frame()).await;
            let read = match frame {
                Ok(Some(Ok(frame))) => frame.data_ref().map_or(Ok(()), |data| reader.push(data, &mut out)),
                Ok(None) => {
                    rest.ended = true;
                    reader.end(has_length, &mut out)
                }
                // The answer is complete, only its usage is missing.
                Ok(Some(Err(_))) | Err(_) if reader.is_finished() => {
                    broken = true;
                    Ok(())
                }
                Ok(Some(Err(error))) => Err(ChatFailure::Torn { reason: chain(&error) }),
                Err(late) => Err(late),
            };
            let has_token = !out.is_empty();
            self.emit_all(&mut out).await?;
            read?;
            if has_token {
                (limit, at) = (TimeLimit::BetweenTokens, Instant::now() + self.core.times.between_tokens);
            }
            if reader.is_finished() {
                finished_at.get_or_insert_with(|| Instant::now() + self.core.times.after_finish);
            }
        }
        reader.finish(&mut out)?;
        self.emit_all(&mut out).await?;
        self.emit(ChatEvent::End(self.stats())).await?;
        Ok((!broken).then_some(rest))
    }

    async fn emit_all(&mut self, events: &mut Vec<ChatEvent>) -> Result<(), Interruption> {
        for event in events.drain(..) {
            self.emit(event).await?;
        }
        Ok(())
    }

    /// Passes an event on, as soon as the queue has space.
    async fn emit(&mut self, event: ChatEvent) -> Result<(), Interruption> {
        match &event {
            ChatEvent::Retry { .. } | ChatEvent::Finish(_) | ChatEvent::Usage(_) | ChatEvent::End(_) => {}
            ChatEvent::Text(text) | ChatEvent::Reasoning(text) => {
                self.note_token();
                self.stats.characters += text.chars().count();
            }
            ChatEvent::ToolCallBegin { .. } | ChatEvent::ToolCallArguments { .. } | ChatEvent::ToolCall { .. } => {
                self.note_token();
            }
        }
        let sending = self.events.send(Ok(event));
        match timeout_at(self.whole_at, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Interruption::Abandoned),
            Err(_) => Err(self.late(TimeLimit::Whole).into()),
        }
    }

    fn note_token(&mut self) {
        self.stats.time_to_first_token.get_or_insert_with(|| self.started.elapsed());
    }

    /// Waits for `work` until `at` or the end of the whole exchange, whichever comes first.
    async fn within<T>(&self, limit: TimeLimit, at: Instant, work: impl Future<Output = T>) -> Result<T, ChatFailure> {
        let (limit, at) = if self.whole_at <= at { (TimeLimit::Whole, self.whole_at) } else { (limit, at) };
        // A timeout lets work that is always ready pass.
        if Instant::now() >= at {
            return Err(self.late(limit));
        }
        timeout_at(at, work).await.map_err(|_| self.late(limit))
    }

    fn late(&self, limit: TimeLimit) -> ChatFailure {
        let times = &self.core.times;
        let after = match limit {
            TimeLimit::Connect => times.connect,
            TimeLimit::FirstToken => times.first_token,
            TimeLimit::BetweenTokens => times.between_tokens,
            TimeLimit::Whole => times.whole,
        };
        ChatFailure::Late { limit, after }
    }

    fn stats(&self) -> ExchangeStats {
        ExchangeStats { total_time: self.started.elapsed(), ..self.stats.clone() }
    }
}
