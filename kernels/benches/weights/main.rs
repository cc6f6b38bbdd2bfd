//! Benchmark of products of published dimensions with weights as bf16, int8 and int4: read bandwidth compared with the memory's, and
//! multiply-adds a second. One line for each measurement; `cargo bench -p repartee-kernels --bench weights`.
#![allow(clippy::unwrap_used)] // A panic is this benchmark's report.

mod measure;

use measure::{Bench, Format};

fn main() {
    println!("{} ({} MiB read in turn)", measure::about(), measure::MIB);
    for threads in [1, 2] {
        let bench = Bench::new(threads);
        let read = bench.read_bandwidth();
        println!("{threads} threads: memory gives {:.1} GB/s", read / 1e9);
        for format in Format::ALL {
            for shape in measure::DECODE {
                let rate = bench.decode(format, shape);
                println!(
                    "  decode  {:<5} {:<28} {:>7.1} us {:>6.1} GB/s  {:>4.0} % of it",
                    format.name(),
                    shape.name,
                    rate.seconds * 1e6,
                    rate.bytes / rate.seconds / 1e9,
                    rate.bytes / rate.seconds / read * 100.0
                );
            }
            for rows in measure::ROWS {
                let rate = bench.prefill(format, rows);
                println!(
                    "  prefill {:<5} {rows:>3} rows {:>9.1} us {:>6.1} GMAC/s",
                    format.name(),
                    rate.seconds * 1e6,
                    rate.multiplies / rate.seconds / 1e9
                );
            }
        }
    }
}
