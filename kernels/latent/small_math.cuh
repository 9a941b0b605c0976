// SPDX-License-Identifier: Apache-2.0
// Math warps of the small-work kernel: scores, softmax, output of a piece.
//
//   scores   warp w: quarter w / 2 of the channels (queries in registers); with 16 rows half w % 2 of each
//            unit's entries, with 32 rows all entries of 16 rows; partial sums meet in shared memory
//   softmax  16 or 8 threads a row
//   output   warp w: channels w L/8 .. (w+1) L/8 - 1, all entries; accumulators in registers
#pragma once

#include <cmath>
#include <type_traits>

#include "latent/small_traits.cuh"
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/lane.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma.cuh"

namespace mla::MLA_ARCH_NS::latent {

/// A barrier among the math warps.
__device__ __forceinline__ void sync_math() {
  ptx::bar_sync<1, kMathThreads>();
}

/// Which entry of a piece's list a row of a unit is, and its position.
struct Entries {
  static constexpr std::int32_t kNone = 0x7fffffff;
  std::int32_t base, stride, end, first_end, shift;

  __device__ __forceinline__ explicit Entries(const PostedPiece& posted)
      : base(posted.piece.base),
        stride(posted.piece.stride),
        end(posted.entries),
        first_end(posted.piece.rows.runs.first_end),
        shift(posted.shift) {}
  [[nodiscard]] __device__ __forceinline__ std::int32_t at(std::int32_t unit, std::uint32_t row) const {
    return (base + (unit * kLoadWarps + static_cast<std::int32_t>(row / kGroup)) * stride) * kGroup +
           static_cast<std::int32_t>(row % kGroup);
  }
  /// kNone, which no row sees, behind the cluster's last entry.
  [[nodiscard]] __device__ __forceinline__ std::int32_t position(std::int32_t entry) const {
    if (entry >= end) return kNone;
    return entry < first_end ? entry : entry + shift;
  }
};

template <class Config>
class Math {
 public:
  static constexpr int kLanes = kMathThreads / Config::kRows;  // threads of a row in the softmax
  static constexpr int kUnroll = Config::kRowTiles;            // of a pass's units: less code, which is cold
  static constexpr int kLastAlone =
      Config::kRowTiles == 1 ? 1 : 0;                        // 32 rows wait for the products, not the keys
  static constexpr int kBoxSteps = 4;                        // k-steps of a box
  static constexpr int kColumns = kUnit / kLanes;            // of a unit, that such a thread has
  static constexpr int kEntryTiles = 2 * Config::kRowTiles;  // of 8 entries a unit, in the scores
  static constexpr int kChains = 2 / Config::kRowTiles;      // sums of a tile: enough in flight

  __device__ __forceinline__ Math() : warp_(threadIdx.x / 32), lane_(threadIdx.x % 32) {}

  static __device__ __forceinline__ std::uint32_t row() { return threadIdx.x / kLanes; }
  static __device__ __forceinline__ std::uint32_t row_lane() { return threadIdx.x % kLanes; }

  /// Takes the posted piece's queries and works through this CTA's share of it.
  __device__ __forceinline__ void run(const Params& p, const Shared<Config>& shared,
                                      const PostedPiece& posted) {
    const std::int32_t first_row = static_cast<std::int32_t>(blockIdx.y * Config::kRows);
    const RowGroup& group = posted.piece.rows;
    sight_ = Sight(p, group, first_row + static_cast<std::int32_t>(row()));
    const std::int32_t last_row = min(first_row + Config::kRows, group.queries * p.attention.num_heads) - 1;
    alike_ = p.by_heads.quotient(first_row) == p.by_heads.quotient(max(last_row, 0)) || !p.attention.causal;
    find_places(shared);
    load_query(shared);
    maximum_ = -INFINITY;
    sum_ = 0.0F;
#pragma unroll
    for (auto& rows : output) {
#pragma unroll
      for (auto& tile : rows) tile[0] = tile[1] = tile[2] = tile[3] = 0.0F;
    }

    const std::int32_t units = posted.units;
    for (std::int32_t unit = 0; unit < units;) {
      // Long passes cost less a unit. The last is of one unit: the others are behind when it arrives.
      const std::int32_t left = units - unit;
      const std::int32_t count = left == 1 ? 1 : min(Config::kMostUnits, left - kLastAlone);
      if (count == 1) {
        weigh<1>(p, shared, posted, unit);
      } else if (count == 2 || Config::kMostUnits == 2) {
        weigh<2>(p, shared, posted, unit);
      } else {
        weigh<Config::kMostUnits>(p, shared, posted, unit);
      }
      sync_math();
      if (unit > 0) rescale(shared);
      if (!alike_) {
        for (std::int32_t u = 0; u < count; ++u) {
          clear_unshared(p, shared, posted, unit, static_cast<std::uint32_t>(u));
        }
      }
      if (count == 1) {
        accumulate<1>(shared);
      } else if (count == 2 || Config::kMostUnits == 2) {
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

  /// Of this thread's row, after run(): maximum score * log2 e (-inf: no key was seen) and the sum of the
  /// weights relative to it.
  [[nodiscard]] __device__ __forceinline__ float maximum() const {
    return maximum_;
  }
  [[nodiscard]] __device__ __forceinline__ float sum() const {
    return sum_;
  }
  /// [tile of 16 rows][tile of 8 channels] fragments of rows lane / 4 and lane / 4 + 8.
  float output[Config::kRowTiles][Config::kWarpTiles][4];

 private:
  /// Per piece and not once, so that the merge between pieces has the registers.
  __device__ __forceinline__ void find_places(const Shared<Config>& shared) {
    const auto lane = static_cast<std::uint32_t>(ptx::lane_now());
    // Fragments of K: row of the unit and chunk of the box, by k-step.
    const std::uint32_t row = lane % 8 + lane / 16 * 8 + (Config::kRowTiles == 1 ? warp_ % 2 * 16 : 0);
#pragma unroll
    for (int k = 0; k < kBoxSteps; ++k) {
      const std::uint32_t chunk = warp_ / 2 * Config::kSteps * 2 + k * 2 + lane / 8 % 2;
      key_at_[k] = shared.at(Config::kRingAt) + chunk / 8 * Config::kUnitBox + in_box(row, chunk % 8);
    }
    // A warp's channels are of one box, two tiles a chunk pair: the others are two chunks away, exclusive-ored.
    const std::uint32_t chunk = warp_ * Config::kWarpTiles + lane / 16;
    value_at_ = shared.at(Config::kRingAt) + chunk / 8 * Config::kUnitBox + in_box(lane % 16, chunk % 8);
  }

  __device__ __forceinline__ void load_query(const Shared<Config>& shared) {
    const std::uint32_t row = lane_ % 16 + row_tile() * 16;
    const std::uint32_t from = shared.at(Config::kRingAt) + slot(0) * Config::kSlotBytes;
    ptx::mbarrier_wait(shared.full(slot(0)), parity(0));
#pragma unroll
    for (int k = 0; k < Config::kSteps; ++k) {
      const std::uint32_t chunk = warp_ / 2 * Config::kSteps * 2 + k * 2 + lane_ / 16;
      ptx::ldmatrix_x4(query_[k], from + chunk / 8 * Config::kQueryBox + in_box(row, chunk % 8));
    }
    __syncwarp();
    if (lane_ == 0) {
      ptx::mbarrier_arrive(shared.empty(slot(0)));
      ptx::mbarrier_arrive(shared.posted_empty());
    }
    take(1);
  }

  /// Whose scores this warp forms.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t row_tile() const {
    return Config::kRowTiles == 1 ? 0 : warp_ % 2;
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
#pragma unroll kUnroll
    for (std::uint32_t u = 0; u < kUnits; ++u) scores(shared, u);
    sync_math();
    softmax<kUnits>(p, shared, posted, unit);
  }

  /// Their share of the output; the ring's slots are free then.
  template <int kUnits>
  __device__ __forceinline__ void accumulate(const Shared<Config>& shared) {
#pragma unroll kUnroll
    for (std::uint32_t u = 0; u < kUnits; ++u) {
      values(shared, u);
      __syncwarp();
      if (lane_ == 0) ptx::mbarrier_arrive(shared.empty(slot(u)));
    }
  }

  __device__ __forceinline__ void scores(const Shared<Config>& shared, std::uint32_t u) {
    ptx::mbarrier_wait(shared.full(slot(u)), parity(u));
    const std::uint32_t ring = slot(u) * Config::kSlotBytes;
    float s[kEntryTiles][kChains][4] = {};
#pragma unroll
    for (int k = 0; k < Config::kSteps; ++k) {
#pragma unroll
      for (int j = 0; j < kEntryTiles; j += 2) {
        std::uint32_t b[4];
        ptx::ldmatrix_x4(b, key_at_[k % kBoxSteps] + ring + k / kBoxSteps * Config::kUnitBox + j * 8 * 128);
        ptx::mma<typename Config::T>(s[j][k % kChains], query_[k], b[0], b[1]);
        ptx::mma<typename Config::T>(s[j + 1][k % kChains], query_[k], b[2], b[3]);
      }
    }
    const std::uint32_t first = Config::kRowTiles == 1 ? warp_ % 2 * 16 : 0;
#pragma unroll
    for (int j = 0; j < kEntryTiles; ++j) {
#pragma unroll
      for (int c = 1; c < kChains; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[j][0][i] += s[j][c][i];
      }
      float* to = shared.scores() +
                  (warp_ / 2 * Config::kRows + row_tile() * 16 + lane_ / 4) * Config::kScorePitch +
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
#pragma unroll
    for (int m = 0; m < Config::kRowTiles; ++m) {
      const float low = shared.shrink()[m * 16 + lane_ / 4];
      const float high = shared.shrink()[m * 16 + lane_ / 4 + 8];
#pragma unroll
      for (auto& tile : output[m]) {
        tile[0] *= low;
        tile[1] *= low;
        tile[2] *= high;
        tile[3] *= high;
      }
    }
  }

  __device__ __forceinline__ void values(const Shared<Config>& shared, std::uint32_t u) {
    const std::uint32_t ring = slot(u) * Config::kSlotBytes;
    const std::uint32_t weights =
        shared.at(Config::kWeightsAt) + lane_ % 16 * Config::kWeightPitch + u * kUnit * 2 + lane_ / 16 * 16;
#pragma unroll
    for (int k = 0; k < kUnit / 16; ++k) {
      std::uint32_t a[Config::kRowTiles][4];
#pragma unroll
      for (int m = 0; m < Config::kRowTiles; ++m) {
        ptx::ldmatrix_x4(a[m], weights + k * 32 + m * 16 * Config::kWeightPitch);
      }
#pragma unroll
      for (int j = 0; j < Config::kWarpTiles / 2; ++j) {
        std::uint32_t b[4];
        ptx::ldmatrix_x4_trans(b, (value_at_ ^ j << 5) + ring + k * 16 * 128);
#pragma unroll
        for (int m = 0; m < Config::kRowTiles; ++m) {
          ptx::mma<typename Config::T>(output[m][2 * j], a[m], b[0], b[1]);
          ptx::mma<typename Config::T>(output[m][2 * j + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  /// Keys that some rows of the group see and others do not: their weight is 0 in the latter, but 0 times an
  /// infinity or a NaN is NaN. What is not finite in them is cleared, by the warp that will read it; the rows
  /// that do see them have a score, and so a weight, that is not finite either.
  __device__ __forceinline__ void clear_unshared(const Params& p, const Shared<Config>& shared,
                                                 const PostedPiece& posted, std::int32_t unit,
                                                 std::uint32_t u) const {
    constexpr std::uint32_t kExponent = std::is_same_v<typename Config::T, __nv_bfloat16> ? 0x7f80U : 0x7c00U;
    const RowGroup& group = posted.piece.rows;
    const std::int32_t first_row = static_cast<std::int32_t>(blockIdx.y * Config::kRows);
    const Sight earliest(p, group, first_row);
    const Sight latest(p, group, min(first_row + Config::kRows, group.queries * p.attention.num_heads) - 1);
    const Entries entries(posted);
    const std::int32_t at = entries.position(entries.at(unit + static_cast<std::int32_t>(u), lane_));
    if (at != Entries::kNone && !(earliest.sees(at) && latest.sees(at))) {
      std::byte* row = shared.base + Config::kRingAt + slot(u) * Config::kSlotBytes;
      for (int c = 0; c < Config::kWarpTiles; ++c) {
        const std::uint32_t chunk = warp_ * Config::kWarpTiles + c;
        auto* words =
            reinterpret_cast<std::uint32_t*>(row + chunk / 8 * Config::kUnitBox + in_box(lane_, chunk % 8));
        for (int i = 0; i < kLane / 4; ++i) {
          std::uint32_t word = words[i];
          if ((word & kExponent) == kExponent) word &= 0xffff0000U;
          if ((word >> 16 & kExponent) == kExponent) word &= 0x0000ffffU;
          words[i] = word;
        }
      }
    }
    __syncwarp();
  }

  std::uint32_t warp_, lane_;
  std::uint32_t key_at_[kBoxSteps];  // and the same in the boxes behind
  std::uint32_t value_at_;
  std::uint32_t query_[Config::kSteps][4];
  Sight sight_;
  bool alike_ = true;
  float maximum_ = 0.0F, sum_ = 0.0F;
  std::uint32_t slot_ = 0, parity_ = 0;  // of the ring, at this pass
};

}  // namespace mla::MLA_ARCH_NS::latent
