//! Thread of recordings.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use prometheus::IntCounterVec;

use super::message::{Message, Piece, Side};
use super::side_file::SideFile;
use crate::config::RecordingConfig;

/// Interval in which old files are deleted.
const SWEEPING: Duration = Duration::from_secs(600);

/// A call that is recorded.
#[derive(Debug)]
struct RecordedCall {
    id: String,
    files: HashMap<&'static str, SideFile>,
    /// Time of its last message.
    last: Instant,
}

/// Folder and files.
#[derive(Debug)]
pub(super) struct Writer {
    folder: PathBuf,
    /// Longest recording of a call.
    longest: Duration,
    /// Most bytes in the folder, and bytes now.
    most: u64,
    bytes: u64,
    /// Age at which a file is deleted.
    keep: Duration,
    results: IntCounterVec,
    calls: HashMap<u64, RecordedCall>,
    swept: Instant,
}

impl Writer {
    /// Opens the folder, and deletes what is old.
    pub fn open(folder: PathBuf, config: &RecordingConfig, results: IntCounterVec) -> io::Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&folder)?;
        let mut writer = Self {
            folder,
            longest: config.longest,
            most: u64::from(config.mib) << 20,
            bytes: 0,
            keep: config.keep,
            results,
            calls: HashMap::new(),
            swept: Instant::now(),
        };
        writer.sweep()?;
        Ok(writer)
    }

    /// Writes until all senders are gone.
    pub fn run(mut self, messages: &Receiver<Message>) {
        loop {
            match messages.recv_timeout(SWEEPING) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.swept.elapsed() >= SWEEPING
                && let Err(error) = self.sweep()
            {
                tracing::warn!(%error, "old recordings could not be deleted");
            }
        }
        let calls: Vec<u64> = self.calls.keys().copied().collect();
        calls.into_iter().for_each(|call| self.end(call, "kept"));
    }

    pub fn take(&mut self, message: Message) {
        match message {
            Message::Begin(call, id) => {
                self.calls.insert(call, RecordedCall { id, files: HashMap::new(), last: Instant::now() });
            }
            Message::Piece(piece) if piece.at > self.longest => self.end(piece.call, "too_long"),
            Message::Piece(piece) if self.bytes >= self.most => self.end(piece.call, "full"),
            Message::Piece(piece) => {
                let call = piece.call;
                if let Err(error) = self.add(&piece) {
                    tracing::warn!(%error, "a recording has ended: its file cannot be written");
                    self.end(call, "failed");
                }
            }
            Message::End(call) => self.end(call, "kept"),
        }
    }

    fn add(&mut self, piece: &Piece) -> io::Result<()> {
        // A recording that has ended already.
        let Some(call) = self.calls.get_mut(&piece.call) else { return Ok(()) };
        call.last = Instant::now();
        let ending = piece.side.ending();
        if !call.files.contains_key(ending) {
            let path = self.folder.join(format!("{}{ending}", call.id));
            call.files.insert(ending, SideFile::create(&path, piece.rate)?);
        }
        let Some(file) = call.files.get_mut(ending) else { return Ok(()) };
        self.bytes += file.add(piece.at, piece.rate, &piece.samples)?;
        Ok(())
    }

    /// Ends the recording of a call, which may go on.
    fn end(&mut self, call: u64, result: &str) {
        let Some(call) = self.calls.remove(&call) else { return };
        let mut result = result;
        for (_, file) in call.files {
            if let Err(error) = file.finish() {
                tracing::warn!(%error, id = call.id, "the end of a recording could not be written");
                result = "failed";
            }
        }
        self.results.with_label_values(&[result]).inc();
    }

    /// Deletes recordings that are old, and counts the bytes of the others.
    pub fn sweep(&mut self) -> io::Result<()> {
        (self.swept, self.bytes) = (Instant::now(), 0);
        // The message of a call's end may have been lost.
        let silent = self.calls.iter().filter(|(_, call)| call.last.elapsed() >= SWEEPING).map(|(call, _)| *call);
        silent.collect::<Vec<u64>>().into_iter().for_each(|call| self.end(call, "kept"));
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let (path, name) = (entry.path(), name.to_string_lossy());
            // Nothing else in the folder is ours.
            if ![Side::Caller, Side::Answers].iter().any(|side| name.ends_with(side.ending())) {
                continue;
            }
            let metadata = entry.metadata()?;
            let age = SystemTime::now().duration_since(metadata.modified()?).unwrap_or_default();
            if age >= self.keep {
                delete(&path);
            } else {
                self.bytes += metadata.len();
            }
        }
        Ok(())
    }
}

fn delete(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(%error, path = %path.display(), "an old recording could not be deleted");
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Opts;
    use repartee_media::sound_file;

    use super::*;

    fn results() -> IntCounterVec {
        IntCounterVec::new(Opts::new("results", "results"), &["result"]).unwrap()
    }

    fn config(folder: &Path) -> RecordingConfig {
        RecordingConfig { folder: Some(folder.to_owned()), ..RecordingConfig::default() }
    }

    fn piece(side: Side, ms: u64, rate: u32, samples: usize) -> Message {
        Message::Piece(Piece { call: 1, side, at: Duration::from_millis(ms), rate, samples: vec![9_000; samples] })
    }

    fn read(path: &Path, rate: u32) -> Vec<f32> {
        sound_file::read(&fs::read(path).unwrap()[..], rate, Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn sides_are_files_with_their_pauses() {
        let (folder, results) = (tempfile::tempdir().unwrap(), results());
        let mut writer = Writer::open(folder.path().to_owned(), &config(folder.path()), results.clone()).unwrap();
        writer.take(Message::Begin(1, "rtc_1".to_owned()));
        writer.take(piece(Side::Caller, 0, 8_000, 160));
        writer.take(piece(Side::Caller, 25, 8_000, 160));
        writer.take(piece(Side::Caller, 1_000, 8_000, 160));
        // The codec has changed.
        writer.take(piece(Side::Caller, 1_020, 16_000, 320));
        writer.take(piece(Side::Answers, 500, 24_000, 480));
        writer.take(Message::End(1));
        let caller = read(&folder.path().join("rtc_1.caller.wav"), 8_000);
        assert_eq!(caller.len(), 8_000 + 320);
        assert!(caller[319] > 0.2 && caller[400..7_990].iter().all(|sample| *sample == 0.0) && caller[8_100] > 0.2);
        assert_eq!(read(&folder.path().join("rtc_1.answers.wav"), 24_000).len(), 12_480);
        assert_eq!(results.with_label_values(&["kept"]).get(), 1);
    }

    #[test]
    fn bounds_end_a_recording() {
        for (result, config) in [
            ("too_long", RecordingConfig { longest: Duration::from_millis(100), ..RecordingConfig::default() }),
            ("full", RecordingConfig { mib: 0, ..RecordingConfig::default() }),
        ] {
            let (folder, results) = (tempfile::tempdir().unwrap(), results());
            let mut writer = Writer::open(folder.path().to_owned(), &config, results.clone()).unwrap();
            writer.take(Message::Begin(1, "rtc_1".to_owned()));
            for number in 0..50 {
                writer.take(piece(Side::Caller, 20 * number, 8_000, 160));
            }
            writer.take(Message::End(1));
            assert_eq!(results.with_label_values(&[result]).get(), 1, "{result}");
            let path = folder.path().join("rtc_1.caller.wav");
            assert!(!path.exists() || read(&path, 8_000).len() <= 960, "{result}");
        }
    }

    #[test]
    fn written_bytes_fill_the_folder() {
        let (folder, results) = (tempfile::tempdir().unwrap(), results());
        let config = RecordingConfig { mib: 1, ..config(folder.path()) };
        let mut writer = Writer::open(folder.path().to_owned(), &config, results.clone()).unwrap();
        writer.take(Message::Begin(1, "rtc_1".to_owned()));
        for number in 0..10 {
            writer.take(piece(Side::Caller, 12_500 * number, 8_000, 100_000));
        }
        assert_eq!(results.with_label_values(&["full"]).get(), 1);
        // The piece that goes beyond the bound is the last one.
        assert_eq!(fs::metadata(folder.path().join("rtc_1.caller.wav")).unwrap().len(), 44 + 6 * 200_000);
        // Those of an earlier run count, too.
        let next = Writer::open(folder.path().to_owned(), &config, results).unwrap();
        assert!(next.bytes >= next.most);
    }

    #[test]
    fn old_recordings_are_deleted_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let config = RecordingConfig { keep: Duration::ZERO, ..config(folder.path()) };
        let mut writer = Writer::open(folder.path().to_owned(), &config, results()).unwrap();
        let old = folder.path().join("rtc_1.caller.wav");
        fs::write(&old, [0; 100]).unwrap();
        // A machine that has just started has no such time.
        let Some(swept) = Instant::now().checked_sub(SWEEPING) else { return };
        writer.swept = swept;
        let (sender, messages) = std::sync::mpsc::sync_channel(1);
        sender.send(Message::End(7)).unwrap();
        drop(sender);
        writer.run(&messages);
        assert!(!old.exists());
    }

    #[test]
    fn failing_disk_ends_the_recording_alone() {
        let (folder, results) = (tempfile::tempdir().unwrap(), results());
        let mut writer = Writer::open(folder.path().to_owned(), &config(folder.path()), results.clone()).unwrap();
        fs::remove_dir(folder.path()).unwrap();
        writer.take(Message::Begin(1, "rtc_1".to_owned()));
        writer.take(piece(Side::Caller, 0, 8_000, 160));
        writer.take(piece(Side::Caller, 20, 8_000, 160));
        writer.take(Message::End(1));
        assert_eq!(results.with_label_values(&["failed"]).get(), 1);
        assert_eq!(results.with_label_values(&["kept"]).get(), 0);
    }

    #[test]
    fn old_recordings_alone_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["rtc_1.caller.wav", "rtc_1.answers.wav", "notes.wav"] {
            fs::write(path(name), [0; 100]).unwrap();
        }
        let young = Writer::open(folder.path().to_owned(), &config(folder.path()), results()).unwrap();
        assert_eq!(young.bytes, 200);
        let config = RecordingConfig { keep: Duration::ZERO, ..config(folder.path()) };
        let swept = Writer::open(folder.path().to_owned(), &config, results()).unwrap();
        assert_eq!(swept.bytes, 0);
        let left = ["rtc_1.caller.wav", "rtc_1.answers.wav", "notes.wav"].map(|name| path(name).exists());
        assert_eq!(left, [false, false, true]);
    }
}
