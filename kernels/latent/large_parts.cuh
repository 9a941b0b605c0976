// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: where a unit is cut, each CTA writes its part to the workspace, and once all parts
// are there each adds up a slice of the result (arrival.cuh), in the order of the parts whoever does it.
//
//   out = sum_i w_i o_i,   w_i = 2^(m_i - m) / sum_i 2^(m_i - m) s_i,   m = max m_i
//
// A part is 64 patches of 16 rows x 32 channels, 2 KB each, in the order in which the threads hold them:
//
//   patch 8 g + w   rows 16 (w % 4) .. + 15, channels 256 (w / 4) + 32 g .. + 31    w: warp of the values' two
//                   [4 groups of 8 channels][32 lanes](row, row + 8) x 2 channels      warpgroups, g: 0 .. 7
//
// A slice is a run of patches. Behind its last segment a CTA has no use for its slots and query: others' parts
// of its slice are copied there, mostly all at once, and its own is kept there and not written to the workspace
//
//   | others' patches ..                | weights: parts x 64 rows | own patches |
//
// A CTA that is left with slices before its last segment keeps them in mind till then. Code runs cold here, so
// it is short rather than unrolled.
#pragma once

#include <cstdint>

#include "common/store.cuh"
#include "latent/arrival.cuh"
#include "latent/large_scores.cuh"
#include "latent/large_values.cuh"
#include "ptx/lane.cuh"
#include "ptx/tma.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

inline constexpr float kLn2 = 0.693147180559945309F;
inline constexpr std::int32_t kPatches = 64;
inline constexpr std::int32_t kPatchFours = 128;
inline constexpr std::int32_t kPatchBytes = kPatchFours * 16;
inline constexpr std::int32_t kPartFours = kPatches * kPatchFours;
inline constexpr std::int32_t kPlaceBytes = static_cast<std::int32_t>(kControlAt);
static_assert(kPlaceBytes - kernels::latent::kMostLargeParts * 256 - kPatchBytes >= kPatchBytes);

/// Maximum and sum of some parts of a row.
struct RowSum {
  float top = kLowest, sum = 0.0F;

  __device__ __forceinline__ void add(float2 other) {
    const float most = fmaxf(top, other.x);
    sum = __fmaf_rn(other.y, ptx::ex2(other.x - most), sum * ptx::ex2(top - most));
    top = most;
  }
  /// What a part's channels are multiplied with.
  [[nodiscard]] __device__ __forceinline__ float weight(float part_top) const {
    return sum == 0.0F ? 0.0F : ptx::ex2(part_top - top) * (1.0F / sum);
  }
  [[nodiscard]] __device__ __forceinline__ float lse() const {
    return sum == 0.0F ? -INFINITY : (top + log2f(sum)) * kLn2;
  }
};

/// Both warpgroups of the values.
__device__ __forceinline__ void sync_values() {
  ptx::bar_sync<kValuesBarrier, 256>();
}

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
        thread_(static_cast<std::int32_t>(ptx::fresh(threadIdx.x)) - 256) {
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
  __device__ __forceinline__ void merge(const Values<Config>& m, std::uint32_t& fetches) {
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
    if (static_cast<Todo>(note[0]) != Todo::kNone) {
      if (part_.patient) {
        add_slices(note, fetches);
      } else if (thread_ == 0) {
        control_.postponed = s_;
        for (int i = 0; i < kernels::latent::kCounterWords; ++i) control_.postponed_todo[i] = note[i];
      }
    }
    if (thread_ == 0) arrival.finish();
  }

  /// Behind the last segment: what merge() has put off.
  __device__ __forceinline__ void add_postponed(std::uint32_t& fetches) const {
    add_slices(control_.postponed_todo, fetches);
  }

 private:
  using Todo = Arrival::Todo;

  /// First patch of slice i.
  [[nodiscard]] __device__ __forceinline__ std::int32_t begin_of(std::int32_t i) const {
    return kPatches * i / part_.slices;
  }
  /// Results in the workspace. A range may end one unit and begin another: 2 c and 2 c + 1.
  [[nodiscard]] __device__ __forceinline__ std::int32_t slot(std::int32_t part) const {
    return (2 * (s_.first_range + part) + (part == 0 ? 1 : 0)) * Config::kTiles + rank_;
  }
  /// First four of a patch of a part.
  [[nodiscard]] __device__ __forceinline__ float4* fours(std::int32_t part, std::int32_t patch) const {
    return reinterpret_cast<float4*>(p_.partials) + (slot(part) * kPartFours + patch * kPatchFours);
  }
  /// Maximum and sum of row `row` of a part.
  [[nodiscard]] __device__ __forceinline__ float2* sums(std::int32_t part, std::int32_t row) const {
    return p_.sums + (slot(part) * 64 + row);
  }
  template <class T>
  [[nodiscard]] __device__ __forceinline__ T* shared_at(std::int32_t offset) const {
    return static_cast<T*>(__cvta_shared_to_generic(shared_ + static_cast<std::uint32_t>(offset)));
  }
  [[nodiscard]] __device__ __forceinline__ bool is_kept(std::int32_t patch) const {
    return patch >= kept_begin_ && patch < kept_end_;
  }
  /// First four of a patch that is kept.
  [[nodiscard]] __device__ __forceinline__ float4* kept(std::int32_t patch) const {
    return shared_at<float4>(kPlaceBytes - (kept_end_ - patch) * kPatchBytes);
  }
  [[nodiscard]] __device__ __forceinline__ std::int32_t weights_at() const {
    return kPlaceBytes - (kept_end_ - kept_begin_) * kPatchBytes - part_.parts * 256;
  }
  [[nodiscard]] __device__ __forceinline__ float* weights() const { return shared_at<float>(weights_at()); }

  __device__ __forceinline__ void publish(const Values<Config>& m) const {
    const std::int32_t warp = thread_ / 32, lane = thread_ % 32;
#pragma unroll
    for (std::int32_t g = 0; g < 8; ++g) {
      const std::int32_t patch = 8 * g + warp;
      float4* const to = (is_kept(patch) ? kept(patch) : fours(part_.part, patch)) + lane;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float* const x = &m.out[g / 4][16 * (g % 4) + 4 * k];
        to[k * 32] = make_float4(x[0], x[1], x[2], x[3]);
      }
    }
    if (m.half == 0 && lane % 4 == 0) {  // both halves have the same
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *sums(part_.part, warp * 16 + lane / 4 + 8 * h) = make_float2(m.top[h], m.sum[h]);
    }
  }
  /// What was kept goes where others can read it.
  __device__ __forceinline__ void publish_kept() const {
    const std::int32_t end = (kept_end_ - kept_begin_) * kPatchFours;
#pragma unroll 1
    for (std::int32_t i = thread_; i < end; i += 256) {
      fours(part_.part, kept_begin_)[i] = kept(kept_begin_)[i];
    }
    __threadfence();
  }

  /// Others' parts from .. to - 1 of some patches lie one behind the other. Where `part` is.
  [[nodiscard]] __device__ __forceinline__ std::int32_t place(std::int32_t part, std::int32_t from,
                                                              bool keeps) const {
    return part - from - (keeps && part_.part >= from && part > part_.part ? 1 : 0);
  }
  /// Asks for `count` patches from `patch` on of parts from .. to - 1. One warp.
  __device__ __forceinline__ void fetch(std::int32_t patch, std::int32_t count, std::int32_t from,
                                        std::int32_t to) const {
    const std::int32_t lane = thread_ % 32, bytes = count * kPatchBytes;
    const std::uint32_t barrier = ptx::smem(&control_.merge_full);
    const bool keeps = is_kept(patch);
    ptx::fence_async_global();  // what others have written is to be read by the copy engine
    if (lane == 0) {
      ptx::mbarrier_arrive_expect(barrier, static_cast<std::uint32_t>(place(to, from, keeps) * bytes));
    }
    __syncwarp();
#pragma unroll 1
    for (std::int32_t part = from + lane; part < to; part += 32) {
      if (keeps && part == part_.part) continue;
      ptx::bulk_load(shared_ + static_cast<std::uint32_t>(place(part, from, keeps) * bytes),
                     fours(part, patch), static_cast<std::uint32_t>(bytes), barrier);
    }
  }
  /// Weights of all parts and rows. Four threads share a row.
  __device__ __forceinline__ void weigh(bool writes_lse) const {
    const std::int32_t row = thread_ % 64, first = thread_ / 64;
    float* const to = weights() + row;
    RowSum mine;
#pragma unroll 4
    for (std::int32_t part = first; part < part_.parts; part += 4) {
      const float2 head = *sums(part, row);
      to[part * 64] = head.x;
      mine.add(head);
    }
    control_.exchange[first][row] = make_float2(mine.top, mine.sum);
    sync_values();
    RowSum all;
#pragma unroll
    for (int i = 0; i < 4; ++i) all.add(control_.exchange[i][row]);
#pragma unroll 4
    for (std::int32_t part = first; part < part_.parts; part += 4) {
      to[part * 64] = all.weight(to[part * 64]);
    }
    if (writes_lse && first == 0) write_lse(row, all);
    sync_values();
  }

  __device__ __forceinline__ void add_slices(const std::uint32_t* note, std::uint32_t& fetches) const {
    const auto todo = static_cast<Todo>(note[0]);
    const bool alone = todo == Todo::kOwn;
    const std::int32_t room = weights_at() / kPatchBytes;
    bool first = true;
#pragma unroll 1
    for (std::int32_t i = alone ? part_.part : 0; i < part_.slices; ++i) {
      if (alone && i != part_.part) return;
      if (todo == Todo::kOwnAndLeft && i != part_.part && (note[1 + i / 32] >> (i % 32) & 1) == 0) continue;
      const std::int32_t end = begin_of(i + 1);
      const std::int32_t others = part_.parts - (is_kept(begin_of(i)) ? 1 : 0);
      const std::int32_t at_once = max(1, room / others);
#pragma unroll 1
      for (std::int32_t patch = begin_of(i); patch < end; patch += at_once) {
        const std::int32_t count = min(at_once, end - patch);
        float4 sum = {0.0F, 0.0F, 0.0F, 0.0F};  // of one four, where the parts do not fit at once
#pragma unroll 1
        for (std::int32_t from = 0, to = 0; from < part_.parts; from = to) {
          to = others <= room ? part_.parts : min(from + room, part_.parts);
          if (!first) sync_values();  // what was fetched before has been read
          if (thread_ < 32) fetch(patch, count, from, to);
          if (first) weigh(todo == Todo::kAll || part_.part == 0 || (!alone && (note[1] & 1) != 0));
          first = false;
          ptx::mbarrier_wait(ptx::smem(&control_.merge_full), fetches & 1);
          ++fetches;
          add_fetched(sum, patch, count, from, to);
        }
      }
    }
  }

  /// Each thread some fours of the patches.
  __device__ __forceinline__ void add_fetched(float4& sum, std::int32_t patch, std::int32_t count,
                                              std::int32_t from, std::int32_t to) const {
    const bool keeps = is_kept(patch);
#pragma unroll 1
    for (std::int32_t four = thread_; four < count * kPatchFours; four += 256) {
      if (from == 0) sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      const std::int32_t here = patch + four / kPatchFours;
      const std::int32_t row = here % 4 * 16 + four % 32 / 4;
      const float* const weight = weights() + row;
#pragma unroll 4
      for (std::int32_t part = from; part < to; ++part) {
        const float4* const source = keeps && part == part_.part
                                         ? kept(patch)
                                         : shared_at<float4>(place(part, from, keeps) * count * kPatchBytes);
        const float4 x = source[four];
        const float a = weight[part * 64], b = weight[part * 64 + 8];
        sum.x = __fmaf_rn(a, x.x, sum.x);
        sum.y = __fmaf_rn(a, x.y, sum.y);
        sum.z = __fmaf_rn(b, x.z, sum.z);
        sum.w = __fmaf_rn(b, x.w, sum.w);
      }
      if (to < part_.parts) continue;
      const std::int32_t channel = here % 8 / 4 * kHalf + here / 8 * 32 + four / 32 % 4 * 8 + four % 4 * 2;
      write(row, channel, make_float2(sum.x, sum.y));
      write(row + 8, channel, make_float2(sum.z, sum.w));
    }
  }

  /// Where row `row` of the CTA's goes: token and head; false if there is no such row.
  __device__ __forceinline__ bool locate(std::int32_t row, std::int64_t& token, std::int32_t& head) const {
    const std::int32_t r = s_.group * Config::kRows + rank_ * 64 + row;
    const std::int32_t query = p_.by_heads.quotient(r);
    token = s_.r.first_token + query;
    head = r - query * p_.attention.num_heads;
    return r < s_.r.queries * p_.attention.num_heads;
  }
  __device__ __forceinline__ void write(std::int32_t row, std::int32_t channel, float2 x) const {
    const kernels::TensorParams& out = p_.attention.out;
    std::int64_t token;
    std::int32_t head;
    if (!locate(row, token, head)) return;
    store_pair(out.data, out.dtype, token * out.stride_token + head * out.stride_head + channel, x);
  }
  __device__ __forceinline__ void write_lse(std::int32_t row, const RowSum& all) const {
    const kernels::AttentionParams& a = p_.attention;
    std::int64_t token;
    std::int32_t head;
    if (a.lse == nullptr || !locate(row, token, head)) return;
    a.lse[token * a.lse_stride_token + head * a.lse_stride_head] = all.lse();
  }

  const Call& p_;
  Control& control_;
  const Segment& s_;
  const std::uint32_t shared_;
  const std::int32_t rank_, thread_;
  Part part_;
  std::int32_t kept_begin_ = 0, kept_end_ = 0;  // patches that are not in the workspace
};

}  // namespace mla::MLA_ARCH_NS::latent::large
