// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: where a unit is cut, each CTA writes its part to the workspace, and once all parts
// are there each adds up a slice of the result (arrival.cuh), in the order of the parts whoever does it.
//
//   out = sum_i 2^(m_i - m) o_i / sum_i 2^(m_i - m) s_i,   m = max m_i,   lse = ln 2 (m + log2 of that sum)
//
// A part is 64 patches of 16 rows x 32 channels, 2 KB each, in the order in which the threads hold them:
//
//   patch 8 g + w   rows 16 (w % 4) .. + 15, channels 256 (w / 4) + 32 g .. + 31    w: warp of the values' two
//                   [4 groups of 8 channels][32 lanes](row, row + 8) x 2 channels      warpgroups, g: 0 .. 7
//
// The slice that a CTA will add up itself does not go to the workspace: behind its last segment a CTA has no use
// for its slots and query, and the slice is kept at their end. Code runs cold here.
#pragma once

#include <cstdint>

#include "common/store.cuh"
#include "latent/arrival.cuh"
#include "latent/large_scores.cuh"
#include "latent/large_values.cuh"
#include "ptx/lane.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline constexpr float kLn2 = 0.693147180559945309F;
inline constexpr std::int32_t kPatches = 64;
inline constexpr std::int32_t kPatchFours = 128;
inline constexpr std::int32_t kPartFours = kPatches * kPatchFours;

/// Both warpgroups of the values.
__device__ __forceinline__ void sync_values() {
  ptx::bar_sync<kValuesBarrier, 256>();
}

/// A sum of parts of kWidth patches of the same rows: relative to 2^top, of this thread's two rows.
template <int kWidth>
struct PatchSum {
  float top[2] = {kLowest, kLowest};
  float sum[2] = {0.0F, 0.0F};
  float4 x[kWidth * 4] = {};

  /// Makes it relative to what is not below `to`.
  __device__ __forceinline__ void raise(int h, float to) {
    const float old = ptx::ex2(top[h] - to);
    top[h] = to;
    sum[h] *= old;
#pragma unroll
    for (float4& y : x) {
      (h == 0 ? y.x : y.z) *= old;
      (h == 0 ? y.y : y.w) *= old;
    }
  }
};

/// A CTA's part of a unit. All threads of both values' warpgroups do the same with it.
template <class Config>
class CutUnit {
 public:
  __device__ __forceinline__ CutUnit(const Values<Config>& m, const Segment& s)
      : p_(m.p),
        control_(m.control),
        s_(s),
        shared_(ptx::fresh(m.shared)),
        rank_(m.rank),
        thread_(static_cast<std::int32_t>(ptx::fresh(threadIdx.x)) - 256),
        warp_(thread_ / 32),
        lane_(thread_ % 32) {
    part_.parts = s.parts;
    part_.part = static_cast<std::int32_t>(blockIdx.x / Config::kTiles) - s.first_range;
    part_.slices = min(kPatches, s.patient);
    part_.patient = s.more == 0;
    const std::int32_t unit = p_.per_request > 0 ? control_.work.range.base / p_.per_request : s.first_range;
    part_.words = reinterpret_cast<std::uint32_t*>(p_.counters) +
                  (unit * Config::kTiles + rank_) * (p_.may_wait ? kernels::latent::kCounterWords : 1);
    if (p_.may_wait && part_.patient && part_.part < part_.slices) {
      kept_begin_ = begin_of(part_.part);
      kept_end_ = begin_of(part_.part + 1);
    }
  }

  /// Gives this part to the others and adds up what is to be added up here.
  __device__ __forceinline__ void merge(const Values<Config>& m) const {
    using Todo = Arrival::Todo;
    if (part_.patient) sync_values();  // no product reads the slots any more
    publish(m);
    sync_values();
    std::uint32_t* const note = control_.todo;
    Arrival arrival(part_);
    if (thread_ == 0) {
      arrival.begin_arrival(p_.may_wait);
      note[0] = static_cast<std::uint32_t>(arrival.wait_arrival(note + 1));
    }
    sync_values();
    if (static_cast<Todo>(note[0]) == Todo::kTired) {
      publish_kept();
      sync_values();
      if (thread_ == 0) note[0] = static_cast<std::uint32_t>(arrival.give_up());
      sync_values();
    }
    if (thread_ == 0) arrival.depart();
    const auto todo = static_cast<Todo>(note[0]);
    if (todo != Todo::kNone) {
      const bool alone = todo == Todo::kOwn;
      const std::int32_t end = alone ? part_.part + 1 : part_.slices;
#pragma unroll 1
      for (std::int32_t i = alone ? part_.part : 0; i < end; ++i) {
        const bool left = todo == Todo::kAll || i == part_.part || (note[1 + i / 32] >> (i % 32) & 1) != 0;
        if (left) add_slice(i);
      }
    }
    if (thread_ == 0) arrival.finish();
  }

 private:
  /// First patch of slice i.
  [[nodiscard]] __device__ __forceinline__ std::int32_t begin_of(std::int32_t i) const {
    return kPatches * i / part_.slices;
  }
  /// Results in the workspace. A range may end one unit and begin another: 2 c and 2 c + 1.
  [[nodiscard]] __device__ __forceinline__ std::int32_t slot(std::int32_t part) const {
    return (2 * (s_.first_range + part) + (part == 0 ? 1 : 0)) * Config::kTiles + rank_;
  }
  /// This lane's first four of a patch of a part.
  [[nodiscard]] __device__ __forceinline__ float4* fours(std::int32_t part, std::int32_t patch) const {
    return reinterpret_cast<float4*>(p_.partials) + (slot(part) * kPartFours + patch * kPatchFours + lane_);
  }
  /// Maximum and sum of row `row` of a part.
  [[nodiscard]] __device__ __forceinline__ float2* sums(std::int32_t part, std::int32_t row) const {
    return p_.sums + (slot(part) * 64 + row);
  }
  [[nodiscard]] __device__ __forceinline__ bool is_kept(std::int32_t patch) const {
    return patch >= kept_begin_ && patch < kept_end_;
  }
  /// This lane's first four of a patch that is kept.
  [[nodiscard]] __device__ __forceinline__ float4* kept(std::int32_t patch) const {
    const std::uint32_t at = kControlAt - static_cast<std::uint32_t>(kept_end_ - patch) * kPatchFours * 16;
    return static_cast<float4*>(__cvta_shared_to_generic(shared_ + at)) + lane_;
  }

  __device__ __forceinline__ void publish(const Values<Config>& m) const {
#pragma unroll
    for (std::int32_t g = 0; g < 8; ++g) {
      const std::int32_t patch = 8 * g + warp_;
      float4* const to = is_kept(patch) ? kept(patch) : fours(part_.part, patch);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float* const x = &m.out[g / 4][16 * (g % 4) + 4 * k];
        to[k * 32] = make_float4(x[0], x[1], x[2], x[3]);
      }
    }
    if (warp_ < 4 && lane_ % 4 == 0) {  // both halves have the same
      const std::int32_t row = warp_ * 16 + lane_ / 4;
#pragma unroll
      for (int h = 0; h < 2; ++h) *sums(part_.part, row + 8 * h) = make_float2(m.top[h], m.sum[h]);
    }
  }
  /// What was kept goes where others can read it.
  __device__ __forceinline__ void publish_kept() const {
#pragma unroll 1
    for (std::int32_t patch = kept_begin_ + warp_; patch < kept_end_; patch += 8) {
#pragma unroll 1
      for (int k = 0; k < 4; ++k) fours(part_.part, patch)[k * 32] = kept(patch)[k * 32];
    }
    __threadfence();
  }

  /// A slice has so many patches at most that one, two, four or all eight warps share a patch: each adds up a
  /// share of the parts. The order of a sum depends on the number of parts alone.
  __device__ __forceinline__ void add_slice(std::int32_t slice) const {
    const std::int32_t most = (kPatches + part_.slices - 1) / part_.slices;
    const std::int32_t log_sharers = most > 4 ? 0 : most > 2 ? 1 : most > 1 ? 2 : 3;
    const std::int32_t sharer = warp_ & ((1 << log_sharers) - 1);
    const std::int32_t end = begin_of(slice + 1);
    const std::int32_t from = part_.parts * sharer >> log_sharers;
    const std::int32_t to = part_.parts * (sharer + 1) >> log_sharers;
    const std::int32_t patch = begin_of(slice) + (warp_ >> log_sharers);
    if (log_sharers > 0) {
      PatchSum<1> total;
      if (patch < end) add_parts<1, 4>(total, patch, end, from, to);
      add_sharers(total, patch, patch < end, log_sharers);
    } else if (part_.parts == 2) {
      add_patches<2, 2>(patch, end);
    } else {
      add_patches<1, 4>(patch, end);
    }
  }

  /// Patches patch, patch + 8 .. of all parts, kWidth at a time.
  template <int kWidth, int kAtOnce>
  __device__ __forceinline__ void add_patches(std::int32_t patch, std::int32_t end) const {
#pragma unroll 1
    for (; patch < end; patch += 8 * kWidth) {
      PatchSum<kWidth> total;
      add_parts<kWidth, kAtOnce>(total, patch, end, 0, part_.parts);
      const Output output(*this, patch, true, total.top, total.sum);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if (patch + 8 * j >= end) break;
#pragma unroll
        for (int k = 0; k < 4; ++k) output.write(*this, j * 32 + k * 8, total.x[4 * j + k]);
      }
    }
  }

  /// Adds parts from .. to - 1 of a patch and the next ones of the same rows; sixteen loads of a thread are in
  /// flight together.
  template <int kWidth, int kAtOnce>
  __device__ __forceinline__ void add_parts(PatchSum<kWidth>& total, std::int32_t patch, std::int32_t end,
                                            std::int32_t from, std::int32_t to) const {
    const std::int32_t row = patch % 4 * 16 + lane_ / 4;
    const bool keeps = is_kept(patch);
#pragma unroll 1
    for (std::int32_t first = from; first < to; first += kAtOnce) {
      float4 x[kAtOnce][kWidth * 4];
      float2 head[kAtOnce][2];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int32_t part = first + i;
        const bool there = part < to;
        const float2* const heads = sums(part, row);
        const float4* const source = keeps && part == part_.part ? kept(patch) : fours(part, patch);
#pragma unroll
        for (int h = 0; h < 2; ++h) head[i][h] = there ? heads[8 * h] : make_float2(kLowest, 0.0F);
#pragma unroll
        for (int k = 0; k < 4 * kWidth; ++k) {
          const bool any = there && patch + k / 4 * 8 < end;
          x[i][k] = any ? source[k / 4 * 8 * kPatchFours + k % 4 * 32] : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top = total.top[h];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) top = fmaxf(top, head[i][h].x);
        total.raise(h, top);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const float weight = ptx::ex2(head[i][h].x - top);
          total.sum[h] += weight * head[i][h].y;
#pragma unroll
          for (int k = 0; k < 4 * kWidth; ++k) {
            float4& y = total.x[k];
            (h == 0 ? y.x : y.z) += weight * (h == 0 ? x[i][k].x : x[i][k].z);
            (h == 0 ? y.y : y.w) += weight * (h == 0 ? x[i][k].y : x[i][k].w);
          }
        }
      }
    }
  }

  /// Adds what the warps that share a patch have, in order, and writes it: each warp some of the channels.
  __device__ __forceinline__ void add_sharers(PatchSum<1>& mine, std::int32_t patch, bool there,
                                              std::int32_t log_sharers) const {
    const std::int32_t sharers = 1 << log_sharers, leader = warp_ & ~(sharers - 1);
    float4* const buffers[2] = {control_.exchange[0], control_.exchange[1]};
    sync_values();  // what was exchanged before has been read
    buffers[0][warp_ * 32 + lane_] = make_float4(mine.top[0], mine.top[1], mine.sum[0], mine.sum[1]);
    sync_values();
    PatchSum<1> total;
    for (std::int32_t i = 0; i < sharers; ++i) {
      const float4 head = buffers[0][(leader + i) * 32 + lane_];
      total.top[0] = fmaxf(total.top[0], head.x);
      total.top[1] = fmaxf(total.top[1], head.y);
    }
    for (std::int32_t i = 0; i < sharers; ++i) {
      const float4 head = buffers[0][(leader + i) * 32 + lane_];
      total.sum[0] += ptx::ex2(head.x - total.top[0]) * head.z;
      total.sum[1] += ptx::ex2(head.y - total.top[1]) * head.w;
    }
    mine.raise(0, total.top[0]);
    mine.raise(1, total.top[1]);
    const Output output(*this, patch, there, total.top, total.sum);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float4* const buffer = buffers[(k + 1) % 2];
      buffer[warp_ * 32 + lane_] = mine.x[k];
      sync_values();
      if ((warp_ & (sharers - 1)) != k % sharers) continue;
      float4 sum = {0.0F, 0.0F, 0.0F, 0.0F};
      for (std::int32_t i = 0; i < sharers; ++i) {
        const float4 y = buffer[(leader + i) * 32 + lane_];
        sum = make_float4(sum.x + y.x, sum.y + y.y, sum.z + y.z, sum.w + y.w);
      }
      output.write(*this, k * 8, sum);
    }
  }

  /// Where a patch's rows of this thread go, and what they are multiplied with.
  struct Output {
    std::int64_t at[2];
    float factor[2];
    bool there[2];

    __device__ __forceinline__ Output(const CutUnit& u, std::int32_t patch, bool any, const float (&top)[2],
                                      const float (&sum)[2]) {
      const kernels::AttentionParams& a = u.p_.attention;
      const std::int32_t channel = patch % 8 / 4 * kHalf + patch / 8 * 32 + u.lane_ % 4 * 2;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::int32_t row =
            u.s_.group * Config::kRows + u.rank_ * 64 + patch % 4 * 16 + u.lane_ / 4 + 8 * h;
        there[h] = any && row < u.s_.r.queries * a.num_heads;
        const std::int32_t query = u.p_.by_heads.quotient(row);
        const std::int64_t token = u.s_.r.first_token + query;
        const std::int32_t head = row - query * a.num_heads;
        at[h] = token * a.out.stride_token + head * a.out.stride_head + channel;
        factor[h] = sum[h] == 0.0F ? 0.0F : 1.0F / sum[h];
        if (there[h] && channel == 0 && a.lse != nullptr) {
          a.lse[token * a.lse_stride_token + head * a.lse_stride_head] =
              sum[h] == 0.0F ? -INFINITY : (top[h] + log2f(sum[h])) * kLn2;
        }
      }
    }
    /// Channels `on` further on.
    __device__ __forceinline__ void write(const CutUnit& u, int on, const float4& x) const {
      const kernels::TensorParams& out = u.p_.attention.out;
      if (there[0]) store_pair(out.data, out.dtype, at[0] + on, {x.x * factor[0], x.y * factor[0]});
      if (there[1]) store_pair(out.data, out.dtype, at[1] + on, {x.z * factor[1], x.w * factor[1]});
    }
  };

  const Call& p_;
  Control& control_;
  const Segment& s_;
  const std::uint32_t shared_;
  const std::int32_t rank_, thread_, warp_, lane_;
  Part part_;
  std::int32_t kept_begin_ = 0, kept_end_ = 0;  // patches that are not in the workspace
};

}  // namespace mla::MLA_ARCH_NS::latent::large
