//! Code2wav as a vocoder of codec frames.

use repartee_kernels::{RowSpec, SpecLayout, StreamRows};

use super::code2wav::{Code2Wav, Code2WavSections, Code2WavState};
use super::frame_stage::FrameVocoder;
use crate::device::Device;

impl<O: Device> FrameVocoder<O> for Code2Wav<O> {
    type State = Code2WavState<O>;
    type Stream = ();
    type Sections = Code2WavSections;

    fn name(&self) -> &'static str {
        "code2wav"
    }

    fn codebooks(&self) -> (usize, usize) {
        (self.config().num_quantizers, self.config().codebook_size)
    }

    fn samples_per_frame(&self) -> usize {
        self.config().samples_per_frame()
    }

    fn stream_bytes(&self, frames: usize) -> usize {
        self.slot_bytes(frames)
    }

    fn state(&self, ops: &O, slots: usize, frames: usize) -> Code2WavState<O> {
        self.state_for(ops, slots, frames)
    }

    fn layout(&self, state: &Code2WavState<O>, layout: &mut SpecLayout, rows: usize) -> Code2WavSections {
        self.layout(state, layout, rows)
    }

    fn fill(
        &self,
        spec: &mut RowSpec,
        sections: &Code2WavSections,
        state: &Code2WavState<O>,
        codes: &[Vec<u32>],
        chunks: &[StreamRows],
    ) {
        self.fill(spec, sections, state, codes, chunks);
    }

    fn forward(&self, ops: &O, at: (&O::Spec, &Code2WavSections), state: &mut Code2WavState<O>) -> O::T {
        self.forward(ops, at, state)
    }

    fn samples(&self, (): &mut (), chunk: StreamRows, numbers: &[f32]) -> Vec<f32> {
        numbers[self.valid_samples(chunk)].to_vec()
    }
}
