//! Mimi's decoder as a vocoder: a frame's codes to two rows of a windowed transformer, and these to samples by
//! convolutions, with all state carried. After `MimiModel.decode` of moshi, with the names of its published weights. Each
//! frame is decoded once, and any split of a stream gives the same samples as one decode of the whole.

use repartee_kernels::row_spec::{BatchSection, SpecSection, StreamSection};
use repartee_kernels::{Activation, Ops, RowSpec, SequenceRows, SpecLayout, StreamLevel, StreamRows};

use super::layer::SpeechCodecLayer;
use crate::device::Device;
use crate::models::load_error::LoadError;
use crate::models::parts::config::SpeechCodecConfig;
use crate::models::parts::vocoder::frame_stage::FrameVocoder;
use crate::models::parts::vocoder::rings::SlotRings;
use crate::models::parts::vocoder::split_quantizer::SplitQuantizer;
use crate::models::parts::vocoder::stream_conv::StreamConv;
use crate::models::parts::weights::Weights;

/// Rows of a frame.
const ROWS: usize = 2;
/// Positions in a block of the attention window's ring.
const BLOCK: usize = 16;

/// Part of the decoder with more rows than the one before it.
struct UpsampleBlock<O: Ops> {
    upsample: StreamConv<O>,
    /// Pairs of convolutions, each after an activation; added to their input.
    residuals: Vec<(StreamConv<O>, StreamConv<O>)>,
}

impl<O: Ops> UpsampleBlock<O> {
    /// Convolutions of the block, in the order of computation.
    fn convolutions(&self) -> impl Iterator<Item = &StreamConv<O>> {
        let residuals = self.residuals.iter().flat_map(|(first, second)| [first, second]);
        std::iter::once(&self.upsample).chain(residuals)
    }
}

/// The decoder's weights.
pub struct SpeechDecoder<O: Ops> {
    config: SpeechCodecConfig,
    codebooks: usize,
    quantizer: SplitQuantizer<O>,
    layers: Vec<SpeechCodecLayer<O>>,
    upsample: StreamConv<O>,
    first: StreamConv<O>,
    blocks: Vec<UpsampleBlock<O>>,
    last: StreamConv<O>,
    /// Bytes of one number in keys and values.
    kv_number: usize,
}

/// State of each slot's stream.
pub struct SpeechDecoderState<O: Ops> {
    cache: Vec<O::State>,
    rings: SlotRings,
    /// Rows before those of the next step, of each convolution in the order of computation.
    tails: Vec<O::State>,
}

/// Sections of the row spec.
pub struct SpeechDecoderSections {
    codes: Vec<SpecSection>,
    batch: BatchSection,
    streams: StreamSection,
}

impl<O: Ops> SpeechDecoder<O> {
    /// Loads the decoder for frames of `codebooks` codes, the first ones of the file.
    pub fn load(w: &Weights<'_, O>, config: SpeechCodecConfig, codebooks: usize) -> Result<Self, LoadError> {
        let hidden = config.hidden_size;
        let layer = |i: usize| {
            SpeechCodecLayer::load_published(&w.at(format_args!("decoder_transformer.transformer.layers.{i}")), &config)
        };
        // Before the convolution of each channel: their matrices prove its size.
        let layers = (0..config.num_hidden_layers).map(layer).collect::<Result<_, _>>()?;
        let model = w.at("decoder.model");
        let mut channels = config.num_filters << config.upsampling_ratios.len();
        let first = StreamConv::causal(&model.at("0.conv"), channels, hidden, config.kernel_size, 1)?;
        let (mut at, mut blocks) = (1, Vec::new());
        for &ratio in &config.upsampling_ratios {
            let out = channels / 2;
            // An activation has a number, too.
            let upsample = model.at(at + 1).at("convtr.convtr");
            let upsample = StreamConv::transposed(&upsample, channels, out, 2 * ratio, (ratio, false))?;
            at += 2;
            let mut residuals = Vec::new();
            for block in 0..config.num_residual_layers {
                let (w, inner) = (model.at(at).at("block"), out / config.compress);
                let dilation = config.dilation_growth_rate.pow(block as u32);
                residuals.push((
                    StreamConv::causal(&w.at("1.conv"), inner, out, config.residual_kernel_size, dilation)?,
                    StreamConv::causal(&w.at("3.conv"), out, inner, 1, 1)?,
                ));
                at += 1;
            }
            blocks.push(UpsampleBlock { upsample, residuals });
            channels = out;
        }
        let last = StreamConv::causal(&model.at(at + 1).at("conv"), 1, channels, config.last_kernel_size, 1)?;
        let sizes = (config.vector_quantization_hidden_dimension, hidden);
        Ok(Self {
            quantizer: SplitQuantizer::load(&w.at("quantizer"), (codebooks, config.codebook_size), sizes)?,
            layers,
            upsample: StreamConv::transposed_each(&w.at("upsample.convtr.convtr.convtr"), hidden, ROWS)?,
            first,
            blocks,
            last,
            kv_number: w.ops().kv_number_bytes(),
            codebooks,
            config,
        })
    }

    /// Blocks of a slot's ring. The oldest row that a step's first one sees must outlive the step's last one.
    fn ring(&self, frames: usize) -> usize {
        (self.config.sliding_window + frames * ROWS).div_ceil(BLOCK) + 1
    }

    /// All convolutions, in the order of computation.
    fn convolutions(&self) -> impl Iterator<Item = &StreamConv<O>> {
        [&self.upsample, &self.first]
            .into_iter()
            .chain(self.blocks.iter().flat_map(UpsampleBlock::convolutions))
            .chain([&self.last])
    }
}

impl<O: Device> FrameVocoder<O> for SpeechDecoder<O> {
    type State = SpeechDecoderState<O>;
    type Stream = ();
    type Sections = SpeechDecoderSections;

    fn name(&self) -> &'static str {
        "detokenizer"
    }

    fn codebooks(&self) -> (usize, usize) {
        (self.codebooks, self.config.codebook_size)
    }

    fn samples_per_frame(&self) -> usize {
        ROWS * self.config.upsampling_ratios.iter().product::<usize>()
    }

    fn stream_bytes(&self, frames: usize) -> usize {
        let row = 2 * self.config.num_key_value_heads * self.config.head_dim * self.kv_number;
        let tails: usize = self.convolutions().map(StreamConv::tail_bytes).sum();
        self.ring(frames) * BLOCK * self.layers.len() * row + tails
    }

    fn state(&self, ops: &O, slots: usize, frames: usize) -> SpeechDecoderState<O> {
        let rings = SlotRings::new(slots, self.ring(frames));
        let cache = |_: &SpeechCodecLayer<O>| SpeechCodecLayer::cache(ops, &self.config, rings.blocks(), BLOCK);
        SpeechDecoderState {
            cache: self.layers.iter().map(cache).collect(),
            tails: self.convolutions().map(|conv| conv.tail(ops, slots)).collect(),
            rings,
        }
    }

    fn layout(&self, state: &SpeechDecoderState<O>, layout: &mut SpecLayout, frames: usize) -> SpeechDecoderSections {
        SpeechDecoderSections {
            codes: (0..self.codebooks).map(|_| layout.list(frames)).collect(),
            batch: layout.batch(frames * ROWS, frames, state.rings.length()),
            streams: layout.streams(frames, frames),
        }
    }

    fn fill(
        &self,
        spec: &mut RowSpec,
        sections: &SpeechDecoderSections,
        state: &SpeechDecoderState<O>,
        codes: &[Vec<u32>],
        chunks: &[StreamRows],
    ) {
        for (codebook, (section, codes)) in sections.codes.iter().zip(codes).enumerate() {
            let base = self.quantizer.base(codebook);
            spec.set_each(*section, codes.iter().map(|code| base + code));
        }
        let sequence = |chunk: &StreamRows| SequenceRows {
            table: state.rings.of(chunk.slot),
            position: chunk.position * ROWS,
            rows: chunk.rows * ROWS,
        };
        spec.set_batch(sections.batch, &chunks.iter().map(sequence).collect::<Vec<_>>(), state.rings.scratch());
        spec.set_streams(sections.streams, chunks);
    }

    fn forward(
        &self,
        ops: &O,
        (spec, sections): (&O::Spec, &SpeechDecoderSections),
        state: &mut SpeechDecoderState<O>,
    ) -> O::T {
        let batch = ops.batch_at(spec, sections.batch);
        let streams = StreamLevel::new(ops.index(spec, sections.streams.words()));
        let mut tails = state.tails.iter_mut();
        let mut tail = || tails.next().expect("one tail for each convolution: `state` makes them");
        let x = self.quantizer.forward(ops, |codebook| ops.index(spec, sections.codes[codebook]));
        let (mut x, mut streams) = self.upsample.upsample(ops, &x, tail(), &streams);
        for (layer, cache) in self.layers.iter().zip(&mut state.cache) {
            x = layer.forward(ops, x, (cache, &batch), (&self.config, Some(self.config.sliding_window)));
        }
        let elu = |x: O::T| ops.activation(x, Activation::Elu);
        x = self.first.forward(ops, &x, tail(), &streams);
        for block in &self.blocks {
            (x, streams) = block.upsample.upsample(ops, &elu(x), tail(), &streams);
            for (first, second) in &block.residuals {
                let h = first.forward(ops, &elu(ops.copy(&x)), tail(), &streams);
                x = ops.add(second.forward(ops, &elu(h), tail(), &streams), &x);
            }
        }
        self.last.forward(ops, &elu(x), tail(), &streams)
    }

    fn samples(&self, (): &mut (), _: StreamRows, numbers: &[f32]) -> Vec<f32> {
        numbers.to_vec()
    }
}
