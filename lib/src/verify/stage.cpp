// SPDX-License-Identifier: Apache-2.0
#include "verify/stage.hpp"

#include <algorithm>
#include <utility>

namespace mla::verify {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& v) {
  return std::as_bytes(std::span(v));
}

/// Elements between tokens in a case with far rows: the third token begins past 2^31.
constexpr std::int64_t kFarStride = (std::int64_t{1} << 30) + 64;

/// Bytes of one token, gaps included.
std::size_t token_bytes(const HostTensor& t) {
  return static_cast<std::size_t>(t.stride[0]) * size_of(t.dtype);
}

/// Bytes between tokens, and of all of them.
std::size_t spacing_of(const HostTensor& t, bool far) {
  return far ? static_cast<std::size_t>(kFarStride) * size_of(t.dtype) : token_bytes(t);
}
std::size_t span_of(const HostTensor& t, bool far) {
  return t.extent[0] == 0 ? 0
                          : static_cast<std::size_t>(t.extent[0] - 1) * spacing_of(t, far) + token_bytes(t);
}

View<const std::int32_t, 1> view_1d(const std::byte* data, std::int64_t size) {
  return {reinterpret_cast<const std::int32_t*>(data), {size}};
}

View<const std::int32_t, 2> view_2d(const std::byte* data, const HostTensor& t) {
  return {
      reinterpret_cast<const std::int32_t*>(data), {t.extent[0], t.extent[1]}, {t.stride[0], t.stride[1]}};
}

}  // namespace

Buffer::Buffer(DeviceMemory& memory, std::size_t bytes)
    : memory_(&memory), data_(memory.allocate(bytes)), bytes_(bytes) {}

Buffer::Buffer(Buffer&& other) noexcept
    : memory_(other.memory_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) memory_->release(data_);
}

Stage::Stage(const Problem& problem, DeviceMemory& memory)
    : problem_(&problem), memory_(&memory), out_(problem.make_out()) {
  const Case& c = problem.get_case();
  args_.q = put_query(problem.q());
  if (c.shape.space == QuerySpace::kHead) {
    args_.w_uk = problem.w_uk().ref<const void*>(put("w_uk", problem.w_uk().bytes));
    args_.w_uv = problem.w_uv().ref<const void*>(put("w_uv", problem.w_uv().bytes));
  }
  const auto requests = static_cast<std::int64_t>(c.shape.batch.size());
  args_.cu_seqlens_q = view_1d(put("cu_seqlens_q", bytes_of(problem.cu_seqlens_q())), requests + 1);
  args_.seq_lens = view_1d(put("seq_lens", bytes_of(problem.seq_lens())), requests);
  if (c.shape.topk > 0) {
    args_.token_index = view_2d(put("token_index", problem.token_index().bytes), problem.token_index());
  }
  args_.softmax_scale = problem.values().softmax_scale;

  PagedLatentCache& cache = args_.cache;
  const HostPool& pool = problem.pool();
  cache.format = c.shape.cache;
  cache.block_size = c.shape.block_size;
  cache.num_blocks = pool.num_blocks;
  cache.data = put("cache", pool.bytes, static_cast<std::size_t>(pool.first_block * pool.block_stride));
  cache.block_stride_bytes = pool.block_stride;
  cache.row_stride_bytes = pool.row_stride;
  if (problem.layout().split()) {
    const HostPool& k_pe = problem.k_pe_pool();
    cache.k_pe =
        put("k_pe cache", k_pe.bytes, static_cast<std::size_t>(k_pe.first_block * k_pe.block_stride));
    cache.k_pe_block_stride_bytes = k_pe.block_stride;
    cache.k_pe_row_stride_bytes = k_pe.row_stride;
  }
  if (c.shape.cache == CacheFormat::kFp8) cache.scale = problem.values().cache_scale;
  cache.block_table = view_2d(put("block_table", problem.block_table().bytes), problem.block_table());

  make_output(out_);
  if (c.lse) {
    lse_ = problem.make_lse();
    lse_buffer_ = Buffer(memory, lse_.bytes.size());
    args_.lse = lse_.ref<void*>(lse_buffer_.data());
  }
}

/// Copies `host` to new memory behind `lead` bytes that stay as they are; returns the start of the
/// allocation.
std::byte* Stage::put(const char* name, std::span<const std::byte> host, std::size_t lead) {
  Buffer buffer(*memory_, lead + host.size());
  std::byte* start = buffer.data();
  memory_->to_device(start + lead, host.data(), host.size());
  inputs_.push_back({name, host, start + lead});
  buffers_.push_back(std::move(buffer));
  return start;
}

ConstTensorRef Stage::put_query(const HostTensor& q) {
  if (!problem_->get_case().far_rows) return q.ref<const void*>(put("q", q.bytes));
  Buffer buffer(*memory_, span_of(q, true));
  for (std::int64_t t = 0; t < q.extent[0]; ++t) {
    const auto token = static_cast<std::size_t>(t);
    const auto host = std::span<const std::byte>(q.bytes).subspan(token * token_bytes(q), token_bytes(q));
    std::byte* device = buffer.data() + token * spacing_of(q, true);
    memory_->to_device(device, host.data(), host.size());
    inputs_.push_back({"q", host, device});
  }
  ConstTensorRef ref = q.ref<const void*>(buffer.data());
  ref.stride[0] = kFarStride;
  buffers_.push_back(std::move(buffer));
  return ref;
}

void Stage::make_output(const HostTensor& out) {
  const bool far = problem_->get_case().far_rows;
  out_spacing_ = spacing_of(out, far);
  out_buffer_ = Buffer(*memory_, span_of(out, far));
  args_.out = out.ref<void*>(out_buffer_.data());
  if (far) args_.out.stride[0] = kFarStride;
}

/// Copies the output token by token where they lie apart, all at once where they do not.
void Stage::copy_output(HostTensor& out, bool to_host) const {
  const bool apart = out_spacing_ != token_bytes(out);
  const std::size_t size = apart ? token_bytes(out) : out.bytes.size();
  for (std::size_t at = 0, token = 0; at < out.bytes.size(); at += size, ++token) {
    std::byte* device = out_buffer_.data() + token * out_spacing_;
    if (to_host) {
      memory_->to_host(out.bytes.data() + at, device, size);
    } else {
      memory_->to_device(device, out.bytes.data() + at, size);
    }
  }
}

void Stage::reset_outputs() {
  copy_output(out_, false);
  if (lse_buffer_.size() > 0) memory_->to_device(lse_buffer_.data(), lse_.bytes.data(), lse_.bytes.size());
}

std::span<std::byte> Stage::workspace(std::size_t bytes) {
  if (workspace_.size() < bytes) workspace_ = Buffer(*memory_, bytes);
  if (bytes > 0) {
    const std::vector<std::byte> nan(bytes, kNanByte);
    memory_->to_device(workspace_.data(), nan.data(), bytes);
  }
  return {workspace_.data(), bytes};
}

HostTensor Stage::read_out() const {
  HostTensor out = out_;
  copy_output(out, true);
  return out;
}

HostTensor Stage::read_lse() const {
  HostTensor lse = lse_;
  memory_->to_host(lse.bytes.data(), lse_buffer_.data(), lse.bytes.size());
  return lse;
}

std::string Stage::changed_input() const {
  std::vector<std::byte> now;
  for (const Input& input : inputs_) {
    now.resize(input.host.size());
    memory_->to_host(now.data(), input.device, now.size());
    if (!std::equal(now.begin(), now.end(), input.host.begin())) return input.name;
  }
  return {};
}

}  // namespace mla::verify
