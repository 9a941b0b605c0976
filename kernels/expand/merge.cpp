// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "common/current_device.hpp"
#include "common/require.hpp"
#include "expand/engine.hpp"
#include "mla/device_ops.hpp"

namespace mla::device_ops {

void merge_partials(ConstTensorRef parts, View<const float, 2> part_lse, TensorRef out, View<float, 1> lse,
                    Stream stream) {
  using namespace kernels;
  const std::initializer_list<DType> floats = {DType::kBF16, DType::kF16, DType::kF32};
  require_tensor(parts, "parts", {kAnyExtent, kAnyExtent, kAnyExtent}, floats);
  const std::int64_t rows = parts.extent[1];
  require_tensor(out, "out", {rows, parts.extent[2]}, floats);
  if (!part_lse || part_lse.extent[0] != parts.extent[0] || part_lse.extent[1] != rows) {
    refuse(fmt::format("part_lse is [{}, {}], but must be [{}, {}]", part_lse.extent[0], part_lse.extent[1],
                       parts.extent[0], rows));
  }
  if (lse) require_size(lse, "lse", rows);
  expand::MergeParams m;
  m.parts = parts.data;
  m.dtype = parts.dtype;
  m.part_stride = parts.stride[0];
  m.part_row = parts.stride[1];
  m.part_lse = part_lse.data;
  m.lse_part = part_lse.stride[0];
  m.lse_row = part_lse.stride[1];
  m.count = static_cast<std::int32_t>(parts.extent[0]);
  m.tokens = rows;
  m.width = static_cast<std::int32_t>(parts.extent[2]);
  m.out = out.data;
  m.out_dtype = out.dtype;
  m.out_token = out.stride[0];
  m.lse = lse.data;
  m.lse_token = lse.stride[0];
  current_image<expand::Table>(expand::images()).merge(m, stream.handle);
}

}  // namespace mla::device_ops
