//! `code2wav`: codec frames to samples, after `Qwen3OmniMoeCode2Wav`, with all state carried. Each frame is decoded
//! once, and any split of a stream gives the same samples as one decode of the whole.
//!
//! With `CodeInput::Embedding` both ends of each transposed convolution are cut, so the first frame yields fewer
//! samples and the last few never exist ([`Code2Wav::look_ahead`]). With `CodeInput::Quantizer` only the right end is
//! cut, and every frame is whole.

mod layers;

use std::ops::Range;

use repartee_kernels::row_spec::{BatchSection, SpecSection, StreamSection};
use repartee_kernels::{Ops, RowSpec, SequenceRows, SpecLayout, StreamLevel, StreamRows};

use self::layers::{ConvNeXt, KERNEL, Snake, UpsampleBlock};
use super::frame_stage::MAX_FRAMES;
use super::split_quantizer::SplitQuantizer;
use super::stream_conv::StreamConv;
use crate::models::load_error::LoadError;
use crate::models::parts::config::{Code2WavConfig, CodeInput};
use crate::models::parts::decoder::{Decoder, DecoderShape, FeedForward};
use crate::models::parts::weights::Weights;

/// Positions in a block of the attention window's ring.
const BLOCK: usize = 16;
/// Taps of the convolution before the transformer.
const PRE_KERNEL: usize = 3;

/// Layers that turn a frame's codes into a row of the transformer, and its output into a row of the upsamplers.
enum CodeEmbedding<O: Ops> {
    Embedding {
        /// One table, codebook after codebook.
        table: O::Weight,
    },
    Quantizer {
        quantizer: SplitQuantizer<O>,
        conv: StreamConv<O>,
        input: (O::Weight, O::Weight),
        output: (O::Weight, O::Weight),
    },
}

/// Codec decoder: the codes' embedding, a windowed transformer and upsampling convolutions.
pub struct Code2Wav<O: Ops> {
    config: Code2WavConfig,
    front: CodeEmbedding<O>,
    pre_transformer: Decoder<O>,
    upsample: Vec<(StreamConv<O>, ConvNeXt<O>)>,
    first: StreamConv<O>,
    blocks: Vec<UpsampleBlock<O>>,
    last_snake: Snake<O>,
    last: StreamConv<O>,
}

/// Sections of the row spec that a step uses.
pub struct Code2WavSections {
    rows: usize,
    /// Codes of each codebook, as entries of its table.
    codes: SpecSection,
    batch: BatchSection,
    streams: StreamSection,
}

/// State of [`Code2Wav`] for each slot's stream.
pub struct Code2WavState<O: Ops> {
    window: Vec<O::State>,
    /// One ring of blocks for each slot.
    rings: Vec<Vec<u32>>,
    /// Block for the frames of the padding.
    scratch: u32,
    /// Convolution tails, in the order of computation.
    tails: Vec<O::State>,
}

impl<O: Ops> CodeEmbedding<O> {
    fn load(w: &Weights<'_, O>, config: &Code2WavConfig) -> Result<Self, LoadError> {
        let (entries, hidden) = (config.codebook_size, config.layers.hidden_size);
        let CodeInput::Quantizer { codebook_dim, latent_dim } = config.input else {
            let table = w.table("code_embedding.weight", entries * config.num_quantizers, hidden)?;
            return Ok(Self::Embedding { table });
        };
        let transformer = w.at("pre_transformer");
        let linear = |name: &str, out, input| -> Result<_, LoadError> {
            let w = transformer.at(name);
            Ok((w.linear("weight", out, input)?, w.vector("bias", out)?))
        };
        Ok(Self::Quantizer {
            quantizer: SplitQuantizer::load(
                &w.at("quantizer"),
                (config.num_quantizers, entries),
                (codebook_dim / 2, codebook_dim),
            )?,
            conv: StreamConv::causal(&w.at("pre_conv"), latent_dim, codebook_dim, PRE_KERNEL, 1)?,
            input: linear("input_proj", hidden, latent_dim)?,
            output: linear("output_proj", latent_dim, hidden)?,
        })
    }

    fn conv(&self) -> Option<&StreamConv<O>> {
        match self {
            Self::Embedding { .. } => None,
            Self::Quantizer { conv, .. } => Some(conv),
        }
    }
}

impl<O: Ops> Code2Wav<O> {
    /// Loads `code2wav` below the prefix of `w`.
    pub fn load(w: &Weights<'_, O>, config: &Code2WavConfig) -> Result<Self, LoadError> {
        let (latent, cut) = (config.latent_size(), config.cuts_both_ends());
        let shape = DecoderShape { layer_scale: true, ..config.layers.shape(Some(config.sliding_window)) };
        let upsample = config.upsampling_ratios.iter().enumerate().map(|(i, &factor)| {
            let w = w.at(format_args!("upsample.{i}"));
            let block = ConvNeXt::load(&w.at("1"), latent)?;
            Ok((StreamConv::transposed(&w.at("0.conv"), latent, latent, factor, (factor, cut))?, block))
        });
        let blocks = config.upsample_rates.iter().enumerate().map(|(i, &rate)| {
            let (input, out) = (config.decoder_dim >> i, config.decoder_dim >> (i + 1));
            let w = w.at(format_args!("decoder.{}.block", i + 1));
            UpsampleBlock::load(&w, (input, out), (rate, cut))
        });
        let rates = config.upsample_rates.len();
        let last = config.decoder_dim >> rates;
        Ok(Self {
            front: CodeEmbedding::load(w, config)?,
            pre_transformer: Decoder::load(&w.at("pre_transformer"), shape, |_| {
                FeedForward::Dense(config.layers.intermediate_size)
            })?,
            upsample: upsample.collect::<Result<_, LoadError>>()?,
            first: StreamConv::causal(&w.at("decoder.0"), config.decoder_dim, latent, KERNEL, 1)?,
            blocks: blocks.collect::<Result<_, LoadError>>()?,
            last_snake: Snake::load(&w.at(format_args!("decoder.{}", rates + 1)), last)?,
            last: StreamConv::causal(&w.at(format_args!("decoder.{}", rates + 2)), 1, last, KERNEL, 1)?,
            config: config.clone(),
        })
    }

    /// Configuration of the decoder.
    pub fn config(&self) -> &Code2WavConfig {
        &self.config
    }

    /// Samples that the first frame lacks. The cut ends of the transposed convolutions hold them back: each block's
    /// rate, times the samples that one of its rows becomes in later blocks.
    pub fn look_ahead(&self) -> usize {
        if !self.config.cuts_both_ends() {
            return 0;
        }
        let rates = &self.config.upsample_rates;
        (0..rates.len()).map(|i| rates[i..].iter().product::<usize>()).sum()
    }

    /// Creates state for `slots` streams of at most [`MAX_FRAMES`] frames in one call.
    pub fn state(&self, ops: &O, slots: usize) -> Code2WavState<O> {
        self.state_for(ops, slots, MAX_FRAMES)
    }

    /// Length of a slot's attention ring, in blocks. The oldest position that a call's first row sees must outlive the
    /// call's last row.
    fn ring(&self, frames: usize) -> usize {
        (self.config.sliding_window + frames).div_ceil(BLOCK) + 1
    }

    /// All convolutions, in the order of computation.
    fn convolutions(&self) -> impl Iterator<Item = &StreamConv<O>> {
        let upsample = self.upsample.iter().flat_map(|(up, next)| [up, next.convolution()]);
        let blocks = self.blocks.iter().flat_map(UpsampleBlock::convolutions);
        self.front.conv().into_iter().chain(upsample).chain([&self.first]).chain(blocks).chain([&self.last])
    }

    /// Bytes of the state of one stream of at most `frames` frames in one call.
    pub fn slot_bytes(&self, frames: usize) -> usize {
        let tails: usize = self.convolutions().map(StreamConv::tail_bytes).sum();
        self.ring(frames) * BLOCK * self.pre_transformer.position_bytes() + tails
    }

    /// Creates state for `slots` streams of at most `frames` frames in one call.
    pub fn state_for(&self, ops: &O, slots: usize, frames: usize) -> Code2WavState<O> {
        let ring = self.ring(frames);
        let rings = (0..slots).map(|slot| (0..ring).map(|i| (slot * ring + i) as u32).collect()).collect();
        Code2WavState {
            window: self.pre_transformer.cache(ops, slots * ring + 1, BLOCK),
            rings,
            scratch: (slots * ring) as u32,
            tails: self.convolutions().map(|conv| conv.tail(ops, slots)).collect(),
        }
    }

    /// Range of a chunk's samples that exist, out of its frames times [`Code2WavConfig::samples_per_frame`].
    pub fn valid_samples(&self, chunk: StreamRows) -> Range<usize> {
        let frame = self.config.samples_per_frame();
        let absent = self.look_ahead().saturating_sub(chunk.position * frame);
        absent.min(chunk.rows * frame)..chunk.rows * frame
    }

    /// Reserves the row spec's sections for a step of `rows` frames.
    pub fn layout(&self, state: &Code2WavState<O>, layout: &mut SpecLayout, rows: usize) -> Code2WavSections {
        Code2WavSections {
            rows,
            codes: layout.list(self.config.num_quantizers * rows),
            batch: layout.batch(rows, rows, state.rings.first().map_or(0, Vec::len)),
            streams: layout.streams(rows, rows),
        }
    }

    /// Fills a row spec with the next frames of several streams. `codes[codebook]` has one id for each row; `chunks`
    /// assigns the rows to slots, at most as many each as the state is made for.
    pub fn fill(
        &self,
        spec: &mut RowSpec,
        sections: &Code2WavSections,
        state: &Code2WavState<O>,
        codes: &[Vec<u32>],
        chunks: &[StreamRows],
    ) {
        for (codebook, ids) in codes.iter().enumerate() {
            let base = match &self.front {
                CodeEmbedding::Embedding { .. } => (codebook * self.config.codebook_size) as u32,
                CodeEmbedding::Quantizer { quantizer, .. } => quantizer.base(codebook),
            };
            spec.set_each(sections.codes.part(codebook, sections.rows), ids.iter().map(|id| base + id));
        }
        let sequence = |&StreamRows { slot, position, rows }: &StreamRows| {
            let table = &state.rings[slot];
            SequenceRows { table, position, rows }
        };
        spec.set_batch(sections.batch, &chunks.iter().map(sequence).collect::<Vec<_>>(), state.scratch);
        spec.set_streams(sections.streams, chunks);
    }

    /// Decodes the frames of a step to samples `[samples, 1]`, the same number for each frame; [`Code2Wav::valid_samples`]
    /// gives the range that exists.
    pub fn forward(
        &self,
        ops: &O,
        (spec, sections): (&O::Spec, &Code2WavSections),
        state: &mut Code2WavState<O>,
    ) -> O::T {
        let batch = ops.batch_at(spec, sections.batch);
        let codebooks = self.config.num_quantizers;
        let code = |codebook| ops.index(spec, sections.codes.part(codebook, sections.rows));
        let sum = |table: &O::Weight| {
            let first = ops.embed_at(table, &code(0));
            (1..codebooks).fold(first, |sum, codebook| ops.add(sum, &ops.embed_at(table, &code(codebook))))
        };
        let mut streams = StreamLevel::new(ops.index(spec, sections.streams.words()));
        let mut tails = state.tails.iter_mut();
        let mut tail = || tails.next().expect("one tail for each convolution: `state` makes them");
        let x = match &self.front {
            CodeEmbedding::Embedding { table } => ops.scale_all(sum(table), 1.0 / codebooks as f32),
            CodeEmbedding::Quantizer { quantizer, conv, input, .. } => {
                let x = quantizer.forward(ops, code);
                ops.linear(&conv.forward(ops, &x, tail(), &streams), &input.0, Some(&input.1))
            }
        };
        let (x, _) = self.pre_transformer.forward(ops, x, &mut state.window, &batch, None);
        let mut x = self.pre_transformer.norm(ops, &x);
        if let CodeEmbedding::Quantizer { output, .. } = &self.front {
            x = ops.linear(&x, &output.0, Some(&output.1));
        }
        for (up, next) in &self.upsample {
            (x, streams) = up.upsample(ops, &x, tail(), &streams);
            x = next.forward(ops, x, tail(), &streams);
        }
        x = self.first.forward(ops, &x, tail(), &streams);
        for block in &self.blocks {
            (x, streams) = block.forward(ops, x, &mut tail, &streams);
        }
        x = self.last_snake.forward(ops, x);
        ops.clamp(self.last.forward(ops, &x, tail(), &streams), -1.0, 1.0)
    }
}
