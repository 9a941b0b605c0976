// SPDX-License-Identifier: Apache-2.0
#include "run/host_copy.hpp"

#include "verify/host_tensor.hpp"

namespace mla::run {
namespace {

template <class Pointer>
std::size_t bytes_of(const BasicTensorRef<Pointer>& t) {
  std::size_t count = size_of(t.dtype);
  for (const std::int64_t extent : t.extent) count *= static_cast<std::size_t>(extent);
  return count;
}

std::vector<double> read_row(const TensorRef& tensor, std::int64_t row, std::int64_t width) {
  std::vector<double> values(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < width; ++i)
    values[static_cast<std::size_t>(i)] = load_element(tensor.data, tensor.dtype, row * width + i);
  return values;
}

}  // namespace

/// Replaces a device pointer by one to a copy.
template <class T>
void HostCopy::pull(T*& data, std::size_t bytes) {
  if (data == nullptr) return;
  std::vector<std::byte>& copy = buffers_.emplace_back(bytes);
  memory_.to_host(copy.data(), data, bytes);
  data = reinterpret_cast<T*>(copy.data());
}

HostCopy::HostCopy(const AttentionShape& shape, const AttentionArgs& args, DeviceMemory& memory)
    : memory_(memory), args_(args) {
  pull(args_.q.data, bytes_of(args_.q));
  if (args_.w_uk) pull(args_.w_uk.data, bytes_of(args_.w_uk));
  if (args_.w_uv) pull(args_.w_uv.data, bytes_of(args_.w_uv));
  pull(args_.cu_seqlens_q.data, shape.batch.size() * 4 + 4);
  pull(args_.seq_lens.data, shape.batch.size() * 4);
  pull(args_.token_index.data, static_cast<std::size_t>(shape.num_tokens() * shape.topk) * 4);
  PagedLatentCache& cache = args_.cache;
  pull(cache.data, static_cast<std::size_t>(cache.num_blocks * cache.block_stride_bytes));
  pull(cache.k_pe, static_cast<std::size_t>(cache.num_blocks * cache.k_pe_block_stride_bytes));
  pull(cache.block_table.data,
       static_cast<std::size_t>(cache.block_table.extent[0] * cache.block_table.extent[1]) * 4);
  args_.out.data = buffers_.emplace_back(bytes_of(args_.out), verify::kNanByte).data();
  args_.lse.data = buffers_.emplace_back(bytes_of(args_.lse), verify::kNanByte).data();
}

SampleOutputs HostCopy::outputs() const {
  return {.out = [this](std::int64_t row) { return read_row(args_.out, row, args_.out.extent[2]); },
          .lse = [this](std::int64_t row) { return read_row(args_.lse, row, 1).front(); }};
}

}  // namespace mla::run
