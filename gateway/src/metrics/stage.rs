//! Parts of the time to first packet.

/// Parts of the time to first packet, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TtfpStage {
    /// From the last voice to the end of the turn.
    Endpointing,
    /// From the end of the turn until the encoder took the last slice of it, or, where all was encoded, until the response began.
    SliceWait,
    /// Until that was encoded and the response began.
    Encoder,
    /// Until the step that gave the first text token.
    Prefill,
    /// Until that token.
    FirstToken,
    /// Until the first codec frame.
    FirstFrame,
    /// Until its samples.
    Codec,
    /// Until the first frame of 20 ms in which something is heard was due.
    Playout,
    /// Until that was encoded.
    Opus,
    /// Until it left.
    Wire,
}

impl TtfpStage {
    /// All of them, in order.
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

    /// Its name, in metrics and traces.
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
