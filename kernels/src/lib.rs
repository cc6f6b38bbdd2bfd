//! Tensor operations that the models are written over.
