// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: the two warpgroups that compute. See large.cuh for the picture.
#pragma once

#include <cstdint>

#include "latent/large_shared.cuh"
#include "ptx/barrier.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"
#include "ptx/convert.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/math.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

#ifndef MLA_QREGS
#define MLA_QREGS 4
#endif
/// k steps whose query fragments stay in registers: each spares 2 KB of shared-memory reads a block. As many as fit
/// beside 128 accumulators, 32 scores and 16 registers of weights.
inline constexpr int kQuerySteps = MLA_QREGS;

/// A maximum that no score falls below, yet finite: rows that see nothing would otherwise compute inf - inf.
inline constexpr float kLowest = -1e30F;
/// The accumulators are rescaled only when the maximum has grown by more than this (as a power of two): until then
/// weights up to 2^8 are as exact as weights up to 1.
inline constexpr float kSlack = 8.0F;

template <int kGroup>
struct GroupBarriers;

/// The two warpgroups take turns on the tensor cores, so that one's softmax falls into the other's products.
__device__ __forceinline__ void take_turn(int group) {
#ifndef MLA_NO_TURNS
  if (group == 0) {
    ptx::bar_sync<1, 256>();
  } else {
    ptx::bar_sync<2, 256>();
  }
#endif
}
__device__ __forceinline__ void pass_turn(int group) {
#ifndef MLA_NO_TURNS
  if (group == 0) {
    ptx::bar_arrive<2, 256>();
  } else {
    ptx::bar_arrive<1, 256>();
  }
#endif
}
/// All threads of the warpgroup.
__device__ __forceinline__ void sync_group(int group) {
  if (group == 0) {
    ptx::bar_sync<3, 128>();
  } else {
    ptx::bar_sync<4, 128>();
  }
}
/// Both warpgroups.
__device__ __forceinline__ void sync_groups() {
  ptx::bar_sync<5, 256>();
}

#ifdef MLA_TRACE
__device__ unsigned g_trace[2][256][8];
#define MLA_STAMP(k) if (blockIdx.x == 0 && m.thread() == 0 && i < 256) g_trace[m.group][i][k] = static_cast<unsigned>(clock64());
#else
#define MLA_STAMP(k)
#endif

/// One warpgroup's 64 rows. The state is what lives in registers across blocks.
template <class Config>
struct Math {
  using Element = typename Config::Element;

  const Call& p;
  Control& control;
  std::byte* const dynamic;
  const std::uint32_t shared;
  const int group;  // of the two warpgroups
  const std::uint32_t peer;     // the other CTA's `shared`
  float out[128];               // [64 rows, 256 channels] of the warpgroup
  float score[32];              // [64 rows, 64 keys]
  std::uint32_t weight[4][4];   // the same as fragments, 16 keys each
  std::uint32_t query[kQuerySteps > 0 ? kQuerySteps : 1][4];
  float top[2];  // of rows lane / 4 and + 8: maximum (times scale * log2 e) that the weights refer to
  float sum[2];  // this thread's share of the sum of weights

  __device__ __forceinline__ Math(const Call& params, Control& c, std::byte* bytes, int g, int rank)
      : p(params),
        control(c),
        dynamic(bytes),
        shared(ptx::smem(bytes)),
        group(g),
        peer(ptx::map_shared(shared, static_cast<std::uint32_t>(rank ^ 1))) {}

  static __device__ __forceinline__ std::uint32_t thread() { return threadIdx.x % 128; }
  static __device__ __forceinline__ std::uint32_t lane() { return threadIdx.x % 32; }
  /// First of this thread's two rows in the tile.
  static __device__ __forceinline__ std::int32_t row() {
    return static_cast<std::int32_t>(thread() / 32 * 16 + lane() / 4);
  }
  __device__ __forceinline__ std::uint32_t tile(int slot) const {
    return shared + Config::kRingAt + static_cast<std::uint32_t>(slot) * kTileBytes;
  }
  __device__ __forceinline__ std::uint32_t query_tile() const {
    return shared + Config::kQueryAt + (Config::kTiles == 2 ? static_cast<std::uint32_t>(group) * kTileBytes : 0);
  }

  /// Where the other CTA has what stands at `address` here.
  __device__ __forceinline__ std::uint32_t at_peer(const void* address) const {
    return peer + (ptx::smem(address) - shared);
  }

  __device__ __forceinline__ void load_fragments() {
    const std::uint32_t r = thread() / 32 * 16 + lane() % 16;
#pragma unroll
    for (int s = 0; s < kQuerySteps; ++s) {
      const std::uint32_t piece = static_cast<std::uint32_t>(s % 4) * 2 + lane() / 16;
      ptx::ldmatrix_x4(query[s], query_tile() + static_cast<std::uint32_t>(s / 4) * 8192 + r * 128 +
                                     ((piece ^ (r & 7)) << 4));
    }
  }

  /// score = this CTA's channels of Q K^T.
  __device__ __forceinline__ void issue_scores(int slot) {
    const std::uint32_t keys = tile(slot);
    std::uint32_t rows = query_tile();
#pragma unroll
    for (int s = 0; s < kScoreSteps; ++s) {
      if (s < kQuerySteps) {
        ptx::wgmma_m64n64<Element>(score, query[s < kQuerySteps ? s : 0], key_operand(keys, s), s > 0);
      } else {
        ptx::keep(rows);  // made early, the descriptors of all steps would fill 24 registers
        ptx::wgmma_m64n64<Element>(score, query_operand(rows, s), key_operand(keys, s), s > 0);
      }
    }
    ptx::wgmma_commit();
  }

  /// out += P V.
  __device__ __forceinline__ void issue_values(int slot) {
    const std::uint32_t keys = tile(slot);
#pragma unroll
    for (int s = 0; s < 4; ++s) ptx::wgmma_m64n256<Element>(out, weight[s], value_operand(keys, s));
    ptx::wgmma_commit();
  }

  /// score becomes the sum over both CTAs: each sends its own to the other. Both add the same two numbers, so both go
  /// on with the same bits. `keep_buffer`: the buffer is not given back.
  __device__ __forceinline__ void exchange_scores(std::uint32_t parity, bool keep_buffer) {
#ifdef MLA_NO_EXCHANGE
    return;
#endif
    const std::uint32_t full = ptx::smem(&control.exchange_full[group]);
    if (thread() == 0) ptx::mbarrier_arrive_expect(full, kExchangeBytes);
    ptx::mbarrier_wait_cluster(ptx::smem(&control.exchange_empty[group]), parity ^ 1);
    const std::uint32_t to = peer + Config::kExchangeAt + static_cast<std::uint32_t>(group) * kExchangeBytes + thread() * 16;
    const std::uint32_t peer_full = at_peer(&control.exchange_full[group]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      ptx::store_async(to + static_cast<std::uint32_t>(i) * 2048, peer_full, score[4 * i], score[4 * i + 1],
                       score[4 * i + 2], score[4 * i + 3]);
    }
    ptx::mbarrier_wait_cluster(full, parity);
    const auto* const theirs =
        reinterpret_cast<const float4*>(dynamic + Config::kExchangeAt + group * kExchangeBytes) + thread();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 x = theirs[i * 128];
      score[4 * i] += x.x;
      score[4 * i + 1] += x.y;
      score[4 * i + 2] += x.z;
      score[4 * i + 3] += x.w;
    }
    if (!keep_buffer) give_buffer_back();
  }
  __device__ __forceinline__ void give_buffer_back() {
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive_cluster(at_peer(&control.exchange_empty[group]));
  }

  /// Scores of keys that a row does not see become -inf.
  __device__ __forceinline__ void mask(const Segment& s, std::int32_t position) {
    const kernels::AttentionParams& a = p.attention;
    const std::int32_t rows = s.r.queries * a.num_heads;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::int32_t r = s.group * Config::kRows + (Config::kTiles == 2 ? group * 64 : 0) + row() + 8 * h;
      std::int32_t last = -1, first = 0;  // the rule of kernels/common/visible.cuh
      if (r < rows) {
        last = a.causal ? s.r.keys - s.r.queries + p.by_heads.quotient(r) : s.r.keys - 1;
        if (a.causal && a.window > 0) first = last - a.window + 1;
      }
      const std::int32_t mine = position + static_cast<std::int32_t>(lane() % 4) * 2;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const std::int32_t key = mine + i / 2 * 8 + i % 2;
        const bool sees = key <= last && (key >= first || key < a.sink);
        float& x = score[i / 2 * 4 + 2 * h + i % 2];
        x = sees ? x : -INFINITY;
      }
    }
  }

  /// Whether every row sees every key of the block at `position`.
  __device__ __forceinline__ bool plain(const Segment& s, std::int32_t position) const {
    const kernels::AttentionParams& a = p.attention;
    const std::int32_t last = position + kBlock - 1;
    if (!a.causal) return last < s.r.keys;
    return last <= s.r.keys - s.r.queries && (a.window <= 0 || position >= s.r.keys - a.window || last < a.sink);
  }

  /// Keys that no query sees may hold anything, and 0 times NaN is NaN: their values become 0.
  __device__ __forceinline__ void clear_unseen(const Segment& s, std::int32_t position, int slot) {
    const Request& r = s.r;
    const std::int32_t behind = position + kBlock;
    if (behind <= r.end && (behind <= r.gap_begin || position >= r.gap_end)) return;
    for (std::uint32_t i = thread(); i < kBlock * 32; i += 128) {
      const std::uint32_t key = i / 32;
      const auto at = position + static_cast<std::int32_t>(key);
      if (at < r.end && (at < r.gap_begin || at >= r.gap_end)) continue;
      ptx::store_zeros_16(tile(slot) + key / 8 * kGroupBytes + i % 32 / 8 * 1024 + key % 8 * 128 + i % 8 * 16);
    }
    ptx::fence_async_shared();
    sync_group(group);
  }

  /// score -> weight, top, sum; out is rescaled where the maximum has grown.
  __device__ __forceinline__ void softmax() {
    float most[2] = {score[0], score[2]};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      most[0] = fmaxf(most[0], fmaxf(score[4 * i], score[4 * i + 1]));
      most[1] = fmaxf(most[1], fmaxf(score[4 * i + 2], score[4 * i + 3]));
    }
    float factor[2] = {1.0F, 1.0F};
    bool grown = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = fmaxf(most[h], __shfl_xor_sync(kEveryLane, most[h], 1));
      most[h] = fmaxf(most[h], __shfl_xor_sync(kEveryLane, most[h], 2));
      most[h] *= p.scale_log2;
      if (most[h] > top[h] + kSlack) {
        factor[h] = ptx::ex2(top[h] - most[h]);
        top[h] = most[h];
        sum[h] *= factor[h];
        grown = true;
      }
    }
    if (__any_sync(kEveryLane, grown)) {
#pragma unroll
      for (int i = 0; i < 128; ++i) out[i] *= factor[i / 2 % 2];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) score[4 * i + j] = ptx::ex2(fmaf(score[4 * i + j], p.scale_log2, -top[j / 2]));
      sum[0] += score[4 * i] + score[4 * i + 1];
      sum[1] += score[4 * i + 2] + score[4 * i + 3];
      weight[i / 2][i % 2 * 2] = ptx::pack<Element>(score[4 * i], score[4 * i + 1]);
      weight[i / 2][i % 2 * 2 + 1] = ptx::pack<Element>(score[4 * i + 2], score[4 * i + 3]);
    }
  }
  static constexpr unsigned kEveryLane = 0xffffffffU;

  __device__ __forceinline__ void release(int slot) {
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(ptx::smem(&control.empty[slot]));
  }
};

/// Everything that a warpgroup does: segment by segment, block by block; `finish` takes the result of a segment.
template <class Config, class Finish>
__device__ __forceinline__ void attend(Math<Config>& m, const Finish& finish) {
  constexpr int kStep = Config::kStep;
  Control& control = m.control;
  int slot = Config::kTiles == 1 ? m.group : 0;
  std::uint32_t parities = 0;  // bit 0: full barriers, 1: exchange, 2: query
  int segment = 0;
  const auto advance = [&] {
    slot += kStep;
    if (slot >= Config::kSlots) {
      slot -= Config::kSlots;
      parities ^= 1;
    }
  };
  const auto wait_full = [&] { ptx::mbarrier_wait(ptx::smem(&control.full[slot]), parities & 1); };
  if (m.group == 1) pass_turn(1);
  while (true) {
    wait_full();  // of the first block: the segment is written before it
    const Segment& s = control.segments[segment];
    const std::int32_t first = s.first + (Config::kTiles == 1 ? m.group : 0);
    const std::int32_t steps = (s.last - s.first + kStep - 1) / kStep;
    const auto position = [&](std::int32_t i) { return s.r.position(first + i * kStep); };
    const auto exchange = [&](bool last) {
      // With one tile the buffers serve the meeting of the warpgroups behind the last block, too.
      m.exchange_scores(parities >> 1 & 1, Config::kTiles == 1 && last);
      parities ^= 2;
    };
    const auto weigh = [&](std::int32_t i) {
      const std::int32_t at = position(i);
      if (!m.plain(s, at)) m.mask(s, at);
      m.softmax();
    };
    m.top[0] = m.top[1] = kLowest;
    m.sum[0] = m.sum[1] = 0.0F;
#pragma unroll
    for (float& x : m.out) x = 0.0F;
    ptx::mbarrier_wait(ptx::smem(&control.query_full), parities >> 2);
    parities ^= 4;
    m.load_fragments();
    take_turn(m.group);
    ptx::wgmma_fence();
    m.issue_scores(slot);
    pass_turn(m.group);
    ptx::wgmma_wait<0>();
    ptx::keep(m.score);
    exchange(steps == 1);
    weigh(0);
    for (std::int32_t i = 0; i + 1 < steps; ++i) {
      const int current = slot;
      MLA_STAMP(0)
      m.clear_unseen(s, position(i), current);
      advance();
      wait_full();
      MLA_STAMP(1)
      take_turn(m.group);
      MLA_STAMP(2)
      ptx::keep(m.out);
      ptx::wgmma_fence();
      m.issue_scores(slot);
      m.issue_values(current);
      pass_turn(m.group);
      MLA_STAMP(3)
      ptx::wgmma_wait<1>();
      ptx::keep(m.score);
      MLA_STAMP(4)
      exchange(i + 2 == steps);
      MLA_STAMP(5)
      ptx::wgmma_wait<0>();
      ptx::keep(m.out);
      MLA_STAMP(6)
      m.release(current);
      weigh(i + 1);
    }
    __syncwarp();
    if (m.lane() == 0) ptx::mbarrier_arrive(ptx::smem(&control.query_empty));
    m.clear_unseen(s, position(steps - 1), slot);
    take_turn(m.group);
    ptx::keep(m.out);
    ptx::wgmma_fence();
    m.issue_values(slot);
    pass_turn(m.group);
    ptx::wgmma_wait<0>();
    ptx::keep(m.out);
    m.release(slot);
    advance();
    const bool more = s.more != 0;
    finish(s);
    if (!more) break;
    segment = (segment + 1) % kSegments;
  }
}

}  // namespace mla::MLA_ARCH_NS::latent::large
