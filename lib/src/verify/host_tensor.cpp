// SPDX-License-Identifier: Apache-2.0
#include "verify/host_tensor.hpp"

#include <algorithm>
#include <limits>

namespace mla::verify {
namespace {

/// Calls f(row offset in elements, packed index of its first element) for each row of the last dimension.
template <class Function>
void each_row(const HostTensor& tensor, Function f) {
  const auto& n = tensor.extent;
  const auto& s = tensor.stride;
  const int last = tensor.rank - 1;
  const std::int64_t width = n[static_cast<std::size_t>(last)];
  const std::int64_t outer = last > 0 ? n[0] : 1;
  const std::int64_t middle = last > 1 ? n[1] : 1;
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t j = 0; j < middle; ++j) {
      f((last > 0 ? i * s[0] : 0) + (last > 1 ? j * s[1] : 0), (i * middle + j) * width);
    }
  }
}

}  // namespace

HostTensor make_host_tensor(DType dtype, std::span<const std::int64_t> extents, std::int64_t gap,
                            std::byte fill) {
  HostTensor tensor;
  tensor.dtype = dtype;
  tensor.rank = static_cast<int>(extents.size());
  std::copy(extents.begin(), extents.end(), tensor.extent.begin());
  std::int64_t step = 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    tensor.stride[i] = step;
    step *= extents[i];
    if (i + 1 == extents.size() || i == 1)
      step += gap;  // behind each row, and behind each slice of the first dimension
  }
  tensor.bytes.assign(static_cast<std::size_t>(step) * size_of(dtype), fill);
  return tensor;
}

void store(HostTensor& tensor, std::span<const double> values) {
  const std::int64_t width = tensor.extent[static_cast<std::size_t>(tensor.rank - 1)];
  each_row(tensor, [&](std::int64_t offset, std::int64_t first) {
    for (std::int64_t c = 0; c < width; ++c) {
      store_element(tensor.bytes.data(), tensor.dtype, offset + c,
                    values[static_cast<std::size_t>(first + c)]);
    }
  });
}

std::vector<double> load(const HostTensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  const std::int64_t width = tensor.extent[static_cast<std::size_t>(tensor.rank - 1)];
  each_row(tensor, [&](std::int64_t offset, std::int64_t first) {
    for (std::int64_t c = 0; c < width; ++c) {
      values[static_cast<std::size_t>(first + c)] =
          load_element(tensor.bytes.data(), tensor.dtype, offset + c);
    }
  });
  return values;
}

bool gaps_hold(const HostTensor& tensor, std::byte fill) {
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  const std::int64_t width = tensor.extent[static_cast<std::size_t>(tensor.rank - 1)];
  std::int64_t expected = 0;  // where the next gap begins, in bytes: rows come in ascending order
  bool intact = true;
  const auto check = [&](std::int64_t end) {
    for (std::int64_t i = expected; i < end; ++i)
      intact = intact && tensor.bytes[static_cast<std::size_t>(i)] == fill;
  };
  each_row(tensor, [&](std::int64_t offset, std::int64_t) {
    check(offset * size);
    expected = (offset + width) * size;
  });
  check(static_cast<std::int64_t>(tensor.bytes.size()));
  return intact;
}

double poison_value(Poison poison, DType dtype) {
  switch (poison) {
    case Poison::kNan:
      return std::numeric_limits<double>::quiet_NaN();
    case Poison::kInfinity:
      return std::numeric_limits<double>::infinity();
    case Poison::kZero:
      return 0.0;
    case Poison::kMaximum:
      break;
  }
  switch (dtype) {
    case DType::kF64:
      return std::numeric_limits<double>::max();
    case DType::kF16:
      return 65504;
    case DType::kE4M3:
      return 448;
    case DType::kBF16:
      return 0x1.FEp127;
    default:
      return std::numeric_limits<float>::max();
  }
}

}  // namespace mla::verify
