// SPDX-License-Identifier: Apache-2.0
#include "run/device_inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/shared_prefix.hpp"
#include "mla/device_bench.hpp"
#include "mla/random.hpp"
#include "run/threads.hpp"
#include "run/work.hpp"
#include "verify/values.hpp"

namespace mla::run {
namespace {

/// Streams of the random numbers, one a tensor.
enum Stream : std::uint64_t { kQuery = 1, kLatent, kRope, kWeights, kBlocks, kNewRows };

constexpr int kMostSets = 1024;
constexpr double kRoundOverL2 = 4;
constexpr double kColdOverL2 = 2;
/// e4m3 values are stored 64 times larger, where the type has its precision, and their scale takes it back.
constexpr float kFp8Scale = 1.0F / 64;

std::int64_t blocks_of(const Request& request, std::int64_t block_size) {
  return (request.kv_len + block_size - 1) / block_size;
}

std::int64_t blocks_of(const AttentionShape& shape) {
  std::int64_t blocks = 0;
  for (std::size_t b = 0; b < shape.batch.size(); ++b) {
    blocks += blocks_of(shape.batch[b], shape.block_size) - borrowed_keys(shape, b) / shape.block_size;
  }
  return blocks;
}

std::int64_t weight_elements(const AttentionShape& shape) {
  const MlaDims& d = shape.dims;
  if (shape.space != QuerySpace::kHead) return 0;
  return std::int64_t{d.num_heads} * d.kv_lora_rank * (d.qk_nope_head_dim + d.v_head_dim);
}

/// Bytes of one set that a call reads.
double read_bytes(const AttentionShape& shape) {
  const auto rows = static_cast<double>(count_work(shape).rows);
  return rows * static_cast<double>(cache_layout(shape.cache, shape.dims).bytes_per_token()) +
         static_cast<double>(weight_elements(shape)) * static_cast<double>(size_of(shape.q_dtype));
}

}  // namespace

double set_bytes(const AttentionShape& shape) {
  const auto rows = static_cast<double>(blocks_of(shape) * shape.block_size);
  return rows * static_cast<double>(cache_layout(shape.cache, shape.dims).bytes_per_token()) +
         static_cast<double>(weight_elements(shape)) * static_cast<double>(size_of(shape.q_dtype));
}

Rotation cold_rotation(const AttentionShape& shape, std::int64_t l2_bytes, double budget) {
  const auto l2 = static_cast<double>(l2_bytes);
  const double each = std::max(1.0, read_bytes(shape));
  const double wanted = std::clamp(std::ceil(kRoundOverL2 * l2 / each), 2.0, double{kMostSets});
  const double possible = std::floor(budget / std::max(1.0, set_bytes(shape)));
  Rotation rotation;
  rotation.sets = static_cast<int>(std::max(1.0, std::min(wanted, possible)));
  // A set beyond the L2 by itself pushes out its own beginning before it is read again.
  rotation.cold = (rotation.sets - 1) * each >= kColdOverL2 * l2 || each >= kRoundOverL2 * l2;
  return rotation;
}

DeviceInputs::DeviceInputs(const AttentionShape& shape, std::uint64_t seed, int sets, bool step,
                           DeviceMemory& memory)
    : shape_(shape),
      seed_(seed),
      sets_(sets),
      memory_(&memory),
      layout_(cache_layout(shape.cache, shape.dims)),
      softmax_scale_(verify::case_scale(shape.dims)) {
  make_lengths();
  const std::vector<std::int32_t> tables = make_pool();
  make_queries_and_weights();
  if (step) make_new_rows(tables);
  make_outputs();
  memory_->synchronize();
}

std::byte* DeviceInputs::reserve(std::size_t bytes) {
  buffers_.emplace_back(*memory_, bytes);
  bytes_ += static_cast<double>(bytes);
  return buffers_.back().data();
}

template <class T>
T* DeviceInputs::put(const std::vector<T>& host) {
  std::byte* device = reserve(host.size() * sizeof(T));
  memory_->to_device(device, host.data(), host.size() * sizeof(T));
  return reinterpret_cast<T*>(device);
}

void DeviceInputs::make_lengths() {
  std::vector<std::int32_t> first{0};
  std::vector<std::int32_t> lengths;
  for (const Request& request : shape_.batch) {
    first.push_back(first.back() + request.q_len);
    lengths.push_back(request.kv_len);
  }
  args_.cu_seqlens_q = {put(first), {std::ssize(first)}};
  args_.seq_lens = {put(lengths), {std::ssize(lengths)}};
  args_.softmax_scale = softmax_scale_;
  if (shape_.topk > 0) {
    verify::Case c;
    c.shape = shape_;
    c.seed = seed_;
    index_ = verify::make_token_index(c);
    args_.token_index = {put(index_), {shape_.num_tokens(), shape_.topk}};
  }
}

std::vector<std::int32_t> DeviceInputs::make_pool() {
  const std::int64_t needed = blocks_of(shape_);
  const std::int64_t total = std::max<std::int64_t>(1, needed * sets_);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(total));
  std::iota(ids.begin(), ids.end(), 0);
  const CounterRng rng(seed_, kBlocks);
  for (std::int64_t i = total - 1; i > 0; --i) {
    std::swap(ids[static_cast<std::size_t>(i)],
              ids[static_cast<std::size_t>(rng.between(static_cast<std::uint64_t>(i), 0, i))]);
  }
  std::int64_t columns = 1;
  for (const Request& request : shape_.batch)
    columns = std::max(columns, blocks_of(request, shape_.block_size));
  const std::int64_t requests = std::ssize(shape_.batch);
  table_elements_ = requests * columns;
  std::vector<std::int32_t> tables(static_cast<std::size_t>(table_elements_ * sets_), -1);
  auto next = ids.begin();
  for (std::int64_t row = 0; row < requests * sets_; ++row) {
    const auto request = static_cast<std::size_t>(row % requests);
    const std::int64_t used = blocks_of(shape_.batch[request], shape_.block_size);
    const std::int64_t borrowed = borrowed_keys(shape_, request) / shape_.block_size;
    const auto to = tables.begin() + row * columns;
    if (borrowed > 0) {
      const std::int64_t leader = row - row % requests + shared_prefix_of(shape_, request)->first;
      std::copy_n(tables.begin() + leader * columns, borrowed, to);
    }
    std::copy_n(next, used - borrowed, to + borrowed);
    next += used - borrowed;
  }
  table_.assign(tables.begin(), tables.begin() + table_elements_);

  PagedLatentCache& cache = args_.cache;
  cache.format = shape_.cache;
  cache.block_size = shape_.block_size;
  cache.num_blocks = total;
  cache.block_table = {put(tables), {requests, columns}};
  const std::int64_t rows = total * shape_.block_size;
  cache.data = reserve(static_cast<std::size_t>(rows * layout_.row_bytes));
  cache.row_stride_bytes = layout_.row_bytes;
  cache.block_stride_bytes = layout_.row_bytes * shape_.block_size;
  const bool fp8 = layout_.latent_dtype == DType::kE4M3;
  RandomRows fill{.data = cache.data,
                  .rows = rows,
                  .row_stride_bytes = layout_.row_bytes,
                  .count = shape_.dims.kv_lora_rank,
                  .dtype = layout_.latent_dtype,
                  .scale = fp8 ? 1 / kFp8Scale : 1.0F,
                  .seed = seed_,
                  .stream = kLatent};
  fill_rows(fill);
  if (layout_.scale_bytes > 0) {
    RandomRows scales = fill;
    scales.offset_bytes = layout_.scale_offset;
    scales.count = layout_.scale_bytes / 4;
    scales.dtype = DType::kF32;
    scales.scale = kFp8Scale;
    scales.constant = true;
    fill_rows(scales);
  }
  if (shape_.cache == CacheFormat::kFp8) cache.scale = kFp8Scale;
  if (layout_.rope_bytes == 0) return tables;
  if (layout_.split()) {
    cache.k_pe = reserve(static_cast<std::size_t>(rows * layout_.rope_row_bytes));
    cache.k_pe_row_stride_bytes = layout_.rope_row_bytes;
    cache.k_pe_block_stride_bytes = layout_.rope_row_bytes * shape_.block_size;
    fill.data = cache.k_pe;
    fill.row_stride_bytes = layout_.rope_row_bytes;
  }
  fill.offset_bytes = layout_.rope_offset;
  fill.count = shape_.dims.qk_rope_head_dim;
  fill.dtype = layout_.rope_dtype;
  fill.scale = layout_.rope_dtype == DType::kE4M3 ? 1 / kFp8Scale : 1.0F;
  fill.stream = kRope;
  fill_rows(fill);
  return tables;
}

void DeviceInputs::make_new_rows(const std::vector<std::int32_t>& tables) {
  validate_new_rows(shape_);  // two requests writing one row would be a race, and a result of chance
  const MlaDims& d = shape_.dims;
  const std::int64_t tokens = shape_.num_tokens();
  const std::int64_t columns = table_elements_ / std::ssize(shape_.batch);
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> slots;
  for (int set = 0; set < sets_; ++set) {
    for (std::size_t b = 0; b < shape_.batch.size(); ++b) {
      const Request& request = shape_.batch[b];
      for (std::int64_t p = request.kv_len - request.q_len; p < request.kv_len; ++p) {
        const std::int64_t entry =
            set * table_elements_ + static_cast<std::int64_t>(b) * columns + p / shape_.block_size;
        slots.push_back(std::int64_t{tables[static_cast<std::size_t>(entry)]} * shape_.block_size +
                        p % shape_.block_size);
        if (set == 0) positions.push_back(p);
      }
    }
  }
  write_.dims = d;
  write_.slot_mapping = {put(slots), {tokens}};
  const auto size = static_cast<std::int64_t>(size_of(shape_.q_dtype));
  // One projection's output: c_kv and k_pe of a token side by side.
  const std::int64_t width = d.latent_width();
  std::byte* rows = reserve(static_cast<std::size_t>(tokens * width * size));
  fill_rows({.data = rows,
             .rows = tokens,
             .row_stride_bytes = width * size,
             .count = width,
             .dtype = shape_.q_dtype,
             .seed = seed_,
             .stream = kNewRows});
  write_.c_kv = {rows, shape_.q_dtype, {tokens, d.kv_lora_rank}};
  write_.c_kv.stride[0] = width;
  std::byte* norm = reserve(static_cast<std::size_t>(d.kv_lora_rank * size));
  fill_rows({.data = norm, .rows = 1, .count = d.kv_lora_rank, .dtype = shape_.q_dtype, .constant = true});
  write_.norm_weight = {norm, shape_.q_dtype, {d.kv_lora_rank}};
  write_.cache = args_.cache;
  if (d.qk_rope_head_dim == 0) return;
  write_.k_pe = {rows + d.kv_lora_rank * size, shape_.q_dtype, {tokens, d.qk_rope_head_dim}};
  write_.k_pe.stride[0] = width;
  const RopeTable table = make_rope_table({.dim = d.qk_rope_head_dim}, YarnRule::kDeepSeek, positions);
  const auto angles = [&](const std::vector<double>& from) {
    return View<const float, 2>(put(std::vector<float>(from.begin(), from.end())), {tokens, table.half});
  };
  write_.rotation.cos = angles(table.cos);
  write_.rotation.sin = angles(table.sin);
  std::iota(positions.begin(), positions.end(), 0);  // rows of the table: it has one for each token
  write_.rotation.positions = {put(positions), {tokens}};
}

device_ops::CacheWrite DeviceInputs::cache_write(std::int64_t i) const {
  device_ops::CacheWrite write = write_;
  write.slot_mapping.data += i % sets_ * shape_.num_tokens();
  return write;
}

void DeviceInputs::make_queries_and_weights() {
  const MlaDims& d = shape_.dims;
  const auto size = static_cast<std::int64_t>(size_of(shape_.q_dtype));
  const int width = verify::query_width(shape_);
  const std::int64_t rows = shape_.num_tokens() * d.num_heads;
  std::byte* q = reserve(static_cast<std::size_t>(rows * width * size));
  // Scores get a standard deviation of 1: cache rows have unit variance.
  const double q_scale = 1 / (softmax_scale_ * std::sqrt(static_cast<double>(width)));
  fill_rows({.data = q,
             .rows = rows,
             .row_stride_bytes = width * size,
             .count = width,
             .dtype = shape_.q_dtype,
             .scale = static_cast<float>(q_scale),
             .seed = seed_,
             .stream = kQuery});
  args_.q = {q, shape_.q_dtype, {shape_.num_tokens(), d.num_heads, width}};
  const std::int64_t elements = weight_elements(shape_);
  if (elements == 0) return;
  weight_bytes_ = elements * size;
  std::byte* weights = reserve(static_cast<std::size_t>(weight_bytes_ * sets_));
  fill_rows({.data = weights,
             .rows = sets_,
             .row_stride_bytes = weight_bytes_,
             .count = elements,
             .dtype = shape_.q_dtype,
             .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(d.kv_lora_rank))),
             .seed = seed_,
             .stream = kWeights});
  args_.w_uk = {weights, shape_.q_dtype, {d.num_heads, d.qk_nope_head_dim, d.kv_lora_rank}};
  args_.w_uv = {weights + std::int64_t{d.num_heads} * d.qk_nope_head_dim * d.kv_lora_rank * size,
                shape_.q_dtype,
                {d.num_heads, d.v_head_dim, d.kv_lora_rank}};
}

void DeviceInputs::make_outputs() {
  const std::int64_t rows = shape_.num_tokens() * shape_.dims.num_heads;
  const int width = verify::output_width(shape_);
  out_bytes_ = static_cast<std::size_t>(rows * width) * size_of(shape_.out_dtype);
  lse_bytes_ = static_cast<std::size_t>(rows) * sizeof(float);
  args_.out = {reserve(out_bytes_), shape_.out_dtype, {shape_.num_tokens(), shape_.dims.num_heads, width}};
  args_.lse = {reserve(lse_bytes_), DType::kF32, {shape_.num_tokens(), shape_.dims.num_heads}};
}

AttentionArgs DeviceInputs::args(std::int64_t i) const {
  const std::int64_t set = i % sets_;
  AttentionArgs args = args_;
  args.cache.block_table.data += set * table_elements_;
  if (weight_bytes_ > 0) {
    args.w_uk.data = static_cast<const std::byte*>(args.w_uk.data) + set * weight_bytes_;
    args.w_uv.data = static_cast<const std::byte*>(args.w_uv.data) + set * weight_bytes_;
  }
  return args;
}

void DeviceInputs::poison_outputs() {
  fill_bytes(static_cast<std::byte*>(args_.out.data), out_bytes_, verify::kNanByte);
  fill_bytes(static_cast<std::byte*>(args_.lse.data), lse_bytes_, verify::kNanByte);
  memory_->synchronize();
}

std::string DeviceInputs::unwritten_outputs() const {
  const auto untouched = [&](const void* device, std::size_t bytes, std::size_t size) {
    std::vector<std::byte> host(bytes);
    memory_->to_host(host.data(), device, bytes);
    std::size_t count = 0;
    for (std::size_t at = 0; at < bytes; at += size) {
      const auto begin = host.begin() + static_cast<std::ptrdiff_t>(at);
      count += std::all_of(begin, begin + static_cast<std::ptrdiff_t>(size),
                           [](std::byte b) { return b == verify::kNanByte; })
                   ? 1
                   : 0;
    }
    return count;
  };
  if (const std::size_t count = untouched(args_.out.data, out_bytes_, size_of(shape_.out_dtype)); count > 0)
    return fmt::format("it left {} elements of its output unwritten", count);
  if (const std::size_t count = untouched(args_.lse.data, lse_bytes_, sizeof(float)); count > 0)
    return fmt::format("it left {} elements of its LSE unwritten", count);
  return {};
}

std::vector<double> DeviceInputs::read(const std::byte* device, DType dtype, std::int64_t count) const {
  std::vector<std::byte> host(static_cast<std::size_t>(count) * size_of(dtype));
  memory_->to_host(host.data(), device, host.size());
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = load_element(host.data(), dtype, i);
  return values;
}

SampleOutputs DeviceInputs::outputs() const {
  const std::int64_t width = verify::output_width(shape_);
  const auto* out = static_cast<const std::byte*>(args_.out.data);
  const auto* lse = static_cast<const std::byte*>(args_.lse.data);
  const auto size = static_cast<std::int64_t>(size_of(shape_.out_dtype));
  return {
      .out = [=, this](std::int64_t row) { return read(out + row * width * size, shape_.out_dtype, width); },
      .lse = [=, this](std::int64_t row) { return read(lse + row * 4, DType::kF32, 1).front(); }};
}

std::vector<double> DeviceInputs::query(std::int64_t row) const {
  const std::int64_t width = verify::query_width(shape_);
  const auto* q = static_cast<const std::byte*>(args_.q.data);
  return read(q + row * width * static_cast<std::int64_t>(size_of(shape_.q_dtype)), shape_.q_dtype, width);
}

std::vector<double> DeviceInputs::latent(std::size_t request, std::int64_t keys) const {
  const PagedLatentCache& cache = args_.cache;
  const auto width = static_cast<std::size_t>(shape_.dims.latent_width());
  std::vector<double> values(static_cast<std::size_t>(keys) * width);
  const std::int64_t columns = table_elements_ / std::ssize(shape_.batch);
  const std::int64_t blocks = (keys + cache.block_size - 1) / cache.block_size;
  std::vector<std::byte> rows(static_cast<std::size_t>(blocks * cache.block_stride_bytes));
  std::vector<std::byte> k_pe(static_cast<std::size_t>(blocks * cache.k_pe_block_stride_bytes));
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t id =
        table_[static_cast<std::size_t>(static_cast<std::int64_t>(request) * columns + b)];
    memory_->to_host(rows.data() + b * cache.block_stride_bytes, cache.data + id * cache.block_stride_bytes,
                     static_cast<std::size_t>(cache.block_stride_bytes));
    memory_->to_host(k_pe.data() + b * cache.k_pe_block_stride_bytes,
                     cache.k_pe + id * cache.k_pe_block_stride_bytes,
                     static_cast<std::size_t>(cache.k_pe_block_stride_bytes));
  }
  const int threads = hardware_threads();
  on_threads(threads, [&](int t) {
    for (std::int64_t p = keys * t / threads; p < keys * (t + 1) / threads; ++p) {
      const std::int64_t b = p / cache.block_size;
      const std::int64_t in_block = p % cache.block_size;
      decode_row(layout_, shape_.dims,
                 rows.data() + b * cache.block_stride_bytes + in_block * cache.row_stride_bytes,
                 layout_.split() ? k_pe.data() + b * cache.k_pe_block_stride_bytes +
                                       in_block * cache.k_pe_row_stride_bytes
                                 : nullptr,
                 cache.scale, std::span(values).subspan(static_cast<std::size_t>(p) * width, width));
    }
  });
  return values;
}

std::vector<double> DeviceInputs::w_uk(int head) const {
  const std::int64_t count = std::int64_t{shape_.dims.qk_nope_head_dim} * shape_.dims.kv_lora_rank;
  const auto* start = static_cast<const std::byte*>(args_.w_uk.data);
  return read(start + head * count * static_cast<std::int64_t>(size_of(shape_.q_dtype)), shape_.q_dtype,
              count);
}

std::vector<double> DeviceInputs::w_uv(int head) const {
  const std::int64_t count = std::int64_t{shape_.dims.v_head_dim} * shape_.dims.kv_lora_rank;
  const auto* start = static_cast<const std::byte*>(args_.w_uv.data);
  return read(start + head * count * static_cast<std::int64_t>(size_of(shape_.q_dtype)), shape_.q_dtype,
              count);
}

std::vector<std::int32_t> DeviceInputs::token_index(std::int64_t token) const {
  const auto first = index_.begin() + token * shape_.topk;
  return {first, first + shape_.topk};
}

}  // namespace mla::run
