// SPDX-License-Identifier: Apache-2.0
#include "peer/tensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/safetensors.hpp"

namespace mla::peer {
namespace {

namespace fs = std::filesystem;

std::vector<std::int64_t> extents_of(const ConstTensorRef& tensor) {
  return {tensor.extent.begin(), tensor.extent.begin() + tensor.rank};
}

/// Calls f(row of the tensor, bytes of a row) for each row of the last dimension; rows are contiguous by
/// contract.
template <class Pointer, class Function>
void each_row(const BasicTensorRef<Pointer>& t, Function f) {
  const auto last = static_cast<std::size_t>(t.rank - 1);
  const std::int64_t outer = t.rank > 1 ? t.extent[0] : 1, middle = t.rank > 2 ? t.extent[1] : 1;
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  if (t.extent[last] > 1 && t.stride[last] != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("elements of a row lie {} apart, but a peer's rows are packed", t.stride[last]));
  }
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t j = 0; j < middle; ++j) {
      const std::int64_t offset = (t.rank > 1 ? i * t.stride[0] : 0) + (t.rank > 2 ? j * t.stride[1] : 0);
      f(offset * size, static_cast<std::size_t>(t.extent[last] * size));
    }
  }
}

/// Tensors with the memory they were packed into.
class File {
 public:
  void add(const char* name, const ConstTensorRef& tensor) {
    std::vector<std::byte>& bytes = memory_.emplace_back();
    const auto* data = static_cast<const std::byte*>(tensor.data);
    each_row(tensor,
             [&](std::int64_t at, std::size_t n) { bytes.insert(bytes.end(), data + at, data + at + n); });
    tensors_.push_back({name, tensor.dtype, extents_of(tensor), bytes});
  }
  /// A pool of blocks of rows, its columns seen as `dtype`.
  void add_pool(const char* name, const std::byte* data, std::int64_t blocks, std::int64_t block_size,
                std::int64_t row_bytes, std::int64_t block_stride, std::int64_t row_stride, DType dtype) {
    std::vector<std::byte>& bytes = memory_.emplace_back();
    bytes.reserve(static_cast<std::size_t>(blocks * block_size * row_bytes));
    for (std::int64_t block = 0; block < blocks; ++block) {
      for (std::int64_t row = 0; row < block_size; ++row) {
        const std::byte* at = data + block * block_stride + row * row_stride;
        bytes.insert(bytes.end(), at, at + row_bytes);
      }
    }
    const auto columns = row_bytes / static_cast<std::int64_t>(size_of(dtype));
    tensors_.push_back({name, dtype, {blocks, block_size, columns}, bytes});
  }
  void write(const fs::path& path) const { write_safetensors(path, tensors_); }

 private:
  std::deque<std::vector<std::byte>> memory_;  // spans stay where they are
  std::vector<TensorToWrite> tensors_;
};

ConstTensorRef tensor_of(const View<const std::int32_t, 1>& view) {
  return {view.data, DType::kI32, {view.extent[0]}};
}

ConstTensorRef tensor_of(const View<const std::int32_t, 2>& view) {
  ConstTensorRef t(view.data, DType::kI32, {view.extent[0], view.extent[1]});
  t.stride[0] = view.stride[0];
  t.stride[1] = view.stride[1];
  return t;
}

void add_cache(File& file, const AttentionShape& shape, const PagedLatentCache& cache) {
  const CacheLayout layout = cache_layout(shape.cache, shape.dims);
  const std::int64_t pool = cache.num_blocks * cache.block_size * layout.bytes_per_token();
  if (pool > kMaxPoolBytes) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("the pool of {} blocks takes {} bytes, but a peer is given at most {} in a file",
                            cache.num_blocks, pool, kMaxPoolBytes));
  }
  const DType dtype = layout.scale_bytes > 0 ? DType::kU8 : layout.latent_dtype;
  file.add_pool("cache", cache.data, cache.num_blocks, cache.block_size, layout.row_bytes,
                cache.block_stride_bytes, cache.row_stride_bytes, dtype);
  if (layout.split()) {
    file.add_pool("k_pe", cache.k_pe, cache.num_blocks, cache.block_size, layout.rope_row_bytes,
                  cache.k_pe_block_stride_bytes, cache.k_pe_row_stride_bytes, layout.rope_dtype);
  }
  if (shape.cache == CacheFormat::kFp8)
    file.add("cache_scale", ConstTensorRef(&cache.scale, DType::kF32, {1}));
}

void copy_out(const SafetensorsFile& file, const char* name, const TensorRef& into) {
  const SafeTensor* tensor = file.find(name);
  if (tensor == nullptr) throw Error(ErrorCode::kParse, fmt::format("wrote no tensor '{}'", name));
  const std::vector<std::int64_t> want = extents_of(into);
  if (tensor->dtype != into.dtype || tensor->shape != want) {
    throw Error(ErrorCode::kParse,
                fmt::format("wrote '{}' as {} [{}], but {} [{}] is asked for", name, name_of(tensor->dtype),
                            fmt::join(tensor->shape, ", "), name_of(into.dtype), fmt::join(want, ", ")));
  }
  const std::byte* from = tensor->bytes.data();
  auto* data = static_cast<std::byte*>(into.data);
  each_row(into, [&](std::int64_t at, std::size_t n) {
    std::memcpy(data + at, from, n);
    from += n;
  });
}

}  // namespace

Folder::Folder() {
  std::string pattern = (fs::temp_directory_path() / "mla-peer-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw Error(ErrorCode::kIo,
                fmt::format("cannot make a folder {}: {}", text::quoted(pattern), std::strerror(errno)),
                "TMPDIR names the folder for temporary files");
  }
  path_ = pattern;
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void write_inputs(const fs::path& path, const AttentionShape& shape, const AttentionArgs& args) {
  File file;
  file.add("q", args.q);
  if (shape.space == QuerySpace::kHead) {
    file.add("w_uk", args.w_uk);
    file.add("w_uv", args.w_uv);
  }
  add_cache(file, shape, args.cache);
  file.add("block_table", tensor_of(args.cache.block_table));
  file.add("cu_seqlens_q", tensor_of(args.cu_seqlens_q));
  file.add("seq_lens", tensor_of(args.seq_lens));
  if (shape.topk > 0) file.add("token_index", tensor_of(args.token_index));
  file.write(path);
}

void read_outputs(const fs::path& path, const AttentionArgs& args) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  for (const auto& [name, tensor] : file.tensors()) {
    if (name != "out" && !(name == "lse" && args.lse)) {
      throw Error(ErrorCode::kParse,
                  fmt::format("wrote a tensor {} that nobody asked for", text::quoted(name)));
    }
  }
  copy_out(file, "out", args.out);
  if (args.lse) copy_out(file, "lse", args.lse);
}

}  // namespace mla::peer
