// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mla/backend.hpp"
#include "mla/cache.hpp"
#include "mla/dims.hpp"
#include "mla/export.h"
#include "mla/index.hpp"
#include "mla/layer.hpp"
#include "mla/tensor.hpp"

/// What surrounds the attention itself, on a CUDA device: cache operations, indexers, projections. Every
/// pointer is a device pointer, every call enqueues on `stream` for the current device and returns; nothing
/// allocates, waits or reads a length on the host, so all of it can be captured in a CUDA graph and replayed
/// with other lengths. Strides are 64-bit and may be anything, except that the innermost one is 1.
/// All functions throw kUnsupported where this build or machine has no device, kInvalidArgument for a wrong
/// argument.
namespace mla::device_ops {

/// Whether this build has device code and the current machine a device that it runs on.
[[nodiscard]] MLA_EXPORT Support available();
/// Whether the projections (cuBLASLt, loaded at run time) can be used, too.
[[nodiscard]] MLA_EXPORT Support projections_available();

// ---- cache operations
// -------------------------------------------------------------------------------------------

/// Rotary embedding by table. Absent (`cos` null): no rotation.
struct Rotation {
  View<const float, 2> cos, sin;          ///< [positions, R/2], amplitude included (make_rope_table)
  View<const std::int64_t, 1> positions;  ///< [tokens] row of the table for each token
  RopeLayout input = RopeLayout::kInterleaved;
  RopeLayout output = RopeLayout::kInterleaved;
};

/// RMSNorm of c_kv, RoPE of k_pe and the write into the paged cache, in one pass over the token.
///
/// Rounding contract, byte for byte. All arithmetic is f32, each operation rounded once, nothing contracted
/// except where `fma` is written:
///   sum    lane t (0..31) runs s_t = fma(x_i, x_i, s_t) over its channels, those with (i / 8) mod 32 = t, ascending;
///          then s_t += s_(t xor d) for d = 16, 8, 4, 2, 1
///   norm   r = 1 / sqrt(sum / L + eps);  y_i = (x_i * r) * w_i
///   rope   y_a = x_a * cos - x_b * sin,  y_b = x_a * sin + x_b * cos  (two products, one sum each)
///   then   y is rounded to `intermediate`, if that is not f32, and encoded as encode_row() of <mla/cache.hpp> does.
/// So with neither norm nor rotation the stored bytes are those of encode_row() on the inputs.
struct CacheWrite {
  MlaDims dims;                ///< L (at most 2048) and R are read
  ConstTensorRef c_kv;         ///< [tokens, L] bf16, f16 or f32; a slice of the projection's output will do
  ConstTensorRef k_pe;         ///< [tokens, R] same type; may be absent if R is 0
  ConstTensorRef norm_weight;  ///< [L] bf16, f16 or f32; absent: c_kv is stored as it is
  float norm_eps = 1e-6F;
  Rotation rotation;
  DType intermediate = DType::kF32;  ///< bf16 / f16: what an unfused pipeline would have stored in between
  View<const std::int64_t, 1> slot_mapping;  ///< [tokens]; a slot outside the pool (kSkipSlot) is not written
  PagedLatentCache cache;                    ///< every format but f64; the block table is not read
};
MLA_EXPORT void write_cache(const CacheWrite& args, Stream stream = {});

/// Rows of a paged cache as a dense array, request after request. Values are decoded in f32 (exact, but for
/// the product with the scale of kFp8) and rounded once to the type of `rows`. A row whose block id is
/// missing is filled with 0.
struct CacheGather {
  MlaDims dims;
  PagedLatentCache cache;
  View<const std::int32_t, 1> cu_seqlens_k;  ///< [requests + 1] rows of request b: cu_seqlens_k[b] ..
  View<const std::int32_t, 1> first;         ///< [requests] position of its first row; absent: 0
  TensorRef rows;  ///< [capacity, L+R] bf16, f16 or f32; rows past the last one are not written
};
MLA_EXPORT void gather_cache(const CacheGather& args, Stream stream = {});

/// Copies whole blocks, all pools of the format: block pairs[i][0] of `from` to block pairs[i][1] of `to`
/// (which may be the same pool). A pair with an id outside its pool is skipped. No block may be both source
/// and destination.
MLA_EXPORT void copy_blocks(const CacheLayout& layout, const PagedLatentCache& from,
                            const PagedLatentCache& to, View<const std::int64_t, 2> pairs,
                            Stream stream = {});

/// Bytes of workspace for permute_blocks.
[[nodiscard]] MLA_EXPORT std::size_t permute_workspace_bytes(const CacheLayout& layout,
                                                             const PagedLatentCache& cache,
                                                             std::int64_t count);
/// As copy_blocks within one pool, but sources are all read before a destination is written: cycles are fine.
MLA_EXPORT void permute_blocks(const CacheLayout& layout, const PagedLatentCache& cache,
                               View<const std::int64_t, 2> pairs, std::span<std::byte> workspace,
                               Stream stream = {});

/// RMSNorm of rows, in place or not, with the norm of the contract above. x and out: [rows, width] of any of
/// the three types each, width at most 8192; weight [width].
MLA_EXPORT void rms_norm(ConstTensorRef x, ConstTensorRef weight, float eps, TensorRef out,
                         Stream stream = {});

/// Rotates the last R channels of x [tokens, H, width] in place, with the rotation of the contract above.
MLA_EXPORT void rotate(TensorRef x, int rope_dim, const Rotation& rotation, Stream stream = {});

// ---- indexers
// --------------------------------------------------------------------------------------------------- The
// arrays of <mla/index.hpp>, made on the device. Where the host functions throw (a missing block id, a table
// with too few columns) a kernel cannot: slots are then kSkipSlot and block ids -1, and nothing outside the
// table is read. Arrays must hold the upper bounds given with them; entries past the used part are left alone
// unless said otherwise.

struct DevicePrefillIndex {
  View<std::int64_t, 1> slot_mapping;  ///< [capacity >= sum q_len]; entries past the sum become kSkipSlot
  View<std::int32_t, 1> cu_seqlens_q;  ///< [requests + 1]
  View<std::int32_t, 1> cu_seqlens_k;  ///< [requests + 1]
  View<std::int32_t, 1> max_seq_lens;  ///< [2] longest q_len and kv_len; may be absent
};
/// q_lens and seq_lens are [requests]; a request of length 0 is padding.
MLA_EXPORT void build_prefill_index(View<const std::int32_t, 1> q_lens, View<const std::int32_t, 1> seq_lens,
                                    View<const std::int32_t, 2> block_table, int block_size,
                                    const DevicePrefillIndex& index, Stream stream = {});

struct DeviceDecodeIndex {
  View<std::int64_t, 1> slot_mapping;  ///< [requests * q_len]
  View<std::int32_t, 2>
      block_tables;                ///< [requests, >= columns wanted]; columns a request does not use become 0
  View<std::int32_t, 1> seq_lens;  ///< [requests]
  View<std::int32_t, 1> max_seq_len;  ///< [1]; may be absent
};
MLA_EXPORT void build_decode_index(View<const std::int32_t, 1> seq_lens, SeqLens convention,
                                   View<const std::int32_t, 2> block_table, int block_size, int q_len,
                                   const DeviceDecodeIndex& index, Stream stream = {});

struct DeviceSparseIndex {
  View<std::int32_t, 1> kv_indptr;   ///< [requests + 1]
  View<std::int32_t, 1> kv_indices;  ///< [capacity]
  View<std::int64_t, 1> kv_slots;    ///< [capacity]; may be absent
  View<std::int32_t, 1> num_kv;      ///< [requests]; may be absent
};
/// Entries that `requests` sequences of at most `columns` blocks can need.
[[nodiscard]] MLA_EXPORT std::int64_t sparse_index_capacity(std::int64_t requests, int window, int sink,
                                                            std::int64_t columns, int block_size);
/// Throws kInvalidArgument if an array is smaller than sparse_index_capacity for this table.
MLA_EXPORT void build_sparse_index(View<const std::int32_t, 1> seq_lens, int window, int sink,
                                   View<const std::int32_t, 2> block_table, int block_size,
                                   const DeviceSparseIndex& index, Stream stream = {});

struct DevicePageIndex {
  View<std::int32_t, 1> paged_kv_indptr;         ///< [requests + 1]
  View<std::int32_t, 1> paged_kv_indices;        ///< [capacity]
  View<std::int32_t, 1> logical_blocks;          ///< [capacity]; may be absent
  View<std::int32_t, 1> paged_kv_last_page_len;  ///< [requests]
};
[[nodiscard]] MLA_EXPORT std::int64_t page_index_capacity(std::int64_t requests, int window, int sink,
                                                          std::int64_t columns, int block_size);
MLA_EXPORT void build_page_index(View<const std::int32_t, 1> seq_lens, int window, int sink,
                                 View<const std::int32_t, 2> block_table, int block_size,
                                 const DevicePageIndex& index, Stream stream = {});

// ---- projections (cuBLASLt)
// ------------------------------------------------------------------------------------- Sums are accumulated
// in f32 and rounded once to the type of the output. bf16 and f16; x and w have the same type.

/// Workspace that any projection below may want; contents may be anything before and after.
inline constexpr std::size_t kProjectionWorkspaceBytes = std::size_t{32} << 20;

/// out[t, o] = sum_i x[t, i] w[o, i] (+ bias[o], before the rounding). x [tokens, in], w [outputs, in], out
/// [tokens, outputs] of x's type or f32; bias [outputs] of out's type, or absent.
MLA_EXPORT void linear(ConstTensorRef x, ConstTensorRef w, ConstTensorRef bias, TensorRef out,
                       std::span<std::byte> workspace, Stream stream = {});

/// q [tokens, H, P+R] -> out [tokens, H, L+R]: per head W_UK,h^T q_nope, rotary part copied. w_uk [H, P, L].
MLA_EXPORT void absorb_query(const MlaDims& dims, ConstTensorRef q, ConstTensorRef w_uk, TensorRef out,
                             std::span<std::byte> workspace, Stream stream = {});

/// latent_out [tokens, H, L] -> out [tokens, H, V]: per head W_UV,h o_h. w_uv [H, V, L].
MLA_EXPORT void up_project_value(const MlaDims& dims, ConstTensorRef latent_out, ConstTensorRef w_uv,
                                 TensorRef out, std::span<std::byte> workspace, Stream stream = {});

/// rows [tokens, L+R] -> k_nope [tokens, H, P] and v [tokens, H, V]: the up-projection of the compressor. The
/// rotary part of K is the same for all heads and stays in the rows.
MLA_EXPORT void decompress(const MlaDims& dims, ConstTensorRef rows, ConstTensorRef w_uk, ConstTensorRef w_uv,
                           TensorRef k_nope, TensorRef v, std::span<std::byte> workspace, Stream stream = {});

/// hidden states to cache rows: the down-projection writes [tokens, L+R] f32 to the workspace, and
/// write_cache, as the GEMM's epilogue, normalises, rotates, encodes and scatters it. No other pass over the
/// latent.
struct CompressAndCache {
  MlaDims dims;
  ConstTensorRef hidden;       ///< [tokens, hidden]
  ConstTensorRef kv_a_proj;    ///< [L+R, hidden], same type
  ConstTensorRef kv_a_bias;    ///< [L+R] same type, or absent
  ConstTensorRef norm_weight;  ///< [L]
  float norm_eps = 1e-6F;
  Rotation rotation;
  DType intermediate = DType::kF32;
  View<const std::int64_t, 1> slot_mapping;
  PagedLatentCache cache;
};
[[nodiscard]] MLA_EXPORT std::size_t compress_workspace_bytes(const MlaDims& dims, std::int64_t tokens);
MLA_EXPORT void compress_and_cache(const CompressAndCache& args, std::span<std::byte> workspace,
                                   Stream stream = {});

// ---- merge
// ------------------------------------------------------------------------------------------------------

/// Merges partial results of the same rows (splits, chunks, context-parallel ranks): lse = log sum exp lse_i,
/// out = sum exp(lse_i - lse) out_i. A part with lse -inf does not contribute, whatever its out holds; all of
/// them: 0 and -inf. parts [N, rows, width] f32, bf16 or f16 (rows = tokens * heads); part_lse [N, rows] f32;
/// out [rows, width].
MLA_EXPORT void merge_partials(ConstTensorRef parts, View<const float, 2> part_lse, TensorRef out,
                               View<float, 1> lse, Stream stream = {});

}  // namespace mla::device_ops
