//! Line between a call's signalling and its transport: the sound that is agreed on, and keys in messages.

use repartee_sip::CallMedia;
use tokio::sync::{mpsc, watch};

/// Keys that may wait for the call.
const KEY_QUEUE: usize = 16;

/// Signalling's end of a call's line. Dropping it ends the call.
#[derive(Debug)]
pub struct LineControl {
    media: watch::Sender<CallMedia>,
    keys: mpsc::Sender<char>,
}

impl LineControl {
    /// Changes the sound: hold, its end, another address.
    pub fn change(&self, media: CallMedia) {
        self.media.send_replace(media);
    }

    /// Reports a key that came in a message. A call that reads none loses it.
    pub fn press(&self, key: char) {
        let _ = self.keys.try_send(key);
    }
}

/// Line of a call, for its transport.
#[derive(Debug)]
pub struct Line {
    /// Sound of the call, which the signalling changes.
    pub(super) media: watch::Receiver<CallMedia>,
    /// Keys that came in messages.
    pub(super) keys: mpsc::Receiver<char>,
}

/// Creates both ends of a line with this sound.
pub fn line(media: CallMedia) -> (LineControl, Line) {
    let (sender, receiver) = watch::channel(media);
    let (keys, pressed) = mpsc::channel(KEY_QUEUE);
    (LineControl { media: sender, keys }, Line { media: receiver, keys: pressed })
}
