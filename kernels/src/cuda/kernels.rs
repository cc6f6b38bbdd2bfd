//! Kernels of `kernels/cuda` by name.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaModule, DriverError};

macro_rules! kernels {
    ($($name:ident),+ $(,)?) => {
        /// All kernels of the module.
        pub struct Kernels {
            $(pub $name: CudaFunction,)+
        }

        impl Kernels {
            /// Loads all kernels of the module.
            pub fn of(module: &Arc<CudaModule>) -> Result<Self, DriverError> {
                Ok(Self { $($name: module.load_function(stringify!($name))?,)+ })
            }
        }
    };
}

kernels!(
    activation_f32,
    add_f32,
    add_norm_f32,
    attention_f32,
    choose_rows,
    clamp_f32,
    clear_rows_u8,
    combine_experts,
    conv2d_bf16,
    conv2d_f32,
    conv_bf16,
    conv_f32,
    conv_rows_bf16,
    conv_some_bf16,
    depthwise_f32,
    draw_bf16,
    draw_integers,
    expert_product_bf16,
    expert_product_f32,
    expert_product_i4,
    expert_product_i8,
    expert_product_rows_bf16,
    extend_tail_f32,
    gather_rows_bf16,
    gather_rows_f32,
    gather_rows_i4,
    gather_rows_i8,
    grouped_conv_f32,
    hold_rows_f32,
    layer_norm_f32,
    layer_norm_wide_f32,
    list_experts,
    mul_f32,
    narrow_f32,
    overlay_rows_f32,
    place_columns_f32,
    product4_f32,
    product4_i4,
    product4_i8,
    product_bf16,
    product_f32,
    product_i4,
    product_i8,
    product_rows_bf16,
    product_some_bf16,
    rms_norm_f32,
    rms_norm_wide_f32,
    rotary_f32,
    route_rows,
    scale_all_f32,
    scale_f32,
    scatter_rows_f32,
    segment_attention_f32,
    segment_conv_bf16,
    segment_conv_f32,
    segment_grouped_conv_f32,
    segment_instance_norm_f32,
    segment_lstm_f32,
    segment_norm_f32,
    segment_snake_f32,
    sigmoid_gate_f32,
    sigmoid_mul_f32,
    silu_mul_f32,
    snake_f32,
    split_heads_f32,
    store_keys_f32,
);
