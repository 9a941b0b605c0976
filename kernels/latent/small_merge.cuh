// SPDX-License-Identifier: Apache-2.0
// From the CTAs' results to the output, in two steps:
//
//   in the cluster   channels are cut into slices, one a CTA; every CTA sends each slice of its result to
//   that
//                    slice's CTA (st.async, counted by one mbarrier), which adds them up
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
    warp_ = threadIdx.x / 32;
    lane_ = static_cast<std::uint32_t>(ptx::lane_now());
    rank_ = ptx::cluster_rank();
    size_ = static_cast<std::uint32_t>(p.cluster_size);
    slice_tiles_ = static_cast<std::uint32_t>(Config::kTiles) >> (31 - __clz(p.cluster_size));
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
    Shares shares;
    weigh(shared, shares);
    const float2 top = shares.top;
    const float2 sum = shares.sum;
    const bool whole = posted.piece.parts == 1;
    const std::int64_t slot =
        whole ? 0
              : slot_of(p, posted.piece,
                        static_cast<std::int32_t>(ptx::cluster_id()) - posted.piece.first_cluster);
#pragma unroll 1
    for (std::uint32_t tile = warp_; tile < slice_tiles_; tile += kMathWarps) {
      const float4 x = add_received(shared, shares, tile);
      if (whole) {
        write(p, posted.piece, tile, x, top, sum);
      } else {
        __stcg(partial(p, slot, tile), x);
      }
    }
    __syncwarp();
    if (!last && lane_ < size_) {
      ptx::mbarrier_arrive_cluster(ptx::map_shared(shared.free_to_send(), lane_));
    }
    ++pieces_;
    if (whole) return;
    if (warp_ == 0 && lane_ % 4 == 0) __stcg(sums(p, slot), make_float4(top.x, sum.x, top.y, sum.y));
    sync_math();
    if (threadIdx.x == 0) {
      std::int32_t* counter = p.counters + counter_of(p, posted.piece, static_cast<std::int32_t>(rank_));
      const bool all = ptx::atomic_add_acq_rel(counter, 1) == posted.piece.parts - 1;
      if (all) *counter = 0;  // for the next launch
      *shared.flag() = all ? 1 : 0;
    }
    sync_math();
    if (*shared.flag() == 0) return;
    add_parts(p, posted.piece);
  }

 private:
  __device__ __forceinline__ void send(const Shared<Config>& shared, const Math<Config>& math) const {
    if (const std::uint32_t rank = Math<Config>::row_lane(); rank < size_) {
      ptx::store_async(
          ptx::map_shared(shared.at(Config::kSumsAt) + (rank_ * kRows + Math<Config>::row()) * 8, rank),
          ptx::map_shared(shared.received(), rank), math.maximum(), math.sum());
    }
#pragma unroll
    for (int i = 0; i < Config::kWarpTiles; ++i) {
      const std::uint32_t tile = warp_ * Config::kWarpTiles + i;
      const std::uint32_t rank = tile >> (31 - __clz(static_cast<int>(slice_tiles_)));
      const std::uint32_t at = shared.at(Config::kReceiveAt) +
                               ((rank_ * slice_tiles_ + tile - rank * slice_tiles_) * 32 + lane_) * 16;
      const auto& x = math.output[i];
      ptx::store_async(ptx::map_shared(at, rank), ptx::map_shared(shared.received(), rank), x[0], x[1], x[2],
                       x[3]);
    }
  }

  /// Of rows lane / 4 (low) and lane / 4 + 8 (high): what each CTA's result counts for, 2^(m_i - m), and the
  /// cluster's m and l.
  struct Shares {
    float low[kMostCluster], high[kMostCluster];
    float2 top, sum;
  };

  /// Every thread for its own two rows: all loads go out together, and no barrier is needed.
  __device__ __forceinline__ void weigh(const Shared<Config>& shared, Shares& to) const {
    const auto* from = shared.template as<const float2>(Config::kSumsAt) + lane_ / 4;
    float2 low[kMostCluster];
    float2 high[kMostCluster];
#pragma unroll
    for (std::uint32_t c = 0; c < kMostCluster; ++c) {
      low[c] = c < size_ ? from[c * kRows] : make_float2(-INFINITY, 0.0F);
      high[c] = c < size_ ? from[c * kRows + 8] : make_float2(-INFINITY, 0.0F);
    }
    to.top = make_float2(-INFINITY, -INFINITY);
#pragma unroll
    for (int c = 0; c < kMostCluster; ++c) {
      to.top.x = fmaxf(to.top.x, low[c].x);
      to.top.y = fmaxf(to.top.y, high[c].x);
    }
    const float2 pivot =
        make_float2(to.top.x == -INFINITY ? 0.0F : to.top.x, to.top.y == -INFINITY ? 0.0F : to.top.y);
    to.sum = make_float2(0.0F, 0.0F);
#pragma unroll
    for (int c = 0; c < kMostCluster; ++c) {
      to.low[c] = ptx::ex2(low[c].x - pivot.x);
      to.high[c] = ptx::ex2(high[c].x - pivot.y);
      to.sum.x += to.low[c] * low[c].y;
      to.sum.y += to.high[c] * high[c].y;
    }
  }

  /// A tile of this CTA's slice over the cluster's CTAs.
  __device__ __forceinline__ float4 add_received(const Shared<Config>& shared, const Shares& shares,
                                                 std::uint32_t tile) const {
    const auto* from = shared.template as<const float4>(Config::kReceiveAt) + tile * 32 + lane_;
    float4 parts[kMostCluster];
#pragma unroll
    for (std::uint32_t c = 0; c < kMostCluster; ++c) {
      parts[c] = c < size_ ? from[c * slice_tiles_ * 32] : make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    }
    float4 x = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll
    for (int c = 0; c < kMostCluster; ++c) add_scaled(x, shares.low[c], shares.high[c], parts[c]);
    return x;
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
  /// many as registers hold, and more for most splits than there are.
  __device__ __forceinline__ void add_parts(const Params& p, const Piece& piece) const {
    constexpr int kTogether = 16;
    // Slots of parts are two apart, but for the first one's, which is one behind its cluster's.
    const std::int64_t first_slot = slot_of(p, piece, 0) - 1;
    const float4* const first_sums = sums(p, first_slot);
    const std::int64_t sums_step = std::int64_t{size_} * (kRows / 2) * 2;
    const std::int64_t step = std::int64_t{kRows} * Config::kLatent / 4 * 2;
#pragma unroll 1
    for (std::uint32_t tile = warp_; tile < slice_tiles_; tile += kMathWarps) {
      const float4* const first_partial = partial(p, first_slot, tile);
      float2 top = make_float2(-INFINITY, -INFINITY);
      float2 sum = make_float2(0.0F, 0.0F);
      float4 x = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll 1
      for (std::int32_t first = 0; first < piece.parts; first += kTogether) {
        float4 heads[kTogether];
        float4 parts[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const std::int32_t part = first + i;
          heads[i] = make_float4(-INFINITY, 0.0F, -INFINITY, 0.0F);
          parts[i] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
          if (part < piece.parts) {
            heads[i] = __ldcg(first_sums + (part == 0 ? sums_step / 2 : part * sums_step));
            parts[i] = __ldcg(first_partial + (part == 0 ? step / 2 : part * step));
          }
        }
        float2 next = top;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          next.x = fmaxf(next.x, heads[i].x);
          next.y = fmaxf(next.y, heads[i].z);
        }
        const float2 pivot =
            make_float2(next.x == -INFINITY ? 0.0F : next.x, next.y == -INFINITY ? 0.0F : next.y);
        const float2 old = make_float2(ptx::ex2(top.x - pivot.x), ptx::ex2(top.y - pivot.y));
        top = next;
        sum = make_float2(sum.x * old.x, sum.y * old.y);
        x = make_float4(x.x * old.x, x.y * old.x, x.z * old.y, x.w * old.y);
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const float low = ptx::ex2(heads[i].x - pivot.x);
          const float high = ptx::ex2(heads[i].z - pivot.y);
          sum.x += low * heads[i].y;
          sum.y += high * heads[i].w;
          add_scaled(x, low, high, parts[i]);
        }
      }
      write(p, piece, tile, x, top, sum);
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

  std::uint32_t warp_ = 0, lane_ = 0, rank_ = 0, size_ = 1, slice_tiles_ = 1;
  std::uint32_t pieces_ = 0;
};

}  // namespace mla::MLA_ARCH_NS::latent
