// SPDX-License-Identifier: Apache-2.0
// Merge warps of the small-work kernel: from the CTAs' results to the output, while the math warps are at the
// next piece.
//
//   in the cluster   channels are cut into slices, one a CTA; the math warps of every CTA send each slice of
//                    their result to that slice's CTA (st.async, counted by one mbarrier), whose merge warps
//                    add them up
//   in the grid      where clusters share a request, each writes its slice; the last to count itself adds
//                    all, in the order of the clusters whoever came last: the bits do not depend on it
//
//   m = max m_i     out = sum 2^(m_i - m) o_i / sum 2^(m_i - m) l_i     lse = ln 2 (m + log2 of that sum)
#pragma once

#include <cmath>

#include "common/store.cuh"
#include "latent/small_math.cuh"
#include "ptx/cluster.cuh"
#include "ptx/global.cuh"

namespace mla::MLA_ARCH_NS::latent {

/// What a thread holds of a result: fragments of rows lane / 4 (x, y) and lane / 4 + 8 (z, w).
__device__ __forceinline__ void add_scaled(float4& to, float low, float high, const float4& x) {
  to.x += low * x.x;
  to.y += low * x.y;
  to.z += high * x.z;
  to.w += high * x.w;
}

/// Over the four lanes of the same rows.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffU, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffU, x, 1);
  return x + __shfl_xor_sync(0xffffffffU, x, 2);
}

/// A barrier among the merge warps.
__device__ __forceinline__ void sync_merge() {
  ptx::bar_sync<2, kMergeThreads>();
}

template <class Config>
class Merge {
 public:
  __device__ __forceinline__ explicit Merge(const Params& p)
      : warp_(threadIdx.x / 32 % kMergeWarps),
        lane_(threadIdx.x % 32),
        rank_(ptx::cluster_rank()),
        size_(static_cast<std::uint32_t>(p.cluster_size)),
        slice_tiles_(static_cast<std::uint32_t>(Config::kTiles) >> log2_of(p.cluster_size)) {}

  /// Bytes that a CTA receives for one piece.
  static __device__ __forceinline__ std::uint32_t received_bytes(const Params& p) {
    return kRows * Config::kLatent * 4 + static_cast<std::uint32_t>(p.cluster_size) * kRows * 8;
  }

  /// This CTA's slice of piece i.
  __device__ __forceinline__ void run(const Params& p, const Shared<Config>& shared, std::uint32_t i,
                                      const PostedPiece& posted) {
    const Piece& piece = posted.piece;
    const bool whole = piece.parts == 1;
    const std::int64_t slot =
        slot_of(p, piece, static_cast<std::int32_t>(ptx::cluster_id()) - piece.first_cluster);
    ptx::mbarrier_wait_cluster(shared.received(), i & 1);
    // Before anybody can send for the next piece.
    if (warp_ == 0 && lane_ == 0 && !piece.last) {
      ptx::mbarrier_arrive_expect(shared.received(), received_bytes(p));
    }
    const float2 top = weigh(shared);
    sync_merge();
    Shares shares;
    const float2 sum = read_shares(shared, shares);
#pragma unroll 1
    for (std::uint32_t tile = warp_; tile < slice_tiles_; tile += 2 * kMergeWarps) {
      float4 x[2];
      add_received(shared, shares, tile, x);
#pragma unroll
      for (std::uint32_t k = 0; k < 2; ++k) {
        const std::uint32_t at = tile + k * kMergeWarps;
        if (at >= slice_tiles_) continue;
        if (whole) {
          write(p, piece, at, x[k], top, sum);
        } else {
          __stcg(partial(p, slot, at), x[k]);
        }
      }
    }
    __syncwarp();
    if (!piece.last && lane_ < size_) {
      ptx::mbarrier_arrive_cluster(ptx::map_shared(shared.free_to_send(), lane_));
    }
    if (whole) {
      sync_merge();  // weigh() may write again
      return;
    }
    if (warp_ == 0 && lane_ % 4 == 0) __stcg(sums(p, slot), make_float4(top.x, sum.x, top.y, sum.y));
    sync_merge();
    if (warp_ == 0 && lane_ == 0) {
      std::int32_t* counter = p.counters + counter_of(p, piece, static_cast<std::int32_t>(rank_));
      const bool all = ptx::atomic_add_acq_rel(counter, 1) == piece.parts - 1;
      if (all) *counter = 0;  // for the next launch
      *shared.flag() = all ? 1 : 0;
    }
    sync_merge();
    if (*shared.flag() != 0) add_parts(p, piece);
  }

 private:
  /// Of rows lane / 4 and lane / 4 + 8, what each CTA's result counts for.
  struct Shares {
    float low[kMostCluster], high[kMostCluster];
  };

  /// One thread a CTA's row: (2^(m_i - m), 2^(m_i - m) l_i) to shared memory. Returns m of this thread's two
  /// rows.
  __device__ __forceinline__ float2 weigh(const Shared<Config>& shared) const {
    static_assert(kMostCluster * kRows == kMergeThreads);
    const auto* sums = shared.template as<const float2>(Config::kSumsAt);
    const auto top_of = [&](std::uint32_t row) {
      float top = -INFINITY;
#pragma unroll
      for (std::uint32_t c = 0; c < kMostCluster; ++c) {
        if (c < size_) top = fmaxf(top, sums[c * kRows + row].x);
      }
      return top;
    };
    const std::uint32_t i = threadIdx.x % kMergeThreads;
    if (i < size_ * kRows) {
      const float top = top_of(i % kRows);
      const float2 own = sums[i];
      const float weight = ptx::ex2(own.x - (top == -INFINITY ? 0.0F : top));
      shared.template as<float2>(Config::kSharesAt)[i] = make_float2(weight, weight * own.y);
    }
    return make_float2(top_of(lane_ / 4), top_of(lane_ / 4 + 8));
  }

  /// Returns l of this thread's two rows. All loads go out together.
  __device__ __forceinline__ float2 read_shares(const Shared<Config>& shared, Shares& to) const {
    const auto* from = shared.template as<const float2>(Config::kSharesAt) + lane_ / 4;
    float2 low[kMostCluster];
    float2 high[kMostCluster];
#pragma unroll
    for (std::uint32_t c = 0; c < kMostCluster; ++c) {
      low[c] = c < size_ ? from[c * kRows] : make_float2(0.0F, 0.0F);
      high[c] = c < size_ ? from[c * kRows + 8] : make_float2(0.0F, 0.0F);
    }
    float2 sum = make_float2(0.0F, 0.0F);
#pragma unroll
    for (int c = 0; c < kMostCluster; ++c) {
      to.low[c] = low[c].x;
      to.high[c] = high[c].x;
      sum.x += low[c].y;
      sum.y += high[c].y;
    }
    return sum;
  }

  /// Two tiles of this CTA's slice, kMergeWarps apart (the second may not exist), over the cluster's CTAs.
  __device__ __forceinline__ void add_received(const Shared<Config>& shared, const Shares& shares,
                                               std::uint32_t tile, float4 (&x)[2]) const {
    const auto* from = shared.template as<const float4>(Config::kReceiveAt) + tile * 32 + lane_;
    const float4 zero = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    float4 parts[2][kMostCluster];
#pragma unroll
    for (std::uint32_t c = 0; c < kMostCluster; ++c) {
      parts[0][c] = c < size_ ? from[c * slice_tiles_ * 32] : zero;
      parts[1][c] =
          c < size_ && tile + kMergeWarps < slice_tiles_ ? from[(c * slice_tiles_ + kMergeWarps) * 32] : zero;
    }
    x[0] = x[1] = zero;
#pragma unroll
    for (int c = 0; c < kMostCluster; ++c) {
      add_scaled(x[0], shares.low[c], shares.high[c], parts[0][c]);
      add_scaled(x[1], shares.low[c], shares.high[c], parts[1][c]);
    }
  }

  /// This thread's place in a slot of the workspace.
  [[nodiscard]] __device__ __forceinline__ float4* partial(const Params& p, std::int64_t slot,
                                                           int tile) const {
    return reinterpret_cast<float4*>(p.partials) + ((slot * size_ + rank_) * slice_tiles_ + tile) * 32 +
           lane_;
  }
  [[nodiscard]] __device__ __forceinline__ float4* sums(const Params& p, std::int64_t slot) const {
    return reinterpret_cast<float4*>(p.sums) + (slot * size_ + rank_) * (kRows / 2) + lane_ / 4;
  }

  /// Adds the slices of all parts and writes the output. Loads of kTogether parts are in flight together: as
  /// many as registers hold.
  __device__ __forceinline__ void add_parts(const Params& p, const Piece& piece) const {
    constexpr int kTogether = 8;  // two heads a lane
    // Slots of parts are two apart, but for the first one's, which is one behind its cluster's.
    const std::int64_t first_slot = slot_of(p, piece, 0) - 1;
    const float4* const first_sums = sums(p, first_slot);
    const std::int64_t sums_step = std::int64_t{size_} * (kRows / 2) * 2;
    constexpr int kStep = kRows * Config::kLatent / 4 * 2;
#pragma unroll 1
    for (std::uint32_t tile = warp_; tile < slice_tiles_; tile += 2 * kMergeWarps) {
      const bool two = tile + kMergeWarps < slice_tiles_;
      const float4* const first_partial = partial(p, first_slot, tile);
      const float4 zero = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      float2 top = make_float2(-INFINITY, -INFINITY);
      float2 sum = make_float2(0.0F, 0.0F);
      float4 x[2] = {zero, zero};
#pragma unroll 1
      for (std::int32_t first = 0; first < piece.parts; first += kTogether) {
        const float4* const base = first_partial + std::int64_t{first} * kStep;
        float4 parts[2][kTogether];
        float4 heads[kTogether / 4];  // of parts lane % 4 and lane % 4 + 4: four lanes have the same rows
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          parts[0][i] = parts[1][i] = zero;
          if (first + i < piece.parts) {
            const float4* const from = base + (i == 0 && first == 0 ? kStep / 2 : i * kStep);
            parts[0][i] = __ldcg(from);
            if (two) parts[1][i] = __ldcg(from + kMergeWarps * 32);
          }
        }
#pragma unroll
        for (int i = 0; i < kTogether / 4; ++i) {
          const std::int32_t part = first + i * 4 + static_cast<std::int32_t>(lane_ % 4);
          heads[i] = make_float4(-INFINITY, 0.0F, -INFINITY, 0.0F);
          if (part < piece.parts)
            heads[i] = __ldcg(first_sums + (part == 0 ? sums_step / 2 : part * sums_step));
        }
        const float2 next = make_float2(fmaxf(top.x, quad_max(fmaxf(heads[0].x, heads[1].x))),
                                        fmaxf(top.y, quad_max(fmaxf(heads[0].z, heads[1].z))));
        const float2 pivot =
            make_float2(next.x == -INFINITY ? 0.0F : next.x, next.y == -INFINITY ? 0.0F : next.y);
        const float2 old = make_float2(ptx::ex2(top.x - pivot.x), ptx::ex2(top.y - pivot.y));
        top = next;
        float2 weights[kTogether / 4];
        float2 more = make_float2(0.0F, 0.0F);
#pragma unroll
        for (int i = 0; i < kTogether / 4; ++i) {
          weights[i] = make_float2(ptx::ex2(heads[i].x - pivot.x), ptx::ex2(heads[i].z - pivot.y));
          more.x += weights[i].x * heads[i].y;
          more.y += weights[i].y * heads[i].w;
        }
        sum = make_float2(sum.x * old.x + quad_sum(more.x), sum.y * old.y + quad_sum(more.y));
#pragma unroll
        for (auto& one : x) one = make_float4(one.x * old.x, one.y * old.x, one.z * old.y, one.w * old.y);
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const float low = __shfl_sync(0xffffffffU, weights[i / 4].x, i % 4, 4);
          const float high = __shfl_sync(0xffffffffU, weights[i / 4].y, i % 4, 4);
          add_scaled(x[0], low, high, parts[0][i]);
          add_scaled(x[1], low, high, parts[1][i]);
        }
      }
      write(p, piece, tile, x[0], top, sum);
      if (two) write(p, piece, tile + kMergeWarps, x[1], top, sum);
    }
  }

  /// Two rows' pairs of channels, and from one thread a row the LSE.
  __device__ __forceinline__ void write(const Params& p, const Piece& piece, std::uint32_t tile,
                                        const float4& x, float2 top, float2 sum) const {
    const std::uint32_t channel = (rank_ * slice_tiles_ + tile) * 8 + lane_ % 4 * 2;
#pragma unroll 1
    for (std::uint32_t half = 0; half < 2; ++half) {
      write_row(p, piece, lane_ / 4 + half * 8, channel,
                half == 0 ? make_float2(x.x, x.y) : make_float2(x.z, x.w), half == 0 ? top.x : top.y,
                half == 0 ? sum.x : sum.y);
    }
  }

  static __device__ __forceinline__ void write_row(const Params& p, const Piece& piece, std::uint32_t r,
                                                   std::uint32_t channel, float2 x, float top, float sum) {
    const kernels::AttentionParams& a = p.attention;
    const auto row = static_cast<std::int32_t>(blockIdx.y * kRows + r);
    if (row >= piece.rows.queries * a.num_heads) return;
    const std::int32_t query = p.by_heads.quotient(row);
    const std::int64_t token = std::int64_t{piece.rows.first_token} + query;
    const std::int64_t head = row - query * a.num_heads;
    const bool empty = sum == 0.0F && top == -INFINITY;
    const float factor = empty ? 0.0F : __frcp_rn(sum);
    store_pair(a.out.data, a.out.dtype, token * a.out.stride_token + head * a.out.stride_head + channel,
               make_float2(x.x * factor, x.y * factor));
    if (channel == 0 && a.lse != nullptr) {
      constexpr float kLn2 = 0.693147180559945309F;
      a.lse[token * a.lse_stride_token + head * a.lse_stride_head] =
          empty ? -INFINITY : (top + log2f(sum)) * kLn2;
    }
  }

  std::uint32_t warp_, lane_, rank_, size_, slice_tiles_;
};

}  // namespace mla::MLA_ARCH_NS::latent
