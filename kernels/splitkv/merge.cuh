// SPDX-License-Identifier: Apache-2.0
// Second stage of cuda-splitkv: the parts of a cut unit become its output.
//
//   with m = max m_i over parts:   out = sum 2^(m_i - m) o_i / sum 2^(m_i - m) s_i,   lse = ln 2 (m + log2 of that sum)
//
// A unit in k + 1 parts has k cuts, and each cut has a block (per row group) that merges 1/k of the row
// group's elements: the work is spread evenly whatever the lengths are, and a grid of cuts is all that a
// replayed graph needs.
//
//   256 threads = W columns of four channels x G groups of parts; the groups meet in shared memory
//
// Bytes: every partial result once, from the L2 where it was just written. Bound: latency of two dependent
// loads for few parts, L2 bandwidth for many. See docs/kernels/splitkv.md.
#pragma once

#include <cmath>

#include "common/check.hpp"
#include "ptx/math.cuh"
#include "splitkv/rows.cuh"
#include "splitkv/values.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

/// Several parts' share of four channels of a row.
struct Partial {
  float pivot;
  float sum;
  float4 out;

  __device__ __forceinline__ void add(float other_pivot, float other_sum, float4 x) {
    const float top = fmaxf(pivot, other_pivot);
    const float base = top == -INFINITY ? 0.0F : top;  // nothing seen so far: all factors are 0
    const float mine = ptx::ex2(pivot - base);
    const float theirs = ptx::ex2(other_pivot - base);
    pivot = top;
    sum = sum * mine + other_sum * theirs;
    out.x = out.x * mine + x.x * theirs;
    out.y = out.y * mine + x.y * theirs;
    out.z = out.z * mine + x.z * theirs;
    out.w = out.w * mine + x.w * theirs;
  }
};

/// A cut and what its block does: parts first .. first + count - 1 of a unit, share `index` of count - 1.
struct Cut {
  std::int32_t unit = 0;
  std::int32_t first = 0;
  std::int32_t count = 0;  // 0: no cut here
  std::int32_t index = 0;
};

__device__ __forceinline__ Cut find_cut(const Params& p, std::int32_t x, Locator& shared) {
  const std::int32_t c = p.splits > 0 ? x / (p.splits - 1) * p.splits + x % (p.splits - 1) + 1
                                      : x + 1;  // the part behind the cut
  const Part part = locate(p, c, shared);
  if (part.begin >= part.end || part.begin == part.unit_begin) return {};
  if (p.splits > 0) return {part.unit, part.unit * p.splits, part.count, c % p.splits - 1};
  // The part that tile t lies in is the largest c with N c / C <= t.
  const std::int32_t unit_end = part.unit_begin + load_tiles(p, part.unit);
  const auto owner = [&](std::int32_t tile) {
    return static_cast<std::int32_t>(((std::int64_t{tile} + 1) * part.count - 1) / part.total);
  };
  const std::int32_t first = owner(part.unit_begin);
  return {part.unit, first, owner(unit_end - 1) - first + 1, c - first - 1};
}

__global__ void __launch_bounds__(kThreads) splitkv_merge(const __grid_constant__ Params p) {
  __shared__ Locator locator;
  __shared__ Partial partials[kThreads];
  const auto group = static_cast<std::int32_t>(blockIdx.x % p.row_groups);
  const Cut cut = find_cut(p, static_cast<std::int32_t>(blockIdx.x / p.row_groups), locator);
  if (cut.count == 0) return;
  const Unit unit = load_unit(p, cut.unit);
  const std::int32_t first_row = group * p.rows;
  const std::int32_t rows = min(p.rows, unit.rows(p) - first_row);
  if (rows <= 0) return;

  const std::int32_t latent = p.attention.latent;
  const std::int32_t row_quads = latent / 4;
  const std::int32_t quads = rows * row_quads;
  const std::int32_t begin = static_cast<std::int32_t>(std::int64_t{quads} * cut.index / (cut.count - 1));
  const std::int32_t end = static_cast<std::int32_t>(std::int64_t{quads} * (cut.index + 1) / (cut.count - 1));
  std::int32_t width = 32;  // threads side by side; the rest share the parts out among them
  while (width < kThreads && width < end - begin) width *= 2;
  const std::int32_t helpers = kThreads / width;
  const std::int32_t helper = static_cast<std::int32_t>(threadIdx.x) / width;

  for (std::int32_t base = begin; base < end; base += width) {
    const std::int32_t quad = base + static_cast<std::int32_t>(threadIdx.x) % width;
    const std::int32_t row = quad / row_quads;
    const std::int32_t channel = (quad - row * row_quads) * 4;
    Partial mine{-INFINITY, 0.0F, {0.0F, 0.0F, 0.0F, 0.0F}};
    if (quad < end) {
#pragma unroll 4
      for (std::int32_t i = helper; i < cut.count; i += helpers) {
        const std::int64_t at = (slot_of(p, cut.first + i, i == 0) * p.row_groups + group) * p.rows + row;
        const float2 sum = p.partial_sum[at];
        mine.add(sum.x, sum.y, *reinterpret_cast<const float4*>(p.partial_out + at * latent + channel));
      }
    }
    partials[threadIdx.x] = mine;
    __syncthreads();
    if (helper == 0 && quad < end) {
      for (std::int32_t i = 1; i < helpers; ++i) {
        const Partial& other = partials[threadIdx.x + i * width];
        mine.add(other.pivot, other.sum, other.out);
      }
      const kernels::AttentionParams& a = p.attention;
      const bool empty = mine.sum == 0.0F && mine.pivot == -INFINITY;
      const float factor = empty ? 0.0F : p.value_scale / mine.sum;
      const RowId id = row_id(p, unit, first_row + row);
      const std::int64_t to = id.token * a.out.stride_token + id.head * a.out.stride_head + channel;
      with_type(a.out.data, a.out.dtype, [&](auto* out) {
        store_pair(out + to, make_float2(mine.out.x * factor, mine.out.y * factor));
        store_pair(out + to + 2, make_float2(mine.out.z * factor, mine.out.w * factor));
      });
      if (channel == 0 && a.lse != nullptr) {
        constexpr float kLn2 = 0.693147180559945309F;
        a.lse[id.token * a.lse_stride_token + id.head * a.lse_stride_head] =
            empty ? -INFINITY : (mine.pivot + log2f(mine.sum)) * kLn2;
      }
    }
    __syncthreads();
  }
}

inline void launch_merge(const Params& p, void* stream) {
  const std::int32_t cuts = p.splits > 0 ? p.units * (p.splits - 1) : p.parts - 1;
  if (cuts == 0) return;
  const dim3 grid(static_cast<unsigned>(cuts) * static_cast<unsigned>(p.row_groups));
  splitkv_merge<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p);
  MLA_CHECK_LAUNCH("splitkv_merge", grid, kThreads, 0);
}

}  // namespace mla::MLA_ARCH_NS::splitkv
