//! Recordings of telephone calls: off by default, after a tone, a file for each side, bounded, deleted after a time.
//!
//! - this file: [`Recordings`], the folder, its bounds and its thread
//! - [`call_recorder`]: one call's end, which never waits
//! - [`message`]: what a call tells the thread
//! - `writer`: the thread that writes, and deletes what is old
//! - `side_file`: the file of one side

pub mod call_recorder;
pub mod message;
mod side_file;
mod writer;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use prometheus::IntCounterVec;

use crate::config::RecordingConfig;
use call_recorder::CallRecorder;
use message::Message;
use writer::Writer;

/// Pieces of sound that may wait for the thread, of all calls: 20 s of ten calls. More are lost.
const QUEUE: usize = 20_000;

/// Error of the folder of recordings, or of their thread.
#[derive(Debug, thiserror::Error)]
#[error("recording.folder: {0}")]
pub struct RecordingError(#[from] io::Error);

/// Recordings of a server.
#[derive(Debug)]
pub struct Recordings {
    sender: SyncSender<Message>,
    next: AtomicU64,
}

impl Recordings {
    /// Opens the folder, deletes what is old, and starts the thread; `None` if nothing is recorded. `results` counts
    /// recordings by their results.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read, or the thread not started.
    pub fn open(config: &RecordingConfig, results: IntCounterVec) -> Result<Option<Arc<Self>>, RecordingError> {
        let Some(folder) = &config.folder else { return Ok(None) };
        let (sender, messages) = sync_channel(QUEUE);
        let writer = Writer::open(folder.clone(), config, results)?;
        std::thread::Builder::new().name("recordings".to_owned()).spawn(move || writer.run(&messages))?;
        Ok(Some(Arc::new(Self { sender, next: AtomicU64::new(0) })))
    }

    /// Begins the recording of a call. `id` is the call's, of letters, digits, `_` and `-`.
    pub fn begin(&self, id: &str) -> CallRecorder {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        CallRecorder::new(number, id.to_owned(), self.sender.clone())
    }
}
