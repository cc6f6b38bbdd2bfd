//! Sizes of the vocoders.

/// Sizes of the vocoder.
#[derive(Debug, Clone, PartialEq)]
pub struct BigVganConfig {
    /// Mel bins of a frame.
    pub mel_dim: usize,
    /// Channels after the first convolution; each upsampling halves them.
    pub upsample_initial_channel: usize,
    /// Number of taps of each residual block of a level.
    pub resblock_kernel_sizes: Vec<usize>,
    /// Dilations of each residual block.
    pub resblock_dilation_sizes: Vec<Vec<usize>>,
    /// Factors of upsampling.
    pub upsample_rates: Vec<usize>,
    /// Number of taps of each upsampling.
    pub upsample_kernel_sizes: Vec<usize>,
}

impl BigVganConfig {
    /// Samples of a mel frame.
    pub fn samples_per_frame(&self) -> usize {
        self.upsample_rates.iter().product()
    }
}
