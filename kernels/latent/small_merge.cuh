// SPDX-License-Identifier: Apache-2.0
// From the CTAs' results to the output. Where CTAs share a row group, each writes its part to the workspace;
// once all are there, each adds up a slice of the parts (small_arrive.cuh), in the order of the parts whoever
// does it: the bits do not depend on it.
//
//   m = max m_i     out = sum 2^(m_i - m) o_i / sum 2^(m_i - m) l_i     lse = ln 2 (m + log2 of that sum)
//
// In the workspace a part lies in the order in which threads hold it, so that a store of a warp is one piece:
// four (i, j) of thread t, of channels c, c + 1, c + 8, c + 9 of a row, is number (i kOwnFours + j) 256 + t.
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
    if (threadIdx.x == 0) {
      arrival.begin_arrival(p.may_wait);
      shared.todo()[0] = static_cast<std::uint32_t>(arrival.finish_arrival(shared.todo() + 1));
    }
    sync_math();
    if (threadIdx.x == 0) arrival.depart();
    const auto todo = static_cast<Arrival::Todo>(shared.todo()[0]);
    if (todo != Arrival::Todo::kNone) {
      const bool own = todo != Arrival::Todo::kAll && piece.part < slices_of(piece.parts);
      const bool alone = todo == Arrival::Todo::kOwn;
      const std::int32_t end = alone ? piece.part + 1 : slices_of(piece.parts);
#pragma unroll 1
      for (std::int32_t i = alone ? piece.part : 0; i < end; ++i) {
        const bool left = todo == Arrival::Todo::kAll || (own && i == piece.part) ||
                          (!alone && (shared.todo()[1 + i / 32] >> (i % 32) & 1) != 0);
        if (left) add_slice(p, shared, piece, i);
      }
      if (!piece.last) sync_math();  // the scores and the note are free again
    }
    if (threadIdx.x == 0) arrival.finish();
  }

 private:
  static constexpr std::uint32_t kFours = Config::kRows * (Config::kLatent / 4);
  static constexpr int kLogFours = std::bit_width(kFours) - 1;
  static constexpr int kLogThreads = std::bit_width(static_cast<unsigned>(kMathThreads)) - 1;
  static_assert(1U << kLogFours == kFours && 1 << kLogThreads == kMathThreads);
  static_assert(kFours == Math<Config>::kOwnRows * Math<Config>::kOwnFours * kMathThreads);

  static constexpr std::uint32_t kOwnFours = Math<Config>::kOwnFours;

  /// What number `at` of a part is.
  static __device__ __forceinline__ Four four_of(std::uint32_t at) {
    const std::uint32_t which = at / kMathThreads;
    return Math<Config>::four_at(at % kMathThreads, which / kOwnFours, which % kOwnFours);
  }

  /// One CTA has it all: straight to the output.
  __device__ __forceinline__ void write_whole(const Params& p, const Shared<Config>& shared,
                                              const Math<Config>& math, const Piece& piece) const {
    auto* const heads = shared.template as<float2>(Config::kSumsAt);
    math.each_sum([&](std::uint32_t row, float2 sums) { heads[row] = sums; });
    sync_math();
#pragma unroll
    for (std::uint32_t i = 0; i < Math<Config>::kOwnRows; ++i) {
      const std::uint32_t r = Math<Config>::four_at(threadIdx.x, i, 0).row;
      const OutputRow row(p, piece, r, heads[r]);
      if (!row.there) continue;
#pragma unroll
      for (std::uint32_t j = 0; j < kOwnFours; ++j) {
        const float4 x = math.own(i, j);
        const std::uint32_t channel = Math<Config>::four_at(threadIdx.x, i, j).channel;
        row.write(p, channel, make_float2(x.x, x.y));
        row.write(p, channel + 8, make_float2(x.z, x.w));
      }
    }
    if (!piece.last) sync_math();
  }

  __device__ __forceinline__ void publish(const Params& p, const Math<Config>& math,
                                          const Piece& piece) const {
    const std::int64_t slot = slot_of(p, piece, piece.part);
    float2* const sums = p.sums + slot * Config::kRows;
    math.each_sum([&](std::uint32_t row, float2 x) { __stcg(sums + row, x); });
    float4* const to = reinterpret_cast<float4*>(p.partials) + slot * kFours + threadIdx.x;
#pragma unroll
    for (std::uint32_t i = 0; i < Math<Config>::kOwnRows; ++i) {
#pragma unroll
      for (std::uint32_t j = 0; j < kOwnFours; ++j) {
        __stcg(to + (i * kOwnFours + j) * kMathThreads, math.own(i, j));
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

  /// Slice `slice` of all parts: each thread has some fours of it (few parts) or some of the parts of one four
  /// (many parts). Eight or sixteen loads of a thread are in flight together.
  __device__ __forceinline__ void add_slice(const Params& p, const Shared<Config>& shared, const Piece& piece,
                                            std::int32_t slice) const {
    const int log_width = kLogFours - log_slices_of(piece.parts);
    if (log_width > kLogThreads) {
      add_fours<4, 4>(p, shared, piece, slice, log_width);
    } else {
      add_fours<1, Config::kRows / 2>(p, shared, piece, slice, log_width);
    }
  }

  template <int kFoursAtOnce, int kPartsAtOnce>
  __device__ __forceinline__ void add_fours(const Params& p, const Shared<Config>& shared, const Piece& piece,
                                            std::int32_t slice, int log_width) const {
    const std::uint32_t thread = threadIdx.x;
    const std::uint32_t width = 1U << log_width;
    const int groups = log_width < kLogThreads ? 1 << (kLogThreads - log_width) : 1;
    const int group = static_cast<int>(thread >> log_width);  // 0 where one thread has all parts
    // Slots are in order but for the first part's where a CTA has two.
    const std::int32_t step = even_shares(p) ? 2 : 1;
    const std::int32_t before_second = slot_of(p, piece, 1) - step;
    const auto* const all_parts = reinterpret_cast<const float4*>(p.partials);
    const std::uint32_t begin = static_cast<std::uint32_t>(slice) * width;
#pragma unroll 1
    for (std::uint32_t four = groups > 1 ? thread & (width - 1) : thread; four < width;
         four += kFoursAtOnce * kMathThreads) {
      Sum total[kFoursAtOnce];
#pragma unroll 1
      for (int first = group; first < piece.parts; first += groups * kPartsAtOnce) {
        float4 parts[kFoursAtOnce][kPartsAtOnce];
        float2 heads[kFoursAtOnce][kPartsAtOnce];
        const std::int32_t base = before_second + first * step;
#pragma unroll
        for (int i = 0; i < kPartsAtOnce; ++i) {
          const std::int32_t slot = i == 0 && first == 0 ? slot_of(p, piece, 0) : base + i * (groups * step);
          const bool there = first + i * groups < piece.parts;
#pragma unroll
          for (int j = 0; j < kFoursAtOnce; ++j) {
            const std::uint32_t at = begin + four + j * kMathThreads;
            parts[j][i] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
            heads[j][i] = make_float2(-INFINITY, 0.0F);
            if (there && four + j * kMathThreads < width) {
              heads[j][i] =
                  __ldcg(p.sums + (static_cast<std::uint32_t>(slot) * Config::kRows + four_of(at).row));
              parts[j][i] = __ldcg(all_parts + (static_cast<std::uint32_t>(slot) * kFours + at));
            }
          }
        }
#pragma unroll
        for (int j = 0; j < kFoursAtOnce; ++j) {
          float top = total[j].top;
#pragma unroll
          for (int i = 0; i < kPartsAtOnce; ++i) top = fmaxf(top, heads[j][i].x);
          const float pivot = total[j].raise(top);
#pragma unroll
          for (int i = 0; i < kPartsAtOnce; ++i) {
            total[j].add(ptx::ex2(heads[j][i].x - pivot), heads[j][i].y, parts[j][i]);
          }
        }
      }
      if (kFoursAtOnce == 1 && groups > 1) {
        if (!add_groups(shared, total[0], groups, width)) return;
      }
#pragma unroll
      for (int j = 0; j < kFoursAtOnce; ++j) {
        if (four + j * kMathThreads < width) write_four(p, piece, begin + four + j * kMathThreads, total[j]);
      }
    }
  }

  /// Adds the sums of all groups of threads through shared memory, in order; true in the first group.
  __device__ __forceinline__ bool add_groups(const Shared<Config>& shared, Sum& sum, int groups,
                                             std::uint32_t width) const {
    auto* const x = shared.template as<float4>(Config::kScoresAt);
    auto* const heads = shared.template as<float2>(Config::kScoresAt + kMathThreads * 16);
    sync_math();  // a slice before this one has been read
    x[threadIdx.x] = sum.x;
    heads[threadIdx.x] = make_float2(sum.top, sum.sum);
    sync_math();
    if (threadIdx.x >= width) return false;
    float top = -INFINITY;
    for (int g = 0; g < groups; ++g) top = fmaxf(top, heads[g * width + threadIdx.x].x);
    Sum all;
    const float pivot = all.raise(top);
#pragma unroll 4
    for (int g = 0; g < groups; ++g) {
      const float2 head = heads[g * width + threadIdx.x];
      all.add(ptx::ex2(head.x - pivot), head.y, x[g * width + threadIdx.x]);
    }
    sum = all;
    return true;
  }

  /// Where a row goes, and what it is multiplied with.
  struct OutputRow {
    bool there;
    std::int64_t at = 0;
    float factor = 0.0F;

    __device__ __forceinline__ OutputRow(const Params& p, const Piece& piece, std::uint32_t r, float2 head)
        : there(static_cast<std::int32_t>(blockIdx.y * Config::kRows + r) <
                piece.rows.queries * p.attention.num_heads) {
      if (!there) return;
      const kernels::AttentionParams& a = p.attention;
      const auto row = static_cast<std::int32_t>(blockIdx.y * Config::kRows + r);
      const std::int32_t query = p.by_heads.quotient(row);
      token_ = std::int64_t{piece.rows.first_token} + query;
      head_ = row - query * a.num_heads;
      at = token_ * a.out.stride_token + head_ * a.out.stride_head;
      empty_ = head.y == 0.0F && head.x == -INFINITY;
      factor = empty_ ? 0.0F : __frcp_rn(head.y);
      lse_ = head;
    }
    __device__ __forceinline__ void write(const Params& p, std::uint32_t channel, float2 x) const {
      const kernels::AttentionParams& a = p.attention;
      store_pair(a.out.data, a.out.dtype, at + channel, make_float2(x.x * factor, x.y * factor));
      if (channel == 0 && a.lse != nullptr) {
        constexpr float kLn2 = 0.693147180559945309F;
        a.lse[token_ * a.lse_stride_token + head_ * a.lse_stride_head] =
            empty_ ? -INFINITY : (lse_.x + log2f(lse_.y)) * kLn2;
      }
    }

   private:
    std::int64_t token_ = 0, head_ = 0;
    bool empty_ = false;
    float2 lse_ = {0.0F, 0.0F};
  };

  __device__ __forceinline__ void write_four(const Params& p, const Piece& piece, std::uint32_t at,
                                             const Sum& sum) const {
    const Four four = four_of(at);
    const OutputRow row(p, piece, four.row, make_float2(sum.top, sum.sum));
    if (!row.there) return;
    row.write(p, four.channel, make_float2(sum.x.x, sum.x.y));
    row.write(p, four.channel + 8, make_float2(sum.x.z, sum.x.w));
  }
};

}  // namespace mla::MLA_ARCH_NS::latent
