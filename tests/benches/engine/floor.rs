//! Each stage compared with the physical floor of this machine: one read of its weights at the measured memory
//! bandwidth, or its multiply-adds at the measured peak of one core, whichever takes longer.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use repartee_engine::Source;
use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::WindowInput;
use repartee_engine::internals::qwen3_omni_moe::Qwen3Omni;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::cpu::gemm::{PackedWeight, StridedRows, multiply};
use repartee_kernels::cpu::hardware_peaks::{PeakRate, float_peak};
use repartee_kernels::cpu::pool::Pool;
use repartee_kernels::{Ops, SampleParams, StateSpec, StreamRows};
use repartee_kernels_testkit::host::HostOps;
use repartee_report::ReportRow;
use safetensors::SafeTensors;

use crate::bed::median;
use repartee_engine_testkit::eager::{self, batch, index};

/// Number of timed repetitions.
const REPEATS: usize = 9;

/// Minimum work of a step.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    /// Bytes of weights, each read once.
    bytes: f64,
    /// Number of multiply-adds.
    multiplies: f64,
}

/// Measured peak of one core of this machine.
#[derive(Debug, Clone, Copy)]
struct Machine {
    /// Memory bandwidth, in bytes per second.
    bandwidth: f64,
    /// Multiply-adds per second on registers only.
    peak: PeakRate,
    /// Multiply-adds per second of our matrix product.
    product: f64,
}

impl Machine {
    fn measure() -> Result<Self> {
        // Much larger than any cache.
        let large = vec![1u64; 32 << 20];
        let copy = |into: &mut Vec<u64>| {
            into.copy_from_slice(black_box(&large));
            black_box(&into);
        };
        let mut other = vec![0u64; large.len()];
        let bytes = (large.len() * 8) as f64;
        // A copy reads and writes each byte.
        let bandwidth = (0..5).map(|_| 2.0 * bytes / timed(|| copy(black_box(&mut other)))).fold(0.0, f64::max);
        const N: usize = 512;
        let level = Cpu::default().level();
        let weight = PackedWeight::new(N, N, |row, column| (row * 31 + column * 17) as f32 * 1e-4);
        let x: Vec<f32> = (0..N * N).map(|i| i as f32 * 1e-5).collect();
        let mut out = vec![0.0; N * N];
        let run = |out: &mut Vec<f32>| multiply(level, StridedRows::dense(&x, N), &weight, None, out);
        let product = (0..9).map(|_| (N * N * N) as f64 / timed(|| run(black_box(&mut out)))).fold(0.0, f64::max);
        Ok(Self { bandwidth, peak: float_peak(&Pool::new(1)?), product })
    }

    /// Returns the minimum time for `work`, in ms.
    fn floor(&self, work: Work) -> f64 {
        (work.bytes / self.bandwidth).max(work.multiplies / self.peak.multiplies) * 1e3
    }
}

fn timed(run: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    run();
    begun.elapsed().as_secs_f64()
}

/// Returns the median of several runs, in ms per part (of `parts`).
fn each(parts: usize, mut run: impl FnMut()) -> f64 {
    run();
    median((0..REPEATS).map(|_| timed(&mut run) * 1e3 / parts as f64).collect())
}

pub fn rows(folder: &Path) -> Result<Vec<ReportRow>> {
    let machine = Machine::measure()?;
    let bytes = std::fs::read(folder.join("model.safetensors"))?;
    let tensors = SafeTensors::deserialize(&bytes)?;
    // Sums every tensor below a prefix, with its number of rows.
    let work = |uses: &[(&str, f64)]| -> Work {
        let mut work = Work::default();
        for (name, tensor) in tensors.tensors() {
            if let Some((_, rows)) = uses.iter().find(|(prefix, _)| name.starts_with(prefix)) {
                work.bytes += tensor.data().len() as f64;
                work.multiplies += tensor.shape().iter().product::<usize>() as f64 * rows;
            }
        }
        work
    };
    let ops = Cpu::default();
    let model = Qwen3Omni::load(&ops, &Checkpoint::open(Source::Folder(folder.to_owned()))?)?;
    let greedy =
        SampleParams { slot: 0, repetition_penalty: 1.0, temperature: 0.0, top_k: 0, top_p: 1.0, uniform: 0.0 };
    const STEPS: usize = 20;

    let mut cache = model.thinker.model.cache(&ops, 1, STEPS);
    let mut output_mask =
        ops.state(StateSpec::TokenMask { slots: 1, vocabulary: model.config.thinker.text.model.vocab_size });
    let thinker = each(STEPS, || {
        let mut ids = vec![20];
        for step in 0..STEPS {
            let tokens = index(&ops, &ids);
            let x = model.thinker.embed(&ops, &tokens, None);
            let (x, _) = model.thinker.forward(&ops, x, &tokens, &mut cache, &batch(&ops, step, 1));
            let logits = model.thinker.logits(&ops, &x, &index(&ops, &[0]));
            ids = ops.sample(&logits, &[greedy], None, Some(&mut output_mask));
        }
    });
    let thinker_work = work(&[("thinker.model.layers", 1.0), ("thinker.lm_head", 1.0)]);

    let mut cache = model.talker.codec.model.cache(&ops, 1, STEPS);
    let mut predictor_cache = model.talker.code_predictor.cache(&ops, 1);
    let mut output_mask =
        ops.state(StateSpec::TokenMask { slots: 1, vocabulary: model.config.talker.text.model.vocab_size });
    let talker = each(STEPS, || {
        let mut x = model.talker.codec.rows(&ops, &index(&ops, &[20]));
        for step in 0..STEPS {
            let hidden = model.talker.codec.forward(&ops, x, &mut cache, &batch(&ops, step, 1), &index(&ops, &[0]));
            let logits = model.talker.codec.logits(&ops, &hidden);
            let first = ops.sample(&logits, &[greedy], Some(&model.talker.codec.allowed_mask), Some(&mut output_mask));
            let first = model.talker.codec.rows(&ops, &index(&ops, &first));
            let predictor = &model.talker.code_predictor;
            x = eager::complete(&ops, predictor, &hidden, first, &mut predictor_cache, &[greedy]).2;
        }
    });
    let groups = model.config.talker.code_predictor.num_code_groups as f64;
    let talker_work = work(&[
        ("talker.model.layers", 1.0),
        ("talker.codec_head", 1.0),
        // Two rows first, then one per further codebook.
        ("talker.code_predictor.model.layers", groups),
        ("talker.code_predictor.lm_head", 1.0),
    ]);

    let codec = &model.config.code2wav;
    let frame: Vec<Vec<u32>> = (0..codec.num_quantizers).map(|q| vec![q as u32 * 7]).collect();
    let mut state = model.code2wav.state(&ops, 1);
    let code2wav = each(STEPS, || {
        for step in 0..STEPS {
            let chunk = StreamRows { slot: 0, position: step, rows: 1 };
            eager::decode(&ops, &model.code2wav, &frame, &mut state, &[chunk]);
        }
    });
    // The rows of a frame grow with every upsampling; a transposed convolution works on its input's rows.
    let mut uses: Vec<(String, f64)> = vec![("code2wav.pre_transformer.layers".to_owned(), 1.0)];
    let mut rows_now = 1.0;
    for (i, &factor) in codec.upsampling_ratios.iter().enumerate() {
        uses.push((format!("code2wav.upsample.{i}.0."), rows_now));
        rows_now *= factor as f64;
        uses.push((format!("code2wav.upsample.{i}.1."), rows_now));
    }
    uses.push(("code2wav.decoder.0.".to_owned(), rows_now));
    for (i, &rate) in codec.upsample_rates.iter().enumerate() {
        uses.push((format!("code2wav.decoder.{}.block.1.", i + 1), rows_now));
        rows_now *= rate as f64;
        uses.push((format!("code2wav.decoder.{}.block.", i + 1), rows_now));
    }
    uses.push((format!("code2wav.decoder.{}.conv", codec.upsample_rates.len() + 2), rows_now));
    let code2wav_work = work(&uses.iter().map(|(name, rows)| (name.as_str(), *rows)).collect::<Vec<_>>());

    let bins = model.config.thinker.audio.tower.num_mel_bins;
    let frames = model.config.thinker.audio.n_window_infer;
    let mel: Vec<f32> = (0..frames * bins).map(|i| (i % 97) as f32 * 0.01).collect();
    let tower = each(1, || {
        eager::encode(&ops, &model.audio_tower, &[WindowInput { data: &mel, index: 1 }]);
    });
    let (half, quarter) = ((frames * bins) as f64 / 4.0, (frames * bins) as f64 / 16.0);
    let tokens = frames as f64 / 100.0 * 13.0;
    let tower_work = work(&[
        ("thinker.audio_tower.conv2d1", half),
        ("thinker.audio_tower.conv2d2", quarter),
        ("thinker.audio_tower.conv2d3", quarter / 4.0),
        ("thinker.audio_tower.conv_out", tokens),
        ("thinker.audio_tower.layers", tokens),
        ("thinker.audio_tower.proj", tokens),
    ]);

    let mut made = vec![
        ReportRow::without_peer(
            "machine_bandwidth",
            machine.bandwidth / 1e9,
            "GB/s",
            "one core, copying 256 MB, bytes read and written",
        ),
        ReportRow::without_peer(
            "machine_peak",
            2.0 * machine.peak.multiplies / 1e9,
            "GFLOP/s",
            format!(
                "one core, multiply-adds on registers alone, nothing loaded or stored: {}",
                machine.peak.instruction
            ),
        ),
        ReportRow::without_peer(
            "product",
            2.0 * machine.product / 1e9,
            "GFLOP/s",
            format!(
                "one core, our product of 512 by 512 matrices: {:.0} % of machine_peak",
                100.0 * machine.product / machine.peak.multiplies
            ),
        ),
    ];
    for (name, took, work, what) in [
        ("floor_audio_window", tower, tower_work, format!("{frames} mel frames")),
        ("floor_thinker_token", thinker, thinker_work, "one token of one session".to_owned()),
        ("floor_codec_frame", talker, talker_work, "talker step and code predictor, one session".to_owned()),
        ("floor_code2wav_frame", code2wav, code2wav_work, "one frame with carried state".to_owned()),
    ] {
        let bound = if work.bytes / machine.bandwidth > work.multiplies / machine.peak.multiplies {
            "memory"
        } else {
            "arithmetic"
        };
        let note = format!(
            "{what}; peer: the floor, {:.1} MB of weights and {:.1} M multiply-adds, bound by {bound}",
            work.bytes / 1e6,
            work.multiplies / 1e6
        );
        made.push(ReportRow::lower_is_better(name, took, machine.floor(work), "ms", note));
    }
    Ok(made)
}
