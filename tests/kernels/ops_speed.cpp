// SPDX-License-Identifier: Apache-2.0
// How fast the cache write and the indexers are, against the copy bandwidth of the same run. The aim is 60 %
// of it when there is much to do and 5 us a call when there is little. A program to run by hand on an idle
// GPU and no test: a time is no verdict.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "device_array.hpp"
#include "mla/device_bench.hpp"
#include "mla/device_ops.hpp"

namespace {

using namespace mla;
using mla::testing::DeviceArray;

constexpr double kShareOfCopy = 0.6, kSmallSeconds = 5e-6;

class OpsSpeed : public ::testing::Test {
 protected:
  void SetUp() override { MLA_NEEDS_GPU(); }

  /// Median seconds of one call in a captured graph of `calls`.
  static double seconds(int calls, const std::function<void(Stream)>& call) {
    const auto timer = make_device_timer(*mla::testing::test_gpu().device);
    call(timer->stream());  // loads the kernel
    const auto work = timer->capture([&] {
      for (int i = 0; i < calls; ++i) call(timer->stream());
    });
    (void)timer->seconds(*work, 1);
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) times.push_back(timer->seconds(*work, 1) / calls);
    std::nth_element(times.begin(), times.begin() + 4, times.end());
    return times[4];
  }
  static void show_large(const char* what, double bytes, const std::function<void(Stream)>& call) {
    static const DeviceCeilings ceilings = measure_ceilings(*mla::testing::test_gpu().device);
    const double share = bytes / seconds(10, call) / ceilings.copy_bytes_per_s;
    fmt::print("{}: {:.2f} TB/s, {:.0f} % of {:.2f} TB/s copied{}\n", what,
               share * ceilings.copy_bytes_per_s / 1e12, 100 * share, ceilings.copy_bytes_per_s / 1e12,
               share < kShareOfCopy ? ", short of the aim" : "");
  }
  static void show_small(const char* what, const std::function<void(Stream)>& call) {
    const double time = seconds(200, call);
    fmt::print("{}: {:.2f} us{}\n", what, time * 1e6, time > kSmallSeconds ? ", short of the aim" : "");
  }
};

/// Everything a cache write of `tokens` tokens of DeepSeek-V3 takes, RMSNorm and RoPE included.
struct Write {
  explicit Write(std::int64_t count, CacheFormat format)
      : tokens(count),
        layout(cache_layout(format, dims)),
        projected(static_cast<std::size_t>(count * dims.latent_width() * 2)),
        norm(static_cast<std::size_t>(dims.kv_lora_rank * 2)),
        pool(static_cast<std::size_t>(count * layout.row_bytes)),
        cos(std::vector<float>(kPositions * 32, 0.6F)),
        sin(std::vector<float>(kPositions * 32, 0.8F)),
        positions(numbers(count, kPositions)),
        slots(numbers(count, count)) {
    for (const DeviceArray<std::byte>* rows : {&projected, &norm})
      fill_rows({.data = rows->data(), .rows = 1, .count = static_cast<std::int64_t>(rows->size() / 2)});
  }
  void operator()(Stream stream) const {
    device_ops::CacheWrite w;
    w.dims = dims;
    w.c_kv = ConstTensorRef(projected.data(), DType::kBF16, {tokens, dims.kv_lora_rank});
    w.c_kv.stride[0] = dims.latent_width();
    w.k_pe = ConstTensorRef(projected.data() + dims.kv_lora_rank * 2, DType::kBF16,
                            {tokens, dims.qk_rope_head_dim});
    w.k_pe.stride[0] = dims.latent_width();
    w.norm_weight = ConstTensorRef(norm.data(), DType::kBF16, {dims.kv_lora_rank});
    w.rotation.cos = {cos.data(), {kPositions, 32}};
    w.rotation.sin = {sin.data(), {kPositions, 32}};
    w.rotation.positions = {positions.data(), {tokens}};
    w.slot_mapping = {slots.data(), {tokens}};
    w.cache.format = layout.format;
    w.cache.block_size = 64;
    w.cache.num_blocks = tokens / 64;
    w.cache.data = pool.data();
    w.cache.row_stride_bytes = layout.row_bytes;
    w.cache.block_stride_bytes = 64 * layout.row_bytes;
    device_ops::write_cache(w, stream);
  }
  [[nodiscard]] double bytes() const {
    return static_cast<double>(tokens) * static_cast<double>(dims.latent_width() * 2 + layout.row_bytes + 16);
  }
  static std::vector<std::int64_t> numbers(std::int64_t count, std::int64_t modulus) {
    std::vector<std::int64_t> x;
    for (std::int64_t i = 0; i < count; ++i) x.push_back(i % modulus);
    return x;
  }

  static constexpr std::int64_t kPositions = 4096;
  MlaDims dims;
  std::int64_t tokens;
  CacheLayout layout;
  DeviceArray<std::byte> projected, norm, pool;
  DeviceArray<float> cos, sin;
  DeviceArray<std::int64_t> positions, slots;
};

TEST_F(OpsSpeed, CacheWrite) {
  for (const CacheFormat format : {CacheFormat::kBF16, CacheFormat::kFp8, CacheFormat::kFp8DsMla}) {
    const std::string name = fmt::format("cache write, {}", name_of(format));
    const Write large(512 * 1024, format);
    show_large((name + ", 524288 tokens").c_str(), large.bytes(), std::cref(large));
    const Write small(128, format);
    show_small((name + ", 128 tokens").c_str(), std::cref(small));
  }
}

/// Indexers of `requests` requests of `length` keys in blocks of 64; where an index takes a mask, the last `window` keys
/// and 4 sinks are visible.
struct Index {
  Index(std::int64_t count, std::int32_t length, int window = 4096)
      : requests(count),
        columns((length + 63) / 64),
        visible(window),
        entries(device_ops::sparse_index_capacity(count, visible, kSink, columns, 64)),
        lens(std::vector<std::int32_t>(static_cast<std::size_t>(count), length)),
        table(std::vector<std::int32_t>(static_cast<std::size_t>(count * columns), 7)),
        indptr(static_cast<std::size_t>(count + 1)),
        cu_k(static_cast<std::size_t>(count + 1)),
        indices(static_cast<std::size_t>(entries)),
        tables(static_cast<std::size_t>(count * columns)),
        seq_lens(static_cast<std::size_t>(count)),
        slots(static_cast<std::size_t>(std::max(entries, count * std::int64_t{length}))) {}
  [[nodiscard]] View<const std::int32_t, 1> lengths() const { return {lens.data(), {requests}}; }
  [[nodiscard]] View<const std::int32_t, 2> blocks() const { return {table.data(), {requests, columns}}; }
  void sparse(Stream stream) const {
    device_ops::build_sparse_index(
        lengths(), visible, kSink, blocks(), 64,
        {{indptr.data(), {requests + 1}}, {indices.data(), {entries}}, {slots.data(), {entries}}, {}},
        stream);
  }
  void prefill(Stream stream) const {
    device_ops::build_prefill_index(lengths(), lengths(), blocks(), 64,
                                    {{slots.data(), {static_cast<std::int64_t>(slots.size())}},
                                     {indptr.data(), {requests + 1}},
                                     {cu_k.data(), {requests + 1}},
                                     {}},
                                    stream);
  }
  void decode(Stream stream) const {
    device_ops::DeviceDecodeIndex d;
    d.slot_mapping = {slots.data(), {requests}};
    d.block_tables = {tables.data(), {requests, columns}};
    d.seq_lens = {seq_lens.data(), {requests}};
    device_ops::build_decode_index(lengths(), SeqLens::kIncludeNewTokens, blocks(), 64, 1, d, stream);
  }
  /// Page indices and logical blocks go where the other indexers write their entries.
  void pages(Stream stream) const {
    device_ops::build_page_index(lengths(), visible, kSink, blocks(), 64,
                                 {{indptr.data(), {requests + 1}},
                                  {indices.data(), {page_entries()}},
                                  {tables.data(), {page_entries()}},
                                  {seq_lens.data(), {requests}}},
                                 stream);
  }
  [[nodiscard]] std::int64_t page_entries() const {
    return device_ops::page_index_capacity(requests, visible, kSink, columns, 64);
  }

  static constexpr int kSink = 4;
  std::int64_t requests, columns;
  int visible;
  std::int64_t entries;
  DeviceArray<std::int32_t> lens, table, indptr, cu_k, indices, tables, seq_lens;
  DeviceArray<std::int64_t> slots;
};

TEST_F(OpsSpeed, Indexers) {
  const Index large(8192, 8192);
  show_large("sparse index, 8192 requests of 4100 keys", static_cast<double>(large.entries) * 12,
             [&](Stream s) { large.sparse(s); });
  show_large("prefill index, 8192 requests of 8192 tokens", 8192.0 * 8192 * 8,
             [&](Stream s) { large.prefill(s); });
  // A table of 67 MB, more than the L2 holds: what fits it would not be read from memory.
  const Index many(16384, 64 * 1024, 64 * 1024);
  const double table_bytes = static_cast<double>(many.requests * many.columns) * 4;
  show_large("decode index, 16384 requests of 65536 keys", 2 * table_bytes,
             [&](Stream s) { many.decode(s); });
  show_large("page index, 16384 requests of 65536 keys", 3 * table_bytes, [&](Stream s) { many.pages(s); });
  const Index small(32, 8192);
  show_small("decode index, 32 requests", [&](Stream s) { small.decode(s); });
  show_small("sparse index, 32 requests", [&](Stream s) { small.sparse(s); });
  show_small("page index, 32 requests", [&](Stream s) { small.pages(s); });
  const Index short_prompts(8, 512);
  show_small("prefill index, 8 requests of 512 tokens", [&](Stream s) { short_prompts.prefill(s); });
}

}  // namespace
