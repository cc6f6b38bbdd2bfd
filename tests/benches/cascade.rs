//! `make bench-cascade`: the cascade's own time from the end of a turn to the first frame. All parts are instant: the
//! language model answers at once, in this process or over HTTP on this machine, and the voice has toy dimensions. The
//! floor is the same voice without a cascade, which gets the same text at once. The three take turns.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use repartee::config::{CascadeConfig, ThinkSource};
use repartee::metrics::ThinkerMetrics;
use repartee::thinker;
use repartee_chat_testkit::{TestServer, answer};
use repartee_engine::{CascadeParts, Engine, EngineConfig, RemoteModel, Source};
use repartee_engine_api::{
    Command, Event, RemoteAnswer, RemoteEnd, RemoteEvent, RemoteRequest, RemoteThinker, Respond, Role, SessionHandle,
    SpeechEngine, WakeSignal,
};
use repartee_load::report::percentile;
use repartee_report::{Report, ReportRow, print};
use repartee_tests::tools;

/// Turns of each kind, after a warm-up.
const TURNS: usize = 400;
const WARM_UP: usize = 40;
/// Text of every answer.
const TEXT: &str = "the lazy dog and the fox are here. ";
/// Aim for the own time, p95, in ms.
const AIM_MS: f64 = 2.0;

/// Language model that has answered already.
#[derive(Debug)]
struct Instantaneous;

impl RemoteThinker for Instantaneous {
    fn ask(&self, _: RemoteRequest, _: WakeSignal) -> Box<dyn RemoteAnswer> {
        let events = [RemoteEvent::Text(TEXT.to_owned()), RemoteEvent::Finished(RemoteEnd::Stop)];
        Box::new(Arrived(events.into()))
    }
}

struct Arrived(VecDeque<RemoteEvent>);

impl RemoteAnswer for Arrived {
    fn poll(&mut self) -> Option<RemoteEvent> {
        self.0.pop_front()
    }
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let host = runtime.block_on(TestServer::answering(answer(TEXT)).listen());
    let think = ThinkSource::try_from(PathBuf::from(format!("http://{host}/v1")))?;
    let config = CascadeConfig { think: Some(think), model: Some("small".to_owned()), ..CascadeConfig::default() };
    let server = thinker::open(&config, ThinkerMetrics::new()?)?.context("a server is set")?;
    let inside = RemoteModel { name: "inside".to_owned(), thinker: Arc::new(Instantaneous), fallback: None };

    let voice = || Source::Folder(tools::root().join(Path::new("tests/parity/fixtures/tts_custom/checkpoint")));
    let speak = || CascadeParts { hear: None, think: None, speak: Some(voice()) };
    let engine = EngineConfig::default();
    let floor = Engine::start(voice(), &engine)?;
    let inside = Engine::start_remote_cascade(inside, speak(), &engine, |_| {})?;
    let over_http = Engine::start_remote_cascade(server, speak(), &engine, |_| {})?;
    let sessions = [floor.open()?, inside.open()?, over_http.open()?];
    let mut times: [Vec<Duration>; 3] = Default::default();
    for turn in 0..WARM_UP + TURNS {
        for (kind, (session, times)) in sessions.iter().zip(&mut times).enumerate() {
            let time = first_frame(session, turn as u64, kind == 0)?;
            if turn >= WARM_UP {
                times.push(time);
            }
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    let [floor, inside, over_http] = times;
    let ms = |sorted: &[Duration], percent| {
        percentile(sorted, percent).map_or(f64::NAN, |time| time.as_secs_f64() * 1_000.0)
    };
    let note = format!("{TURNS} turns of each kind in turn; the peer is the voice alone with the same text");
    let mut rows = Vec::new();
    for (name, measured) in [("in this process", &inside), ("over HTTP on this machine", &over_http)] {
        for (what, percent) in [("median", 50), ("p95", 95)] {
            let (ours, peer) = (ms(measured, percent), ms(&floor, percent));
            let measure = format!("end of a turn to the first frame, language model {name}, {what}");
            rows.push(ReportRow::lower_is_better(measure, ours, peer, "ms", note.clone()));
        }
        let own = ms(measured, 95) - ms(&floor, 95);
        let measure = format!("own time of the cascade, language model {name}, p95");
        let note = "difference of the two p95; the peer is the aim";
        rows.push(ReportRow::lower_is_better(measure, own, AIM_MS, "ms", note));
    }
    print(&rows);
    Report::new("cascade", rows).write(&tools::root().join("target/report/cascade.json"))?;
    Ok(())
}

/// Time from a request to its first frame; `given` for a voice alone, which gets the text. The turn leaves nothing.
fn first_frame(session: &SessionHandle, turn: u64, given: bool) -> Result<Duration> {
    let (question, item, response) = (2 * turn, 2 * turn + 1, turn);
    if !given {
        session.submit_blocking(Command::text(question, Role::User, "what does the dog do"))?;
    }
    let asked = Instant::now();
    session.submit_blocking(Command::Respond(Respond { streamed: given, ..Respond::new(response, item) }))?;
    if given {
        session.submit_blocking(Command::StreamText { response, text: TEXT.to_owned() })?;
        session.submit_blocking(Command::EndText { response })?;
    }
    let mut first = None;
    loop {
        match session.next_event_blocking().context("the session ended")? {
            Event::Audio { .. } if first.is_none() => {
                first = Some(asked.elapsed());
                session.submit_blocking(Command::Cancel { response })?;
            }
            Event::SegmentFinished { .. } => break,
            Event::Failed { error, .. } => bail!("{error}"),
            _ => {}
        }
    }
    for item in [question, item] {
        session.submit_blocking(Command::Delete { item })?;
    }
    first.context("a response without sound")
}
