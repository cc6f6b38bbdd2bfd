//! Sampling of ids.

use super::support::Device;
use super::{Kernel, NO_ROW, TwinResult, numbers, random};

pub const KERNELS: &[Kernel] = &[Kernel {
    name: "choose_rows",
    file: "choose.cu",
    check: choose,
    planted: &[
        ("logit * params.penalty : logit / params.penalty", "logit / params.penalty : logit * params.penalty"),
        ("wanted <= reach", "wanted < reach"),
        ("(own & fixed) == key", "true"),
        ("found[1] = wanted - before;", "found[1] = wanted;"),
        ("BINS - 1 - threadIdx.x * EACH", "(threadIdx.x + 1) * EACH - 1"),
        ("(1.0f - params.top_p)", "params.top_p"),
        ("before++ < gone", "before++ > gone"),
        ("history[chosen] = 1", "history[0] = 1"),
        ("allowed[id] == 0.0f", "allowed[id] != 0.0f"),
        ("running > wanted", "running > wanted * 0.9f"),
        ("float running = starts[threadIdx.x];", "float running = starts[threadIdx.x ^ 1];"),
        ("bad |= !isfinite(logit);", ""),
        ("logit /= params.temperature;", ""),
        ("scratch[0] = total;\n    }\n    __syncthreads();", "scratch[0] = total;\n    }"),
    ],
}];

#[derive(Clone, Copy)]
struct Row {
    slot: u32,
    penalty: f32,
    temperature: f32,
    top_k: u32,
    top_p: f32,
    uniform: f32,
}

/// Allowed ids of a row: each with the lower and the upper bound of the cumulative sum at which it is sampled. Ids at a rounding border
/// have both.
fn shares(logits: &[f32], row: &Row, allowed: Option<&[f32]>, seen: &[u8]) -> Vec<(usize, f64, f64)> {
    let mut logits = logits.to_vec();
    for (id, logit) in logits.iter_mut().enumerate() {
        if row.slot != NO_ROW && row.penalty != 1.0 && seen[id] != 0 {
            *logit = if *logit < 0.0 { *logit * row.penalty } else { *logit / row.penalty };
        }
        if allowed.is_some_and(|allowed| allowed[id] == 0.0) {
            *logit = f32::NEG_INFINITY;
        }
    }
    let mut order: Vec<usize> = (0..logits.len()).filter(|id| logits[*id] > f32::NEG_INFINITY).collect();
    // Most likely last; on a tie the lower id first.
    order.sort_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(a.cmp(b)));
    if row.temperature <= 0.0 {
        let best = order.iter().copied().filter(|id| logits[*id] == logits[order[order.len() - 1]]).min().unwrap();
        return vec![(best, 0.0, 1.0)];
    }
    if row.top_k > 0 && (row.top_k as usize) < logits.len() {
        let least = logits[order[order.len().saturating_sub(row.top_k as usize)]];
        order.retain(|id| logits[*id] >= least);
    }
    let size = |id: usize| (f64::from(logits[id]) / f64::from(row.temperature)).exp();
    let total: f64 = order.iter().map(|id| size(*id)).sum();
    if row.top_p < 1.0 {
        let mut mass = 0.0;
        let keep = order.iter().position(|id| {
            mass += size(*id);
            mass > (1.0 - f64::from(row.top_p)) * total
        });
        order.drain(..keep.unwrap_or(0).min(order.len() - 1));
    }
    order.sort_unstable();
    let total: f64 = order.iter().map(|id| size(*id)).sum();
    let mut before = 0.0;
    let share = |id: usize| {
        let from = before;
        before += size(id) / total;
        (id, from, before)
    };
    order.into_iter().map(share).collect()
}

fn choose(ptx: &str) -> TwinResult {
    const ROWS: usize = 10;
    const THREADS: u32 = 64;
    for (vocabulary, with_mask) in [(3, false), (90, true), (333, false)] {
        let mut device = Device::load(ptx);
        let mut logits: Vec<f32> = numbers(1, ROWS * vocabulary).iter().map(|v| v * 4.0).collect();
        // Ties in some rows.
        for (at, row) in logits.chunks_mut(vocabulary).enumerate() {
            match at {
                0 => row.fill(1.0),
                3 | 6 => row.iter_mut().for_each(|logit| *logit = logit.round()),
                7 => row[vocabulary - 1] = f32::INFINITY,
                _ => {}
            }
        }
        let rows: Vec<Row> = (0..ROWS)
            .map(|row| Row {
                slot: if row == 4 { NO_ROW } else { (ROWS - 1 - row) as u32 },
                penalty: [1.4, 1.0, 2.0][row % 3],
                temperature: if row % 5 == 1 { 0.0 } else { 0.6 + row as f32 / 10.0 },
                top_k: [0, 20, 0, 7, 2][row % 5],
                top_p: [1.0, 1.0, 0.4, 0.8][row % 4],
                uniform: random::uniform(3, row as u64, vocabulary as u64, 0),
            })
            .collect();
        let words: Vec<u32> = rows
            .iter()
            .flat_map(|row| {
                let floats = [row.penalty, row.temperature, row.top_p, row.uniform].map(f32::to_bits);
                [row.slot, floats[0], floats[1], row.top_k, floats[2], floats[3]]
            })
            .collect();
        let allowed: Vec<f32> = (0..vocabulary).map(|id| f32::from(id % 4 != 1)).collect();
        let seen: Vec<u8> = numbers(2, ROWS * vocabulary).iter().map(|v| u8::from(*v > 0.3)).collect();
        let history = device.bytes(&seen);
        let ids = device.fresh(ROWS);
        let params = [
            device.f32s(&logits),
            device.u32s(&words),
            if with_mask { device.f32s(&allowed) } else { 0 },
            history,
            device.fresh(ROWS * vocabulary),
            ids,
            vocabulary as u64,
        ];
        device.launch("choose_rows", [ROWS as u32, 1, 1], [THREADS, 1, 1], THREADS as usize * 4, &params)?;
        let found = device.read_u32s(ids, ROWS)?;
        let mut after = vec![0; seen.len()];
        device.memory.read(history, &mut after)?;
        let mut wanted_after = seen.clone();
        for (at, (row, id)) in rows.iter().zip(&found).enumerate() {
            let own = &logits[at * vocabulary..][..vocabulary];
            let slot = row.slot as usize;
            if own.iter().any(|logit| !logit.is_finite()) {
                if *id != NO_ROW {
                    return Ok(Some(format!("row {at} of {vocabulary}: {id} out of what is not finite")));
                }
                continue;
            }
            let of_slot =
                if row.slot == NO_ROW { &seen[..vocabulary] } else { &seen[slot * vocabulary..][..vocabulary] };
            let shares = shares(own, row, with_mask.then_some(&allowed[..]), of_slot);
            const SLACK: f64 = 1e-5;
            let uniform = f64::from(row.uniform);
            let fits = shares
                .iter()
                .any(|(one, from, to)| *one as u32 == *id && uniform >= from - SLACK && uniform <= to + SLACK);
            if !fits {
                return Ok(Some(format!("row {at} of {vocabulary}: {id} at {uniform}")));
            }
            if row.slot != NO_ROW {
                wanted_after[slot * vocabulary + *id as usize] = 1;
            }
        }
        if after != wanted_after {
            return Ok(Some(format!("another history of {vocabulary} ids")));
        }
    }
    Ok(None)
}
