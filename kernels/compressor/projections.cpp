// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cache_ops/host.hpp"
#include "common/require.hpp"
#include "gemm/lt.hpp"
#include "mla/device_ops.hpp"

namespace mla::device_ops {

using kernels::kAnyExtent;
using kernels::refuse;
using kernels::require_tensor;

static_assert(kProjectionWorkspaceBytes == kernels::lt::kWorkspaceBytes);

namespace {

constexpr std::initializer_list<DType> kOperands = {DType::kBF16, DType::kF16};

/// A weight [H, rows, L] of `dtype`, and a product with it for every head: out[:, h] = a[:, h] w_h^T, or a
/// w_h by columns. Heads that lie one after the other become one product.
kernels::lt::Product per_head(const ConstTensorRef& weight, DType out, bool by_columns) {
  kernels::lt::Product p;
  p.in = weight.dtype;
  p.out = out;
  p.w_by_columns = by_columns;
  p.n = weight.extent[by_columns ? 2 : 1];
  p.k = weight.extent[by_columns ? 1 : 2];
  p.batch = weight.extent[0];
  p.w_row = weight.stride[1];
  p.w_batch = weight.stride[0];
  return p;
}

/// out[t, h, :] = W_h rows[t, :]: the same input for every head.
void expand_rows(const ConstTensorRef& rows, std::int64_t latent, const ConstTensorRef& weight,
                 const TensorRef& out, std::span<std::byte> workspace, Stream stream) {
  kernels::lt::Product p = per_head(weight, out.dtype, false);
  p.m = rows.extent[0];
  p.k = latent;
  p.a_row = rows.stride[0];
  p.out_row = out.stride[0];
  p.out_batch = out.stride[1];
  if (p.w_batch == p.n * p.w_row && p.out_batch == p.n) {
    p.n *= p.batch;
    p.batch = 1;
    p.w_batch = p.out_batch = 0;
  }
  kernels::lt::multiply(p, rows.data, weight.data, out.data, workspace, stream.handle);
}

}  // namespace

Support projections_available() {
  if (Support device = available(); !device) return device;
  return kernels::lt::available();
}

void linear(ConstTensorRef x, ConstTensorRef w, ConstTensorRef bias, TensorRef out,
            std::span<std::byte> workspace, Stream stream) {
  require_tensor(x, "x", {kAnyExtent, kAnyExtent}, kOperands);
  require_tensor(w, "w", {kAnyExtent, x.extent[1]}, {x.dtype});
  require_tensor(out, "out", {x.extent[0], w.extent[0]}, {x.dtype, DType::kF32});
  if (bias) require_tensor(bias, "bias", {w.extent[0]}, {out.dtype});
  kernels::lt::Product p;
  p.in = x.dtype;
  p.out = out.dtype;
  p.m = x.extent[0];
  p.n = w.extent[0];
  p.k = x.extent[1];
  p.a_row = x.stride[0];
  p.w_row = w.stride[0];
  p.out_row = out.stride[0];
  p.with_bias = static_cast<bool>(bias);
  kernels::lt::multiply(p, x.data, w.data, out.data, workspace, stream.handle, bias.data);
}

void absorb_query(const MlaDims& dims, ConstTensorRef q, ConstTensorRef w_uk, TensorRef out,
                  std::span<std::byte> workspace, Stream stream) {
  validate(dims);
  const std::int64_t heads = dims.num_heads;
  require_tensor(q, "q", {kAnyExtent, heads, dims.head_width()}, kOperands);
  require_tensor(w_uk, "w_uk", {heads, dims.qk_nope_head_dim, dims.kv_lora_rank}, {q.dtype});
  require_tensor(out, "out", {q.extent[0], heads, dims.latent_width()}, {q.dtype, DType::kF32});
  kernels::lt::Product p = per_head(w_uk, out.dtype, true);
  p.m = q.extent[0];
  p.a_row = q.stride[0];
  p.a_batch = q.stride[1];
  p.out_row = out.stride[0];
  p.out_batch = out.stride[1];
  kernels::lt::multiply(p, q.data, w_uk.data, out.data, workspace, stream.handle);
  if (dims.qk_rope_head_dim == 0) return;
  kernels::cache_ops::ChannelsParams c;
  c.from = {q.data, q.dtype, q.stride[0], q.stride[1], dims.qk_nope_head_dim};
  c.to = {out.data, out.dtype, out.stride[0], out.stride[1], dims.kv_lora_rank};
  c.tokens = q.extent[0];
  c.heads = dims.num_heads;
  c.width = dims.qk_rope_head_dim;
  kernels::cache_ops::table().channels(c, stream.handle);
}

void up_project_value(const MlaDims& dims, ConstTensorRef latent_out, ConstTensorRef w_uv, TensorRef out,
                      std::span<std::byte> workspace, Stream stream) {
  validate(dims);
  const std::int64_t heads = dims.num_heads;
  require_tensor(latent_out, "latent_out", {kAnyExtent, heads, dims.kv_lora_rank}, kOperands);
  require_tensor(w_uv, "w_uv", {heads, dims.v_head_dim, dims.kv_lora_rank}, {latent_out.dtype});
  require_tensor(out, "out", {latent_out.extent[0], heads, dims.v_head_dim}, {latent_out.dtype, DType::kF32});
  kernels::lt::Product p = per_head(w_uv, out.dtype, false);
  p.m = latent_out.extent[0];
  p.a_row = latent_out.stride[0];
  p.a_batch = latent_out.stride[1];
  p.out_row = out.stride[0];
  p.out_batch = out.stride[1];
  kernels::lt::multiply(p, latent_out.data, w_uv.data, out.data, workspace, stream.handle);
}

void decompress(const MlaDims& dims, ConstTensorRef rows, ConstTensorRef w_uk, ConstTensorRef w_uv,
                TensorRef k_nope, TensorRef v, std::span<std::byte> workspace, Stream stream) {
  validate(dims);
  const std::int64_t heads = dims.num_heads;
  require_tensor(rows, "rows", {kAnyExtent, dims.latent_width()}, kOperands);
  require_tensor(w_uk, "w_uk", {heads, dims.qk_nope_head_dim, dims.kv_lora_rank}, {rows.dtype});
  require_tensor(w_uv, "w_uv", {heads, dims.v_head_dim, dims.kv_lora_rank}, {rows.dtype});
  require_tensor(k_nope, "k_nope", {rows.extent[0], heads, dims.qk_nope_head_dim}, {rows.dtype, DType::kF32});
  require_tensor(v, "v", {rows.extent[0], heads, dims.v_head_dim}, {rows.dtype, DType::kF32});
  expand_rows(rows, dims.kv_lora_rank, w_uk, k_nope, workspace, stream);
  expand_rows(rows, dims.kv_lora_rank, w_uv, v, workspace, stream);
}

std::size_t compress_workspace_bytes(const MlaDims& dims, std::int64_t tokens) {
  return kProjectionWorkspaceBytes +
         static_cast<std::size_t>(tokens) * static_cast<std::size_t>(dims.latent_width()) * sizeof(float);
}

void compress_and_cache(const CompressAndCache& args, std::span<std::byte> workspace, Stream stream) {
  const std::int64_t tokens = args.hidden.extent[0];
  const std::size_t wanted = compress_workspace_bytes(args.dims, tokens);
  if (workspace.size() < wanted) {
    refuse(
        fmt::format("the workspace has {} bytes, but {} tokens want {}", workspace.size(), tokens, wanted));
  }
  const int latent = args.dims.kv_lora_rank, rope = args.dims.qk_rope_head_dim;
  const std::span<std::byte> product_space = workspace.first(kProjectionWorkspaceBytes);
  float* const projected = reinterpret_cast<float*>(workspace.data() + kProjectionWorkspaceBytes);
  const TensorRef rows(projected, DType::kF32, {tokens, latent + rope});
  require_tensor(args.kv_a_proj, "kv_a_proj", {latent + rope, args.hidden.extent[1]}, {args.hidden.dtype});
  require_tensor(args.norm_weight, "norm_weight", {latent}, {});
  linear(args.hidden, args.kv_a_proj, {}, rows, product_space, stream);

  CacheWrite write;
  write.dims = args.dims;
  write.c_kv = rows;
  write.c_kv.extent[1] = latent;
  write.k_pe = rows;
  write.k_pe.data = projected + latent;
  write.k_pe.extent[1] = rope;
  write.norm_weight = args.norm_weight;
  write.norm_eps = args.norm_eps;
  write.rotation = args.rotation;
  write.intermediate = args.intermediate;
  write.slot_mapping = args.slot_mapping;
  write.cache = args.cache;
  kernels::cache_ops::write_cache(write, args.kv_a_bias, stream.handle);
}

}  // namespace mla::device_ops
