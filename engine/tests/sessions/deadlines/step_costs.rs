//! Step costs of the demo model, measured by `cargo bench -p repartee-engine --bench costs` on 2026-11-22 (one thread
//! of an AMD EPYC with AVX2, while its other core was busy).

/// Microseconds of steps, by number of rows.
type Table = &'static [(usize, f64)];

/// Prefill of one slot's prompt rows: thinker and talker.
const PREFILL: [Table; 2] = [
    &[
        (1, 163.0),
        (2, 314.0),
        (4, 613.0),
        (8, 1767.0),
        (9, 1742.0),
        (16, 3059.0),
        (17, 2952.0),
        (32, 5797.0),
        (64, 11975.0),
        (65, 11996.0),
        (128, 24160.0),
        (256, 48329.0),
    ],
    &[
        (1, 111.0),
        (2, 190.0),
        (4, 486.0),
        (8, 1049.0),
        (9, 914.0),
        (16, 1713.0),
        (17, 1832.0),
        (32, 3297.0),
        (64, 5917.0),
        (65, 6340.0),
        (128, 11984.0),
        (256, 29827.0),
    ],
];
/// Decode of several slots: a token, a codec frame, or the samples of a frame of each.
const DECODE: [Table; 3] = [
    &[
        (1, 500.0),
        (2, 550.0),
        (3, 778.0),
        (4, 987.0),
        (8, 1936.0),
        (9, 2004.0),
        (16, 3400.0),
        (17, 3675.0),
        (32, 6561.0),
        (64, 12992.0),
    ],
    &[
        (1, 577.0),
        (2, 889.0),
        (3, 1330.0),
        (4, 1671.0),
        (8, 3279.0),
        (9, 3475.0),
        (16, 6037.0),
        (17, 6562.0),
        (32, 11894.0),
        (64, 30403.0),
    ],
    &[
        (1, 1816.0),
        (2, 3309.0),
        (3, 4959.0),
        (4, 6485.0),
        (8, 13017.0),
        (9, 14830.0),
        (16, 28157.0),
        (17, 30408.0),
        (32, 59414.0),
        (64, 121264.0),
    ],
];

/// Seconds of a step of `stage`, by numbers of prompt rows and decode rows.
pub fn seconds(stage: usize, prompt: usize, decode: usize) -> f64 {
    if prompt == 0 {
        return at(DECODE[stage], decode) * 1e-6;
    }
    // All rows share the layers; decode rows also run the head, and in the talker the code predictor.
    let head = (at(DECODE[stage], decode) - at(PREFILL[stage], decode)).max(0.0);
    (at(PREFILL[stage], prompt + decode) + head) * 1e-6
}

/// Interpolates a table linearly, and extrapolates beyond its last point.
fn at(table: Table, rows: usize) -> f64 {
    if rows == 0 {
        return 0.0;
    }
    let above = table.partition_point(|point| point.0 < rows).clamp(1, table.len() - 1);
    let (below, above) = (table[above - 1], table[above]);
    below.1 + (above.1 - below.1) * (rows as f64 - below.0 as f64) / (above.0 as f64 - below.0 as f64)
}
