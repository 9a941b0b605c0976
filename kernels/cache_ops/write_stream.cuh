// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache_ops/write.cuh"

/// The cache write as models call it: 16-bit inputs, norm and rotation, L up to 512, R up to 64, everything
/// aligned. The same arithmetic as write_kernel, arranged for many tokens.
///
///   c_kv [tokens, L], k_pe [tokens, R] bf16 or f16  ->  row of slot_mapping[token], any format but f64
///
///   warp w of W takes tokens w, w + W, ...: three of them are under way at any time
///     token + 2 W   slot and position
///     token + W     c_kv, k_pe (needs nothing), cos and sin (need the position)
///     token         norm, rotation, encoding, stores
///
/// So no load waits for another of the same token, the norm's weights are loaded once a warp and not once a
/// token, and blocks are as many as run side by side. Bytes: 2 (L + R) + 16 read, a row written; bound by
/// memory.
namespace mla::MLA_ARCH_NS::cache_ops {

/// Whether the kernel below does what is asked; the general one does everything.
inline bool streams(const WriteParams& p) {
  const bool narrow = p.c_kv.dtype == DType::kBF16 || p.c_kv.dtype == DType::kF16;
  return narrow && p.norm_weight.data != nullptr && p.norm_weight.dtype == p.c_kv.dtype &&
         p.bias.data == nullptr && p.latent <= 256 * kHeld && p.latent % 8 == 0 && p.rope <= 64 &&
         (p.rope == 0 || p.rotation.cos != nullptr) && p.vector_in && p.vector_out && p.vector_weight &&
         (p.cache.format != CacheFormat::kFp8 || p.inverse_scale != 0.0F);
}

/// Where a token goes and how far its pairs are turned.
struct Ticket {
  std::int64_t slot, position;
};
__device__ inline Ticket load_ticket(const WriteParams& p, std::int64_t token) {
  if (token >= p.tokens) return {-1, 0};
  return {p.slot_mapping[token], p.rope > 0 ? p.rotation.positions[token] : 0};
}

/// A lane's share of a token as it lies in memory, and where it goes.
struct Loaded {
  RowPlace place;
  uint4 latent[kHeld];
  float cos, sin;
  std::uint16_t a, b;
};
__device__ inline uint4 load_piece(const Rows& rows, std::int64_t row, int i, int width) {
  if (i >= width) return make_uint4(0, 0, 0, 0);
  return *reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(rows.data) + row * rows.stride +
                                         i);
}
__device__ inline Loaded load_token(const WriteParams& p, std::int64_t token, Ticket ticket, int lane) {
  Loaded x{};
  x.place = kMissing;
  if (token >= p.tokens) return x;
#pragma unroll
  for (int c = 0; c < kHeld; ++c) x.latent[c] = load_piece(p.c_kv, token, 256 * c + 8 * lane, p.latent);
  x.place = place_of_slot(p.cache, ticket.slot);
  if (lane >= p.rope / 2) return x;
  const PairPlace place(p.rotation.interleaved_input, lane, p.rope / 2);
  const auto* const pe = static_cast<const std::uint16_t*>(p.k_pe.data) + token * p.k_pe.stride;
  x.a = pe[place.a];
  x.b = pe[place.b];
  if (x.place.block < 0) return x;  // padding may have any position
  x.cos = p.rotation.cos[ticket.position * p.rotation.cos_stride + lane];
  x.sin = p.rotation.sin[ticket.position * p.rotation.sin_stride + lane];
  return x;
}

/// Norm, rotation, encoding and stores of one token; all lanes of the warp.
__device__ inline void write_token(const WriteParams& p, const Loaded& loaded, const uint4 (&weights)[kHeld],
                                   int lane) {
  if (loaded.place.block < 0) return;
  const DType type = p.c_kv.dtype;
  float x[kHeld][8], sum = 0.0F;
#pragma unroll
  for (int c = 0; c < kHeld; ++c) {
    unpack_eight(type, loaded.latent[c], x[c]);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = __fmaf_rn(x[c][j], x[c][j], sum);  // channels past the row are 0
  }
  if (lane < p.rope / 2) {
    const float2 pair = unpack_pair(type, loaded.a | static_cast<std::uint32_t>(loaded.b) << 16);
    store_pair<false>(p, const_cast<std::byte*>(rope_row(p.cache, loaded.place)), lane,
                      rotate_pair({pair.x, pair.y}, loaded.cos, loaded.sin));
  }
  const float r = inverse_rms(warp_sum(sum), p.latent, p.norm_eps);
  auto* const row = const_cast<std::byte*>(latent_row(p.cache, loaded.place));
#pragma unroll
  for (int c = 0; c < kHeld; ++c) {
    if (256 * c >= p.latent) break;
    float weight[8];
    unpack_eight(type, weights[c], weight);
    normalise(x[c], r, weight);
    store_latent<false>(p, row, 256 * c + 8 * lane, x[c]);
  }
}

inline constexpr int kStreamWarps = 4;

__global__ void __launch_bounds__(32 * kStreamWarps, 5) stream_kernel(const __grid_constant__ WriteParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kStreamWarps;
  std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kStreamWarps + threadIdx.x / 32;
  Loaded x = load_token(p, token, load_ticket(p, token), lane);
  Ticket next = load_ticket(p, token + step);
  uint4 weights[kHeld];
#pragma unroll
  for (int c = 0; c < kHeld; ++c) weights[c] = load_piece(p.norm_weight, 0, 256 * c + 8 * lane, p.latent);
#pragma unroll 1
  for (; token < p.tokens; token += step) {
    const Loaded now = x;
    x = load_token(p, token + step, next, lane);
    next = load_ticket(p, token + 2 * step);
    write_token(p, now, weights, lane);
  }
}

}  // namespace mla::MLA_ARCH_NS::cache_ops
