// SPDX-License-Identifier: Apache-2.0
// Public faults around the cache: offsets past 32 bits, block tables, strides, slots, quantisation; and of
// merging.
#include <sys/mman.h>

#include <cstring>

#include "bug_cases.hpp"
#include "mla/index.hpp"
#include "mla/reference.hpp"

namespace {

using namespace mla;
using namespace mla::test;
using verify::Participant;
using verify::Problem;

// ---- merging
// ------------------------------------------------------------------------------------------------------

TEST(BugCases, MLA_035) {
  const reference::AttentionOutput parts[] = {{{0}, {std::log(2.0)}, {}}, {{10}, {std::log(8.0)}, {}}};
  EXPECT_NEAR(reference::merge(parts, 1, 1).out[0], 8, 1e-12);
}

TEST(BugCases, MLA_039) {
  const reference::AttentionOutput parts[] = {{{0, 0}, {-INFINITY, -INFINITY}, {}},
                                              {{0, 7}, {-INFINITY, 1.5}, {}}};
  const reference::AttentionOutput merged = reference::merge(parts, 2, 1);
  EXPECT_EQ(merged.out, (std::vector<double>{0, 7}));
  EXPECT_EQ(merged.lse, (std::vector<double>{-INFINITY, 1.5}));
}

TEST(BugCases, MLA_041) {
  // Three rows without context, whose part holds leavings.
  const reference::AttentionOutput parts[] = {{{1e4, 1e4, 1e4}, {-INFINITY, -INFINITY, -INFINITY}, {}},
                                              {{1, 2, 3}, {0.5, 0.25, 0.125}, {}}};
  const reference::AttentionOutput merged = reference::merge(parts, 3, 1);
  EXPECT_EQ(merged.out, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(merged.lse, (std::vector<double>{0.5, 0.25, 0.125}));
}

TEST(BugCases, MLA_043) {
  // Context 33 in chunks of 16, 16 and 1, then 5 new tokens; one context key stands 40 above all others.
  constexpr int kWidth = 40, kRank = 32;
  for (const int dominant : {32, 0, 15, 16}) {
    reference::MlaProblem problem;
    problem.dims = {1, kRank, 8, 16, 16};
    std::vector<double> rows(38 * kWidth, 0.0), q(5 * kWidth, 0.0);
    for (int j = 0; j < 38; ++j)
      rows[static_cast<std::size_t>(j * kWidth + 1)] = j;  // channel 1 names the key
    rows[static_cast<std::size_t>(dominant * kWidth)] = 1;
    for (int i = 0; i < 5; ++i) q[static_cast<std::size_t>(i * kWidth)] = 40;
    problem.q = q;
    problem.softmax_scale = 1;
    std::vector<reference::AttentionOutput> parts;
    int first = 0;
    for (const int keys : {16, 16, 1, 5}) {
      const Request request{5, keys};
      problem.batch = {&request, 1};
      problem.latent = std::span(rows).subspan(static_cast<std::size_t>(first * kWidth),
                                               static_cast<std::size_t>(keys * kWidth));
      problem.visible.mask.causal = first == 33;
      parts.push_back(reference::mla_latent(problem));
      first += keys;
    }
    const reference::AttentionOutput merged = reference::merge(parts, 5, kRank);
    for (int i = 0; i < 5; ++i)
      EXPECT_NEAR(merged.out[static_cast<std::size_t>(i * kRank + 1)], dominant, 1e-12);
  }
}

// ---- offsets
// ------------------------------------------------------------------------------------------------------

/// Address space for `bytes`, of which only what is touched costs memory.
class Space {
 public:
  explicit Space(std::size_t bytes) : bytes_(bytes) {
    void* at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  }
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  ~Space() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

/// A layer whose compressor gives row i the latent x_i / |x_i| sqrt(L): one hidden channel, all weights 1.
struct TinyLayer {
  LayerConfig config;
  LayerWeights weights;
  TinyLayer(int rank, int rope) {
    config.dims = {1, rank, rope, 1, 1};
    config.hidden_size = 1;
    weights.kv_a_proj.assign(static_cast<std::size_t>(rank + rope), 1.0);
    weights.kv_a_layernorm.assign(static_cast<std::size_t>(rank), 1.0);
  }
};

/// Identity rotation for that many tokens.
RopeTable no_rotation(int rope, std::size_t tokens) {
  RopeTable table;
  table.half = rope / 2;
  table.cos.assign(tokens * static_cast<std::size_t>(table.half), 1.0);
  table.sin.assign(tokens * static_cast<std::size_t>(table.half), 0.0);
  return table;
}

TEST(BugCases, MLA_018) {
  constexpr std::int64_t kSlots[] = {0, 3728270, 3728271}, kRows = 3728272, kRowBytes = 1152;
  const Space space(static_cast<std::size_t>(kRows * kRowBytes));
  if (space.data() == nullptr) GTEST_SKIP() << "no address space of 4 GiB here";
  TinyLayer layer(512, 64);
  PagedLatentCache cache;
  cache.format = CacheFormat::kBF16;
  cache.block_size = 1;
  cache.num_blocks = kRows;
  cache.data = space.data();
  cache.row_stride_bytes = cache.block_stride_bytes = kRowBytes;
  const std::vector<double> hidden{1, 2, 4};  // k_pe of the rows: 1, 2, 4
  compress_and_cache(layer.config, layer.weights, hidden, no_rotation(64, 3), kSlots, cache);
  const CacheLayout layout = cache_layout(CacheFormat::kBF16, layer.config.dims);
  std::vector<double> row(576);
  for (std::size_t i = 0; i < 3; ++i) {
    decode_row(layout, layer.config.dims, space.data() + kSlots[i] * kRowBytes, nullptr, 1, row);
    EXPECT_EQ(row[575], hidden[i]);
  }
  // Neighbours, and where 32-bit products of slot and stride would have landed.
  for (const std::int64_t at :
       {kRowBytes, kSlots[1] * kRowBytes - kRowBytes,
        static_cast<std::int64_t>(static_cast<std::uint32_t>(kSlots[2] * kRowBytes))}) {
    decode_row(layout, layer.config.dims, space.data() + at, nullptr, 1, row);
    EXPECT_EQ(row[575], 0.0) << at;
  }
}

Problem ones(const std::string& text) {
  return crafted(text, [](std::size_t, std::int32_t, int) { return 1.0; });
}

TEST(BugCases, MLA_020) {
  verify::Case c = verify::parse_case(
      "decode latent h2 l512 r64 p16 v16 1q1s1 causal b1 q:bf16 out:bf16 cache:fp8 first_block=7456549");
  verify::Values values = verify::make_values(c);
  std::fill(values.latent.begin(), values.latent.end(), 1.0);  // code 0x38
  values.cache_scale = 1;
  all_equal(Problem(c, std::move(values)), 1);
}

TEST(BugCases, MLA_021) {
  all_equal(ones("decode latent h2 l512 r64 p16 v16 1q1s1 causal b480 permuted=no first_block=7768" + kBf16),
            1);
}

TEST(BugCases, MLA_023) {
  all_equal(ones("decode latent h2 l512 r64 p16 v16 1q1s1 causal b64 permuted=no first_block=58255" + kBf16),
            1);
}

// ---- tables and strides
// --------------------------------------------------------------------------------------------

/// One request with query 0 on a hand-made f32 pool, on the CPU backends; latent of slot s is the constant s.
struct HandMade {
  MlaDims dims{4, 32, 8, 16, 16};
  std::int32_t block_size;
  std::int64_t blocks, block_rows;  ///< rows from one block to the next: more than block_size leaves gaps
  std::vector<std::int32_t> table;
  std::int32_t kv_len;

  [[nodiscard]] std::vector<std::vector<float>> run() const {
    std::vector<float> pool(static_cast<std::size_t>(blocks * block_rows * 40), 1000.0F);
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t r = 0; r < block_size; ++r) {
        for (std::int64_t i = 0; i < 40; ++i)
          pool[static_cast<std::size_t>((b * block_rows + r) * 40 + i)] =
              static_cast<float>(b * block_size + r);
      }
    }
    AttentionShape shape;
    shape.dims = dims;
    shape.batch = {{1, kv_len}};
    shape.block_size = block_size;
    shape.q_dtype = shape.out_dtype = DType::kF32;
    shape.cache = CacheFormat::kF32;
    const std::vector<float> q(4 * 40, 0.0F);
    const std::int32_t cu[] = {0, 1};
    std::vector<std::vector<float>> results;
    for (const Participant& p : all_backends()) {
      if (p.backend->info().on_device || !p.backend->supports(shape, p.machine.device)) continue;
      std::vector<float> out(4 * 32), lse(4);
      AttentionArgs args;
      args.q = ConstTensorRef(q.data(), DType::kF32, {1, 4, 40});
      args.cache.format = CacheFormat::kF32;
      args.cache.block_size = block_size;
      args.cache.num_blocks = blocks;
      args.cache.data = reinterpret_cast<std::byte*>(pool.data());
      args.cache.row_stride_bytes = 160;
      args.cache.block_stride_bytes = block_rows * 160;
      args.cache.block_table = {table.data(), {1, static_cast<std::int64_t>(table.size())}};
      args.cu_seqlens_q = {cu, {2}};
      args.seq_lens = {&kv_len, {1}};
      args.softmax_scale = 0.5;
      args.out = TensorRef(out.data(), DType::kF32, {1, 4, 32});
      args.lse = TensorRef(lse.data(), DType::kF32, {1, 4});
      const auto plan = p.backend->plan(shape, p.machine.device);
      std::vector<std::byte> workspace(plan->workspace_bytes());
      p.backend->run(*plan, args, workspace);
      results.push_back(out);
    }
    EXPECT_GE(results.size(), 1U);
    return results;
  }
};

TEST(BugCases, MLA_017) {
  // Pages 63 and 40 of 64, table of two columns: slots 252..255 and 160..163.
  for (const auto& out :
       HandMade{.block_size = 4, .blocks = 64, .block_rows = 4, .table = {63, 40}, .kv_len = 8}.run())
    for (const float x : out) EXPECT_NEAR(x, (253.5 + 161.5) / 2, 1e-4);
}

TEST(BugCases, MLA_050) {
  for (const auto& out :
       HandMade{.block_size = 16, .blocks = 4, .block_rows = 16, .table = {3, 1}, .kv_len = 20}.run())
    for (const float x : out) EXPECT_NEAR(x, 47.9, 1e-5);
}

TEST(BugCases, MLA_052) {
  const HandMade packed{.block_size = 8, .blocks = 5, .block_rows = 8, .table = {2, 4, 0}, .kv_len = 19};
  HandMade apart = packed;
  apart.block_rows = 16;
  EXPECT_EQ(apart.run(), packed.run());
}

TEST(BugCases, MLA_055) {
  const std::int32_t table[] = {0, 1};
  const View<const std::int32_t, 2> one_row(table, {1, 2});
  const Request batch[] = {{1, 4}, {1, 4}};
  const std::string said = sentence([&] { static_cast<void>(build_prefill_index(batch, one_row, 4)); });
  EXPECT_NE(said.find("1 row"), std::string::npos) << said;
  EXPECT_NE(said.find('2'), std::string::npos) << said;
}

TEST(BugCases, MLA_056) {
  TinyLayer layer(32, 8);
  constexpr std::size_t kBytes = 4 * 4 * 160;
  std::vector<std::byte> pool(kBytes, std::byte{0x5A});
  PagedLatentCache cache;
  cache.format = CacheFormat::kF32;
  cache.block_size = 4;
  cache.num_blocks = 4;
  cache.data = pool.data();
  cache.row_stride_bytes = 160;
  cache.block_stride_bytes = 640;
  const std::int64_t slots[] = {6, kSkipSlot, kSkipSlot};
  const std::vector<double> hidden{3, std::nan(""), std::nan("")};
  compress_and_cache(layer.config, layer.weights, hidden, no_rotation(8, 3), slots, cache);
  float last = 0;
  std::memcpy(&last, pool.data() + 6 * 160 + 39 * 4, 4);
  EXPECT_EQ(last, 3.0F);
  for (std::size_t i = 0; i < kBytes; ++i) {
    if (i / 160 != 6) {
      ASSERT_EQ(pool[i], std::byte{0x5A}) << "slot " << i / 160;
    }
  }
}

TEST(BugCases, MLA_090) {
  // Sequences of 3, 0 and 5 tokens written to one pool come back as they were.
  const MlaDims dims{1, 32, 8, 1, 1};
  const CacheLayout layout = cache_layout(CacheFormat::kBF16Split, dims);
  const std::int32_t lens[] = {3, 0, 5}, table[] = {2, -1, -1, -1, 3, 0};
  std::vector<std::byte> pool(static_cast<std::size_t>(4 * 4 * layout.row_bytes)),
      rope(static_cast<std::size_t>(4 * 4 * layout.rope_row_bytes));
  PagedLatentCache cache;
  cache.format = CacheFormat::kBF16Split;
  cache.block_size = 4;
  cache.num_blocks = 4;
  cache.data = pool.data();
  cache.row_stride_bytes = layout.row_bytes;
  cache.block_stride_bytes = 4 * layout.row_bytes;
  cache.k_pe = rope.data();
  cache.k_pe_row_stride_bytes = layout.rope_row_bytes;
  cache.k_pe_block_stride_bytes = 4 * layout.rope_row_bytes;
  cache.block_table = {table, {3, 2}};
  std::vector<double> want;
  for (std::int64_t b = 0; b < 3; ++b) {
    for (std::int64_t p = 0; p < lens[b]; ++p) {
      std::vector<double> row(40);
      for (std::size_t i = 0; i < 40; ++i) row[i] = static_cast<double>(b * 16 + p) + (i < 32 ? 0.0 : 64.0);
      const std::int64_t slot = cache.slot(b, p);
      encode_row(layout, dims, std::span(row).first(32), std::span(row).subspan(32), cache.row(slot),
                 cache.k_pe_row(slot), 1);
      want.insert(want.end(), row.begin(), row.end());
    }
  }
  EXPECT_EQ(reference::gather_latent(cache, dims, lens), want);
}

// ---- formats
// ------------------------------------------------------------------------------------------------------

TEST(BugCases, MLA_061) {
  EXPECT_EQ(cache_layout(CacheFormat::kFp8DsMla, {1, 512, 64, 1, 1}).row_bytes, 656);
  // The 448-wide latent of the 584-byte layout is none of this format's.
  const std::string said = sentence([] {
    static_cast<void>(cache_layout(CacheFormat::kFp8DsMla, {1, 448, 64, 1, 1}));
  });
  EXPECT_NE(said.find("448"), std::string::npos) << said;
}

TEST(BugCases, MLA_062) {
  EXPECT_EQ(fp8_tile_scale(336), 1.0F);
  EXPECT_EQ(fp8_tile_scale(1), 0x1p-8F);
  EXPECT_EQ(fp8_tile_scale(0), 0x1p-13F);
  EXPECT_EQ(fp8_tile_scale(448), 1.0F);
}

TEST(BugCases, MLA_065) {
  EXPECT_EQ(fp8_tile_scale(448), 1.0F);
  EXPECT_EQ(fp8_tile_scale(224), 0.5F);
  EXPECT_EQ(fp8_tile_scale(449), 2.0F);
}

TEST(BugCases, MLA_066) {
  const MlaDims dims{1, 2, 0, 1, 1};
  const CacheLayout layout = cache_layout(CacheFormat::kFp8, dims);
  std::byte row[2];
  std::vector<double> back(2);
  encode_row(layout, dims, std::vector<double>{2, 0}, {}, row, nullptr, 0.5F);
  EXPECT_EQ(row[0], std::byte{0x48});
  decode_row(layout, dims, row, nullptr, 0.5F, back);
  EXPECT_EQ(back[0], 2);
  encode_row(layout, dims, std::vector<double>{1000, -1000}, {}, row, nullptr, 1);
  EXPECT_EQ(row[0], std::byte{0x7E});
  EXPECT_EQ(row[1], std::byte{0xFE});
  decode_row(layout, dims, row, nullptr, 1, back);
  EXPECT_EQ(back, (std::vector<double>{448, -448}));
}

}  // namespace
