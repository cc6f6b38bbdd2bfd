//! Stages of the time to first packet.

/// Stages of the time to first packet (TTFP), in order; each ends where the next begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TtfpStage {
    /// From the end of the caller's voice to the end of the turn.
    Endpointing,
    /// From the end of the turn until the encoder takes its last slice; if all slices are encoded, until the response
    /// begins.
    SliceWait,
    /// Until that slice is encoded and the response begins.
    Encoder,
    /// Until the step that samples the first text token begins.
    Prefill,
    /// Until the first text token is sampled.
    FirstToken,
    /// Until the first codec frame is complete.
    FirstFrame,
    /// Until code2wav has the frame's samples.
    Codec,
    /// Until the playout time of the first audible frame of 20 ms.
    Playout,
    /// Until that frame is encoded.
    Opus,
    /// Until its packet is sent.
    Wire,
}

impl TtfpStage {
    /// All stages in order.
    pub const ALL: [Self; 10] = [
        Self::Endpointing,
        Self::SliceWait,
        Self::Encoder,
        Self::Prefill,
        Self::FirstToken,
        Self::FirstFrame,
        Self::Codec,
        Self::Playout,
        Self::Opus,
        Self::Wire,
    ];

    /// Label of the stage in metrics and traces.
    pub fn label(self) -> &'static str {
        match self {
            Self::Endpointing => "endpointing",
            Self::SliceWait => "slice_wait",
            Self::Encoder => "encoder",
            Self::Prefill => "prefill",
            Self::FirstToken => "first_token",
            Self::FirstFrame => "first_frame",
            Self::Codec => "codec",
            Self::Playout => "playout",
            Self::Opus => "opus",
            Self::Wire => "wire",
        }
    }
}
