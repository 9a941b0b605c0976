// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache_ops/paged_row.cuh"

/// RMSNorm + RoPE + encode + scatter, one warp a token (docs/kernels/cache_ops.md).
///
///   c_kv [tokens, L], k_pe [tokens, R]  ->  row of slot_mapping[token] in the paged pool
///
///   lane t of chunk c holds channels 256 c + 8 t .. + 7: 16-byte loads of 16-bit inputs, 8- or 16-byte stores, and a
///   128-channel tile of the 656-byte row is half a warp.
///
/// Each input element is read once and each row byte written once, so the bound is 2 (L + R) + row bytes a
/// token over the copy bandwidth; a decode step's few hundred tokens are one wave and cost a launch. The
/// rounding contract is CacheWrite's in <mla/device_ops.hpp>: the __f*_rn intrinsics below are never
/// contracted.
namespace mla::MLA_ARCH_NS::cache_ops {

inline constexpr int kWarps = 8;
inline constexpr unsigned kAllLanes = 0xffffffffU;

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = __fadd_rn(x, __shfl_xor_sync(kAllLanes, x, d));
  return x;
}

/// 1 / sqrt(sum / width + eps), each operation rounded once. Division by a power of two is a product, 1 / x a
/// reciprocal: the same numbers for fewer instructions.
__device__ inline float inverse_rms(float sum_of_squares, int width, float eps) {
  const float mean =
      (width & (width - 1)) == 0
          ? __fmul_rn(sum_of_squares, __uint_as_float((96U + static_cast<unsigned>(__clz(width))) << 23))
          : __fdiv_rn(sum_of_squares, static_cast<float>(width));
  return __frcp_rn(__fsqrt_rn(__fadd_rn(mean, eps)));
}

/// Channels i .. i+7 of a row, 0 from `width` on.
__device__ inline void load_channels(const Rows& rows, std::int64_t row, int i, int width, bool vector,
                                     float (&x)[8]) {
  const std::int64_t at = row * rows.stride + i;
  if (vector && i + 8 <= width) {
    load_eight(rows.data, rows.dtype, at, x);
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) x[j] = i + j < width ? load_one(rows.data, rows.dtype, at + j) : 0.0F;
}

/// The f32 scale of a tile from the bits of its largest magnitude: 2^ceil(log2(max(amax / 448, 1e-4))),
/// exactly. 448 is
/// 1.75 * 2^8, so the mantissa decides between two powers of two; the floor 1e-4 rounds up to 2^-13. Infinity
/// and NaN, whose bits are larger than any number's, are their own scale.
__device__ inline float tile_scale(std::uint32_t amax_bits) {
  if (amax_bits >= 0x7f800000U) return __uint_as_float(amax_bits);
  const int exponent =
      static_cast<int>(amax_bits >> 23) - 127 - ((amax_bits & 0x7fffffU) <= 0x600000U ? 8 : 7);
  return __uint_as_float(static_cast<std::uint32_t>((exponent < -13 ? -13 : exponent) + 127) << 23);
}

/// Scales the eight values of this lane for the 656-byte row; the lanes of a tile are 16 neighbours.
__device__ inline void quantise_tile(float (&x)[8], std::byte* row, int scale_offset, int tile, int lane,
                                     bool live) {
  std::uint32_t amax = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) amax = max(amax, __float_as_uint(x[j]) & 0x7fffffffU);
#pragma unroll
  for (int d = 8; d > 0; d /= 2) amax = max(amax, __shfl_xor_sync(kAllLanes, amax, d));
  const float scale = tile_scale(amax);
  // A power of two, unless infinity or NaN: its inverse is exact, and x / scale and x * inverse are the same
  // number.
  const float inverse =
      amax < 0x7f800000U ? __uint_as_float((254U << 23) - __float_as_uint(scale)) : __frcp_rn(scale);
#pragma unroll
  for (int j = 0; j < 8; ++j) x[j] = __fmul_rn(x[j], inverse);
  if (live && (lane & 15) == 0) reinterpret_cast<float*>(row + scale_offset)[tile] = scale;
}

/// Channels of pair i of `pairs` in a layout.
struct PairPlace {
  int a, b;
  __device__ inline PairPlace(bool interleaved, int i, int pairs)
      : a(interleaved ? 2 * i : i), b(interleaved ? 2 * i + 1 : i + pairs) {}
};
struct Pair {
  float a, b;
};
__device__ inline Pair rotate_pair(Pair x, float cos, float sin) {
  return {__fsub_rn(__fmul_rn(x.a, cos), __fmul_rn(x.b, sin)),
          __fadd_rn(__fmul_rn(x.a, sin), __fmul_rn(x.b, cos))};
}

/// Rotated pair i of a rope row.
template <class Load>
__device__ inline Pair rotated_pair(const RotationParams& rotation, std::int64_t position, int i, int pairs,
                                    const Load& load) {
  const PairPlace place(rotation.interleaved_input, i, pairs);
  const Pair pair{load(place.a), load(place.b)};
  if (rotation.cos == nullptr) return pair;
  return rotate_pair(pair, rotation.cos[position * rotation.cos_stride + i],
                     rotation.sin[position * rotation.sin_stride + i]);
}

/// Rounds a rotated pair as the cache wants it and stores its channels.
__device__ inline void store_pair(const WriteParams& p, std::byte* rope, int i, Pair pair) {
  const DType type = rope_dtype(p.cache.format);
  float x[2] = {round_onto(p.intermediate, pair.a), round_onto(p.intermediate, pair.b)};
  if (type == DType::kE4M3) divide_for_e4m3(x, p.cache.scale, p.inverse_scale);
  const PairPlace place(p.rotation.interleaved_output, i, p.rope / 2);
  store_one(rope, type, place.a, x[0]);
  store_one(rope, type, place.b, x[1]);
}

/// c_kv of one token as channels i .. i + 7, with the bias of the projection.
__device__ inline void load_latent(const WriteParams& p, std::int64_t token, int i, float (&x)[8]) {
  load_channels(p.c_kv, token, i, p.latent, p.vector_in, x);
  if (p.bias.data == nullptr) return;
  float bias[8];
  load_channels(p.bias, 0, i, p.latent, false, bias);
#pragma unroll
  for (int j = 0; j < 8; ++j) x[j] = __fadd_rn(x[j], bias[j]);
}

/// x = (x r) weight
__device__ inline void normalise(float (&x)[8], float r, const float (&weight)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) x[j] = __fmul_rn(__fmul_rn(x[j], r), weight[j]);
}

/// Channels i .. i + 7 of a token, encoded and stored; all lanes of the warp.
__device__ inline void store_latent(const WriteParams& p, std::byte* row, int i, float (&x)[8]) {
  const DType type = latent_dtype(p.cache.format);
  if (p.intermediate != DType::kF32) {
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = round_onto(p.intermediate, x[j]);
  }
  if (p.cache.scale_offset > 0) {
    quantise_tile(x, row, p.cache.scale_offset, i / 128, static_cast<int>(threadIdx.x & 31), i < p.latent);
  } else if (type == DType::kE4M3) {
    divide_for_e4m3(x, p.cache.scale, p.inverse_scale);
  }
  if (p.vector_out && i + 8 <= p.latent) {
    store_eight(row, type, i, x);
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (i + j < p.latent) store_one(row, type, i + j, x[j]);
  }
}

inline constexpr int kHeld =
    2;  // pieces of 256 channels that stay in registers between the sum and the store

__global__ void __launch_bounds__(32 * kWarps, 4) write_kernel(const __grid_constant__ WriteParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (token >= p.tokens) return;
  // Everything that depends on the token alone is on its way before the first of it is used.
  const std::int64_t slot = p.slot_mapping[token];
  const std::int64_t position = p.rotation.cos != nullptr ? p.rotation.positions[token] : 0;
  float x[kHeld][8];
#pragma unroll
  for (int c = 0; c < kHeld; ++c) load_latent(p, token, 256 * c + 8 * lane, x[c]);
  const RowPlace place = place_of_slot(p.cache, slot);
  if (place.block < 0) return;

  // The rotary part first: its loads from the table overlap with the norm.
  auto* const rope = const_cast<std::byte*>(rope_row(p.cache, place));
  for (int i = lane; i < p.rope / 2; i += 32) {
    store_pair(p, rope, i, rotated_pair(p.rotation, position, i, p.rope / 2, [&](int column) {
                 const float value = load_one(p.k_pe.data, p.k_pe.dtype, token * p.k_pe.stride + column);
                 return p.bias.data == nullptr
                            ? value
                            : __fadd_rn(value, load_one(p.bias.data, p.bias.dtype, p.latent + column));
               }));
  }

  float r = 1.0F;
  if (p.norm_weight.data != nullptr) {
    float sum = 0.0F;
#pragma unroll
    for (int c = 0; c < kHeld; ++c) {
#pragma unroll
      for (int j = 0; j < 8; ++j) sum = __fmaf_rn(x[c][j], x[c][j], sum);  // channels past the row are 0
    }
    for (int i = 256 * kHeld + 8 * lane; i < p.latent; i += 256) {
      float more[8];
      load_latent(p, token, i, more);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum = __fmaf_rn(more[j], more[j], sum);
    }
    r = inverse_rms(warp_sum(sum), p.latent, p.norm_eps);
  }

  auto* const row = const_cast<std::byte*>(latent_row(p.cache, place));
  const auto finish = [&](int i, float(&channels)[8]) {
    if (p.norm_weight.data != nullptr) {
      float weight[8];
      load_channels(p.norm_weight, 0, i, p.latent, p.vector_weight, weight);
      normalise(channels, r, weight);
    }
    store_latent(p, row, i, channels);
  };
#pragma unroll
  for (int c = 0; c < kHeld; ++c)
    if (256 * c < p.latent) finish(256 * c + 8 * lane, x[c]);
#pragma unroll 1
  for (int first = 256 * kHeld; first < p.latent; first += 256) {  // these are read again, from the L1
    float more[8];
    load_latent(p, token, first + 8 * lane, more);
    finish(first + 8 * lane, more);
  }
}

/// RMSNorm of rows of any width, a warp each; the second reading of x comes from the caches.
__global__ void __launch_bounds__(32 * kWarps, 4) norm_kernel(const __grid_constant__ NormParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  float sum = 0.0F;
  for (int i = 8 * lane; i < p.width; i += 256) {
    float x[8];
    load_channels(p.x, row, i, p.width, p.vector_in, x);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = __fmaf_rn(x[j], x[j], sum);
  }
  const float r = inverse_rms(warp_sum(sum), p.width, p.eps);
  for (int i = 8 * lane; i < p.width; i += 256) {
    float x[8], weight[8];
    load_channels(p.x, row, i, p.width, p.vector_in, x);
    load_channels(p.weight, 0, i, p.width, false, weight);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (i + j < p.width)
        store_one(p.out, p.out_dtype, row * p.out_stride + i + j, __fmul_rn(__fmul_rn(x[j], r), weight[j]));
  }
}

inline constexpr int kRotatePairs = 4;  // a lane; R at most 256

/// Rotation in place, a warp for each (token, head): all pairs are read before one is written, since input
/// and output layouts may differ.
__global__ void __launch_bounds__(32 * kWarps, 4) rotate_kernel(const __grid_constant__ RotateParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::int64_t work = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (work >= p.tokens * p.heads) return;
  const std::int64_t token = work / p.heads, at = token * p.token_stride + work % p.heads * p.head_stride;
  Pair pairs[kRotatePairs];
#pragma unroll
  for (int k = 0; k < kRotatePairs; ++k)
    if (lane + 32 * k < p.rope / 2)
      pairs[k] = rotated_pair(p.rotation, p.rotation.positions[token], lane + 32 * k, p.rope / 2,
                              [&](int column) { return load_one(p.x, p.dtype, at + column); });
  __syncwarp();
#pragma unroll
  for (int k = 0; k < kRotatePairs; ++k) {
    if (lane + 32 * k >= p.rope / 2) break;
    const PairPlace place(p.rotation.interleaved_output, lane + 32 * k, p.rope / 2);
    store_one(p.x, p.dtype, at + place.a, pairs[k].a);
    store_one(p.x, p.dtype, at + place.b, pairs[k].b);
  }
}

}  // namespace mla::MLA_ARCH_NS::cache_ops
