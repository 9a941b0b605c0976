// SPDX-License-Identifier: Apache-2.0
// Second product: O += P V of a tile, where V is the latent part of the tile that K was.
#pragma once

#include "common/store.cuh"
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
    const std::uint32_t p_row =
        ptx::smem(shared.weights()) + (first_row() + lane % 16) * Config::kWeightBytes;
    const std::uint32_t v_row = ptx::smem(shared.tile(stage)) + lane % 16 * Config::kRowBytes;
    // Beside 128 accumulators, loads of the next step would cost spills.
    constexpr int kUnroll = Config::kValueRowTiles * kColumnTiles >= 32 ? 1 : Config::kKeys / 16;
#pragma unroll kUnroll
    for (int k = 0; k < Config::kKeys; k += 16) {
      std::uint32_t a[Config::kValueRowTiles][4];
#pragma unroll
      for (int m = 0; m < Config::kValueRowTiles; ++m) {
        ptx::ldmatrix_x4(a[m], p_row + m * 16 * Config::kWeightBytes + swizzle(lane, k / 8 + lane / 16));
      }
#pragma unroll
      for (int n = 0; n < kColumnTiles; n += 2) {
        std::uint32_t b[4];
        ptx::ldmatrix_x4_trans(
            b, v_row + k * Config::kRowBytes + swizzle(lane, first_channel() / 8 + n + lane / 16));
#pragma unroll
        for (int m = 0; m < Config::kValueRowTiles; ++m) {
          ptx::mma<T>(o_[m][n], a[m], b[0], b[1]);
          ptx::mma<T>(o_[m][n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  /// Stores the warp's share, times `factor` of each row. row_pointer(row of the group) is where the row's
  /// channel 0 goes, or null.
  template <class RowPointer, class Factor>
  __device__ __forceinline__ void store(RowPointer row_pointer, Factor factor) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < Config::kValueRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row() + m * 16 + half * 8 + lane / 4;
        auto* to = row_pointer(row);
        if (to == nullptr) continue;
        const float by = factor(row);
        to += first_channel() + lane % 4 * 2;  // one address a row: offsets of the pairs are constants
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) {
          store_pair(to + n * 8, make_float2(o_[m][n][2 * half] * by, o_[m][n][2 * half + 1] * by));
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
        factor[m][half] = shrink[first_row() + m * 16 + half * 8 + lane / 4];
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

  // The warp's first row and channel, derived when needed: registers are short.
  static __device__ __forceinline__ int first_row() {
    return static_cast<int>(threadIdx.x) / 32 / Config::kValueColumns * Config::kValueRowTiles * 16;
  }
  static __device__ __forceinline__ int first_channel() {
    return static_cast<int>(threadIdx.x) / 32 % Config::kValueColumns * Config::kValueWidth;
  }

  float o_[Config::kValueRowTiles][kColumnTiles][4];
};

}  // namespace mla::MLA_ARCH_NS::splitkv
