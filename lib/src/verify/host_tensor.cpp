// SPDX-License-Identifier: Apache-2.0
#include "verify/host_tensor.hpp"

#include <algorithm>
#include <limits>

#include "verify/in_parallel.hpp"

namespace mla::verify {
namespace {

/// The rows of the last dimension: offset in elements of each, packed index of its first element.
struct Rows {
  explicit Rows(const HostTensor& tensor) {
    const int last = tensor.rank - 1;
    width = tensor.extent[static_cast<std::size_t>(last)];
    middle = last > 1 ? tensor.extent[1] : 1;
    count = (last > 0 ? tensor.extent[0] : 1) * middle;
    outer_stride = last > 0 ? tensor.stride[0] : 0;
    middle_stride = last > 1 ? tensor.stride[1] : 0;
  }
  [[nodiscard]] std::int64_t offset(std::int64_t row) const {
    return row / middle * outer_stride + row % middle * middle_stride;
  }
  /// Calls f(offset, packed index) for every row, on several threads.
  template <class Function>
  void each(Function f) const {
    in_parallel(count, width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) f(offset(row), row * width);
    });
  }
  std::int64_t width = 0, middle = 1, count = 0, outer_stride = 0, middle_stride = 0;
};

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
  const Rows rows(tensor);
  rows.each([&](std::int64_t offset, std::int64_t first) {
    for (std::int64_t c = 0; c < rows.width; ++c) {
      store_element(tensor.bytes.data(), tensor.dtype, offset + c,
                    values[static_cast<std::size_t>(first + c)]);
    }
  });
}

std::vector<double> load(const HostTensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  const Rows rows(tensor);
  rows.each([&](std::int64_t offset, std::int64_t first) {
    for (std::int64_t c = 0; c < rows.width; ++c) {
      values[static_cast<std::size_t>(first + c)] =
          load_element(tensor.bytes.data(), tensor.dtype, offset + c);
    }
  });
  return values;
}

bool gaps_hold(const HostTensor& tensor, std::byte fill) {
  const auto size = static_cast<std::int64_t>(size_of(tensor.dtype));
  const Rows rows(tensor);
  std::int64_t expected = 0;  // where the next gap begins, in bytes: rows come in ascending order
  bool intact = true;
  const auto check = [&](std::int64_t end) {
    for (std::int64_t i = expected; i < end; ++i)
      intact = intact && tensor.bytes[static_cast<std::size_t>(i)] == fill;
  };
  for (std::int64_t row = 0; row < rows.count; ++row) {
    check(rows.offset(row) * size);
    expected = (rows.offset(row) + rows.width) * size;
  }
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
