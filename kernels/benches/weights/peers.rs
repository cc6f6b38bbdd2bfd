//! Products of other libraries on the same shapes, each in a process of its own: candle's in this program, llama.cpp's by
//! `tests/peers/ggml_products.py`.

use std::borrow::Cow;
use std::env::current_exe;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{Device, Module, Tensor};
use repartee_kernels::random::uniform;
use serde_json::Value;

use crate::measure::{DECODE, MIB, PASSES, RUN, Shape};

/// Argument with which this program measures candle.
pub const CANDLE: &str = "--candle";

/// Seconds and bytes of each product of [`DECODE`].
pub type Products = Vec<(f64, f64)>;

/// Measures llama.cpp's products of a format; `None`, and a line that says so, if they cannot be measured.
pub fn llama_cpp(format: &str, threads: usize) -> Option<Products> {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/peers");
    let libraries = peers.join("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64");
    if !libraries.exists() {
        println!("  no llama.cpp: `scripts/setup.sh llama_cpp` installs it, on Linux on x86-64");
        return None;
    }
    let shapes = DECODE.map(|shape| format!("{}x{}", shape.columns, shape.k));
    let mut command = Command::new("python3");
    command.arg(peers.join("ggml_products.py")).arg(libraries);
    products(command.arg(format).args([threads, MIB, PASSES, RUN].map(|number| number.to_string())).args(shapes))
}

/// Measures candle's products of a format in a process of its own: candle takes the number of threads once.
pub fn candle(format: &str, threads: usize) -> Option<Products> {
    let mut command = Command::new(current_exe().unwrap());
    products(command.args([CANDLE, format]).env("RAYON_NUM_THREADS", threads.to_string()))
}

/// Runs a program and reads its products.
fn products(command: &mut Command) -> Option<Products> {
    let done = command.output().unwrap();
    let printed = String::from_utf8_lossy(&done.stdout);
    let Ok(Value::Array(products)) = serde_json::from_str(printed.trim()) else {
        println!("  {command:?} failed: {}", String::from_utf8_lossy(&done.stderr));
        return None;
    };
    let number = |product: &Value, key: &str| product[key].as_f64().unwrap();
    Some(products.iter().map(|product| (number(product, "seconds"), number(product, "bytes"))).collect())
}

/// Measures candle here, and prints its products.
pub fn measure_candle(format: &str) {
    let format = match format {
        "q4_0" => GgmlDType::Q4_0,
        "q4_1" => GgmlDType::Q4_1,
        "q4_K" => GgmlDType::Q4K,
        _ => GgmlDType::Q8_0,
    };
    let products: Vec<_> = DECODE.iter().map(|&shape| candle_product(format, shape)).collect();
    println!("{}", Value::Array(products));
}

fn candle_product(format: GgmlDType, Shape { columns, k, .. }: Shape) -> Value {
    let device = Device::Cpu;
    let tensor = |seed, rows: usize| {
        let numbers: Vec<f32> = (0..rows * k).map(|i| uniform(seed, i as u64, 0, 0) - 0.5).collect();
        Tensor::from_vec(numbers, (rows, k), &device).unwrap()
    };
    let one = QTensor::quantize(&tensor(1, columns), format).unwrap();
    let data = one.data().unwrap();
    let copy = || {
        let storage = QStorage::from_data(Cow::Borrowed(&data), &device, format).unwrap();
        QMatMul::from_qtensor(QTensor::new(storage, (columns, k)).unwrap()).unwrap()
    };
    let weights: Vec<QMatMul> = (0..(MIB << 20).div_ceil(data.len())).map(|_| copy()).collect();
    let x = tensor(2, 1);
    let run = |weights: &[QMatMul]| {
        let begun = Instant::now();
        weights.iter().for_each(|weight| drop(weight.forward(&x).unwrap()));
        begun.elapsed().as_secs_f64() / RUN as f64
    };
    // The first pass repacks.
    weights.iter().for_each(|weight| drop(weight.forward(&x).unwrap()));
    let runs = (0..PASSES).flat_map(|_| weights.chunks_exact(RUN));
    let seconds = runs.map(run).fold(f64::INFINITY, f64::min);
    serde_json::json!({ "seconds": seconds, "bytes": data.len() })
}
