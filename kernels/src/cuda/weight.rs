//! Layouts of weights on the device: as in the checkpoint, with taps of convolutions outermost and rows of matrices padded for vector
//! loads.
//!
//! Integers have the processor's formats, quantised here or as a checkpoint stores them. A row is whole groups of
//! [`GROUP`](crate::cpu::groups::GROUP); scales are `[outputs][groups that share one]`, each followed by its minimum if there are minimums.

use super::loading::WeightLoader;
use super::matrix::{Matrix, MatrixKind, VectorWeight};
use super::weight_order::{PartRows, floats, integers, single, stored_integers, taps_outermost};
use crate::checked_parts::CheckedParts;
use crate::cpu::quantised::IntegerFormat;
use crate::packed::PackedTensor;
use crate::weight::{KernelError, WeightLayout};

/// A prepared weight, by layout.
pub enum Weight {
    /// Numbers of a [`WeightLayout::Vector`].
    Vector(VectorWeight),
    /// Matrices of a [`WeightLayout::Linear`], their outputs one after the other: several for stored integers of several kinds.
    Linear(Vec<Matrix>),
    /// Matrix of a [`WeightLayout::Table`].
    Table(Matrix),
    /// Concatenated matrices of a [`WeightLayout::Experts`].
    Experts {
        /// All experts; `outputs` are those of one.
        matrix: Matrix,
        /// Number of experts.
        experts: usize,
    },
    /// Weight of a [`WeightLayout::Conv1d`], `[out][tap][channel]`.
    Conv1d {
        /// Matrix of the numbers.
        matrix: Matrix,
        /// Rows between taps.
        dilation: usize,
    },
    /// Weight of a [`WeightLayout::GroupedConv1d`].
    GroupedConv1d(GroupedConv),
    /// Weight of a [`WeightLayout::Depthwise`], `[tap][channel]`.
    Depthwise {
        /// Numbers in single precision.
        numbers: VectorWeight,
        /// Number of taps.
        taps: usize,
    },
    /// Weight of a [`WeightLayout::ConvTranspose1d`], as a causal convolution to `stride * out` columns, `[phase][out][tap][channel]`.
    ConvTranspose1d {
        /// Matrix of the numbers.
        matrix: Matrix,
        /// Output rows for each input row.
        stride: usize,
        /// True if a stream's first input row gives no output.
        cut: bool,
    },
    /// Weight of a [`WeightLayout::Conv2d`], `[out][row of taps][tap][channel]`.
    Conv2d {
        /// Matrix of the numbers.
        matrix: Matrix,
        /// Distance between outputs, over both axes.
        stride: usize,
    },
}

/// A convolution in groups, `[out][tap][channel of its group]`, in single precision.
pub struct GroupedConv {
    pub(super) numbers: VectorWeight,
    pub(super) taps: usize,
    pub(super) dilation: usize,
    pub(super) groups: usize,
}

impl GroupedConv {
    /// Returns the number of outputs, after a check of the channels and of the bias.
    pub(super) fn outputs(&self, channels: usize, biases: usize) -> usize {
        let own = channels / self.groups;
        assert_eq!(
            (own * self.groups, biases * self.taps * own),
            (channels, self.numbers.len),
            "channels, groups or bias differ"
        );
        biases
    }
}

impl Weight {
    /// Packs and uploads a weight. Tables keep their format. Stored integers of experts, and of a table, must be of one kind.
    pub(super) fn new(loader: &WeightLoader<'_>, checked: &CheckedParts<'_>) -> Result<Self, KernelError> {
        let (layout, parts, name, shape) = (checked.layout(), checked.parts(), checked.name(), checked.shape());
        if let Some(tensors) = checked.packed() {
            return Self::packed(loader, layout, &tensors);
        }
        let rows = PartRows::new(parts);
        let matrix = match layout {
            WeightLayout::Vector => return Ok(Self::Vector(single(loader, name, &rows.widened())?)),
            WeightLayout::GroupedConv1d { dilation, groups } => {
                let (w, taps) = (rows.widened(), shape[2]);
                let (at, _) = taps_outermost(layout, shape);
                let w: Vec<f32> = (0..w.len()).map(|i| w[at(i)]).collect();
                let numbers = single(loader, name, &w)?;
                return Ok(Self::GroupedConv1d(GroupedConv { numbers, taps, dilation, groups }));
            }
            WeightLayout::Depthwise => {
                let (channels, taps, w) = (shape[0], shape[2], rows.widened());
                let w: Vec<f32> = (0..taps * channels).map(|i| w[i % channels * taps + i / channels]).collect();
                return Ok(Self::Depthwise { numbers: single(loader, name, &w)?, taps });
            }
            WeightLayout::Linear | WeightLayout::Experts { .. } => match IntegerFormat::of(checked.format()) {
                Some(bits) => integers(loader, bits, &rows)?,
                None => {
                    // A multiple of 16-byte loads.
                    let load = if rows.is_bf16 { 8 } else { 4 };
                    floats(loader, &rows, shape[1].next_multiple_of(load))?
                }
            },
            WeightLayout::Table => floats(loader, &rows, shape[1])?,
            WeightLayout::Conv1d { .. } | WeightLayout::ConvTranspose1d { .. } | WeightLayout::Conv2d { .. } => {
                let (at, columns) = taps_outermost(layout, shape);
                let outputs = shape.iter().product::<usize>() / columns;
                if rows.is_bf16 {
                    // A multiple of 16-byte loads.
                    let (w, pitch) = (rows.bits(), columns.next_multiple_of(8));
                    let number =
                        |i: usize| if i % pitch < columns { w[at(i / pitch * columns + i % pitch)] } else { 0 };
                    let memory = loader.numbers(name, &(0..outputs * pitch).map(number).collect::<Vec<u16>>())?;
                    Matrix { memory, kind: MatrixKind::Bf16, outputs, columns, pitch }
                } else {
                    let w = rows.widened();
                    let w: Vec<f32> = (0..w.len()).map(|i| w[at(i)]).collect();
                    let memory = loader.numbers(name, &w)?;
                    Matrix { memory, kind: MatrixKind::F32, outputs, columns, pitch: columns }
                }
            }
        };
        Ok(match layout {
            WeightLayout::Vector
            | WeightLayout::GroupedConv1d { .. }
            | WeightLayout::Depthwise
            | WeightLayout::Linear => Self::Linear(vec![matrix]),
            WeightLayout::Table => Self::Table(matrix),
            WeightLayout::Experts { per_expert } => {
                let experts = parts.len() / per_expert;
                Self::Experts { matrix: Matrix { outputs: matrix.outputs / experts, ..matrix }, experts }
            }
            WeightLayout::Conv1d { dilation } => Self::Conv1d { matrix, dilation },
            WeightLayout::ConvTranspose1d { stride, cut } => {
                Self::ConvTranspose1d { matrix, stride, cut: cut && shape[2] > stride }
            }
            WeightLayout::Conv2d { stride } => Self::Conv2d { matrix, stride },
        })
    }

    /// Uploads stored integers.
    fn packed(
        loader: &WeightLoader<'_>,
        layout: WeightLayout,
        tensors: &[PackedTensor<'_>],
    ) -> Result<Self, KernelError> {
        let mut runs = PackedTensor::runs(tensors);
        if layout == WeightLayout::Linear {
            return Ok(Self::Linear(runs.map(|run| stored_integers(loader, run)).collect::<Result<_, _>>()?));
        }
        let (first, second) = (runs.next(), runs.next());
        if let Some(other) = second.and_then(<[_]>::first) {
            return Err(KernelError::Packed { name: other.name.to_owned(), layout });
        }
        let matrix = stored_integers(loader, first.unwrap_or_default())?;
        let WeightLayout::Experts { per_expert } = layout else { return Ok(Self::Table(matrix)) };
        let experts = tensors.len() / per_expert;
        Ok(Self::Experts { matrix: Matrix { outputs: matrix.outputs / experts, ..matrix }, experts })
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Vector(_) => "a vector",
            Self::Linear(_) => "a linear weight",
            Self::Table(_) => "a table",
            Self::Experts { .. } => "experts",
            Self::Conv1d { .. } => "a convolution",
            Self::GroupedConv1d(_) => "a grouped convolution",
            Self::Depthwise { .. } => "a depthwise convolution",
            Self::ConvTranspose1d { .. } => "a transposed convolution",
            Self::Conv2d { .. } => "a convolution over two axes",
        }
    }

    pub(super) fn vector(&self) -> &VectorWeight {
        match self {
            Self::Vector(numbers) => numbers,
            other => panic!("a vector is needed, not {}", other.kind()),
        }
    }

    pub(super) fn linear(&self) -> &[Matrix] {
        match self {
            Self::Linear(matrices) => matrices,
            other => panic!("a linear weight is needed, not {}", other.kind()),
        }
    }

    pub(super) fn table(&self) -> &Matrix {
        match self {
            Self::Table(matrix) => matrix,
            // A tied head, whose rows are looked up. Only stored integers of several kinds make several matrices.
            Self::Linear(matrices) if matrices.len() == 1 => &matrices[0],
            other => panic!("a table is needed, not {}", other.kind()),
        }
    }

    pub(super) fn experts(&self) -> (&Matrix, usize) {
        match self {
            Self::Experts { matrix, experts } => (matrix, *experts),
            other => panic!("experts are needed, not {}", other.kind()),
        }
    }
}
