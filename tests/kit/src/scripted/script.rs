//! Script of the engine, and the rates of its model.

use std::sync::Arc;

use repartee_engine_api::SessionError;
use tokio::sync::Semaphore;

/// Input sample rate of the scripted model, in Hz.
pub const INPUT_RATE: u32 = 16_000;
/// Output sample rate of the scripted model, in Hz, unless its script has another.
pub const OUTPUT_RATE: u32 = 24_000;
/// Sample rate of recordings for enrolment, in Hz.
pub const RECORDING_RATE: u32 = 16_000;
/// Samples of one codec frame, 80 ms.
pub const FRAME_SAMPLES: usize = 1_920;

/// Script of the engine.
#[derive(Debug, Clone)]
pub struct Script {
    /// Most concurrent sessions.
    pub slots: usize,
    /// Output sample rate, in Hz; a frame has 80 ms at any rate.
    pub output_rate: u32,
    /// Codec frames of a response, after its text.
    pub frames: u64,
    /// Semaphore that paces responses: each frame takes one permit. `None` for full speed.
    pub gate: Option<Arc<Semaphore>>,
    /// Error with which every response fails.
    pub failure: Option<SessionError>,
    /// First responses of each session, in order; later ones follow the other fields.
    pub responses: Vec<ScriptedResponse>,
    /// Function call of a response, as name and argument pieces. It is made if the function is offered and has no
    /// result yet.
    pub call: Option<(String, Vec<String>)>,
    /// Sound of the responses at the output rate, in place of the voice; silence follows it.
    pub sound: Option<Arc<Vec<f32>>>,
    /// True if voices can be enrolled. All voices sound the same.
    pub accepts_enrolment: bool,
    /// True if it transcribes. A transcript contains the duration of the turn: `words new 1280 ms`.
    pub has_transcription: bool,
    /// True if transcripts never come.
    pub withholds_transcripts: bool,
    /// True if it takes a given text of any length as one response.
    pub reads_clauses: bool,
    /// Prompt rows that each new session counts for its tenant.
    pub rows_at_open: u64,
    /// True if the speech of each given text ends at the model's limit.
    pub cuts_speech: bool,
}

/// A scripted response.
#[derive(Debug, Clone, Default)]
pub struct ScriptedResponse {
    /// Text of the response; `None` for a report of the input's duration.
    pub text: Option<String>,
    /// Number of codec frames.
    pub frames: u64,
    /// Number of frames after which it waits for its cancellation.
    pub hold_after_frames: Option<u64>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            slots: 4,
            output_rate: OUTPUT_RATE,
            frames: 5,
            gate: None,
            failure: None,
            responses: Vec::new(),
            call: None,
            sound: None,
            accepts_enrolment: false,
            has_transcription: false,
            withholds_transcripts: false,
            reads_clauses: false,
            rows_at_open: 0,
            cuts_speech: false,
        }
    }
}
