// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cache_ops/write.cuh"

/// The cache write as models call it: 16-bit inputs, norm and rotation, L of 128, 256 or 512, R up to 64,
/// everything aligned. The same arithmetic as write_kernel, arranged for many tokens.
///
///   c_kv [tokens, L], k_pe [tokens, R] T  ->  row of slot_mapping[token]: of T, of e4m3, or the 656-byte row
///
///   warp w of W takes tokens w, w + W, ...: three of them are under way at any time
///     token + 2 W   slot and position
///     token + W     c_kv, k_pe (needs nothing), cos and sin (need the position)
///     token         norm, rotation, encoding, stores
///
/// So no load waits for another of the same token, the norm's weights are loaded once a warp and not once a
/// token, and blocks are as many as run side by side. Bytes: 2 (L + R) + 16 read, a row written. Bound by
/// memory as long as a token is some 300 instructions of a warp: so types are compiled in, and addresses are
/// counted up.
namespace mla::MLA_ARCH_NS::cache_ops {

template <class T>
inline constexpr DType kTypeOf = std::is_same_v<T, __half> ? DType::kF16 : DType::kBF16;

/// Whether the kernels below do what is asked; the general one does everything.
inline bool streams(const WriteParams& p) {
  const bool plain = p.c_kv.dtype == DType::kBF16 || p.c_kv.dtype == DType::kF16;
  const bool norm = p.norm_weight.data != nullptr && p.norm_weight.dtype == p.c_kv.dtype && p.vector_weight;
  const bool widths = (p.latent == 128 || p.latent == 256 || p.latent == 512) && p.rope <= 64;
  const bool aligned = p.vector_in && p.vector_out;
  const DType row = latent_dtype(p.cache.format);
  const bool format = row == p.c_kv.dtype || (row == DType::kE4M3 && p.c_kv.dtype == DType::kBF16);
  const bool scale = p.cache.format != CacheFormat::kFp8 || p.inverse_scale != 0.0F;
  return plain && norm && widths && aligned && format && scale && p.bias.data == nullptr &&
         p.intermediate == DType::kF32 && (p.rope == 0 || p.rotation.cos != nullptr);
}

/// A lane's share of a token as it lies in memory, and where it goes.
struct Loaded {
  RowPlace place;
  uint4 latent[kHeld];
  float cos, sin;
  std::uint16_t a, b;
};

/// What the loads of a lane need, for the next token of its warp. Pointers move on by a constant.
class Source {
 public:
  __device__ inline Source(const WriteParams& p, std::int64_t token, std::int64_t step, int lane)
      : left_(token < p.tokens ? static_cast<int>((p.tokens - token + step - 1) / step) : 0),
        ahead_(left_),
        turns_(lane < p.rope / 2) {
    const PairPlace place(p.rotation.interleaved_input, lane, p.rope / 2);
    latent_ = static_cast<const std::uint16_t*>(p.c_kv.data) + token * p.c_kv.stride + 8 * lane;
    pe_ = static_cast<const std::uint16_t*>(p.k_pe.data) + token * p.k_pe.stride + place.a;
    to_b_ = place.b - place.a;
    slot_ = p.slot_mapping.data + token * p.slot_mapping.stride;
    position_ = p.rotation.positions.data + token * p.rotation.positions.stride;
    look_up(p, step);
  }
  /// Tokens not yet loaded.
  [[nodiscard]] __device__ inline int left() const { return left_; }

  __device__ inline void load(const WriteParams& p, std::int64_t step, int lane, Loaded& x) {
#pragma unroll
    for (int c = 0; c < kHeld; ++c) {
      x.latent[c] = make_uint4(0, 0, 0, 0);
      if (256 * c + 8 * lane < p.latent) x.latent[c] = *reinterpret_cast<const uint4*>(latent_ + 256 * c);
    }
    latent_ += step * p.c_kv.stride;
    x.place = place_of_slot(p.cache, next_slot_);
    if (turns_) {
      x.a = pe_[0];
      x.b = pe_[to_b_];
      pe_ += step * p.k_pe.stride;
      if (x.place.block >= 0) {  // padding may have any position
        x.cos = p.rotation.cos[next_position_ * p.rotation.cos_stride + lane];
        x.sin = p.rotation.sin[next_position_ * p.rotation.sin_stride + lane];
      }
    }
    --left_;
    look_up(p, step);
  }

 private:
  __device__ inline void look_up(const WriteParams& p, std::int64_t step) {
    if (ahead_ <= 0) return;
    --ahead_;
    next_slot_ = *slot_;
    slot_ += step * p.slot_mapping.stride;
    if (!turns_) return;
    next_position_ = *position_;
    position_ += step * p.rotation.positions.stride;
  }

  const std::uint16_t *latent_, *pe_;
  const std::int64_t *slot_, *position_;
  std::int64_t next_slot_ = -1, next_position_ = 0;
  int to_b_, left_, ahead_;
  bool turns_;
};

/// Norm, rotation, encoding and stores of one token; all lanes of the warp.
template <class T, CacheFormat kFormat>
__device__ inline void write_token(const WriteParams& p, const Loaded& loaded,
                                   const float (&weights)[kHeld][8], float one_by_width, int lane) {
  constexpr DType kType = kTypeOf<T>;
  constexpr DType kLatent = latent_dtype(kFormat), kRope = rope_dtype(kFormat);
  float x[kHeld][8], sum = 0.0F;
#pragma unroll
  for (int c = 0; c < kHeld; ++c) {
    unpack_eight(kType, loaded.latent[c], x[c]);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = __fmaf_rn(x[c][j], x[c][j], sum);  // channels past the row are 0
  }
  if (lane < p.rope / 2) {
    const float2 raw = unpack_pair(kType, loaded.a | static_cast<std::uint32_t>(loaded.b) << 16);
    const Pair pair = rotate_pair({raw.x, raw.y}, loaded.cos, loaded.sin);
    float turned[2] = {pair.a, pair.b};
    if (kRope == DType::kE4M3) divide_mostly_for_e4m3(turned, p.cache.scale, p.inverse_scale);
    auto* const rope = const_cast<std::byte*>(rope_row(p.cache, loaded.place));
    const PairPlace place(p.rotation.interleaved_output, lane, p.rope / 2);
    store_one(rope, kRope, place.a, turned[0]);
    store_one(rope, kRope, place.b, turned[1]);
  }
  const float mean = __fmul_rn(warp_sum(sum), one_by_width);  // a power of two: the quotient
  const float r = __frcp_rn(__fsqrt_rn(__fadd_rn(mean, p.norm_eps)));
  auto* const row = const_cast<std::byte*>(latent_row(p.cache, loaded.place));
#pragma unroll
  for (int c = 0; c < kHeld; ++c) {
    if (256 * c >= p.latent) break;
    const int i = 256 * c + 8 * lane;
    normalise(x[c], r, weights[c]);
    if (kFormat == CacheFormat::kFp8DsMla) {
      quantise_tile(x[c], row, p.cache.scale_offset, i / 128, lane, i < p.latent);
    } else if (kLatent == DType::kE4M3) {
      divide_mostly_for_e4m3(x[c], p.cache.scale, p.inverse_scale);
    }
    if (i < p.latent) store_eight(row, kLatent, i, x[c]);
  }
}

inline constexpr int kStreamWarps = 4;

template <class T, CacheFormat kFormat>
__global__ void __launch_bounds__(32 * kStreamWarps, 5) stream_kernel(const __grid_constant__ WriteParams p) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kStreamWarps;
  Source source(p, static_cast<std::int64_t>(blockIdx.x) * kStreamWarps + threadIdx.x / 32, step, lane);
  if (source.left() == 0) return;
  Loaded x{};
  source.load(p, step, lane, x);
  float weights[kHeld][8];
#pragma unroll
  for (int c = 0; c < kHeld; ++c)
    load_channels(p.norm_weight, 0, 256 * c + 8 * lane, p.latent, true, weights[c]);
  const float one_by_width = 1.0F / static_cast<float>(p.latent);
#pragma unroll 1
  while (true) {
    const Loaded now = x;
    const bool last = source.left() == 0;
    if (!last) source.load(p, step, lane, x);
    if (now.place.block >= 0) write_token<T, kFormat>(p, now, weights, one_by_width, lane);
    if (last) return;
  }
}

/// The kernel for what streams(p) accepts.
using StreamKernel = void (*)(WriteParams);
inline StreamKernel stream_kernel_for(const WriteParams& p) {
  if (p.cache.format == CacheFormat::kFp8) return &stream_kernel<__nv_bfloat16, CacheFormat::kFp8>;
  if (p.cache.format == CacheFormat::kFp8DsMla) return &stream_kernel<__nv_bfloat16, CacheFormat::kFp8DsMla>;
  // Split pools differ in addresses alone.
  return p.c_kv.dtype == DType::kF16 ? &stream_kernel<__half, CacheFormat::kF16>
                                     : &stream_kernel<__nv_bfloat16, CacheFormat::kBF16>;
}

}  // namespace mla::MLA_ARCH_NS::cache_ops
