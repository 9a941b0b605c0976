// SPDX-License-Identifier: Apache-2.0
// Second product: O += P V of a tile, where V is the latent part of the tile that K was.
#pragma once

#include "common/convert.cuh"
#include "ptx/address.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "splitkv/rows.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

/// A warp's share of the output: kValueRowTiles x 16 rows by kValueWidth channels, in registers.
template <class Config>
class Output {
 public:
  static constexpr int kColumnTiles = Config::kValueWidth / 8;

  __device__ __forceinline__ Output() {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    row_ = warp / Config::kValueColumns * Config::kValueRowTiles * 16;
    column_ = warp % Config::kValueColumns * Config::kValueWidth;
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& rows : o_) {
#pragma unroll
      for (auto& tile : rows) tile[0] = tile[1] = tile[2] = tile[3] = 0.0F;
    }
  }

  /// o = o * shrink + P V
  __device__ __forceinline__ void accumulate(const Shared<Config>& shared, int stage) {
    using T = typename Config::T;
    rescale(shared.shrink());
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::uint32_t p_row = ptx::smem(shared.weights()) + (row_ + lane % 16) * Config::kWeightBytes;
    const std::uint32_t v_row = ptx::smem(shared.tile(stage)) + lane % 16 * Config::kRowBytes;
#pragma unroll
    for (int k = 0; k < Config::kKeys; k += 16) {
      std::uint32_t a[Config::kValueRowTiles][4];
#pragma unroll
      for (int m = 0; m < Config::kValueRowTiles; ++m) {
        ptx::ldmatrix_x4(a[m], p_row + m * 16 * Config::kWeightBytes + swizzle(lane, k / 8 + lane / 16));
      }
#pragma unroll
      for (int n = 0; n < kColumnTiles; n += 2) {
        std::uint32_t b[4];
        ptx::ldmatrix_x4_trans(b, v_row + k * Config::kRowBytes + swizzle(lane, column_ / 8 + n + lane / 16));
#pragma unroll
        for (int m = 0; m < Config::kValueRowTiles; ++m) {
          ptx::mma<T>(o_[m][n], a[m], b[0], b[1]);
          ptx::mma<T>(o_[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  /// Calls store(row of the group, channel, two values) for every pair of the warp's share.
  template <class Store>
  __device__ __forceinline__ void for_each_pair(Store store) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < Config::kValueRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_ + m * 16 + half * 8 + lane / 4;
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) {
          store(row, column_ + n * 8 + lane % 4 * 2, make_float2(o_[m][n][2 * half], o_[m][n][2 * half + 1]));
        }
      }
    }
  }

 private:
  __device__ __forceinline__ void rescale(const float* shrink) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float factor[Config::kValueRowTiles][2];
    bool any = false;
#pragma unroll
    for (int m = 0; m < Config::kValueRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        factor[m][half] = shrink[row_ + m * 16 + half * 8 + lane / 4];
        any = any || factor[m][half] != 1.0F;
      }
    }
    if (!__any_sync(0xffffffffU, any)) return;
#pragma unroll
    for (int m = 0; m < Config::kValueRowTiles; ++m) {
#pragma unroll
      for (auto& tile : o_[m]) {
        tile[0] *= factor[m][0];
        tile[1] *= factor[m][0];
        tile[2] *= factor[m][1];
        tile[3] *= factor[m][1];
      }
    }
  }

  float o_[Config::kValueRowTiles][kColumnTiles][4];
  int row_, column_;
};

/// Two neighbouring elements of `data` from floats, rounded to nearest even. `offset` is even and the row aligned.
__device__ __forceinline__ void store_pair(void* data, DType dtype, std::int64_t offset, float2 x) {
  switch (dtype) {
    case DType::kBF16:
      *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(data) + offset) =
          __floats2bfloat162_rn(x.x, x.y);
      break;
    case DType::kF16:
      *reinterpret_cast<__half2*>(static_cast<__half*>(data) + offset) = __floats2half2_rn(x.x, x.y);
      break;
    default:
      *reinterpret_cast<float2*>(static_cast<float*>(data) + offset) = x;
      break;
  }
}

}  // namespace mla::MLA_ARCH_NS::splitkv
