//! The first turn after the start, which pays for everything that happens only once, so that no caller has to.

use std::sync::Arc;

use repartee_engine::session::{Command, Event, Respond, Session, SubmitError};

use super::App;

/// Text tokens of the answer, enough to pass every stage.
const TOKENS: u32 = 4;

/// Puts one turn through the engine, then says that the server is ready.
pub(super) async fn warm_up(app: Arc<App>) {
    if app.config.warm_up {
        let session = match app.engine.open() {
            Ok(session) => session,
            Err(error) => return tracing::error!(%error, "the engine cannot be warmed up"),
        };
        let start = std::time::Instant::now();
        if let Err(error) = turn(&session, app.engine.info().input_rate).await {
            return tracing::error!(error, "the engine cannot be warmed up");
        }
        tracing::info!(took = ?start.elapsed(), "the engine is warm");
    }
    if !*app.stop.borrow() {
        app.ready.send_replace(true);
    }
}

async fn turn(session: &Session, rate: u32) -> Result<(), String> {
    // Half a second of a quiet hum: digital silence is not what callers send.
    let hum = (0..rate / 2).map(|sample| (sample as f32 * 0.05).sin() * 0.01).collect();
    let respond =
        Respond { response: 1, item: 2, voice: None, audio: true, max_tokens: Some(TOKENS), sampling: None, seed: 0 };
    for command in [Command::Append(hum), Command::Commit { item: 1 }, Command::Respond(respond)] {
        session.submit_async(command).await.map_err(|error: SubmitError| error.to_string())?;
    }
    loop {
        match session.next_event().await {
            Some(Event::Finished { .. }) => return Ok(()),
            Some(Event::Failed { error, .. }) => return Err(error.to_string()),
            Some(Event::Text { .. } | Event::Audio { .. }) => {}
            None => return Err("the engine has stopped".into()),
        }
    }
}
