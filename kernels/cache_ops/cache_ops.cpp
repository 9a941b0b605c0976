// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cache_ops/host.hpp"
#include "common/cache_params.hpp"
#include "common/require.hpp"
#include "mla/device_ops.hpp"

namespace mla::kernels::cache_ops {
namespace {

constexpr std::initializer_list<DType> kFloats = {DType::kBF16, DType::kF16, DType::kF32};
constexpr int kVector = 8;  // channels a lane moves at once

std::int64_t bytes_of(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
}

Rows rows_of(const ConstTensorRef& tensor) {
  return {tensor.data, tensor.dtype, tensor.stride[0]};
}

/// Rows whose pieces of eight can be moved with vector instructions.
bool vector_rows(const void* data, DType dtype, std::int64_t stride) {
  const std::int64_t piece = std::min<std::int64_t>(16, kVector * bytes_of(dtype));
  return aligned(data, {stride * bytes_of(dtype)}, piece);
}

RotationParams rotation_of(const device_ops::Rotation& rotation, int rope_dim, std::int64_t tokens) {
  RotationParams p;
  if (!rotation.cos || rope_dim == 0) return p;
  for (const auto& [view, name] : {std::pair{&rotation.cos, "cos"}, {&rotation.sin, "sin"}}) {
    if (!*view || view->extent[1] < rope_dim / 2 || view->stride[1] != 1) {
      refuse(fmt::format(
          "the rotation's {} is [{}, {}] with a stride of {}, but must be [positions, {}] with stride 1",
          name, view->extent[0], view->extent[1], view->stride[1], rope_dim / 2));
    }
  }
  require_size(rotation.positions, "the rotation's positions", tokens);
  p.cos = rotation.cos.data;
  p.sin = rotation.sin.data;
  p.cos_stride = rotation.cos.stride[0];
  p.sin_stride = rotation.sin.stride[0];
  p.positions = rotation.positions;
  p.interleaved_input = rotation.input == RopeLayout::kInterleaved;
  p.interleaved_output = rotation.output == RopeLayout::kInterleaved;
  return p;
}

void check_intermediate(DType dtype) {
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    refuse(fmt::format("the intermediate type is {}, but must be f32, bf16 or f16", name_of(dtype)));
  }
}

void check_eps(float eps) {
  if (!(eps >= 0) || eps > 1) refuse(fmt::format("the norm's eps is {}, but must be in 0..1", eps));
}

/// f32 elements and scales are stored whole; 16-bit ones at even addresses.
void check_alignment(const CacheLayout& layout, const CacheParams& cache) {
  const std::int64_t latent = layout.scale_bytes > 0 ? 4 : bytes_of(layout.latent_dtype);
  if (!rows_aligned(cache, latent, bytes_of(layout.rope_dtype))) {
    refuse(fmt::format("the rows of a {} cache must start at multiples of {} bytes", name_of(layout.format),
                       latent));
  }
}

}  // namespace

bool vector_pool(const CacheLayout& layout, const CacheParams& cache, const MlaDims& dims) {
  if (dims.kv_lora_rank % kVector != 0 || dims.qk_rope_head_dim % kVector != 0) return false;
  const auto piece = [](DType dtype) {
    return std::min<std::int64_t>(16, 8 * static_cast<std::int64_t>(size_of(dtype)));
  };
  return rows_aligned(cache, piece(layout.latent_dtype), piece(layout.rope_dtype));
}

void write_cache(const device_ops::CacheWrite& args, const ConstTensorRef& bias, void* stream) {
  const MlaDims& dims = args.dims;
  const CacheLayout layout = cache_layout(args.cache.format, dims);
  if (args.cache.format == CacheFormat::kF64) refuse("an f64 cache is for the CPU");
  const int rope = dims.qk_rope_head_dim;
  require_tensor(args.c_kv, "c_kv", {kAnyExtent, dims.kv_lora_rank}, kFloats);
  WriteParams p;
  p.tokens = args.c_kv.extent[0];
  if (rope > 0) require_tensor(args.k_pe, "k_pe", {p.tokens, rope}, {args.c_kv.dtype});
  if (args.norm_weight) {
    require_tensor(args.norm_weight, "norm_weight", {dims.kv_lora_rank}, kFloats);
    check_eps(args.norm_eps);
  }
  if (bias) require_tensor(bias, "the bias", {dims.latent_width()}, kFloats);
  check_intermediate(args.intermediate);
  require_size(args.slot_mapping, "slot_mapping", p.tokens);
  p.cache = cache_params(layout, args.cache);
  check_alignment(layout, p.cache);
  p.c_kv = rows_of(args.c_kv);
  p.k_pe = rows_of(args.k_pe);
  p.bias = rows_of(bias);
  p.norm_weight = rows_of(args.norm_weight);
  p.norm_eps = args.norm_eps;
  p.rotation = rotation_of(args.rotation, rope, p.tokens);
  p.intermediate = args.intermediate;
  p.slot_mapping = args.slot_mapping;
  p.latent = dims.kv_lora_rank;
  p.rope = rope;
  p.vector_in = vector_rows(p.c_kv.data, p.c_kv.dtype, p.c_kv.stride);
  p.vector_out = vector_pool(layout, p.cache, dims);
  p.vector_weight =
      aligned(p.norm_weight.data, {}, std::min<std::int64_t>(16, kVector * bytes_of(p.norm_weight.dtype)));
  constexpr float kSmallest = 1e-25F, kLargest = 1e25F;
  p.inverse_scale = p.cache.scale >= kSmallest && p.cache.scale <= kLargest ? 1.0F / p.cache.scale : 0.0F;
  table().write(p, stream);
}

}  // namespace mla::kernels::cache_ops

namespace mla::device_ops {

using namespace kernels;
using namespace kernels::cache_ops;

void write_cache(const CacheWrite& args, Stream stream) {
  kernels::cache_ops::write_cache(args, {}, stream.handle);
}

void rms_norm(ConstTensorRef x, ConstTensorRef weight, float eps, TensorRef out, Stream stream) {
  require_tensor(x, "x", {kAnyExtent, kAnyExtent}, kFloats);
  require_tensor(weight, "weight", {x.extent[1]}, kFloats);
  require_tensor(out, "out", {x.extent[0], x.extent[1]}, kFloats);
  check_eps(eps);
  if (x.extent[1] > std::numeric_limits<std::int32_t>::max())
    refuse(fmt::format("x has a width of {}", x.extent[1]));
  NormParams p;
  p.x = rows_of(x);
  p.weight = rows_of(weight);
  p.eps = eps;
  p.out = out.data;
  p.out_dtype = out.dtype;
  p.out_stride = out.stride[0];
  p.rows = x.extent[0];
  p.width = static_cast<std::int32_t>(x.extent[1]);
  p.vector_in = vector_rows(x.data, x.dtype, x.stride[0]);
  table().norm(p, stream.handle);
}

void rotate(TensorRef x, int rope_dim, const Rotation& rotation, Stream stream) {
  require_tensor(x, "x", {kAnyExtent, kAnyExtent, kAnyExtent}, kFloats);
  if (rope_dim < 0 || rope_dim % 2 != 0 || rope_dim > std::min<std::int64_t>(x.extent[2], 256)) {
    refuse(fmt::format("the rotary width is {}, but must be even and within 0..{}", rope_dim,
                       std::min<std::int64_t>(x.extent[2], 256)));
  }
  RotateParams p;
  p.x = static_cast<std::byte*>(x.data) + (x.extent[2] - rope_dim) * bytes_of(x.dtype);
  p.dtype = x.dtype;
  p.token_stride = x.stride[0];
  p.head_stride = x.stride[1];
  p.tokens = x.extent[0];
  p.heads = static_cast<std::int32_t>(x.extent[1]);
  p.rope = rope_dim;
  p.rotation = rotation_of(rotation, rope_dim, p.tokens);
  if (p.rotation.cos == nullptr) return;
  table().rotate(p, stream.handle);
}

void gather_cache(const CacheGather& args, Stream stream) {
  const CacheLayout layout = cache_layout(args.cache.format, args.dims);
  if (args.cache.format == CacheFormat::kF64) refuse("an f64 cache is for the CPU");
  require_tensor(args.rows, "rows", {kAnyExtent, args.dims.latent_width()}, kFloats);
  require_size(args.cu_seqlens_k, "cu_seqlens_k", 1);
  GatherParams p;
  p.cache = cache_params(layout, args.cache);
  check_alignment(layout, p.cache);
  const std::int64_t requests = args.cu_seqlens_k.extent[0] - 1;
  if (args.cache.block_table.extent[0] < requests ||
      (!args.cache.block_table && args.cache.block_table.extent[1] > 0)) {
    refuse(fmt::format("block_table has {} rows, but there are {} requests", args.cache.block_table.extent[0],
                       requests));
  }
  if (args.first) require_size(args.first, "first", requests);
  p.source.cu_seqlens_k = args.cu_seqlens_k;
  p.source.first = args.first;
  p.source.table_columns = args.cache.block_table.extent[1];
  p.source.requests = static_cast<std::int32_t>(requests);
  p.rows = args.rows.data;
  p.dtype = args.rows.dtype;
  p.row_stride = args.rows.stride[0];
  p.capacity = args.rows.extent[0];
  p.latent = args.dims.kv_lora_rank;
  p.rope = args.dims.qk_rope_head_dim;
  p.vector_io = vector_pool(layout, p.cache, args.dims) && vector_rows(p.rows, p.dtype, p.row_stride);
  table().gather(p, stream.handle);
}

}  // namespace mla::device_ops
