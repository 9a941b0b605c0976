// SPDX-License-Identifier: Apache-2.0
// From the CTAs' results to the output. Where CTAs share a row group, each writes its part to the workspace;
// once all are there, each adds up a slice of the parts (arrival.cuh), in the order of the parts whoever
// does it: the bits do not depend on it.
//
//   m = max m_i     out = sum 2^(m_i - m) o_i / sum 2^(m_i - m) l_i     lse = ln 2 (m + log2 of that sum)
//
// In the workspace a row's channels lie in the order in which threads hold them: fours of channels 2 i, 2 i +
// 1, 2 i + 8, 2 i + 9 of each 16.
#pragma once

#include <bit>
#include <cmath>

#include "common/store.cuh"
#include "latent/small_arrive.cuh"
#include "latent/small_math.cuh"

namespace mla::MLA_ARCH_NS::latent {

template <class Config>
class Merge {
 public:
  /// All math warps, after Math::run().
  __device__ __forceinline__ void run(const Params& p, const Shared<Config>& shared, const Math<Config>& math,
                                      const PostedPiece& posted) {
    const Piece& piece = posted.piece;
    if (piece.parts == 1) {
      write_whole(p, shared, math, piece);
      return;
    }
    publish(p, math, piece);
    sync_math();
    Arrival arrival(part_of(p, piece));
    if (threadIdx.x == 0) arrival.begin_arrival(p.may_wait);
    // What can be known without the others is worked out while they are waited for.
    const Place own(p, piece, piece.part);
    const OutputRow own_row(p, piece, own.at / kRowFours);
    if (threadIdx.x == 0) {
      shared.todo()[0] = static_cast<std::uint32_t>(arrival.finish_arrival(shared.todo() + 1));
    }
    sync_math();
    if (threadIdx.x == 0) arrival.depart();
    if (own.groups > 0) {
      each_slice(shared, piece, [&](std::int32_t slice) {
        if (slice == piece.part) {
          add_parts(p, piece, own, own_row);
        } else {
          const Place place(p, piece, slice);
          add_parts(p, piece, place, OutputRow(p, piece, place.at / kRowFours));
        }
      });
    } else {
      each_slice(shared, piece, [&](std::int32_t slice) { add_fours(p, piece, slice); });
    }
    if (threadIdx.x == 0) arrival.finish();
  }

 private:
  static constexpr std::uint32_t kRowFours = Config::kLatent / 4;
  static constexpr std::uint32_t kFours = Config::kRows * kRowFours;
  static constexpr int kLogFours = std::bit_width(kFours) - 1;
  static constexpr int kLogThreads = std::bit_width(static_cast<unsigned>(kMathThreads)) - 1;
  static_assert(1U << kLogFours == kFours && 1 << kLogThreads == kMathThreads);

  /// Calls `add` for the slices that this CTA has to add up.
  template <class Add>
  static __device__ __forceinline__ void each_slice(const Shared<Config>& shared, const Piece& piece,
                                                    Add add) {
    const auto todo = static_cast<Arrival::Todo>(shared.todo()[0]);
    if (todo == Arrival::Todo::kNone) return;
    const bool alone = todo == Arrival::Todo::kOwn;
    const std::int32_t end = alone ? piece.part + 1 : slices_of(piece.parts);
#pragma unroll 1
    for (std::int32_t i = alone ? piece.part : 0; i < end; ++i) {
      if (todo != Arrival::Todo::kAll && i != piece.part &&
          (shared.todo()[1 + i / 32] >> (i % 32) & 1) == 0) {
        continue;
      }
      add(i);
    }
  }

  /// Where a row goes.
  struct OutputRow {
    bool there;
    std::int64_t at = 0, lse_at = 0;

    __device__ __forceinline__ OutputRow(const Params& p, const Piece& piece, std::uint32_t r)
        : there(static_cast<std::int32_t>(blockIdx.y * Config::kRows + r) <
                piece.rows.queries * p.attention.num_heads) {
      if (!there) return;
      const kernels::AttentionParams& a = p.attention;
      const auto row = static_cast<std::int32_t>(blockIdx.y * Config::kRows + r);
      const std::int32_t query = p.by_heads.quotient(row);
      const std::int64_t token = std::int64_t{piece.rows.first_token} + query;
      const std::int64_t head = row - query * a.num_heads;
      at = token * a.out.stride_token + head * a.out.stride_head;
      lse_at = token * a.lse_stride_token + head * a.lse_stride_head;
    }
    /// Two channels of the row, whose maximum and sum are `head`; with the first also the LSE.
    __device__ __forceinline__ void write(const Params& p, std::uint32_t channel, float2 head,
                                          float2 x) const {
      const kernels::AttentionParams& a = p.attention;
      const bool empty = head.y == 0.0F && head.x == -INFINITY;
      const float factor = empty ? 0.0F : __frcp_rn(head.y);
      store_pair(a.out.data, a.out.dtype, at + channel, make_float2(x.x * factor, x.y * factor));
      if (channel == 0 && a.lse != nullptr) {
        constexpr float kLn2 = 0.693147180559945309F;
        a.lse[lse_at] = empty ? -INFINITY : (head.x + log2f(head.y)) * kLn2;
      }
    }
  };

  /// One CTA has it all: fragments straight to the output.
  __device__ __forceinline__ void write_whole(const Params& p, const Shared<Config>& shared,
                                              const Math<Config>& math, const Piece& piece) const {
    auto* const heads = shared.template as<float2>(Config::kSumsAt);
    if (Math<Config>::row_lane() == 0) heads[Math<Config>::row()] = make_float2(math.maximum(), math.sum());
    sync_math();
    const std::uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < Config::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t r = m * 16 + half * 8 + lane / 4;
        const OutputRow row(p, piece, r);
        if (!row.there) continue;
#pragma unroll
        for (int tile = 0; tile < Config::kWarpTiles; ++tile) {
          const std::uint32_t channel = (threadIdx.x / 32 * Config::kWarpTiles + tile) * 8 + lane % 4 * 2;
          row.write(p, channel, heads[r],
                    make_float2(math.output[m][tile][2 * half], math.output[m][tile][2 * half + 1]));
        }
      }
    }
    if (!piece.last) sync_math();
  }

  __device__ __forceinline__ void publish(const Params& p, const Math<Config>& math,
                                          const Piece& piece) const {
    const std::int64_t slot = slot_of(p, piece, piece.part);
    if (Math<Config>::row_lane() == 0) {
      __stcg(p.sums + slot * Config::kRows + Math<Config>::row(), make_float2(math.maximum(), math.sum()));
    }
    const std::uint32_t lane = threadIdx.x % 32;
    float4* const to = reinterpret_cast<float4*>(p.partials) + slot * kFours + lane / 4 * kRowFours +
                       threadIdx.x / 32 * (Config::kWarpTiles * 2) + lane % 4;
#pragma unroll
    for (int m = 0; m < Config::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < Config::kWarpTiles / 2; ++j) {
          const auto& low = math.output[m][2 * j];
          const auto& high = math.output[m][2 * j + 1];
          __stcg(to + (m * 16 + half * 8) * kRowFours + j * 4,
                 make_float4(low[2 * half], low[2 * half + 1], high[2 * half], high[2 * half + 1]));
        }
      }
    }
  }

  /// A sum of parts: relative to 2^top.
  struct Sum {
    float top = -INFINITY, sum = 0.0F;
    float4 x = {0.0F, 0.0F, 0.0F, 0.0F};

    /// Makes it relative to what is not below `top`.
    __device__ __forceinline__ float raise(float to) {
      const float pivot = to == -INFINITY ? 0.0F : to;
      const float old = ptx::ex2(top - pivot);
      top = to;
      sum *= old;
      x = make_float4(x.x * old, x.y * old, x.z * old, x.w * old);
      return pivot;
    }
    __device__ __forceinline__ void add(float weight, float other, const float4& y) {
      sum += weight * other;
      x.x += weight * y.x;
      x.y += weight * y.y;
      x.z += weight * y.z;
      x.w += weight * y.w;
    }
  };

  /// Where a thread works in a slice of many parts: on one four of channels, and with `groups` threads side by
  /// side on every groups-th part. groups is 0 where parts are so few that a thread has several fours.
  struct Place {
    std::uint32_t at = 0;  // the four, in the row group
    std::int32_t group = 0, groups = 0;
    std::uint32_t first_slot = 0;  // of part 0
    std::uint32_t base = 0;        // slot of part `group`, were it in order
    std::uint32_t step = 0;        // slots from one of its parts to the next
    bool there = false;

    __device__ __forceinline__ Place(const Params& p, const Piece& piece, std::int32_t slice) {
      const int log_width = kLogFours - log_slices_of(piece.parts);
      if (log_width > kLogThreads) return;
      const int log_groups = min(5, kLogThreads - log_width);
      groups = 1 << log_groups;
      group = static_cast<std::int32_t>(threadIdx.x) & (groups - 1);
      const std::uint32_t four = threadIdx.x >> log_groups;
      there = four < 1U << log_width;
      at = there ? (static_cast<std::uint32_t>(slice) << log_width) + four : 0;
      // Slots are in order but for the first part's where a CTA has two.
      const std::uint32_t one = even_shares(p) ? 2 : 1;
      first_slot = static_cast<std::uint32_t>(slot_of(p, piece, 0));
      base = static_cast<std::uint32_t>(slot_of(p, piece, 1)) - one + static_cast<std::uint32_t>(group) * one;
      step = static_cast<std::uint32_t>(groups) * one;
    }
  };

  /// Adds up all parts of a slice that are many. Sums of the threads side by side meet by shuffles.
  __device__ __forceinline__ void add_parts(const Params& p, const Piece& piece, const Place& place,
                                            const OutputRow& row) const {
    constexpr int kAtOnce = Config::kRows / 2;
    const auto* const parts_at = reinterpret_cast<const float4*>(p.partials) + place.at;
    const auto* const heads_at = p.sums + place.at / kRowFours;
    Sum total;
    std::uint32_t slot = place.base;
#pragma unroll 1
    for (std::int32_t first = place.group; first < piece.parts; first += place.groups * kAtOnce) {
      float4 parts[kAtOnce];
      float2 heads[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        parts[i] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        heads[i] = make_float2(-INFINITY, 0.0F);
        if (place.there && first + i * place.groups < piece.parts) {
          const std::uint32_t from = i == 0 && first == 0 ? place.first_slot : slot;
          heads[i] = __ldcg(heads_at + from * Config::kRows);
          parts[i] = __ldcg(parts_at + from * kFours);
        }
        slot += place.step;
      }
      float top = total.top;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) top = fmaxf(top, heads[i].x);
      const float pivot = total.raise(top);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) total.add(ptx::ex2(heads[i].x - pivot), heads[i].y, parts[i]);
    }
    float top = total.top;
    for (int d = 1; d < place.groups; d *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, d));
    total.raise(top);
    for (int d = 1; d < place.groups; d *= 2) {
      total.sum += __shfl_xor_sync(0xffffffffU, total.sum, d);
      total.x.x += __shfl_xor_sync(0xffffffffU, total.x.x, d);
      total.x.y += __shfl_xor_sync(0xffffffffU, total.x.y, d);
      total.x.z += __shfl_xor_sync(0xffffffffU, total.x.z, d);
      total.x.w += __shfl_xor_sync(0xffffffffU, total.x.w, d);
    }
    if (place.there && place.group == 0) write_four(p, place.at, row, total);
  }

  /// Adds up all parts of a slice that are few: four fours a thread, four parts of each at once.
  __device__ __forceinline__ void add_fours(const Params& p, const Piece& piece, std::int32_t slice) const {
    constexpr int kAtOnce = 4;
    const std::uint32_t width = kFours >> log_slices_of(piece.parts);
    const std::uint32_t begin = static_cast<std::uint32_t>(slice) * width;
    const std::int32_t one = even_shares(p) ? 2 : 1;
    const std::int32_t before_second = slot_of(p, piece, 1) - one;
    const auto* const all_parts = reinterpret_cast<const float4*>(p.partials);
#pragma unroll 1
    for (std::uint32_t four = threadIdx.x; four < width; four += kAtOnce * kMathThreads) {
      Sum total[kAtOnce];
#pragma unroll 1
      for (std::int32_t first = 0; first < piece.parts; first += kAtOnce) {
        float4 parts[kAtOnce][kAtOnce];
        float2 heads[kAtOnce][kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const auto slot = static_cast<std::uint32_t>(
              i == 0 && first == 0 ? slot_of(p, piece, 0) : before_second + (first + i) * one);
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            const std::uint32_t at = begin + four + j * kMathThreads;
            parts[j][i] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
            heads[j][i] = make_float2(-INFINITY, 0.0F);
            if (first + i < piece.parts && four + j * kMathThreads < width) {
              heads[j][i] = __ldcg(p.sums + (slot * Config::kRows + at / kRowFours));
              parts[j][i] = __ldcg(all_parts + (slot * kFours + at));
            }
          }
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          float top = total[j].top;
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) top = fmaxf(top, heads[j][i].x);
          const float pivot = total[j].raise(top);
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) {
            total[j].add(ptx::ex2(heads[j][i].x - pivot), heads[j][i].y, parts[j][i]);
          }
        }
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const std::uint32_t at = begin + four + j * kMathThreads;
        if (four + j * kMathThreads < width) {
          write_four(p, at, OutputRow(p, piece, at / kRowFours), total[j]);
        }
      }
    }
  }

  __device__ __forceinline__ void write_four(const Params& p, std::uint32_t at, const OutputRow& row,
                                             const Sum& sum) const {
    if (!row.there) return;
    const std::uint32_t channel = at % kRowFours / 4 * 16 + at % 4 * 2;
    const float2 head = make_float2(sum.top, sum.sum);
    row.write(p, channel, head, make_float2(sum.x.x, sum.x.y));
    row.write(p, channel + 8, head, make_float2(sum.x.z, sum.x.w));
  }
};

}  // namespace mla::MLA_ARCH_NS::latent
