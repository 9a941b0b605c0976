// SPDX-License-Identifier: Apache-2.0
// Math warps of the small-work kernel for tiles of 16 rows: scores, softmax, output of a piece by products of
// single warps (mma m16n8k16).
//
//   scores   warp w: quarter w / 2 of the channels (queries in registers), half w % 2 of each unit's entries;
//            partial sums meet in shared memory
//   softmax  16 threads a row
//   output   warp w: channels w L/8 .. (w+1) L/8 - 1, all entries; accumulators in registers
#pragma once

#include <cmath>

#include "latent/small_entries.cuh"
#include "ptx/convert.cuh"
#include "ptx/lane.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma.cuh"

namespace mla::MLA_ARCH_NS::latent {

template <class Config>
class NarrowMath {
 public:
  // What a thread has of the output, for the merge: fours of channels 2 i, 2 i + 1, 2 i + 8, 2 i + 9 of a row.
  static constexpr int kOwnRows = 2;
  static constexpr int kOwnFours = Config::kLatent / kMathWarps / 16;

  __device__ __forceinline__ explicit NarrowMath(const Params& /*p*/)
      : warp_(threadIdx.x / 32), lane_(threadIdx.x % 32) {}

  /// Takes the posted piece's queries and works through this CTA's share of it.
  __device__ __forceinline__ void run(const Params& p, const Shared<Config>& shared,
                                      const PostedPiece& posted) {
    const std::int32_t first_row = static_cast<std::int32_t>(blockIdx.y * Config::kRows);
    sight_ = Sight(p, posted.piece.rows, first_row + static_cast<std::int32_t>(row()));
    const bool unshared = Unshared<Config>::possible(p, posted);
    const std::int32_t seen_by_all = Unshared<Config>::first(p, posted);
    find_places(shared);
    load_query(shared);
    maximum_ = -INFINITY;
    sum_ = 0.0F;
#pragma unroll
    for (auto& tile : output_) tile[0] = tile[1] = tile[2] = tile[3] = 0.0F;

    const std::int32_t units = posted.units;
    for (std::int32_t unit = 0; unit < units;) {
      // Passes of three cost less a unit than of two, and those less than of one; four are two of two.
      const std::int32_t left = units - unit;
      const std::int32_t count = left == 1 || left == 3 ? left : 2;
      if (count == 1) {
        weigh<1>(p, shared, posted, unit);
      } else if (count == 2) {
        weigh<2>(p, shared, posted, unit);
      } else {
        weigh<Config::kMostUnits>(p, shared, posted, unit);
      }
      sync_math();
      if (unit > 0) rescale(shared);
      if (unshared && Entries(posted).at(unit + count - 1, kUnit - 1) >= seen_by_all) {
        clear_unshared(p, shared, posted, unit, count);
      }
      if (count == 1) {
        accumulate<1>(shared);
      } else if (count == 2) {
        accumulate<2>(shared);
      } else {
        accumulate<Config::kMostUnits>(shared);
      }
      unit += count;
      take(static_cast<std::uint32_t>(count));
    }
#pragma unroll
    for (int d = kLanes / 2; d > 0; d /= 2) sum_ += __shfl_xor_sync(0xffffffffU, sum_, d);
  }

  /// After run(), calls f(row, sums) for rows of which this thread tells the sums: the maximum score * log2 e
  /// (-inf: no key was seen) and the sum of the weights relative to it.
  template <class F>
  __device__ __forceinline__ void each_sum(F f) const {
    if (row_lane() == 0) f(row(), make_float2(maximum_, sum_));
  }
  /// Where a thread's four (i, j), i < kOwnRows, j < kOwnFours, is.
  static __device__ __forceinline__ Four four_at(std::uint32_t thread, std::uint32_t i, std::uint32_t j) {
    return {.row = 8 * i + thread % 32 / 4,
            .channel = thread / 32 * (kWarpTiles * 8) + j * 16 + thread % 4 * 2};
  }
  [[nodiscard]] __device__ __forceinline__ float4 own(int i, int j) const {
    const auto& low = output_[2 * j];
    const auto& high = output_[2 * j + 1];
    return make_float4(low[2 * i], low[2 * i + 1], high[2 * i], high[2 * i + 1]);
  }

 private:
  static constexpr int kQuarters = Config::kQuarters;
  static constexpr int kSteps = Config::kBoxes * 4 / kQuarters;        // k-steps of 16 channels of a quarter
  static constexpr int kWarpTiles = Config::kLatent / kMathWarps / 8;  // output tiles of 8 channels of a warp
  static constexpr int kLanes = kMathThreads / Config::kRows;          // threads of a row in the softmax
  static constexpr int kBoxSteps = 4;                                  // k-steps of a box
  static constexpr int kColumns = kUnit / kLanes;                      // of a unit, that such a thread has
  static constexpr int kEntryTiles = 2;                                // of 8 entries a unit, in the scores
  static constexpr int kChains = 2;                                    // sums of a tile: enough in flight

  static __device__ __forceinline__ std::uint32_t row() {
    return threadIdx.x / kLanes;
  }
  static __device__ __forceinline__ std::uint32_t row_lane() {
    return threadIdx.x % kLanes;
  }

  /// Per piece and not once, so that the merge between pieces has the registers.
  __device__ __forceinline__ void find_places(const Shared<Config>& shared) {
    const auto lane = static_cast<std::uint32_t>(ptx::lane_now());
    // Fragments of K: row of the unit and chunk of the box, by k-step.
    const std::uint32_t row = lane % 8 + lane / 16 * 8 + warp_ % 2 * 16;
#pragma unroll
    for (int k = 0; k < kBoxSteps; ++k) {
      const std::uint32_t chunk = warp_ / 2 * kSteps * 2 + k * 2 + lane / 8 % 2;
      key_at_[k] = shared.at(Config::kRingAt) + row / kOctet * Config::kOctetPitch +
                   chunk / 8 * Config::kBoxPitch + in_box(row % kOctet, chunk % 8);
    }
    // A warp's channels are of one box, two tiles a chunk pair: the others are two chunks away, exclusive-ored.
    const std::uint32_t chunk = warp_ * kWarpTiles + lane / 16;
    value_at_ = shared.at(Config::kRingAt) + lane / 8 % 2 * Config::kOctetPitch +
                chunk / 8 * Config::kBoxPitch + in_box(lane % 8, chunk % 8);
  }

  __device__ __forceinline__ void load_query(const Shared<Config>& shared) {
    const std::uint32_t row = lane_ % 16;
    const std::uint32_t from = shared.queries(slot(0));
    ptx::mbarrier_wait(shared.queries_full(slot(0)), parity(0));
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const std::uint32_t chunk = warp_ / 2 * kSteps * 2 + k * 2 + lane_ / 16;
      ptx::ldmatrix_x4(query_[k], from + chunk / 8 * Config::kQueryBox + in_box(row, chunk % 8));
    }
    ptx::mbarrier_arrive(shared.empty(slot(0)));
    ptx::mbarrier_arrive(shared.posted_empty());
    take(1);
  }

  /// Of the pass's unit u: its slot of the ring, and the parity of the phase that fills it.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t slot(std::uint32_t u) const {
    const std::uint32_t at = slot_ + u;
    return at < Config::kSlots ? at : at - Config::kSlots;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t parity(std::uint32_t u) const {
    return slot_ + u < Config::kSlots ? parity_ : parity_ ^ 1;
  }
  __device__ __forceinline__ void take(std::uint32_t slots) {
    parity_ = parity(slots);
    slot_ = slot(slots);
  }

  /// Scores and weights of units unit .. unit + kUnits - 1.
  template <int kUnits>
  __device__ __forceinline__ void weigh(const Params& p, const Shared<Config>& shared,
                                        const PostedPiece& posted, std::int32_t unit) {
#pragma unroll 1  // little code: a launch finds it cold
    for (std::uint32_t u = 0; u < kUnits; ++u) scores(shared, u);
    sync_math();
    softmax<kUnits>(p, shared, posted, unit);
  }

  /// Their share of the output; the ring's slots are free then.
  template <int kUnits>
  __device__ __forceinline__ void accumulate(const Shared<Config>& shared) {
#pragma unroll 1  // little code: a launch finds it cold
    for (std::uint32_t u = 0; u < kUnits; ++u) {
      values(shared, u);
      ptx::mbarrier_arrive(shared.empty(slot(u)));
    }
  }

  __device__ __forceinline__ void scores(const Shared<Config>& shared, std::uint32_t u) {
    ptx::mbarrier_wait(shared.full(slot(u)), parity(u));
    const std::uint32_t ring = slot(u) * Config::kSlotBytes;
    float s[kEntryTiles][kChains][4] = {};
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      std::uint32_t b[4];
      ptx::ldmatrix_x4(b, key_at_[k % kBoxSteps] + ring + k / kBoxSteps * Config::kBoxPitch);
      ptx::mma<typename Config::T>(s[0][k % kChains], query_[k], b[0], b[1]);
      ptx::mma<typename Config::T>(s[1][k % kChains], query_[k], b[2], b[3]);
    }
    const std::uint32_t first = warp_ % 2 * 16;
#pragma unroll
    for (int j = 0; j < kEntryTiles; ++j) {
#pragma unroll
      for (int c = 1; c < kChains; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[j][0][i] += s[j][c][i];
      }
      float* to = shared.scores() + (warp_ / 2 * Config::kRows + lane_ / 4) * Config::kScorePitch +
                  u * kUnit + first + j * 8 + lane_ % 4 * 2;
      *reinterpret_cast<float2*>(to) = make_float2(s[j][0][0], s[j][0][1]);
      *reinterpret_cast<float2*>(to + 8 * Config::kScorePitch) = make_float2(s[j][0][2], s[j][0][3]);
    }
  }

  template <int kUnits>
  __device__ __forceinline__ void softmax(const Params& p, const Shared<Config>& shared,
                                          const PostedPiece& posted, std::int32_t unit) {
    float x[kUnits][kColumns];
    float maximum = maximum_;
    const std::uint32_t column = row_lane() * kColumns;
    const Entries entries(posted);
    const float* from = shared.scores() + row() * Config::kScorePitch + column;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) {
        float2 sum = *reinterpret_cast<const float2*>(from + u * kUnit + c);
#pragma unroll
        for (int quarter = 1; quarter < kQuarters; ++quarter) {
          const float2 part = *reinterpret_cast<const float2*>(
              from + quarter * Config::kRows * Config::kScorePitch + u * kUnit + c);
          sum.x += part.x;
          sum.y += part.y;
        }
        const std::int32_t entry = entries.at(unit + u, column + c);
        // Rounded before it is compared and subtracted: the key that set the maximum must weigh exactly 1.
        x[u][c] = sight_.sees(entries.position(entry)) ? __fmul_rn(sum.x, p.scale_log2) : -INFINITY;
        x[u][c + 1] = sight_.sees(entries.position(entry + 1)) ? __fmul_rn(sum.y, p.scale_log2) : -INFINITY;
        maximum = fmaxf(maximum, fmaxf(x[u][c], x[u][c + 1]));
      }
    }
#pragma unroll
    for (int d = kLanes / 2; d > 0; d /= 2)
      maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffU, maximum, d));
    const float pivot = maximum == -INFINITY ? 0.0F : maximum;  // nothing seen so far: all weights are 0
    const float shrink = ptx::ex2(maximum_ - pivot);
    maximum_ = maximum;
    sum_ *= shrink;
    std::byte* to =
        shared.template as<std::byte>(Config::kWeightsAt) + row() * Config::kWeightPitch + column * 2;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) {
        const float a = ptx::ex2(x[u][c] - pivot);
        const float b = ptx::ex2(x[u][c + 1] - pivot);
        sum_ += a + b;
        *reinterpret_cast<std::uint32_t*>(to + (u * kUnit + c) * 2) = ptx::pack<typename Config::T>(a, b);
      }
    }
    if (row_lane() == 0) shared.shrink()[row()] = shrink;
  }

  __device__ __forceinline__ void rescale(const Shared<Config>& shared) {
    const float low = shared.shrink()[lane_ / 4];
    const float high = shared.shrink()[lane_ / 4 + 8];
#pragma unroll
    for (auto& tile : output_) {
      tile[0] *= low;
      tile[1] *= low;
      tile[2] *= high;
      tile[3] *= high;
    }
  }

  __device__ __forceinline__ void values(const Shared<Config>& shared, std::uint32_t u) {
    const std::uint32_t ring = slot(u) * Config::kSlotBytes;
    const std::uint32_t weights =
        shared.at(Config::kWeightsAt) + lane_ % 16 * Config::kWeightPitch + u * kUnit * 2 + lane_ / 16 * 16;
#pragma unroll
    for (int k = 0; k < kUnit / 16; ++k) {
      std::uint32_t a[4];
      ptx::ldmatrix_x4(a, weights + k * 32);
#pragma unroll
      for (int j = 0; j < kWarpTiles / 2; ++j) {
        std::uint32_t b[4];
        ptx::ldmatrix_x4_trans(b, (value_at_ ^ j << 5) + ring + k * 2 * Config::kOctetPitch);
        ptx::mma<typename Config::T>(output_[2 * j], a, b[0], b[1]);
        ptx::mma<typename Config::T>(output_[2 * j + 1], a, b[2], b[3]);
      }
    }
  }

  /// Of the channels that this warp will read.
  __device__ __forceinline__ void clear_unshared(const Params& p, const Shared<Config>& shared,
                                                 const PostedPiece& posted, std::int32_t unit,
                                                 std::int32_t count) const {
    const Unshared<Config> keys(p, posted);
    for (std::int32_t u = 0; u < count; ++u) {
      std::byte* const from = shared.base + Config::kRingAt + slot(u) * Config::kSlotBytes;
      keys.template clear<kWarpTiles>(from, unit + u, lane_, warp_ * kWarpTiles);
    }
    __syncwarp();
  }

  float output_[kWarpTiles][4];  // fragments of rows lane / 4 and lane / 4 + 8
  std::uint32_t warp_, lane_;
  std::uint32_t key_at_[kBoxSteps];  // and the same in the boxes behind
  std::uint32_t value_at_;
  std::uint32_t query_[kSteps][4];
  Sight sight_;
  float maximum_ = 0.0F, sum_ = 0.0F;
  std::uint32_t slot_ = 0, parity_ = 0;  // of the ring, at this pass
};

}  // namespace mla::MLA_ARCH_NS::latent
