//! Small graphs, and changed ones.

use proptest::prelude::*;

use super::graph::*;

/// Field of a message: a number, or bytes.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    [&[(number << 3) as u8 | 2, length], bytes].concat()
}

fn varint(number: u64, value: u8) -> Vec<u8> {
    vec![(number << 3) as u8, value]
}

fn node(kind: &str, inputs: &[&str], output: &str) -> Vec<u8> {
    let inputs = inputs.iter().map(|input| field(NODE_INPUT, input.as_bytes()));
    let name = field(NODE_NAME, format!("/{output}/{kind}").as_bytes());
    let rest = [field(NODE_OUTPUT, output.as_bytes()), name, field(NODE_KIND, kind.as_bytes())];
    field(GRAPH_NODE, &inputs.chain(rest).collect::<Vec<_>>().concat())
}

fn constant(name: &str, kind: u64, shape: &[u8], raw: &[u8]) -> Vec<u8> {
    let shape = shape.iter().map(|&size| varint(TENSOR_SHAPE, size));
    let rest = [varint(TENSOR_KIND, kind as u8), field(TENSOR_NAME, name.as_bytes()), field(TENSOR_RAW, raw)];
    field(GRAPH_INITIALIZER, &shape.chain(rest).collect::<Vec<_>>().concat())
}

fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A file with an 8-bit product, one beside it without a bias, and a norm.
fn file() -> Vec<u8> {
    let graph = [
        constant("w", INT8, &[2, 3], &[1, 2, 3, 0xff, 0xfe, 0xfd]),
        constant("scale", FLOAT, &[3], &floats(&[1.0, 0.5, 2.0])),
        node("DequantizeLinear", &["w", "scale"], "wide"),
        node("MatMul", &["x", "wide"], "product"),
        node("QuantizeLinear", &["product"], "narrow"),
        node("Add", &["fc.bias", "narrow"], "y"),
        constant("fc.bias", FLOAT, &[3], &floats(&[0.5, 0.25, 0.125])),
        constant("other", FLOAT, &[2, 1], &floats(&[7.0, 8.0])),
        node("MatMul", &["x", "other"], "beside"),
        constant("norm.weight", FLOAT, &[1], &floats(&[3.0])),
        constant("empty.bias", FLOAT, &[0], &[]),
    ];
    [
        vec![
            (MODEL_GRAPH << 3) as u8 | 2,
            (graph.concat().len() & 0x7f) as u8 | 0x80,
            (graph.concat().len() >> 7) as u8,
        ],
        graph.concat(),
    ]
    .concat()
}

#[test]
fn weights_are_found_by_their_use() {
    let file = file();
    let graph = OnnxGraph::read(&file).unwrap();
    let parameters = graph.parameters().unwrap();
    assert_eq!(parameters.keys().collect::<Vec<_>>(), ["fc.bias", "fc.weight", "norm.weight"]);
    let weight = OnnxTensor { shape: vec![3, 2], values: vec![1.0, -1.0, 1.0, -1.0, 6.0, -6.0] };
    assert_eq!(parameters["fc.weight"], weight);
    let beside = OnnxTensor { shape: vec![1, 2], values: vec![7.0, 8.0] };
    assert_eq!(graph.weight_beside(["fc.bias", "fc.bias"]), Some(beside));
}

#[test]
fn initializers_have_the_names_of_their_nodes() {
    let file = file();
    let all = OnnxGraph::read(&file).unwrap().initializers();
    let one = |name, kind, shape: &[usize], bytes, nodes: &[&'static str]| OnnxInitializer {
        name,
        kind,
        shape: shape.to_vec(),
        bytes,
        nodes: nodes.to_vec(),
    };
    let expected = [
        one("empty.bias", "FLOAT", &[0], 0, &[]),
        one("fc.bias", "FLOAT", &[3], 12, &["/y/Add"]),
        one("norm.weight", "FLOAT", &[1], 4, &[]),
        one("other", "FLOAT", &[2, 1], 8, &["/beside/MatMul"]),
        one("scale", "FLOAT", &[3], 12, &["/wide/DequantizeLinear"]),
        one("w", "INT8", &[2, 3], 6, &["/wide/DequantizeLinear"]),
    ];
    assert_eq!(all, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn changed_files_are_read_or_refused(
        cut in 0..1_000_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut file = file();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        file.truncate(cut);
        if let Some(graph) = OnnxGraph::read(&file) {
            for tensor in graph.parameters().unwrap_or_default().values() {
                prop_assert_eq!(tensor.values.len(), tensor.shape.iter().product::<usize>());
            }
            let _ = graph.weight_beside(["fc.bias", "norm.bias"]);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = OnnxGraph::read(&bytes).map(|graph| graph.parameters());
    }
}
