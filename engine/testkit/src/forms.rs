//! The fixture `omni25` in other published forms: pickles of PyTorch, FP8, AWQ and GPTQ. The script
//! `tests/parity/checkpoint_forms/make_fixtures.py` makes their matrices.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

use crate::{folder, root, speech};

/// Forms of the fixture.
pub const FORMS: [&str; 4] = ["pickles", "fp8", "awq", "gptq"];

/// Folder of the forms' own files.
pub fn data() -> PathBuf {
    root().join("engine/tests/data/forms")
}

/// Mark of a quantised form, as config.json has it.
pub fn mark(form: &str) -> Value {
    match form {
        "fp8" => json!({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}),
        "awq" => json!({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": true}),
        "gptq" => json!({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false, "sym": false}),
        other => panic!("{other}"),
    }
}

/// Copy of the fixture in a form.
pub fn checkpoint(form: &str) -> tempfile::TempDir {
    let copy = speech::copy(&folder("omni25").join("checkpoint"));
    let model = copy.path().join("model.safetensors");
    if form == "pickles" {
        fs::remove_file(model).unwrap();
        for entry in fs::read_dir(data()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            if name.to_string_lossy().starts_with("pytorch_model") {
                fs::copy(&path, copy.path().join(name)).unwrap();
            }
        }
        return copy;
    }
    let (whole, own) = (fs::read(&model).unwrap(), fs::read(data().join(format!("{form}.safetensors"))).unwrap());
    let (whole, own) = (SafeTensors::deserialize(&whole).unwrap(), SafeTensors::deserialize(&own).unwrap());
    let mut tensors: BTreeMap<String, TensorView<'_>> = whole.tensors().into_iter().collect();
    for (name, tensor) in own.tensors() {
        if let Some(module) = name.strip_suffix(".qweight") {
            tensors.remove(&format!("{module}.weight"));
        }
        tensors.insert(name, tensor);
    }
    fs::write(&model, safetensors::serialize(tensors, None).unwrap()).unwrap();
    edit_config(&copy, |config| config["quantization_config"] = mark(form));
    copy
}

/// Edits config.json of a copied checkpoint.
pub fn edit_config(copy: &tempfile::TempDir, change: impl FnOnce(&mut Value)) {
    let path = copy.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    fs::write(path, config.to_string()).unwrap();
}
