// Everything that the CUDA device launches, as one module.
#include "attention.cu"
#include "choose.cu"
#include "conv.cu"
#include "elementwise.cu"
#include "experts.cu"
#include "norm.cu"
#include "product.cu"
#include "rows.cu"
