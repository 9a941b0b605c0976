// SPDX-License-Identifier: Apache-2.0
// From the CTAs' results to the output, in two steps:
//
//   in the cluster   channels are cut into slices, one a CTA; every CTA sends each slice of its result to that slice's
//                    CTA (st.async, counted by one mbarrier), which adds them up
//   in the grid      where clusters share a request, each writes its slice; the last to count itself adds all, in the
//                    order of the clusters whoever came last, so that the bits do not depend on it
//
//   with m = max m_i:   out = sum 2^(m_i - m) o_i / sum 2^(m_i - m) l_i      lse = ln 2 (m + log2 of the denominator)
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

template <class Config>
class Merge {
 public:
  /// Bytes that a CTA receives for one piece.
  static __device__ __forceinline__ std::uint32_t received_bytes(const Params& p) {
    return kRows * Config::kLatent * 4 + static_cast<std::uint32_t>(p.cluster_size) * kRows * 8;
  }

  /// All math warps of the cluster, after Math::run().
  __device__ __forceinline__ void run(const Params& p, const Shared<Config>& shared, const Math<Config>& math,
                                      const PostedPiece& posted) {
    // Here and not once for all pieces, so that the mathematics has the registers.
    warp_ = static_cast<int>(threadIdx.x) / 32;
    lane_ = ptx::lane_now();
    rank_ = static_cast<int>(ptx::cluster_rank());
    size_ = p.cluster_size;
    slice_tiles_ = Config::kTiles / size_;
    if (pieces_ == 0) {
      ptx::cluster_wait();  // the others have initialised their barriers
    } else {
      ptx::mbarrier_wait_cluster(shared.free_to_send(), (pieces_ - 1) & 1);
    }
    send(shared, math);
    ptx::mbarrier_wait_cluster(shared.received(), pieces_ & 1);
    const bool last = posted.piece.last;
    // Before anybody can send for the next piece.
    if (threadIdx.x == 0 && !last) ptx::mbarrier_arrive_expect(shared.received(), received_bytes(p));
    weigh(shared);
    sync_math();
    const int row = lane_ / 4;
    float2 top = make_float2(shared.template as<float>(Config::kTopAt)[row],
                             shared.template as<float>(Config::kTopAt)[row + 8]);
    float2 sum = make_float2(0.0F, 0.0F);
    for (int c = 0; c < size_; ++c) {
      sum.x += share(shared, c, row).y;
      sum.y += share(shared, c, row + 8).y;
    }
    const bool whole = posted.piece.parts == 1;
    const std::int64_t slot =
        whole ? 0
              : slot_of(p, posted.piece,
                        static_cast<std::int32_t>(blockIdx.x) / size_ - posted.piece.first_cluster);
    for (int tile = warp_; tile < slice_tiles_; tile += kMathWarps) {
      float4 x = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll
      for (int c = 0; c < kMostCluster; ++c) {
        if (c >= size_) break;
        const float4 part =
            shared.template as<float4>(Config::kReceiveAt)[(c * slice_tiles_ + tile) * 32 + lane_];
        add_scaled(x, share(shared, c, row).x, share(shared, c, row + 8).x, part);
      }
      if (whole) {
        write(p, posted.piece, tile, x, top, sum);
      } else {
        __stcg(partial(p, slot, tile), x);
      }
    }
    __syncwarp();
    if (!last && lane_ < size_) {
      ptx::mbarrier_arrive_cluster(ptx::map_shared(shared.free_to_send(), static_cast<std::uint32_t>(lane_)));
    }
    ++pieces_;
    if (whole) return;
    if (warp_ == 0 && lane_ % 4 == 0) __stcg(sums(p, slot), make_float4(top.x, sum.x, top.y, sum.y));
    sync_math();
    if (threadIdx.x == 0) {
      std::int32_t* counter = p.counters + counter_of(p, posted.piece, rank_);
      const bool all = ptx::atomic_add_acq_rel(counter, 1) == posted.piece.parts - 1;
      if (all) *counter = 0;  // for the next launch
      *shared.flag() = all ? 1 : 0;
    }
    sync_math();
    if (*shared.flag() == 0) return;
    if (slice_tiles_ <= kMathWarps) {
      add_parts<12, 1>(p, posted.piece);
    } else {
      add_parts<8, 2>(p, posted.piece);
    }
  }

 private:
  __device__ __forceinline__ void send(const Shared<Config>& shared, const Math<Config>& math) const {
    for (int to = Math<Config>::row_lane(); to < size_; to += Math<Config>::kLanes) {
      const auto rank = static_cast<std::uint32_t>(to);
      ptx::store_async(
          ptx::map_shared(shared.at(Config::kSumsAt + (rank_ * kRows + Math<Config>::row()) * 8), rank),
          ptx::map_shared(shared.received(), rank), math.maximum(), math.sum());
    }
#pragma unroll
    for (int i = 0; i < Config::kWarpTiles; ++i) {
      const int tile = warp_ * Config::kWarpTiles + i;
      const int to = tile / slice_tiles_;
      const int at =
          Config::kReceiveAt + ((rank_ * slice_tiles_ + tile - to * slice_tiles_) * 32 + lane_) * 16;
      const auto rank = static_cast<std::uint32_t>(to);
      const auto& x = math.output[i];
      ptx::store_async(ptx::map_shared(shared.at(at), rank), ptx::map_shared(shared.received(), rank), x[0],
                       x[1], x[2], x[3]);
    }
  }

  /// What each CTA's result counts for, by row: (2^(m_i - m), 2^(m_i - m) l_i).
  __device__ __forceinline__ void weigh(const Shared<Config>& shared) const {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= size_ * kRows) return;
    const auto* sums = shared.template as<const float2>(Config::kSumsAt);
    const int row = i % kRows;
    float top = -INFINITY;
#pragma unroll
    for (int c = 0; c < kMostCluster; ++c) {
      if (c < size_) top = fmaxf(top, sums[c * kRows + row].x);
    }
    const float2 own = sums[i];
    const float weight = ptx::ex2(own.x - (top == -INFINITY ? 0.0F : top));
    shared.template as<float2>(Config::kSharesAt)[i] = make_float2(weight, weight * own.y);
    if (i < kRows) shared.template as<float>(Config::kTopAt)[row] = top;
  }
  static __device__ __forceinline__ float2 share(const Shared<Config>& shared, int cta, int row) {
    return shared.template as<const float2>(Config::kSharesAt)[cta * kRows + row];
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

  /// Adds the slices of all parts and writes the output, kTiles tiles at a time; loads of kParts parts are in flight
  /// together.
  template <int kParts, int kTiles>
  __device__ __forceinline__ void add_parts(const Params& p, const Piece& piece) const {
    for (int tile = warp_; tile < slice_tiles_; tile += kMathWarps * kTiles) {
      float2 top = make_float2(-INFINITY, -INFINITY);
      float2 sum = make_float2(0.0F, 0.0F);
      float4 x[kTiles];
#pragma unroll
      for (auto& one : x) one = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
      for (std::int32_t first = 0; first < piece.parts; first += kParts) {
        float4 heads[kParts];
        float4 parts[kTiles][kParts];
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          const bool there = first + i < piece.parts;
          const std::int64_t slot = slot_of(p, piece, there ? first + i : 0);
          heads[i] = there ? __ldcg(sums(p, slot)) : make_float4(-INFINITY, 0.0F, -INFINITY, 0.0F);
#pragma unroll
          for (int k = 0; k < kTiles; ++k) {
            const int at = tile + k * kMathWarps;
            parts[k][i] = there && at < slice_tiles_ ? __ldcg(partial(p, slot, at))
                                                     : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
          }
        }
        float2 next = top;
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          next.x = fmaxf(next.x, heads[i].x);
          next.y = fmaxf(next.y, heads[i].z);
        }
        const float2 pivot =
            make_float2(next.x == -INFINITY ? 0.0F : next.x, next.y == -INFINITY ? 0.0F : next.y);
        const float2 old = make_float2(ptx::ex2(top.x - pivot.x), ptx::ex2(top.y - pivot.y));
        top = next;
        sum.x *= old.x;
        sum.y *= old.y;
#pragma unroll
        for (auto& one : x) {
          one = make_float4(one.x * old.x, one.y * old.x, one.z * old.y, one.w * old.y);
        }
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
          const float low = ptx::ex2(heads[i].x - pivot.x);
          const float high = ptx::ex2(heads[i].z - pivot.y);
          sum.x += low * heads[i].y;
          sum.y += high * heads[i].w;
#pragma unroll
          for (int k = 0; k < kTiles; ++k) add_scaled(x[k], low, high, parts[k][i]);
        }
      }
#pragma unroll
      for (int k = 0; k < kTiles; ++k) {
        if (tile + k * kMathWarps < slice_tiles_) write(p, piece, tile + k * kMathWarps, x[k], top, sum);
      }
    }
  }

  /// Two rows' pairs of channels, and from one thread a row the LSE.
  __device__ __forceinline__ void write(const Params& p, const Piece& piece, int tile, const float4& x,
                                        float2 top, float2 sum) const {
    const int channel = (rank_ * slice_tiles_ + tile) * 8 + lane_ % 4 * 2;
    write_row(p, piece, lane_ / 4, channel, make_float2(x.x, x.y), top.x, sum.x);
    write_row(p, piece, lane_ / 4 + 8, channel, make_float2(x.z, x.w), top.y, sum.y);
  }

  static __device__ __forceinline__ void write_row(const Params& p, const Piece& piece, int r, int channel,
                                                   float2 x, float top, float sum) {
    const kernels::AttentionParams& a = p.attention;
    const std::int32_t row = static_cast<std::int32_t>(blockIdx.y) * kRows + r;
    if (row >= piece.rows.queries * a.num_heads) return;
    const std::int32_t query = p.by_heads.quotient(row);
    const std::int64_t token = std::int64_t{piece.rows.first_token} + query;
    const std::int64_t head = row - query * a.num_heads;
    const bool empty = sum == 0.0F && top == -INFINITY;
    const float factor = empty ? 0.0F : 1.0F / sum;
    with_type(a.out.data, a.out.dtype, [&](auto* out) {
      store_pair(out + token * a.out.stride_token + head * a.out.stride_head + channel,
                 make_float2(x.x * factor, x.y * factor));
    });
    if (channel == 0 && a.lse != nullptr) {
      constexpr float kLn2 = 0.693147180559945309F;
      a.lse[token * a.lse_stride_token + head * a.lse_stride_head] =
          empty ? -INFINITY : (top + log2f(sum)) * kLn2;
    }
  }

  int warp_ = 0, lane_ = 0, rank_ = 0, size_ = 1, slice_tiles_ = 1;
  std::int32_t pieces_ = 0;
};

}  // namespace mla::MLA_ARCH_NS::latent
