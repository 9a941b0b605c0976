// SPDX-License-Identifier: Apache-2.0
// Kernels that measure the machine instead of an attention: fill, read, copy, multiply, nothing.
#include <cuda_runtime.h>

#include "common/check.hpp"
#include "common/convert.cuh"
#include "common/grid.hpp"
#include "probe/table.hpp"
#include "ptx/mma.cuh"

namespace mla::MLA_ARCH_NS {
namespace probe {
namespace {

using kernels::probe::kChains;
using kernels::probe::kLoopRounds;
using kernels::probe::kThreads;

/// Rounds to nearest even; |x| <= 448. The reverse of to_float(E4M3): f32's exponent and mantissa moved to where e4m3 has
/// them, after one addition that makes the hardware round at the right bit.
__device__ std::uint8_t to_e4m3(float x) {
  const float magnitude = fabsf(x);
  // The last place of e4m3 at this magnitude: 2^(exponent - 3), at least 2^-9.
  const int exponent = max(-6, static_cast<int>((__float_as_uint(magnitude) >> 23) & 0xffU) - 127);
  const float last_place = __uint_as_float(static_cast<unsigned>(exponent - 3 + 127) << 23);
  const float rounded = rintf(magnitude / last_place) * last_place;
  const unsigned bits = __float_as_uint(rounded * 0x1p-120F) >> 20;  // exact: a power of two
  return static_cast<std::uint8_t>(bits | (__float_as_uint(x) >> 31 << 7));
}

__device__ void store(std::byte* at, DType dtype, std::int64_t i, float x) {
  if (dtype == DType::kE4M3) {
    reinterpret_cast<std::uint8_t*>(at)[i] = to_e4m3(x);
  } else {
    store_from_float(at, dtype, i, x);
  }
}

/// A thread makes the four elements of one Philox block, wherever they fall.
__global__ void __launch_bounds__(kThreads) fill_kernel(RandomRows p) {
  const std::int64_t total = p.rows * p.count;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; block * 4 < total;
       block += step) {
    const auto index = static_cast<std::uint64_t>(block);
    const auto words =
        philox_4x32_10({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                        static_cast<std::uint32_t>(p.stream), static_cast<std::uint32_t>(p.stream >> 32)},
                       {static_cast<std::uint32_t>(p.seed), static_cast<std::uint32_t>(p.seed >> 32)});
    std::int64_t row = block * 4 / p.count;
    std::int64_t column = block * 4 - row * p.count;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (row >= p.rows) break;
      const float x = p.constant ? p.scale : p.scale * rough_normal(words[j]);
      store(p.data + row * p.row_stride_bytes + p.offset_bytes, p.dtype, column, x);
      if (++column == p.count) {
        column = 0;
        ++row;
      }
    }
  }
}

constexpr int kUnroll = 8;

/// Each block takes pieces of kUnroll * kThreads * 16 bytes: eight loads in flight a thread.
__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* data, std::size_t count, std::uint32_t* sink) {
  uint4 sum = {0, 0, 0, 0};
  constexpr std::size_t kPiece = std::size_t{kUnroll} * kThreads;
  for (std::size_t base = blockIdx.x * kPiece; base + kPiece <= count; base += gridDim.x * kPiece) {
    uint4 x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) x[u] = __ldcs(data + base + u * kThreads + threadIdx.x);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      sum.x ^= x[u].x;
      sum.y ^= x[u].y;
      sum.z ^= x[u].z;
      sum.w ^= x[u].w;
    }
  }
  const std::uint32_t all = sum.x ^ sum.y ^ sum.z ^ sum.w;
  if (all == 0x5eed5eedU) *sink = all;
}

__global__ void __launch_bounds__(kThreads) copy_kernel(uint4* to, const uint4* from, std::size_t count) {
  constexpr std::size_t kPiece = std::size_t{kUnroll} * kThreads;
  for (std::size_t base = blockIdx.x * kPiece; base + kPiece <= count; base += gridDim.x * kPiece) {
    uint4 x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) x[u] = __ldcs(from + base + u * kThreads + threadIdx.x);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) __stcs(to + base + u * kThreads + threadIdx.x, x[u]);
  }
}

__global__ void __launch_bounds__(kThreads) multiply_add_kernel(float* sink) {
  float acc[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) acc[c] = static_cast<float>(threadIdx.x + c);
  const float a = 0.999F;
  const float b = static_cast<float>(threadIdx.x) * 1e-3F;
#pragma unroll 8
  for (int i = 0; i < kLoopRounds; ++i) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) acc[c] = fmaf(acc[c], a, b);
  }
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum += acc[c];
  if (sum == 12345.678F) *sink = sum;
}

__global__ void __launch_bounds__(kThreads) matrix_kernel(float* sink) {
  float acc[kChains][4] = {};
  std::uint32_t a[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Two bf16 in 1..2 with busy mantissas: what is multiplied decides how much power it takes.
    a[i] = 0x3f803f80U | (random_word(7, 0, threadIdx.x * 8 + i) & 0x007f007fU);
  }
  const std::uint32_t b0 = 0x3f803f80U | (random_word(7, 0, threadIdx.x * 8 + 4) & 0x807f807fU);
  const std::uint32_t b1 = 0x3f803f80U | (random_word(7, 0, threadIdx.x * 8 + 5) & 0x807f807fU);
#pragma unroll 4
  for (int i = 0; i < kLoopRounds; ++i) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) ptx::mma<__nv_bfloat16>(acc[c], a, b0, b1);
  }
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum += acc[c][0] + acc[c][1] + acc[c][2] + acc[c][3];
  if (sum == 12345.678F) *sink = sum;
}

__global__ void nothing_kernel() {}

/// Keeps the stream waiting until the host has written `ticket`, or for `cycles`.
__global__ void hold_kernel(const volatile std::uint32_t* word, std::uint32_t ticket, std::int64_t cycles) {
  const long long start = clock64();
  while (*word != ticket && clock64() - start < cycles) {
  }
}

template <class Kernel, class... Args>
void launch(Kernel kernel, const char* name, int blocks, void* stream, Args... args) {
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(args...);
  MLA_CHECK_LAUNCH(name, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0);
}

void fill(const RandomRows& rows, void* stream) {
  const unsigned blocks = kernels::blocks_for(rows.rows * rows.count, 4 * kThreads, 1 << 16);
  if (blocks == 0) return;
  launch(fill_kernel, "probe::fill_kernel", static_cast<int>(blocks), stream, rows);
}

void read(const void* data, std::size_t bytes, int blocks, std::uint32_t* sink, void* stream) {
  launch(read_kernel, "probe::read_kernel", blocks, stream, static_cast<const uint4*>(data),
         bytes / sizeof(uint4), sink);
}

void copy(void* to, const void* from, std::size_t bytes, int blocks, void* stream) {
  launch(copy_kernel, "probe::copy_kernel", blocks, stream, static_cast<uint4*>(to),
         static_cast<const uint4*>(from), bytes / sizeof(uint4));
}

void multiply_add(int blocks, float* sink, void* stream) {
  launch(multiply_add_kernel, "probe::multiply_add_kernel", blocks, stream, sink);
}

void matrix(int blocks, float* sink, void* stream) {
  launch(matrix_kernel, "probe::matrix_kernel", blocks, stream, sink);
}

void nothing(void* stream) {
  nothing_kernel<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>();
  MLA_CHECK_LAUNCH("probe::nothing_kernel", dim3(1), dim3(32), 0);
}

void hold(const volatile std::uint32_t* word, std::uint32_t ticket, std::int64_t cycles, void* stream) {
  hold_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(word, ticket, cycles);
  MLA_CHECK_LAUNCH("probe::hold_kernel", dim3(1), dim3(1), 0);
}

}  // namespace
}  // namespace probe

const kernels::probe::Table& probe_table() {
  static constexpr kernels::probe::Table kTable{&probe::fill,         &probe::read,   &probe::copy,
                                                &probe::multiply_add, &probe::matrix, &probe::nothing,
                                                &probe::hold};
  return kTable;
}

}  // namespace mla::MLA_ARCH_NS
