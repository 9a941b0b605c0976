// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mla/backend.hpp"
#include "mla/dtype.hpp"

/// Matrix products of the library: cuBLASLt, opened at run time (docs/kernels/gemm.md says why), so that
/// libmla.so loads where there is no CUDA. Row-major throughout.
namespace mla::kernels::lt {

/// Device memory a product may use; its contents do not matter.
inline constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

/// out[i] [m, n] = a[i] [m, k] w[i]^T for i in 0..batch-1, with w [n, k]; or a w with w [k, n] if
/// `w_by_columns`. Sums in f32. Leading dimensions and batch strides are in elements.
struct Product {
  DType in = DType::kBF16;   ///< of a and w: bf16 or f16
  DType out = DType::kBF16;  ///< the same type, or f32
  bool w_by_columns = false;
  bool with_bias = false;  ///< + bias[n], of the type of out, before the rounding
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::int64_t a_row = 0, w_row = 0, out_row = 0;
  std::int64_t a_batch = 0, w_batch = 0, out_batch = 0;
  friend auto operator<=>(const Product&, const Product&) = default;
};

/// Whether libcublasLt can be opened; if not, where it was looked for.
[[nodiscard]] Support available();
/// "13.0.2": what was opened. Empty if there is none.
[[nodiscard]] std::string version();

/// Enqueues the product on `stream` (a cudaStream_t) of the current device. The algorithm for a shape is
/// asked for once and remembered; enqueuing allocates nothing and never waits. Nothing happens if m or n is
/// 0. Throws kUnsupported if there is no library or no algorithm, kDevice if the library refuses.
void multiply(const Product& product, const void* a, const void* w, void* out, std::span<std::byte> workspace,
              void* stream, const void* bias = nullptr);

}  // namespace mla::kernels::lt
