//! [`Ops`] of the replay device: operations over tensors and weights. Those that take numbers from the host panic.

use std::sync::{Arc, Mutex};

use super::{RecordedList, RecordedTensor, ReplayOps, Replayable, lock, refuse};
use crate::ops::{
    AttentionShape, KernelError, Ops, RawTensor, RouterShape, SampleParams, SequenceRows, StateSpec, WeightFormat,
    WeightLayout,
};
use crate::part::WeightPart;

impl<O: Replayable> Ops for ReplayOps<O> {
    type T = RecordedTensor<O>;
    type Ids = RecordedList;
    type Weight = Arc<O::Weight>;
    type State = Arc<Mutex<O::State>>;
    type Batch = RecordedList;

    fn weight(&self, layout: WeightLayout, parts: &[RawTensor<'_>]) -> Result<Self::Weight, KernelError> {
        self.inner.weight(layout, parts).map(Arc::new)
    }

    fn weight_in_format(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[RawTensor<'_>],
    ) -> Result<Self::Weight, KernelError> {
        self.inner.weight_in_format(layout, format, parts).map(Arc::new)
    }

    fn weight_from_parts(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[WeightPart<'_>],
    ) -> Result<Self::Weight, KernelError> {
        self.inner.weight_from_parts(layout, format, parts).map(Arc::new)
    }

    /// Steps run one at a time, so separate buffers gain nothing.
    fn with_own_buffers(&self) -> Self {
        self.clone()
    }

    fn state(&self, spec: StateSpec) -> Self::State {
        Arc::new(Mutex::new(self.inner.state(spec)))
    }

    fn reset(&self, state: &mut Self::State, slot: usize) {
        self.inner.reset(&mut lock(state), slot);
    }

    fn copy_block(&self, state: &mut Self::State, from: u32, to: u32) {
        self.inner.copy_block(&mut lock(state), from, to);
    }

    fn rows(&self, x: &RecordedTensor<O>) -> usize {
        self.look(|ops, values| ops.rows(values.tensor(x.read())))
    }

    fn kv_number_bytes(&self) -> usize {
        self.inner.kv_number_bytes()
    }

    fn address(&self, x: &RecordedTensor<O>) -> usize {
        self.look(|ops, values| ops.address(values.tensor(x.read())))
    }

    fn concat(&self, parts: &[&RecordedTensor<O>]) -> RecordedTensor<O> {
        let parts: Vec<usize> = parts.iter().map(|part| part.read()).collect();
        self.tensor_of(move |ops, values| {
            ops.concat(&parts.iter().map(|&part| values.tensor(part)).collect::<Vec<_>>())
        })
    }

    fn copy(&self, x: &RecordedTensor<O>) -> RecordedTensor<O> {
        let x = x.read();
        self.tensor_of(move |ops, values| ops.copy(values.tensor(x)))
    }

    fn linear(
        &self,
        x: &RecordedTensor<O>,
        weight: &Arc<O::Weight>,
        bias: Option<&Arc<O::Weight>>,
    ) -> RecordedTensor<O> {
        let (x, weight, bias) = (x.read(), Arc::clone(weight), bias.cloned());
        self.tensor_of(move |ops, values| ops.linear(values.tensor(x), &weight, bias.as_deref()))
    }

    fn narrow(&self, x: &RecordedTensor<O>, start: usize, length: usize) -> RecordedTensor<O> {
        let x = x.read();
        self.tensor_of(move |ops, values| ops.narrow(values.tensor(x), start, length))
    }

    fn add(&self, x: RecordedTensor<O>, y: &RecordedTensor<O>) -> RecordedTensor<O> {
        let (x, y) = (x.give(), y.read());
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.add(x, values.tensor(y))
        })
    }

    fn mul(&self, x: RecordedTensor<O>, y: &RecordedTensor<O>) -> RecordedTensor<O> {
        let (x, y) = (x.give(), y.read());
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.mul(x, values.tensor(y))
        })
    }

    fn scale(&self, x: RecordedTensor<O>, by: &Arc<O::Weight>) -> RecordedTensor<O> {
        let (x, by) = (x.give(), Arc::clone(by));
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.scale(x, &by)
        })
    }

    fn scale_all(&self, x: RecordedTensor<O>, by: f32) -> RecordedTensor<O> {
        let x = x.give();
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.scale_all(x, by)
        })
    }

    fn rms_norm(&self, x: &RecordedTensor<O>, weight: &Arc<O::Weight>, eps: f32) -> RecordedTensor<O> {
        let (x, weight) = (x.read(), Arc::clone(weight));
        self.tensor_of(move |ops, values| ops.rms_norm(values.tensor(x), &weight, eps))
    }

    fn layer_norm(
        &self,
        x: &RecordedTensor<O>,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
        eps: f32,
    ) -> RecordedTensor<O> {
        let (x, weight, bias) = (x.read(), Arc::clone(weight), Arc::clone(bias));
        self.tensor_of(move |ops, values| ops.layer_norm(values.tensor(x), &weight, &bias, eps))
    }

    fn silu(&self, x: RecordedTensor<O>) -> RecordedTensor<O> {
        let x = x.give();
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.silu(x)
        })
    }

    fn silu_mul(&self, x: &RecordedTensor<O>) -> RecordedTensor<O> {
        let x = x.read();
        self.tensor_of(move |ops, values| ops.silu_mul(values.tensor(x)))
    }

    fn gelu(&self, x: RecordedTensor<O>) -> RecordedTensor<O> {
        let x = x.give();
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.gelu(x)
        })
    }

    fn gelu_tanh(&self, x: RecordedTensor<O>) -> RecordedTensor<O> {
        let x = x.give();
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.gelu_tanh(x)
        })
    }

    fn snake(&self, x: RecordedTensor<O>, alpha: &Arc<O::Weight>, beta: &Arc<O::Weight>) -> RecordedTensor<O> {
        let (x, alpha, beta) = (x.give(), Arc::clone(alpha), Arc::clone(beta));
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.snake(x, &alpha, &beta)
        })
    }

    fn clamp(&self, x: RecordedTensor<O>, low: f32, high: f32) -> RecordedTensor<O> {
        let x = x.give();
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.clamp(x, low, high)
        })
    }

    fn sigmoid_gate(&self, y: RecordedTensor<O>, gate: &RecordedTensor<O>) -> RecordedTensor<O> {
        let (y, gate) = (y.give(), gate.read());
        self.tensor_of(move |ops, values| {
            let y = values.take(y);
            ops.sigmoid_gate(y, values.tensor(gate))
        })
    }

    fn rotary(&self, x: RecordedTensor<O>, batch: &RecordedList, head_dim: usize, theta: f32) -> RecordedTensor<O> {
        let (x, batch) = (x.give(), batch.number);
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.rotary(x, values.batch(batch), head_dim, theta)
        })
    }

    fn attention(
        &self,
        q: &RecordedTensor<O>,
        k: &RecordedTensor<O>,
        v: &RecordedTensor<O>,
        cache: &mut Arc<Mutex<O::State>>,
        batch: &RecordedList,
        shape: AttentionShape,
    ) -> RecordedTensor<O> {
        let (q, k, v, cache, batch) = (q.read(), k.read(), v.read(), Arc::clone(cache), batch.number);
        self.tensor_of(move |ops, values| {
            ops.attention(
                values.tensor(q),
                values.tensor(k),
                values.tensor(v),
                &mut lock(&cache),
                values.batch(batch),
                shape,
            )
        })
    }

    fn experts(
        &self,
        x: &RecordedTensor<O>,
        router: &Arc<O::Weight>,
        gate_up: &Arc<O::Weight>,
        down: &Arc<O::Weight>,
        spec: RouterShape,
    ) -> RecordedTensor<O> {
        let (x, router, gate_up, down) = (x.read(), Arc::clone(router), Arc::clone(gate_up), Arc::clone(down));
        self.tensor_of(move |ops, values| ops.experts(values.tensor(x), &router, &gate_up, &down, spec))
    }

    fn conv2d(
        &self,
        x: &RecordedTensor<O>,
        images: usize,
        height: usize,
        width: usize,
        weight: &Arc<O::Weight>,
        bias: &Arc<O::Weight>,
    ) -> RecordedTensor<O> {
        let (x, weight, bias) = (x.read(), Arc::clone(weight), Arc::clone(bias));
        self.tensor_of(move |ops, values| ops.conv2d(values.tensor(x), images, height, width, &weight, &bias))
    }

    fn reshape(&self, x: RecordedTensor<O>, columns: usize) -> RecordedTensor<O> {
        let x = x.give();
        self.tensor_of(move |ops, values| {
            let x = values.take(x);
            ops.reshape(x, columns)
        })
    }

    fn batch(&self, _: &[SequenceRows<'_>]) -> RecordedList {
        refuse("a batch of the host")
    }

    fn tensor(&self, _: Vec<f32>, _: usize) -> RecordedTensor<O> {
        refuse("a tensor of the host")
    }

    fn ids(&self, _: &[u32]) -> RecordedList {
        refuse("a list of ids of the host")
    }

    fn read(&self, _: &RecordedTensor<O>) -> Vec<f32> {
        refuse("reading back")
    }

    fn read_ids(&self, _: &RecordedList) -> Vec<u32> {
        refuse("reading back")
    }

    fn gather(&self, _: &RecordedTensor<O>, _: &[usize]) -> RecordedTensor<O> {
        refuse("gathering by numbers of the host")
    }

    fn embed(&self, _: &Self::Weight, _: &RecordedList) -> RecordedTensor<O> {
        refuse("embedding ids of the host")
    }

    fn sample(
        &self,
        _: &RecordedTensor<O>,
        _: &[SampleParams],
        _: Option<&Self::Weight>,
        _: Option<&mut Self::State>,
    ) -> RecordedList {
        refuse("choosing by parameters of the host")
    }
}
