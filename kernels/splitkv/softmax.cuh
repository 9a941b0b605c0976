// SPDX-License-Identifier: Apache-2.0
// Between the products: partial scores to weights.
#pragma once

#include <cmath>

#include "ptx/convert.cuh"
#include "ptx/math.cuh"
#include "splitkv/rows.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

/// Online softmax of the one row that this thread and its kLanes - 1 neighbours own. Scores are in units of
/// log 2.
template <class Config>
class RowSoftmax {
 public:
  /// The pivot may lag behind the maximum by this much: weights of up to 2^8 cost no precision in a sum of
  /// f32, and the output need not be rescaled for every small step of the maximum.
  static constexpr float kSlack = 8.0F;

  /// Between a barrier after the last step() and one before the next.
  __device__ __forceinline__ void start(const Shared<Config>& shared, const Sight& sight) {
    if (lane() == 0) shared.sight()[row()] = sight.packed();
    pivot_ = -INFINITY;
    sum_ = 0.0F;
  }

  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / Config::kLanes; }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % Config::kLanes; }

  /// Adds the partial scores of a tile, masks (unless every row sees every key of the tile: kPlain), and
  /// writes the row's weights and by how much its output shrinks.
  template <bool kPlain>
  __device__ __forceinline__ void step(const Params& p, const Shared<Config>& shared, int stage) {
    float s[Config::kPairs][2];
    float maximum = -INFINITY;
    const float* scores = shared.scores() + row() * Config::kScorePitch;
    Sight sight;
    if constexpr (!kPlain)
      sight = Sight(shared.sight()[row()]);  // in registers it would cost the plain tiles
#pragma unroll
    for (int i = 0; i < Config::kPairs; ++i) {
      const int column = 2 * (lane() + i * Config::kLanes);
      float2 sum = *reinterpret_cast<const float2*>(scores + column);
#pragma unroll
      for (int part = 1; part < Config::kScoreSplit; ++part) {
        const float2 x =
            *reinterpret_cast<const float2*>(scores + part * Config::kRows * Config::kScorePitch + column);
        sum.x += x.x;
        sum.y += x.y;
      }
      s[i][0] = sum.x * p.scale_log2;
      s[i][1] = sum.y * p.scale_log2;
      if constexpr (!kPlain) {
        const int2 position = *reinterpret_cast<const int2*>(shared.positions(stage) + column);
        if (!sight.sees(position.x)) s[i][0] = -INFINITY;
        if (!sight.sees(position.y)) s[i][1] = -INFINITY;
      }
      maximum = fmaxf(maximum, fmaxf(s[i][0], s[i][1]));
    }
#pragma unroll
    for (int d = Config::kLanes / 2; d > 0; d /= 2) {
      maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffU, maximum, d));
    }

    float shrink = 1.0F;
    if (maximum > pivot_ + kSlack) {  // -inf + 8 is -inf: the first key that is seen sets it
      shrink = ptx::ex2(pivot_ - maximum);
      pivot_ = maximum;
    }
    if (lane() == 0) shared.shrink()[row()] = shrink;
    const float pivot = pivot_ == -INFINITY ? 0.0F : pivot_;
    sum_ *= shrink;
    std::byte* weights = shared.weights() + row() * Config::kWeightBytes;
#pragma unroll
    for (int i = 0; i < Config::kPairs; ++i) {
      // A difference, not a fused product: the key that set the pivot must weigh exactly 1.
      const float x = ptx::ex2(s[i][0] - pivot);
      const float y = ptx::ex2(s[i][1] - pivot);
      sum_ += x + y;
      const int pair = lane() + i * Config::kLanes;
      *reinterpret_cast<std::uint32_t*>(weights + swizzle(row(), pair / 4) + pair % 4 * 4) =
          ptx::pack<typename Config::T>(x, y);
    }
  }

  /// Sum of the weights over all tiles; the same in all lanes of the row.
  __device__ __forceinline__ float sum() const {
    float sum = sum_;
#pragma unroll
    for (int d = Config::kLanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, d);
    return sum;
  }
  /// What the scores were measured from; -inf if no key was seen.
  [[nodiscard]] __device__ __forceinline__ float pivot() const {
    return pivot_;
  }

 private:
  float pivot_;
  float sum_;  // of this lane's columns
};

/// What the first and the last row of a group see: what both see, all see.
template <class Config>
struct GroupSight {
  Sight earliest, latest;

  __device__ __forceinline__ GroupSight(const Params& p, const Unit& unit, std::int32_t first_row)
      : earliest(p, unit, first_row), latest(p, unit, min(first_row + Config::kRows, unit.rows(p)) - 1) {}
  __device__ __forceinline__ explicit GroupSight(const Shared<Config>& shared)
      : earliest(shared.sight()[Config::kRows]), latest(shared.sight()[Config::kRows + 1]) {}
  /// As RowSoftmax::start().
  __device__ __forceinline__ void keep(const Shared<Config>& shared, int2 plain) const {
    if (threadIdx.x != 0) return;
    shared.sight()[Config::kRows] = earliest.packed(plain.x);
    shared.sight()[Config::kRows + 1] = latest.packed(plain.y);
  }
  /// Whether `tile` is one of the plain ones that were kept.
  static __device__ __forceinline__ bool plain(const Shared<Config>& shared, std::int32_t tile) {
    return tile >= shared.sight()[Config::kRows].w && tile < shared.sight()[Config::kRows + 1].w;
  }
  __device__ __forceinline__ bool alike() const { return earliest.last == latest.last; }
  __device__ __forceinline__ bool all_see(std::int32_t position) const {
    return earliest.sees(position) && latest.sees(position);
  }

  /// Tiles x .. y - 1 hold only keys that all rows of the group see, without looking at any (with an index:
  /// none). The unit's first tile is `origin`.
  __device__ __forceinline__ int2 plain_tiles(const Params& p, const Unit& unit, std::int32_t origin) const {
    if (p.attention.topk > 0) return make_int2(0, 0);
    const std::int32_t shift = unit.runs.second_begin - unit.runs.first_end;  // from entries to positions
    const std::int32_t begin = max(unit.runs.first_end, latest.first - shift);
    const std::int32_t end = min(unit.runs.count, earliest.last + 1 - shift);
    return make_int2(origin + (begin + Config::kKeys - 1) / Config::kKeys, origin + end / Config::kKeys);
  }
};

/// Keys that some rows of the group see and others do not: their weight is 0 in the latter, but 0 times an
/// infinity or a NaN is NaN. Where there are such keys, what is not finite in them is cleared before the
/// second product; the rows that do see them have a score, and so a weight, that is not finite either.
template <class Config>
__device__ __forceinline__ void clear_unshared(const Shared<Config>& shared, int stage) {
  const GroupSight<Config> sight(shared);
  if (sight.alike()) return;
  constexpr std::uint32_t kExponent = std::is_same_v<typename Config::T, __nv_bfloat16> ? 0x7f80U : 0x7c00U;
  const int lane = static_cast<int>(threadIdx.x) % kLine;
  for (int row = static_cast<int>(threadIdx.x) / kLine; row < Config::kKeys; row += kThreads / kLine) {
    const std::int32_t position = shared.positions(stage)[row];
    if (position < 0 || sight.all_see(position)) continue;
    for (int line = 0; line < Config::kLines; ++line) {
      auto* words = reinterpret_cast<std::uint32_t*>(shared.tile(stage) + row * Config::kRowBytes +
                                                     line * 128 + lane * kChunk);
#pragma unroll
      for (int i = 0; i < kChunk / 4; ++i) {
        std::uint32_t word = words[i];
        if ((word & kExponent) == kExponent) word &= 0xffff0000U;
        if ((word >> 16 & kExponent) == kExponent) word &= 0x0000ffffU;
        words[i] = word;
      }
    }
  }
}

}  // namespace mla::MLA_ARCH_NS::splitkv
