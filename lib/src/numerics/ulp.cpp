// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "mla/numerics.hpp"

namespace mla {
namespace {

struct Grid {
  int precision;  // bits of the significand, the hidden one included
  int lowest;     // exponent of the smallest normal value
};

Grid grid_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF64:
      return {53, -1022};
    case DType::kF32:
      return {24, -126};
    case DType::kF16:
      return {11, -14};
    case DType::kBF16:
      return {8, -126};
    case DType::kE4M3:
      return {4, -6};
    case DType::kE8M0:
      return {1, -127};
    case DType::kI64:
    case DType::kI32:
    case DType::kU8:
      break;
  }
  return {0, 0};
}

}  // namespace

double ulp_of(DType dtype, double x) noexcept {
  const Grid grid = grid_of(dtype);
  if (grid.precision == 0) return 1.0;
  int exponent = grid.lowest;
  if (x != 0 && std::isfinite(x)) exponent = std::max(exponent, std::ilogb(x));
  return std::ldexp(1.0, exponent - (grid.precision - 1));
}

}  // namespace mla
