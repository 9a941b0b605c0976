// SPDX-License-Identifier: Apache-2.0
// Math warps of the small-work kernel for tiles of 32 rows: products of two warpgroups (wgmma m64n32k16) with
// keys or channels on the tensor cores' 64 rows and the tile's rows on their columns, so that none is padding.
//
//   pass     two units side by side in the ring: 64 entries, of which those behind the last are zeros
//   scores   S^T = K Q^T: warpgroup h sums over half h of the channels, for all rows; it gets the other's sums
//            of rows 16 h .. 16 h + 15 through shared memory
//   softmax  of its 16 rows, relative to a maximum that is let be until a score lies far above it
//   output   O^T += V^T P^T: channels h L/2 .. (h + 1) L/2 - 1 of all rows
//
// Weights P lie where the rotary channels of the pass's second unit were, which are dead then: row r has 128
// bytes, its 64 entries, in the group of eight rows r / 8.
#pragma once

#include <cmath>
#include <limits>

#include "latent/small_entries.cuh"
#include "ptx/async_fence.cuh"
#include "ptx/cluster.cuh"
#include "ptx/convert.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/wgmma.cuh"

namespace mla::MLA_ARCH_NS::latent {

template <class Config>
class WideMath {
  using T = typename Config::T;
  static constexpr int kHalfBoxes = Config::kLatentBoxes / 2;
  static constexpr int kPassUnits = Config::kPassUnits;
  static_assert(Config::kSlots % kPassUnits == 0 && kPassUnits * kUnit == 64);

 public:
  // What a thread has of the output, for the merge: fours of channels 2 i, 2 i + 1, 2 i + 8, 2 i + 9 of a row.
  static constexpr int kOwnRows = 4;
  static constexpr int kOwnFours = kHalfBoxes;

  __device__ __forceinline__ explicit WideMath(const Params& p)
      : pair_(p.by_pairs), half_(threadIdx.x / 128), warp_(threadIdx.x / 32 % 4), lane_(threadIdx.x % 32) {}

  /// Takes the posted piece's queries and works through this CTA's share of it.
  __device__ __forceinline__ void run(const Params& p, const Shared<Config>& shared,
                                      const PostedPiece& posted) {
    const auto first_row = static_cast<std::int32_t>(blockIdx.y * Config::kRows);
#pragma unroll
    for (int i = 0; i < kRowsEach; ++i) {
      sight_[i] = Sight(p, posted.piece.rows, first_row + static_cast<std::int32_t>(weight_row(i)));
      maximum_[i] = kLowest;
      sum_[i] = 0.0F;
    }
    const std::int32_t seen_by_all = Unshared<Config>::first(p, posted);
    ptx::mbarrier_arrive(shared.posted_empty());
#pragma unroll
    for (int j = 0; j < kHalfBoxes; ++j) {
#pragma unroll
      for (int i = 0; i < 16; ++i) output_[j][i] = 0.0F;
    }
    const std::uint32_t buffer = pieces_ & 1;
    ptx::mbarrier_wait(shared.queries_full(buffer), pieces_ >> 1 & 1);
    ptx::fence_async_shared();  // what was copied by cp.async is there for wgmma, too
    ++pieces_;

    const std::int32_t units = posted.units;
    for (std::int32_t unit = 0; unit < units; unit += kPassUnits) {
      const std::int32_t last = Entries(posted).at(unit, kPassUnits * kUnit - 1);
      const bool copied = !p.by_units || last >= posted.entries;
      const bool all_see = last < seen_by_all;
      scores(shared, buffer, copied);
      float x[8];  // [pair of rows][two entries][row]
      exchange(shared, x);
      rate(p, posted, unit, all_see, x);
      weigh(shared, x, unit == 0);
      if (!all_see && Unshared<Config>::possible(p, posted)) clear_unshared(p, shared, posted, unit);
      values(shared);
      slot_ += kPassUnits;
      if (slot_ == Config::kSlots) {
        slot_ = 0;
        parity_ ^= 1;
      }
    }
    add_sums(shared);
    pair_channels();
  }

  /// After run(), calls f(row, sums) for rows of which this thread tells the sums: a number * log2 e that no
  /// score is far above (-inf: no key was seen) and the sum of the weights relative to it.
  template <class F>
  __device__ __forceinline__ void each_sum(F f) const {
    if (warp_ != 0 || lane_ >= 4) return;
#pragma unroll
    for (int i = 0; i < kRowsEach; ++i) {
      f(weight_row(i), make_float2(maximum_[i] == kLowest ? -INFINITY : maximum_[i], sum_[i]));
    }
  }
  /// Where a thread's four (i, j), i < kOwnRows, j < kOwnFours, is.
  static __device__ __forceinline__ Four four_at(std::uint32_t thread, std::uint32_t i, std::uint32_t j) {
    return {.row = 8 * i + thread % 4 * 2 + thread / 4 % 2,
            .channel = (thread / 128 * kHalfBoxes + j) * 64 + thread / 32 % 4 * 16 + thread / 8 % 4 * 2};
  }
  [[nodiscard]] __device__ __forceinline__ float4 own(int i, int j) const {
    const auto& x = output_[j];
    return make_float4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
  }

 private:
  /// Sums are rescaled only when a row's maximum has grown by more than this (as a power of two): until then
  /// weights up to 2^8 are as exact as weights up to 1.
  static constexpr float kSlack = 8.0F;
  static constexpr int kRowsEach = 4;  // of a thread in the softmax; it has two entries of each
  /// A maximum that no score falls below, yet finite: rows that see nothing would otherwise compute inf - inf.
  static constexpr float kLowest = std::numeric_limits<float>::lowest();

  /// A barrier among this warpgroup.
  __device__ __forceinline__ void sync_half() const {
    if (half_ == 0) {
      ptx::bar_sync<2, 128>();
    } else {
      ptx::bar_sync<3, 128>();
    }
  }

  /// Of this thread's rows in the softmax, the i-th.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t weight_row(int i) const {
    return half_ * 16 + i / 2 * 8 + lane_ % 4 * 2 + i % 2;
  }
  /// Which of them element i of the scores is of.
  static __device__ __forceinline__ constexpr int row_of(int i) {
    return i / 4 * 2 + i % 2;
  }
  /// And of its entries in a pass.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t entry(int i) const {
    return warp_ * 16 + lane_ / 4 + 8 * i;
  }
  /// For each warp of this warpgroup, a number a row of the softmax; this thread's are two pairs.
  [[nodiscard]] __device__ __forceinline__ float2* row_pairs(const Shared<Config>& shared, std::uint32_t warp,
                                                             int pair) const {
    return shared.template as<float2>(Config::kMaximaAt) + (half_ * 4 + warp) * 8 + pair * 4 + lane_ % 4;
  }

  /// score_ = the sums over this warpgroup's channels. `copied`: some keys came by cp.async.
  __device__ __forceinline__ void scores(const Shared<Config>& shared, std::uint32_t buffer, bool copied) {
    const std::uint32_t keys = shared.at(Config::kRingAt) + slot_ * Config::kSlotBytes;
    const std::uint32_t queries = shared.queries(buffer);
    const std::uint64_t a = ptx::descriptor(keys + half_ * (kHalfBoxes * Config::kBoxPitch), 16,
                                            Config::kOctetPitch, ptx::Swizzle::k128);
    const std::uint64_t b =
        ptx::descriptor(queries + half_ * (kHalfBoxes * Config::kQueryBox), 16, 1024, ptx::Swizzle::k128);
    // The rotary channels' box is shared out, too: two steps of 16 channels each.
    const std::uint64_t rotary_a =
        ptx::descriptor(keys + Config::kLatentBoxes * Config::kBoxPitch + half_ * 64, 16, Config::kOctetPitch,
                        ptx::Swizzle::k128);
    const std::uint64_t rotary_b = ptx::descriptor(
        queries + Config::kLatentBoxes * Config::kQueryBox + half_ * 64, 16, 1024, ptx::Swizzle::k128);
    ptx::mbarrier_wait(shared.full(slot_), parity_);
    ptx::mbarrier_wait(shared.full(slot_ + 1), parity_);
    if (copied) ptx::fence_async_shared();
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kHalfBoxes * 4; ++k) {
      ptx::wgmma_m64n32<T, 0>(score_, ptx::advance(a, k / 4 * Config::kBoxPitch + k % 4 * 32),
                              ptx::advance(b, k / 4 * Config::kQueryBox + k % 4 * 32), k > 0);
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      ptx::wgmma_m64n32<T, 0>(score_, ptx::advance(rotary_a, k * 32), ptx::advance(rotary_b, k * 32));
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::keep(score_);
  }

  /// x = the whole scores of this warpgroup's rows; nobody needs the rotary channels any more.
  __device__ __forceinline__ void exchange(const Shared<Config>& shared, float (&x)[8]) const {
    const bool high = half_ != 0;
    float give[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      give[i] = high ? score_[i] : score_[8 + i];
      x[i] = high ? score_[8 + i] : score_[i];
    }
    auto* const place = shared.template as<float4>(Config::kScoresAt) + threadIdx.x % 128;
    float4* const to = place + (1 - half_) * 256;
    to[0] = make_float4(give[0], give[1], give[2], give[3]);
    to[128] = make_float4(give[4], give[5], give[6], give[7]);
    sync_math();
    const float4* const from = place + half_ * 256;
    const float4 low = from[0], top = from[128];
    x[0] += low.x;
    x[1] += low.y;
    x[2] += low.z;
    x[3] += low.w;
    x[4] += top.x;
    x[5] += top.y;
    x[6] += top.z;
    x[7] += top.w;
  }

  /// In units of log2 e; -inf where a row does not see an entry. Rounded here: a lone key must weigh exactly 1.
  __device__ __forceinline__ void rate(const Params& p, const PostedPiece& posted, std::int32_t unit,
                                       bool all_see, float (&x)[8]) const {
    if (all_see) {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = __fmul_rn(x[i], p.scale_log2);
      return;
    }
    const Entries entries(posted);
    std::int32_t position[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) position[i] = entries.position(entries.at(unit, entry(i)));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[i] = sight_[row_of(i)].sees(position[i / 2 % 2]) ? __fmul_rn(x[i], p.scale_log2) : -INFINITY;
    }
  }

  /// Weights of this warpgroup's rows; behind it all are there. `first`: no maximum is known yet.
  __device__ __forceinline__ void weigh(const Shared<Config>& shared, const float (&x)[8], bool first) {
    float weight[8];
    bool far = first;
    if (!first) {
#pragma unroll
      for (int i = 0; i < 8; ++i) far |= x[i] > maximum_[row_of(i)] + kSlack;
      write_weights(shared, x, weight);
      far = ptx::bar_or<1, kMathThreads>(far);
    }
    if (far) {
      raise(shared, x);
      write_weights(shared, x, weight);
      sync_math();
      if (!first) rescale(shared);
    }
#pragma unroll
    for (int i = 0; i < kRowsEach; ++i) sum_[i] += weight[i / 2 * 4 + i % 2] + weight[i / 2 * 4 + i % 2 + 2];
  }

  /// To shared memory, for wgmma.
  __device__ __forceinline__ void write_weights(const Shared<Config>& shared, const float (&x)[8],
                                                float (&weight)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) weight[i] = ptx::ex2(__fsub_rn(x[i], maximum_[row_of(i)]));
    // Matrices of eight rows of the tile (lane / 16) and eight entries (lane / 8 % 2).
    const std::uint32_t chunk = warp_ * 2 + lane_ / 8 % 2;
    const std::uint32_t to =
        weights_at(shared) + (half_ * 2 + lane_ / 16) * Config::kOctetPitch + in_box(lane_ % 8, chunk);
    ptx::stmatrix_x4_trans(to, {ptx::pack<T>(weight[0], weight[1]), ptx::pack<T>(weight[2], weight[3]),
                                ptx::pack<T>(weight[4], weight[5]), ptx::pack<T>(weight[6], weight[7])});
    ptx::fence_async_shared();
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t weights_at(const Shared<Config>& shared) const {
    return shared.at(Config::kRingAt) + (slot_ + 1) * Config::kSlotBytes +
           Config::kLatentBoxes * Config::kBoxPitch;
  }

  /// Maxima that lie far below a score follow.
  __device__ __forceinline__ void raise(const Shared<Config>& shared, const float (&x)[8]) {
    float most[kRowsEach];
#pragma unroll
    for (int i = 0; i < kRowsEach; ++i) {
      most[i] = fmaxf(x[i / 2 * 4 + i % 2], x[i / 2 * 4 + i % 2 + 2]);
#pragma unroll
      for (int d = 4; d < 32; d *= 2) most[i] = fmaxf(most[i], __shfl_xor_sync(kEveryLane, most[i], d));
    }
    if (lane_ < 4) {
      *row_pairs(shared, warp_, 0) = make_float2(most[0], most[1]);
      *row_pairs(shared, warp_, 1) = make_float2(most[2], most[3]);
    }
    sync_half();
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      float2 all = *row_pairs(shared, 0, pair);
#pragma unroll
      for (std::uint32_t w = 1; w < 4; ++w) {
        const float2 other = *row_pairs(shared, w, pair);
        all = make_float2(fmaxf(all.x, other.x), fmaxf(all.y, other.y));
      }
      const float2 shrink = make_float2(follow(2 * pair, all.x), follow(2 * pair + 1, all.y));
      if (warp_ == 0 && lane_ < 4) {
        *reinterpret_cast<float2*>(shared.shrink() + weight_row(2 * pair)) = shrink;
      }
    }
  }
  /// Returns what the row's sums so far are multiplied with.
  __device__ __forceinline__ float follow(int i, float most) {
    const bool far = most > maximum_[i] + kSlack;
    const float shrink = far ? ptx::ex2(maximum_[i] - most) : 1.0F;
    maximum_[i] = far ? most : maximum_[i];
    sum_[i] *= shrink;
    return shrink;
  }
  __device__ __forceinline__ void rescale(const Shared<Config>& shared) {
    float2 by[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      by[j] = *reinterpret_cast<const float2*>(shared.shrink() + 8 * j + lane_ % 4 * 2);
    }
#pragma unroll
    for (int j = 0; j < kHalfBoxes; ++j) {
#pragma unroll
      for (int i = 0; i < 16; ++i) output_[j][i] *= i % 2 == 0 ? by[i / 4].x : by[i / 4].y;
    }
  }

  /// output_ += values times weights; the ring's slots are free then.
  __device__ __forceinline__ void values(const Shared<Config>& shared) {
    const std::uint32_t from =
        shared.at(Config::kRingAt) + slot_ * Config::kSlotBytes + half_ * (kHalfBoxes * Config::kBoxPitch);
    const std::uint64_t a = ptx::descriptor(from, 16, Config::kOctetPitch, ptx::Swizzle::k128);
    const std::uint64_t b = ptx::descriptor(weights_at(shared), 16, Config::kOctetPitch, ptx::Swizzle::k128);
#pragma unroll
    for (int j = 0; j < kHalfBoxes; ++j) ptx::keep(output_[j]);
    ptx::wgmma_fence();
    multiply(a, b);
    multiply(ptx::advance(a, Config::kSlotBytes), ptx::advance(b, kUnit * 2));
    ptx::wgmma_wait<1>();
    release(shared, slot_);  // so that what comes next is on its way early
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < kHalfBoxes; ++j) ptx::keep(output_[j]);
    release(shared, slot_ + 1);
  }
  /// A unit's share, as a group of products.
  __device__ __forceinline__ void multiply(std::uint64_t a, std::uint64_t b) {
#pragma unroll
    for (int k = 0; k < kUnit / 16; ++k) {
#pragma unroll
      for (int j = 0; j < kHalfBoxes; ++j) {
        ptx::wgmma_m64n32<T, 1>(output_[j],
                                ptx::advance(a, k * 2 * Config::kOctetPitch + j * Config::kBoxPitch),
                                ptx::advance(b, k * 32));
      }
    }
    ptx::wgmma_commit();
  }
  __device__ __forceinline__ void release(const Shared<Config>& shared, std::uint32_t slot) const {
    if (pair_) {
      __syncwarp();
      if (lane_ < 2) ptx::mbarrier_arrive_cluster(ptx::map_shared(shared.empty(slot), lane_));
    } else {
      ptx::mbarrier_arrive(shared.empty(slot));
    }
  }

  /// Of the channels that this warpgroup will read.
  __device__ __forceinline__ void clear_unshared(const Params& p, const Shared<Config>& shared,
                                                 const PostedPiece& posted, std::int32_t unit) const {
    const Unshared<Config> keys(p, posted);
    // Half a unit's chunks for each of its warps. Not kept in registers beside the output: none are left.
    constexpr int kChunks = kHalfBoxes * 4;
    static_assert(kPassUnits == 2);
    const std::uint32_t thread = threadIdx.x;
    const std::uint32_t which = thread / 32 % 2;
    keys.template clear<kChunks>(shared.base + Config::kRingAt + (slot_ + which) * Config::kSlotBytes,
                                 unit + static_cast<std::int32_t>(which), thread % 32, thread / 64 * kChunks);
    ptx::fence_async_shared();
    sync_half();
  }

  /// The weights of a row that all threads have, to those which each_sum() asks.
  __device__ __forceinline__ void add_sums(const Shared<Config>& shared) {
#pragma unroll
    for (int i = 0; i < kRowsEach; ++i) {
#pragma unroll
      for (int d = 4; d < 32; d *= 2) sum_[i] += __shfl_xor_sync(kEveryLane, sum_[i], d);
    }
    if (lane_ < 4) {
      *row_pairs(shared, warp_, 0) = make_float2(sum_[0], sum_[1]);
      *row_pairs(shared, warp_, 1) = make_float2(sum_[2], sum_[3]);
    }
    sync_half();
    if (warp_ != 0) return;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
#pragma unroll
      for (std::uint32_t w = 1; w < 4; ++w) {
        const float2 other = *row_pairs(shared, w, pair);
        sum_[2 * pair] += other.x;
        sum_[2 * pair + 1] += other.y;
      }
    }
  }

  /// A thread has one channel of two rows where it should have two channels of one: lanes of neighbouring
  /// channels exchange halves.
  __device__ __forceinline__ void pair_channels() {
    const bool odd = lane_ / 4 % 2 != 0;
#pragma unroll
    for (int j = 0; j < kHalfBoxes; ++j) {
      float(&tile)[16] = output_[j];
#pragma unroll
      for (int i = 0; i < 16; i += 2) {
        const float other = __shfl_xor_sync(kEveryLane, odd ? tile[i] : tile[i + 1], 4);
        tile[i] = odd ? other : tile[i];
        tile[i + 1] = odd ? tile[i + 1] : other;
      }
    }
  }

  float output_[kHalfBoxes][16];  // [64 channels, 32 rows] each
  float score_[16];               // [64 entries, 32 rows]
  Sight sight_[kRowsEach];
  float maximum_[kRowsEach], sum_[kRowsEach];
  bool pair_;                         // the slots are another CTA's, too
  std::uint32_t half_, warp_, lane_;  // warpgroup, its warp, lane
  std::uint32_t slot_ = 0, parity_ = 0;
  std::uint32_t pieces_ = 0;
};

}  // namespace mla::MLA_ARCH_NS::latent
