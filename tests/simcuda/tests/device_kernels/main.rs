//! Kernels of the CUDA device (`kernels/cuda/device.cu`), each compared with a twin in plain Rust in double precision, and with faults
//! planted in its source, all of which must be found.
//!
//! They need the CUDA compiler, so `make test-cuda` runs them and `make test` lists them as ignored.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod attention;
mod choose;
mod conv;
mod conv_groups;
mod draw;
mod elementwise;
mod integers;
#[path = "../support/nvcc.rs"]
mod nvcc;
mod products;
#[path = "../../../../kernels/src/random.rs"]
mod random;
mod recurrent;
mod rows;
mod snake;
#[path = "../support/mod.rs"]
mod support;
mod tiles;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use nvcc::{compile, replace};
use repartee_simcuda::decode::half::{bf16, of_bf16};
use repartee_simcuda::fault::Fault;
use support::Device;

/// First mismatch between a kernel and its twin, if any.
type TwinResult = Result<Option<String>, Fault>;

/// A kernel, its twin, and faults to plant in its source: each a text and its replacement.
struct Kernel {
    name: &'static str,
    file: &'static str,
    check: fn(&str) -> TwinResult,
    planted: &'static [(&'static str, &'static str)],
}

fn kernels() -> Vec<&'static Kernel> {
    let all = [
        elementwise::KERNELS,
        snake::KERNELS,
        recurrent::KERNELS,
        rows::KERNELS,
        products::KERNELS,
        integers::KERNELS,
        tiles::KERNELS,
        attention::KERNELS,
        conv::KERNELS,
        conv_groups::KERNELS,
        choose::KERNELS,
        draw::KERNELS,
    ];
    all.into_iter().flatten().collect()
}

/// Marks no row.
const NO_ROW: u32 = u32::MAX;

/// Lengths of segments, and the number of rows: the last row belongs to none.
const SEGMENTS: [u32; 4] = [5, 1, 40, 0];
const SEGMENT_ROWS: usize = 47;

/// Returns the rows of a row's segment.
fn segment_of(row: usize) -> Option<std::ops::Range<usize>> {
    match row {
        0..5 => Some(0..5),
        5 => Some(5..6),
        6..46 => Some(6..46),
        _ => None,
    }
}

/// Numbers in `[-1, 1)` for a stream, exact in bf16.
fn numbers(stream: u64, count: usize) -> Vec<f32> {
    (0..count as u64).map(|i| of_bf16(bf16(random::uniform(11, stream, i, 0) * 2.0 - 1.0))).collect()
}

impl Device {
    fn f32s(&mut self, values: &[f32]) -> u64 {
        self.bytes(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
    }

    fn u32s(&mut self, values: &[u32]) -> u64 {
        self.bytes(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
    }

    /// Uploads a weight in either format.
    fn weight(&mut self, is_bf16: bool, values: &[f32]) -> u64 {
        if !is_bf16 {
            return self.f32s(values);
        }
        self.bytes(&values.iter().flat_map(|value| bf16(*value).to_le_bytes()).collect::<Vec<_>>())
    }

    /// Allocates uninitialised memory.
    fn fresh(&mut self, words: usize) -> u64 {
        self.memory.alloc(words.max(1) * 4).unwrap()
    }

    fn read_u32s(&mut self, address: u64, count: usize) -> Result<Vec<u32>, Fault> {
        let mut bytes = vec![0; count * 4];
        self.memory.read(address, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    fn read_f32s(&mut self, address: u64, count: usize) -> Result<Vec<f32>, Fault> {
        Ok(self.read_u32s(address, count)?.into_iter().map(f32::from_bits).collect())
    }
}

/// Launches a kernel with one block for each `threads` of `count`.
fn each(device: &mut Device, name: &str, count: usize, params: &[u64]) -> Result<(), Fault> {
    const THREADS: usize = 64;
    device.launch(name, [count.div_ceil(THREADS) as u32, 1, 1], [THREADS as u32, 1, 1], 0, params)
}

/// Compares with numbers in double precision, each with its tolerance.
fn compare(found: &[f32], wanted: impl Iterator<Item = (f64, f64)>) -> Option<String> {
    let mut places = 0;
    let wrong = found.iter().zip(wanted).enumerate().find_map(|(at, (&found, (wanted, bound)))| {
        places += 1;
        let found64 = f64::from(found);
        let near = found64 == wanted
            || (wanted.is_finite() && (found64 - wanted).abs() <= bound)
            || (found.is_nan() && wanted.is_nan());
        (!near).then(|| format!("{found} for {wanted} at {at}"))
    });
    assert!(wrong.is_some() || places == found.len(), "the twin has {places} of {} numbers", found.len());
    wrong
}

/// Sums products; returns the sum and the tolerance of as many terms in f32.
fn sum(terms: impl Iterator<Item = f64>) -> (f64, f64) {
    let (sum, size, count) =
        terms.fold((0.0, 0.0, 0.0), |(s, size, n), term: f64| (s + term, size + term.abs(), n + 1.0));
    (sum, size * (count + 2.0) * f64::powi(2.0, -24) + 1e-30)
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn every_kernel_has_a_twin() {
    let ptx = compile("device.cu", |text| text);
    let entry = |line: &str| line.split_once(".entry ").map(|(_, name)| name.trim_end_matches('(').to_owned());
    let shipped: BTreeSet<String> = ptx.lines().filter_map(entry).collect();
    let checked: BTreeSet<String> = kernels().iter().map(|kernel| kernel.name.to_owned()).collect();
    assert_eq!(shipped, checked);
    assert!(kernels().iter().all(|kernel| kernel.planted.len() > 1));
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn kernels_match_their_twins() {
    let mut compiled = BTreeMap::new();
    for kernel in kernels() {
        let ptx: &String = compiled.entry(kernel.file).or_insert_with(|| compile(kernel.file, |text| text));
        assert_eq!((kernel.check)(ptx), Ok(None), "{}", kernel.name);
    }
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn planted_faults_of_kernels_are_found() {
    // Kernels for different rows share their source.
    let mut planted: BTreeMap<_, Vec<&Kernel>> = BTreeMap::new();
    for kernel in kernels() {
        for &(from, to) in kernel.planted {
            planted.entry((kernel.file, from, to)).or_default().push(kernel);
        }
    }
    let (planted, missed) = (Mutex::new(planted.into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some(((file, from, to), kernels)) = planted.lock().unwrap().next() else { return };
                    let ptx = compile(file, replace(from, to));
                    for kernel in kernels.iter().filter(|kernel| (kernel.check)(&ptx) == Ok(None)) {
                        missed.lock().unwrap().push(format!("{}: `{from}` by `{to}`", kernel.name));
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert_eq!(missed, [""; 0]);
}

/// The tested module equals the shipped one, to the bit: the same compiler builds it from the same sources.
#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn module_has_the_committed_hashes() {
    let ptx = compile("device.cu", |text| text);
    let hashes = [nvcc::sha256(ptx.as_bytes()), nvcc::sha256(&nvcc::machine_code(&ptx))];
    let found = format!("{}  device.ptx\n{}  device.cubin\n", hashes[0], hashes[1]);
    assert!(
        found == nvcc::committed_hashes(),
        "kernels/cuda/device.sha256 has to be, now that kernels have changed:\n{found}"
    );
}

/// Prints registers, shared memory and spills of the shipped module; fails on a spill.
#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn kernels_of_the_device_do_not_spill() {
    let said = nvcc::resources(&compile("device.cu", |text| text));
    let spills = said.lines().filter(|line| line.contains("spill")).collect::<Vec<_>>();
    assert_eq!(spills.len(), kernels().len());
    assert!(spills.iter().all(|line| line.contains("0 bytes spill stores, 0 bytes spill loads")), "{said}");
    let mut name = "";
    for line in said.lines() {
        if let Some((_, rest)) = line.split_once("entry function '") {
            name = rest.split('\'').next().unwrap();
        } else if let Some((_, used)) = line.split_once("Used ") {
            println!("{name}: {used}");
        }
    }
}
