//! Benchmark of products of published dimensions with weights of each format: read bandwidth compared with the memory's, multiply-adds a
//! second, and one row beside candle's and llama.cpp's products. One line for each measurement, and `target/report/weights.json`;
//! `make bench-weights`; with names of formats, of these alone and without peers.
#![allow(clippy::unwrap_used)] // A panic is this benchmark's report.

mod measure;
mod peers;

use std::path::Path;

use measure::{Bench, Format, RUN};
use repartee_report::{Report, ReportRow};

/// Our formats, and those of the peers that have the same bytes, or fewer for `q4_K`.
const BESIDE: [(Format, &str); 4] =
    [(Format::Q4_0, "q4_0"), (Format::Q4_1, "q4_1"), (Format::Q4_K, "q4_K"), (Format::Q8_0, "q8_0")];
/// Rounds of ours and of the peers by turns: the least counts.
const ROUNDS: usize = 2;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, format] = &arguments[..]
        && flag == peers::CANDLE
    {
        return peers::measure_candle(format);
    }
    println!("{} ({} MiB read in turn)", measure::about(), measure::MIB);
    let mut rows = Vec::new();
    let named = |format: &Format| arguments.is_empty() || arguments.iter().any(|name| name == format.name());
    for threads in [1, 2] {
        alone(threads, Format::ALL.into_iter().filter(named), &mut rows);
        if arguments.is_empty() {
            beside_peers(threads, &mut rows);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/report/weights.json");
    Report::new("weights", rows).write(&path).unwrap();
}

/// Measures our products, and their share of the memory's bandwidth.
fn alone(threads: usize, formats: impl Iterator<Item = Format>, rows: &mut Vec<ReportRow>) {
    let bench = Bench::new(threads);
    let read = bench.read_bandwidth();
    println!("{threads} threads: memory gives {:.1} GB/s", read / 1e9);
    for format in formats {
        for shape in measure::DECODE {
            let rate = bench.decode(format, shape);
            let bandwidth = rate.bytes / rate.seconds;
            println!(
                "  decode  {:<5} {:<28} {:>7.1} us {:>6.1} GB/s  {:>4.0} % of it",
                format.name(),
                shape.name,
                rate.seconds * 1e6,
                bandwidth / 1e9,
                bandwidth / read * 100.0
            );
            rows.push(ReportRow {
                measure: format!("decode_{}_{}x{}_{threads}", format.name(), shape.columns, shape.k),
                ours: bandwidth / 1e9,
                peer: Some(read / 1e9),
                ratio: Some(bandwidth / read),
                unit: "GB/s".to_owned(),
                note: format!("one row, {threads} thread(s), beside reading memory; the fastest product"),
            });
        }
        for count in measure::ROWS {
            let rate = bench.prefill(format, count);
            let gmacs = rate.multiplies / rate.seconds / 1e9;
            println!(
                "  prefill {:<5} {count:>3} rows {:>9.1} us {gmacs:>6.1} GMAC/s",
                format.name(),
                rate.seconds * 1e6
            );
            let note = format!("{count} rows, {threads} thread(s); the fastest product");
            let measure = format!("prefill_{}_{count}_{threads}", format.name());
            rows.push(ReportRow::without_peer(measure, gmacs, "GMAC/s", note));
        }
    }
}

/// Measures one row beside the peers': the sum of all shapes, each the fastest run of [`RUN`] products.
fn beside_peers(threads: usize, rows: &mut Vec<ReportRow>) {
    let bench = Bench::new(threads);
    let sum =
        |products: &[(f64, f64)]| products.iter().fold((0.0, 0.0), |(s, b), product| (s + product.0, b + product.1));
    for (format, theirs) in BESIDE {
        let (mut ours, mut best) = ((f64::INFINITY, 0.0), [None::<(f64, f64)>; 2]);
        for _ in 0..ROUNDS {
            let products = measure::DECODE.map(|shape| {
                let rate = bench.decode(format, shape);
                (rate.run_seconds, rate.bytes)
            });
            let now = sum(&products);
            ours = if now.0 < ours.0 { now } else { ours };
            for (best, peer) in best.iter_mut().zip([peers::llama_cpp, peers::candle]) {
                if let Some(now) = peer(theirs, threads).map(|products| sum(&products)) {
                    *best = Some(best.filter(|best| best.0 <= now.0).unwrap_or(now));
                }
            }
        }
        for (peer, name) in best.into_iter().zip(["llama_cpp", "candle"]) {
            let Some((seconds, bytes)) = peer else { continue };
            let note = format!(
                "one row by 5120x2048, 1536x2048 and 2048x768, {threads} thread(s); ours {:.2} MB at {:.1} GB/s, {name} {theirs} {:.2} MB at \
                 {:.1} GB/s; fastest {RUN} products of {ROUNDS} rounds",
                ours.1 / 1e6,
                ours.1 / ours.0 / 1e9,
                bytes / 1e6,
                bytes / seconds / 1e9,
            );
            let measure = format!("decode_{}_vs_{name}_{theirs}_{threads}", format.name());
            let row = ReportRow::lower_is_better(measure, ours.0 * 1e6, seconds * 1e6, "us", note);
            println!(
                "  {:<36} {:>7.1} {:>7.1} us {:.2} x  {}",
                row.measure,
                row.ours,
                seconds * 1e6,
                ours_ratio(&row),
                row.note
            );
            rows.push(row);
        }
    }
}

fn ours_ratio(row: &ReportRow) -> f64 {
    row.ratio.unwrap_or(f64::NAN)
}
