//! Graph of an ONNX file: its nodes and constants, and the tensors by name.

use std::collections::{BTreeMap, HashMap};

use super::protobuf::{FieldValue, fields, packed};

/// Dense tensor, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct OnnxTensor {
    /// Sizes of the axes, outermost first.
    pub shape: Vec<usize>,
    /// Its numbers, as many as the product of the sizes.
    pub values: Vec<f32>,
}

/// Tensor that a file holds, and its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnnxInitializer<'a> {
    /// Its own name, which exporters number where torch had none.
    pub name: &'a str,
    /// Number format, such as `FLOAT`.
    pub kind: &'static str,
    /// Sizes of the axes, outermost first.
    pub shape: Vec<usize>,
    /// Number of bytes of its numbers in the file.
    pub bytes: usize,
    /// Names of the nodes that take it, such as `/decoder/resblocks.0/Conv`, in the order of the graph.
    pub nodes: Vec<&'a str>,
}

/// Operation of the graph.
#[derive(Debug, Default)]
pub(super) struct Node<'a> {
    pub(super) name: &'a str,
    pub(super) kind: &'a str,
    pub(super) inputs: Vec<&'a str>,
    pub(super) outputs: Vec<&'a str>,
    pub(super) axis: Option<i64>,
    pub(super) epsilon: Option<f32>,
    /// Message of the tensor that a constant's node gives.
    pub(super) value: Option<&'a [u8]>,
}

/// Graph of an ONNX file.
#[derive(Debug)]
pub struct OnnxGraph<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    /// Index of the node that computes a value, by the value's name.
    producers: HashMap<&'a str, usize>,
    pub(super) constants: HashMap<&'a str, Constant<'a>>,
}

#[derive(Debug, Default)]
pub(super) struct Constant<'a> {
    name: &'a str,
    shape: Vec<usize>,
    kind: u64,
    raw: &'a [u8],
    numbers: Vec<u64>,
    floats: Vec<f32>,
}

// Field numbers of the published onnx.proto.
pub(super) const MODEL_GRAPH: u64 = 7;
pub(super) const GRAPH_NODE: u64 = 1;
pub(super) const GRAPH_INITIALIZER: u64 = 5;
pub(super) const NODE_INPUT: u64 = 1;
pub(super) const NODE_OUTPUT: u64 = 2;
pub(super) const NODE_NAME: u64 = 3;
pub(super) const NODE_KIND: u64 = 4;
pub(super) const NODE_ATTRIBUTE: u64 = 5;
pub(super) const ATTRIBUTE_NAME: u64 = 1;
pub(super) const ATTRIBUTE_FLOAT: u64 = 2;
pub(super) const ATTRIBUTE_INTEGER: u64 = 3;
pub(super) const ATTRIBUTE_TENSOR: u64 = 5;
pub(super) const TENSOR_SHAPE: u64 = 1;
pub(super) const TENSOR_KIND: u64 = 2;
pub(super) const TENSOR_FLOATS: u64 = 4;
pub(super) const TENSOR_INTEGERS: u64 = 5;
pub(super) const TENSOR_NAME: u64 = 8;
pub(super) const TENSOR_RAW: u64 = 9;

// Data types of a tensor.
pub(super) const FLOAT: u64 = 1;
pub(super) const UINT8: u64 = 2;
pub(super) const INT8: u64 = 3;
pub(super) const INT32: u64 = 6;

/// Names of data types, by number.
pub(super) const KINDS: [&str; 17] = [
    "UNDEFINED",
    "FLOAT",
    "UINT8",
    "INT8",
    "UINT16",
    "INT16",
    "INT32",
    "INT64",
    "STRING",
    "BOOL",
    "FLOAT16",
    "DOUBLE",
    "UINT32",
    "UINT64",
    "COMPLEX64",
    "COMPLEX128",
    "BFLOAT16",
];

/// Maximum numbers of all parameters. Layers may share a tensor of the file, so its size is no bound.
pub(super) const MAX_NUMBERS: usize = 1 << 26;

impl<'a> OnnxGraph<'a> {
    /// Reads the graph of a file; `None` if it is not an ONNX file, or truncated.
    pub fn read(file: &'a [u8]) -> Option<Self> {
        let mut graph = None;
        for field in fields(file) {
            if let (MODEL_GRAPH, value) = field? {
                graph = Some(value.bytes()?);
            }
        }
        let (mut nodes, mut constants) = (Vec::new(), HashMap::new());
        for field in fields(graph?) {
            match field? {
                (GRAPH_NODE, value) => {
                    let node = Node::parse(value.bytes()?)?;
                    if let (Some(value), [output]) = (node.value, &node.outputs[..]) {
                        constants.insert(*output, Constant { name: output, ..Constant::parse(value)? });
                    }
                    nodes.push(node);
                }
                (GRAPH_INITIALIZER, value) => {
                    let constant = Constant::parse(value.bytes()?)?;
                    constants.insert(constant.name, constant);
                }
                _ => {}
            }
        }
        let outputs =
            nodes.iter().enumerate().flat_map(|(index, node)| node.outputs.iter().map(move |name| (*name, index)));
        let made_by = outputs.collect();
        Some(Self { nodes, producers: made_by, constants })
    }

    /// Lists every tensor of the file with the nodes that take it, in alphabetical order.
    pub fn initializers(&self) -> Vec<OnnxInitializer<'a>> {
        let mut nodes: HashMap<&str, Vec<&'a str>> = HashMap::new();
        for node in &self.nodes {
            for input in &node.inputs {
                nodes.entry(input).or_default().push(node.name);
            }
        }
        let mut all: Vec<_> = self.constants.values().map(|constant| constant.described(&mut nodes)).collect();
        all.sort_by_key(|initializer| initializer.name);
        all
    }

    /// Returns every tensor whose name ends in `.weight` or `.bias`, and the weight of every layer with such a bias:
    /// `[out, in]`, or `[out, in, ..]` of a convolution. Leaves out what it cannot read; `None` if there are more numbers
    /// than `MAX_NUMBERS`.
    pub fn parameters(&self) -> Option<BTreeMap<String, OnnxTensor>> {
        let names = self.constants.keys().chain(self.producers.keys());
        let names: Vec<&str> =
            names.copied().filter(|name| name.ends_with(".weight") || name.ends_with(".bias")).collect();
        let named = names.iter().filter_map(|name| Some(((*name).to_owned(), self.tensor(name)?)));
        // These replace the named ones: the use of a weight tells its layout.
        let used = names.iter().filter_map(|bias| {
            let layer = bias.strip_suffix(".bias")?;
            Some((format!("{layer}.weight"), self.layer_weight(bias)?))
        });
        let (mut found, mut numbers) = (BTreeMap::new(), 0);
        for (name, tensor) in named.chain(used) {
            numbers += tensor.values.len();
            if numbers > MAX_NUMBERS {
                return None;
            }
            found.insert(name, tensor);
        }
        Some(found)
    }

    /// Returns the tensor of this name, widened if it is quantised.
    pub(super) fn tensor(&self, name: &str) -> Option<OnnxTensor> {
        if let Some(constant) = self.constants.get(name) {
            return constant.tensor();
        }
        let node = self.maker(name).filter(|node| node.kind == "DequantizeLinear")?;
        let [values, scale, rest @ ..] = &node.inputs[..] else { return None };
        let mut tensor = self.constants.get(values)?.tensor()?;
        let scales = self.constants.get(scale)?.tensor()?.values;
        let zeros = match rest.first() {
            Some(zeros) => self.constants.get(zeros)?.tensor()?.values,
            None => vec![0.0; scales.len()],
        };
        // One scale for all numbers, or one for each index of an axis.
        let axis = node.axis.unwrap_or(1);
        let axis = usize::try_from(if axis < 0 { axis + tensor.shape.len() as i64 } else { axis }).ok()?;
        let inner: usize = tensor.shape.iter().skip(axis + 1).product();
        let along = *tensor.shape.get(axis).filter(|_| scales.len() > 1).unwrap_or(&1);
        if scales.len() != along || zeros.len() != along {
            return None;
        }
        for (index, value) in tensor.values.iter_mut().enumerate() {
            let at = index / inner % along;
            *value = (*value - zeros[at]) * scales[at];
        }
        Some(tensor)
    }

    pub(super) fn maker(&self, name: &str) -> Option<&Node<'a>> {
        self.producers.get(name).map(|index| &self.nodes[*index])
    }

    /// Returns the weight of the layer with this bias.
    pub(super) fn layer_weight(&self, bias: &str) -> Option<OnnxTensor> {
        let is_layer = |node: &&Node<'_>| ["Conv", "Gemm"].contains(&node.kind) && node.inputs.get(2) == Some(&bias);
        if let Some(layer) = self.nodes.iter().find(is_layer) {
            return self.tensor(layer.inputs[1]);
        }
        self.tensor(self.product(bias)?.inputs[1])?.transposed()
    }

    /// Returns the weight `[out, in]` of the layer without a bias that has the same input as the layers with `biases`.
    pub fn weight_beside(&self, biases: [&str; 2]) -> Option<OnnxTensor> {
        let [first, second] = [self.product(biases[0])?, self.product(biases[1])?];
        let beside = self.nodes.iter().find(|node| {
            node.is_product()
                && node.inputs[0] == first.inputs[0]
                && ![first.inputs[1], second.inputs[1]].contains(&node.inputs[1])
        });
        self.tensor(beside?.inputs[1])?.transposed()
    }

    pub(super) fn product(&self, bias: &str) -> Option<&Node<'a>> {
        let sum = self.nodes.iter().find(|node| node.kind == "Add" && node.inputs.contains(&bias))?;
        let mut name = sum.inputs.iter().find(|name| **name != bias)?;
        // Numbers may be quantised between the product and the sum. No path is longer than the graph.
        for _ in 0..self.nodes.len() {
            let node = self.maker(name)?;
            if node.is_product() {
                return Some(node);
            }
            if !["QuantizeLinear", "DequantizeLinear"].contains(&node.kind) {
                return None;
            }
            name = node.inputs.first()?;
        }
        None
    }
}

impl OnnxTensor {
    /// Transposes a matrix; `None` for another tensor.
    pub(super) fn transposed(self) -> Option<Self> {
        let &[rows, columns] = &self.shape[..] else { return None };
        let column = |column| self.values.iter().skip(column).step_by(columns).copied();
        Some(Self { shape: vec![columns, rows], values: (0..columns).flat_map(column).collect() })
    }
}

impl<'a> Node<'a> {
    pub(super) fn parse(message: &'a [u8]) -> Option<Self> {
        let mut node = Self::default();
        for field in fields(message) {
            match field? {
                (NODE_INPUT, value) => node.inputs.push(value.text()?),
                (NODE_OUTPUT, value) => node.outputs.push(value.text()?),
                (NODE_NAME, value) => node.name = value.text()?,
                (NODE_KIND, value) => node.kind = value.text()?,
                (NODE_ATTRIBUTE, value) => {
                    let (mut name, mut integer, mut float, mut tensor) = ("", None, None, None);
                    for field in fields(value.bytes()?) {
                        match field? {
                            (ATTRIBUTE_NAME, value) => name = value.text()?,
                            (ATTRIBUTE_INTEGER, value) => integer = value.number(),
                            (ATTRIBUTE_FLOAT, FieldValue::Fixed32(bytes)) => float = Some(f32::from_le_bytes(bytes)),
                            (ATTRIBUTE_TENSOR, value) => tensor = value.bytes(),
                            _ => {}
                        }
                    }
                    match name {
                        // Two's complement, as the format says.
                        "axis" => node.axis = integer.map(|axis| axis as i64),
                        "epsilon" => node.epsilon = float,
                        "value" => node.value = tensor,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        Some(node)
    }

    pub(super) fn is_product(&self) -> bool {
        self.kind == "MatMul" && self.inputs.len() == 2
    }
}

impl<'a> Constant<'a> {
    pub(super) fn parse(message: &'a [u8]) -> Option<Self> {
        let mut constant = Self::default();
        let size = |number: u64| usize::try_from(number).ok();
        for field in fields(message) {
            match field? {
                (TENSOR_NAME, value) => constant.name = value.text()?,
                (TENSOR_KIND, value) => constant.kind = value.number()?,
                (TENSOR_RAW, value) => constant.raw = value.bytes()?,
                (TENSOR_SHAPE, FieldValue::Varint(number)) => constant.shape.push(size(number)?),
                (TENSOR_SHAPE, value) => {
                    constant.shape.extend(packed(value.bytes()?)?.into_iter().map(size).collect::<Option<Vec<_>>>()?);
                }
                (TENSOR_INTEGERS, FieldValue::Varint(number)) => constant.numbers.push(number),
                (TENSOR_INTEGERS, value) => constant.numbers.extend(packed(value.bytes()?)?),
                (TENSOR_FLOATS, FieldValue::Fixed32(bytes)) => constant.floats.push(f32::from_le_bytes(bytes)),
                (TENSOR_FLOATS, value) => {
                    constant.floats.extend(value.bytes()?.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
                }
                _ => {}
            }
        }
        Some(constant)
    }

    pub(super) fn described(&self, nodes: &mut HashMap<&str, Vec<&'a str>>) -> OnnxInitializer<'a> {
        let kind = usize::try_from(self.kind).ok().and_then(|kind| KINDS.get(kind)).unwrap_or(&"UNKNOWN");
        OnnxInitializer {
            name: self.name,
            kind,
            shape: self.shape.clone(),
            bytes: self.raw.len() + 4 * self.floats.len() + 4 * self.numbers.len(),
            nodes: nodes.remove(self.name).unwrap_or_default(),
        }
    }

    /// Converts the numbers to single precision; `None` if their format is unknown, their count is wrong, or there are
    /// none.
    pub(super) fn tensor(&self) -> Option<OnnxTensor> {
        let count = self.shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
        if !(1..=MAX_NUMBERS).contains(&count) {
            return None;
        }
        let integers = || self.numbers.iter();
        let values: Vec<f32> = match (self.kind, self.raw.is_empty()) {
            (FLOAT, true) => self.floats.clone(),
            (FLOAT, false) => self.raw.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            (UINT8, false) => self.raw.iter().map(|byte| f32::from(*byte)).collect(),
            (INT8, false) => self.raw.iter().map(|byte| f32::from(byte.cast_signed())).collect(),
            (INT32, false) => self.raw.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes) as f32).collect(),
            // Negative numbers are 64 bits of two's complement.
            (UINT8 | INT8 | INT32, true) => integers().map(|number| *number as i64 as f32).collect(),
            _ => return None,
        };
        (values.len() == count).then(|| OnnxTensor { shape: self.shape.clone(), values })
    }
}
