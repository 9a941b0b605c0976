// SPDX-License-Identifier: Apache-2.0
// cuda-splitkv: absorbed MLA decode, split along the keys, on tensor cores that every GPU since Ampere has.
//
//   out[t, h, :] = softmax_j(scale * q[t, h, :] . row_j) row_j[0:L]      row_j = [c_kv L | k_pe R], one for all heads
//
// A block has a group of kRows rows (queries x heads) and walks over its part of the keys in tiles. A tile is
// loaded once: for the first product it is K, for the second its latent part is V.
//
//            L + R channels            keys                        L channels
//          +----------------+        +------+                    +--------------+
//     rows |       Q        |   x    | K^T  |  = S -> P    x     |      V       | keys   = O (registers)
//          +----------------+        |      |   rows x keys      +--------------+
//                                    +------+   (shared)          same bytes as K
//
//   ring        tiles ahead of the mathematics, by cp.async through the block table, across the borders of requests
//   per tile    wait, barrier, start the next load | S: warps over rows x keys x channels | barrier
//               | softmax: a row to 256 / kRows lanes | barrier | O: warps over rows x channels
//
// All eight warps do all three; roles of their own would want more registers than mma.sync leaves.
//
// Bytes: every cache row once per row group (groups of a request run side by side and meet in the L2), q and
// out once, partial results of cut requests. Bound: bytes / bandwidth up to 32 rows; shared-memory and tensor
// rate at 64 rows. Numbers and what was tried: docs/kernels/splitkv.md.
#pragma once

#include "common/check.hpp"
#include "splitkv/ring.cuh"
#include "splitkv/rows.cuh"
#include "splitkv/scores.cuh"
#include "splitkv/softmax.cuh"
#include "splitkv/values.cuh"
#include "splitkv/widen.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

/// Writes a row group's result: to the output if the part saw all keys of the unit (slot -1), else to a slot
/// for the merge.
template <class Config>
__device__ __forceinline__ void store_group(const Params& p, const Shared<Config>& shared, const Unit& unit,
                                            std::int32_t first_row, const RowSoftmax<Config>& softmax,
                                            const Output<Config>& output, std::int64_t slot) {
  const kernels::AttentionParams& a = p.attention;
  const int rows = min(Config::kRows, unit.rows(p) - first_row);
  const float sum = softmax.sum();
  const int row = RowSoftmax<Config>::row();
  if (slot >= 0) {
    if (row < rows && RowSoftmax<Config>::lane() == 0) {
      p.partial_sum[slot * Config::kRows + row] = make_float2(softmax.pivot(), sum);
    }
    float* to = p.partial_out + slot * Config::kRows * Config::kLatent;
    output.store([&](int r) { return r < rows ? to + r * Config::kLatent : nullptr; },
                 [](int) { return 1.0F; });
    return;
  }
  const bool empty = sum == 0.0F && softmax.pivot() == -INFINITY;
  if (RowSoftmax<Config>::lane() == 0) {
    shared.sum()[row] = empty ? 0.0F : p.value_scale / sum;
    if (row < rows && a.lse != nullptr) {
      const RowId id = row_id(p, unit, first_row + row);
      constexpr float kLn2 = 0.693147180559945309F;
      a.lse[id.token * a.lse_stride_token + id.head * a.lse_stride_head] =
          empty ? -INFINITY : (softmax.pivot() + log2f(sum)) * kLn2;
    }
  }
  __syncthreads();
  with_type(a.out.data, a.out.dtype, [&](auto* out) {
    using Row = decltype(out);
    output.store(
        [&](int r) -> Row {
          if (r >= rows) return nullptr;
          const RowId id = row_id(p, unit, first_row + r);
          return out + id.token * a.out.stride_token + id.head * a.out.stride_head;
        },
        [&](int r) { return shared.sum()[r]; });
  });
}

/// Tokens that belong to no request (padding behind the last one) are empty rows.
__device__ __forceinline__ void clear_tail(const Params& p) {
  const kernels::AttentionParams& a = p.attention;
  if (a.topk > 0) return;  // every token is a unit
  const std::int64_t first = a.cu_seqlens_q[a.num_requests * a.cu_seqlens_stride];
  const std::int64_t rows = (a.num_tokens - first) * a.num_heads;
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const std::int64_t token = first + r / a.num_heads;
    const std::int64_t head = r % a.num_heads;
    for (int c = static_cast<int>(threadIdx.x) * 2; c < a.latent; c += kThreads * 2) {
      with_type(a.out.data, a.out.dtype, [&](auto* out) {
        store_pair(out + token * a.out.stride_token + head * a.out.stride_head + c, float2{});
      });
    }
    if (a.lse != nullptr && threadIdx.x == 0) {
      a.lse[token * a.lse_stride_token + head * a.lse_stride_head] = -INFINITY;
    }
  }
}

/// slot_of(p, c, from_start) * row_groups + group of this block, blockIdx.x = c * row_groups + group.
__device__ __forceinline__ std::int32_t block_slot(const Params& p, std::int32_t group, bool from_start) {
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  return p.splits > 0 ? block : 2 * block - group + (from_start ? p.row_groups : 0);
}

template <class Config>
__global__ void __launch_bounds__(kThreads, Config::kBlocks)
    splitkv_attention(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) std::byte dynamic[];
  const Shared<Config> shared{dynamic};
  clear_tail(p);
  const auto c = static_cast<std::int32_t>(blockIdx.x / p.row_groups);
  const auto group = static_cast<std::int32_t>(blockIdx.x % p.row_groups);
  const Part part = locate(p, c, shared.locator());
  if (part.begin >= part.end) return;

  Ring<Config> ring(p, part);
  for (int stage = 0; stage + 1 < p.stages; ++stage) ring.issue(p, shared, stage);

  const std::int32_t first_row = group * Config::kRows;
  bool from_start = part.begin == part.unit_begin;
  std::int32_t unit_end = part.unit_begin;
  Query<Config> query;
  Output<Config> output;
  int stage = 0;
  for (std::int32_t u = part.unit, tile = part.begin; tile < part.end; ++u) {
    // A unit's facts are loaded where they are needed, and again after the loop: kept, they would cost
    // registers that the loop has not got.
    bool idle;  // a longer request has more row groups
    RowSoftmax<Config> softmax;
    {
      const Unit unit = load_unit(p, u);
      idle = first_row >= unit.rows(p);
      const GroupSight<Config> sight(p, unit, first_row);
      sight.keep(shared, sight.plain_tiles(p, unit, unit_end));  // where the unit before ended
      unit_end += unit.tiles;
      softmax.start(shared, Sight(p, unit, first_row + RowSoftmax<Config>::row()));
      if (!idle) query.load(p, shared, unit, first_row);
    }
    output.clear();
    bool fresh = !Config::kQueryInRegisters;

    for (const std::int32_t end = min(unit_end, part.end); tile < end; ++tile) {
      wait_for_groups(fresh ? 0 : p.stages - 2);  // the query came by the same kind of copy, after the tiles
      fresh = false;
      __syncthreads();  // the tile is there for all, and all are done with the one before
      ring.issue(p, shared, stage == 0 ? p.stages - 1 : stage - 1);
      if (!idle) {
        if constexpr (Config::kFp8) {
          widen_tile(p, shared, stage);
          __syncthreads();
        }
        compute_scores(p, shared, stage, query);
        __syncthreads();
        if (GroupSight<Config>::plain(shared, tile)) {
          softmax.template step<true>(p, shared, stage);
        } else {
          softmax.template step<false>(p, shared, stage);
          clear_unshared(shared, stage);
        }
        __syncthreads();
        output.accumulate(shared, stage);
      }
      stage = stage + 1 == p.stages ? 0 : stage + 1;
    }
    if (!idle) {
      const bool whole = from_start && unit_end <= part.end;
      store_group(p, shared, load_unit(p, u), first_row, softmax, output,
                  whole ? -1 : block_slot(p, first_row / Config::kRows, from_start));
    }
    from_start = true;
  }
}

template <class Config>
void launch(const Params& p, void* stream) {
  constexpr kernels::splitkv::Variant kShape{.fixed_bytes = Config::kRingAt,
                                             .stage_bytes = Config::kStageBytes};
  const std::size_t shared = kShape.shared_bytes(p.stages);
  const dim3 grid(static_cast<unsigned>(p.parts) * static_cast<unsigned>(p.row_groups));
  MLA_CHECK_CUDA(cudaFuncSetAttribute(splitkv_attention<Config>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shared)));
  splitkv_attention<Config><<<grid, kThreads, shared, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("splitkv_attention", grid, kThreads, shared);
}

template <class Config>
constexpr kernels::splitkv::Variant variant_of(DType dtype) {
  return {.rows = Config::kRows,
          .tile = Config::kKeys,
          .latent = Config::kLatent,
          .dtype = dtype,
          .fp8 = Config::kFp8,
          .blocks = Config::kBlocks,
          .fixed_bytes = Config::kRingAt,
          .stage_bytes = Config::kStageBytes,
          .run = &launch<Config>};
}

}  // namespace mla::MLA_ARCH_NS::splitkv
