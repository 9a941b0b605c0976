// SPDX-License-Identifier: Apache-2.0
// Projections on the device against double precision, and hidden states to cache rows in two launches.
#include <gtest/gtest.h>

#include <cmath>

#include "device_array.hpp"
#include "mla/device_ops.hpp"
#include "mla/error.hpp"
#include "mla/layer.hpp"
#include "mla/random.hpp"
#include "mla/reference.hpp"

namespace {

using namespace mla;
using mla::testing::DeviceArray;
using Bytes = std::vector<std::byte>;

#define MLA_NEEDS_PROJECTIONS() \
  MLA_NEEDS_GPU();              \
  if (const Support s = device_ops::projections_available(); !s) GTEST_SKIP() << s.why

/// Random numbers on the grid of a type: bytes for the device, doubles for the reference.
struct Values {
  Bytes bytes;
  std::vector<double> doubles;
  Values(DType dtype, std::int64_t count, std::uint64_t stream, double scale)
      : bytes(static_cast<std::size_t>(count) * size_of(dtype)), doubles(static_cast<std::size_t>(count)) {
    const CounterRng rng(23, stream);
    for (std::int64_t i = 0; i < count; ++i) {
      store_element(bytes.data(), dtype, i, rng.normal(static_cast<std::uint64_t>(i)) * scale);
      doubles[static_cast<std::size_t>(i)] = load_element(bytes.data(), dtype, i);
    }
  }
};

struct Scratch {
  DeviceArray<std::byte> memory;
  explicit Scratch(std::size_t bytes = device_ops::kProjectionWorkspaceBytes) : memory(bytes) {}
  [[nodiscard]] std::span<std::byte> span() const { return {memory.data(), memory.size()}; }
};

/// What `got` may differ from the exact sum of `terms` products of size about `term`: f32 sums and one
/// rounding to `out`.
void expect_near(const DeviceArray<std::byte>& device, DType out, const std::vector<double>& want,
                 double term, double terms, const std::string& what) {
  const Bytes got = device.read();
  const double sums = 8 * 0x1p-24 * term * terms;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double x = load_element(got.data(), out, static_cast<std::int64_t>(i));
    ASSERT_NEAR(x, want[i], sums + unit_roundoff(out) * std::abs(want[i]) * 1.01)
        << what << ", element " << i;
  }
}

TEST(Projections, Linear) {
  MLA_NEEDS_PROJECTIONS();
  const Scratch scratch;
  for (const DType type : {DType::kBF16, DType::kF16}) {
    for (const auto& [tokens, inputs, outputs] : {std::tuple{1, 7168, 576}, {33, 256, 24}, {5, 512, 1}}) {
      const Values x(type, tokens * inputs, 1, 1.0), w(type, outputs * inputs, 2, 0.05),
          bias(type, outputs, 3, 1.0);
      std::vector<double> plain(static_cast<std::size_t>(tokens * outputs));
      for (int t = 0; t < tokens; ++t)
        for (int o = 0; o < outputs; ++o)
          for (int i = 0; i < inputs; ++i)
            plain[static_cast<std::size_t>(t * outputs + o)] +=
                x.doubles[static_cast<std::size_t>(t * inputs + i)] *
                w.doubles[static_cast<std::size_t>(o * inputs + i)];
      std::vector<double> shifted = plain;
      for (std::size_t i = 0; i < shifted.size(); ++i)
        shifted[i] += bias.doubles[i % static_cast<std::size_t>(outputs)];
      const DeviceArray<std::byte> dx(x.bytes), dw(w.bytes), db(bias.bytes);
      const ConstTensorRef tx(dx.data(), type, {tokens, inputs}), tw(dw.data(), type, {outputs, inputs});
      const auto what =
          std::to_string(tokens) + " x " + std::to_string(inputs) + " -> " + std::to_string(outputs);
      DeviceArray<std::byte> same(plain.size() * 2), single(plain.size() * 4);
      device_ops::linear(tx, tw, {}, TensorRef(single.data(), DType::kF32, {tokens, outputs}),
                         scratch.span());
      expect_near(single, DType::kF32, plain, 0.05, inputs, what);
      if (outputs % 8 != 0) continue;  // a bias needs rows of 16 bytes
      device_ops::linear(tx, tw, ConstTensorRef(db.data(), type, {outputs}),
                         TensorRef(same.data(), type, {tokens, outputs}), scratch.span());
      expect_near(same, type, shifted, 0.05, inputs, what + " with bias");
    }
  }
}

TEST(Projections, AbsorbUpProjectAndDecompress) {
  MLA_NEEDS_PROJECTIONS();
  const Scratch scratch;
  constexpr DType kType = DType::kBF16;
  for (const MlaDims& d : {MlaDims{},
                           MlaDims{.num_heads = 5,
                           .kv_lora_rank = 256,
                           .qk_rope_head_dim = 32,
                           .qk_nope_head_dim = 64,
                           .v_head_dim = 40},
                           MlaDims{.num_heads = 3,
                           .kv_lora_rank = 512,
                           .qk_rope_head_dim = 0,
                           .qk_nope_head_dim = 192,
                           .v_head_dim = 256}}) {
    constexpr std::int64_t kTokens = 9;
    const std::int64_t h = d.num_heads, l = d.kv_lora_rank, p = d.qk_nope_head_dim, v = d.v_head_dim,
                       pv = p + v;
    // The up-projection as checkpoints have it: per head P rows of W_UK, then V rows of W_UV. Both are views
    // of it.
    const Values kv_b(kType, h * pv * l, 1, 0.05), q(kType, kTokens * h * d.head_width(), 2, 1.0),
        rows(kType, kTokens * d.latent_width(), 3, 1.0), latent_out(kType, kTokens * h * l, 4, 1.0);
    const UpProjections up = split_kv_b(d, kv_b.doubles);
    const DeviceArray<std::byte> dkv(kv_b.bytes), dq(q.bytes), drows(rows.bytes), dlatent(latent_out.bytes);
    ConstTensorRef w_uk(dkv.data(), kType, {h, p, l}), w_uv(dkv.data() + p * l * 2, kType, {h, v, l});
    w_uk.stride[0] = w_uv.stride[0] = pv * l;

    DeviceArray<std::byte> absorbed(static_cast<std::size_t>(kTokens * h * d.latent_width() * 2));
    device_ops::absorb_query(d, ConstTensorRef(dq.data(), kType, {kTokens, h, d.head_width()}), w_uk,
                             TensorRef(absorbed.data(), kType, {kTokens, h, d.latent_width()}),
                             scratch.span());
    expect_near(absorbed, kType, reference::absorb_query(d, q.doubles, up.w_uk), 0.05, static_cast<double>(p),
                "absorbed query");

    DeviceArray<std::byte> values(static_cast<std::size_t>(kTokens * h * v * 4));
    device_ops::up_project_value(d, ConstTensorRef(dlatent.data(), kType, {kTokens, h, l}), w_uv,
                                 TensorRef(values.data(), DType::kF32, {kTokens, h, v}), scratch.span());
    expect_near(values, DType::kF32, reference::up_project_value(d, latent_out.doubles, up.w_uv), 0.05,
                static_cast<double>(l), "values");

    DeviceArray<std::byte> k(static_cast<std::size_t>(kTokens * h * p * 2)),
        vs(static_cast<std::size_t>(kTokens * h * v * 2));
    device_ops::decompress(d, ConstTensorRef(drows.data(), kType, {kTokens, d.latent_width()}), w_uk, w_uv,
                           TensorRef(k.data(), kType, {kTokens, h, p}),
                           TensorRef(vs.data(), kType, {kTokens, h, v}), scratch.span());
    const ExpandedKv want = decompress(d, rows.doubles, up);
    std::vector<double> nope;  // the reference's K carries the rotary part of the row behind each head
    for (std::int64_t r = 0; r < kTokens * h; ++r)
      nope.insert(nope.end(), want.k.begin() + r * d.head_width(), want.k.begin() + r * d.head_width() + p);
    expect_near(k, kType, nope, 0.05, static_cast<double>(l), "K");
    expect_near(vs, kType, want.v, 0.05, static_cast<double>(l), "V");
  }
}

TEST(Compressor, HiddenStatesToCacheRows) {
  MLA_NEEDS_PROJECTIONS();
  constexpr DType kType = DType::kBF16;
  constexpr std::int64_t kTokens = 13, kHidden = 1024;
  LayerConfig config;
  config.hidden_size = kHidden;
  const MlaDims& d = config.dims;
  const std::int64_t width = d.latent_width();
  const Values hidden(kType, kTokens * kHidden, 1, 1.0), w(kType, width * kHidden, 2, 0.03),
      bias(kType, width, 3, 0.1), norm(kType, d.kv_lora_rank, 4, 1.0);
  LayerWeights weights;
  weights.kv_a_proj = w.doubles;
  weights.kv_a_proj_bias = bias.doubles;
  weights.kv_a_layernorm = norm.doubles;
  std::vector<std::int64_t> positions(kTokens), slots(kTokens);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    positions[static_cast<std::size_t>(t)] = 3 * t + 1;
    slots[static_cast<std::size_t>(t)] = t == 4 ? kSkipSlot : 2 * t + 1;
  }
  RopeTable rope = make_rope_table({}, YarnRule::kDeepSeek, positions);
  const std::vector<float> cos(rope.cos.begin(), rope.cos.end()), sin(rope.sin.begin(), rope.sin.end());
  rope.cos.assign(cos.begin(), cos.end());  // the reference sees the f32 table, too
  rope.sin.assign(sin.begin(), sin.end());
  std::vector<std::int64_t> row_of_token(kTokens);
  for (std::int64_t t = 0; t < kTokens; ++t) row_of_token[static_cast<std::size_t>(t)] = t;

  const DeviceArray<std::byte> dhidden(hidden.bytes), dw(w.bytes), dbias(bias.bytes), dnorm(norm.bytes);
  const DeviceArray<float> dcos(cos), dsin(sin);
  const DeviceArray<std::int64_t> dpositions(row_of_token), dslots(slots);
  const Scratch scratch(device_ops::compress_workspace_bytes(d, kTokens));
  for (const CacheFormat format :
       {CacheFormat::kBF16, CacheFormat::kF32, CacheFormat::kFp8DsMla, CacheFormat::kBF16Split}) {
    const CacheLayout layout = cache_layout(format, d);
    constexpr std::int64_t kBlocks = 7, kBlockSize = 4;
    PagedLatentCache cache;
    cache.format = format;
    cache.block_size = kBlockSize;
    cache.num_blocks = kBlocks;
    cache.row_stride_bytes = layout.row_bytes;
    cache.block_stride_bytes = kBlockSize * layout.row_bytes;
    cache.k_pe_row_stride_bytes = layout.rope_row_bytes;
    cache.k_pe_block_stride_bytes = kBlockSize * layout.rope_row_bytes;
    Bytes host(static_cast<std::size_t>(kBlocks * cache.block_stride_bytes), std::byte{0x5A});
    Bytes host_pe(static_cast<std::size_t>(kBlocks * cache.k_pe_block_stride_bytes) + 1, std::byte{0x5A});
    DeviceArray<std::byte> rows(host), k_pe(host_pe);

    device_ops::CompressAndCache args;
    args.dims = d;
    args.hidden = ConstTensorRef(dhidden.data(), kType, {kTokens, kHidden});
    args.kv_a_proj = ConstTensorRef(dw.data(), kType, {width, kHidden});
    args.kv_a_bias = ConstTensorRef(dbias.data(), kType, {width});
    args.norm_weight = ConstTensorRef(dnorm.data(), kType, {d.kv_lora_rank});
    args.rotation.cos = {dcos.data(), {kTokens, rope.half}};
    args.rotation.sin = {dsin.data(), {kTokens, rope.half}};
    args.rotation.positions = {dpositions.data(), {kTokens}};
    args.slot_mapping = {dslots.data(), {kTokens}};
    args.cache = cache;
    args.cache.data = rows.data();
    args.cache.k_pe = layout.split() ? k_pe.data() : nullptr;
    device_ops::compress_and_cache(args, scratch.span());
    const Bytes got = rows.read(), got_pe = k_pe.read();

    const std::vector<double> want = compress(config, weights, hidden.doubles, rope);
    std::vector<double> row(static_cast<std::size_t>(width));
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const std::int64_t slot = slots[static_cast<std::size_t>(t)];
      if (slot < 0) continue;
      decode_row(layout, d, got.data() + slot * layout.row_bytes,
                 got_pe.data() + slot * layout.rope_row_bytes, 1.0F, row);
      double amax = 0;  // of the tile, for what e4m3 may lose
      for (std::int64_t c = 0; c < width; ++c) {
        const double x = want[static_cast<std::size_t>(t * width + c)];
        if (c % kFp8TileWidth == 0) {
          amax = 0;
          for (std::int64_t i = c; i < std::min<std::int64_t>(c + kFp8TileWidth, width); ++i)
            amax = std::max(amax, std::abs(want[static_cast<std::size_t>(t * width + i)]));
        }
        const DType stored = c < d.kv_lora_rank ? layout.latent_dtype : layout.rope_dtype;
        double allowed = 1e-5 + unit_roundoff(stored) * std::abs(x) * 1.02;
        if (stored == DType::kE4M3) allowed += 0x1p-10 * fp8_tile_scale(amax);
        ASSERT_NEAR(row[static_cast<std::size_t>(c)], x, allowed)
            << name_of(format) << " token " << t << " channel " << c;
      }
    }
    for (std::int64_t slot = 0; slot < kBlocks * kBlockSize; slot += 2)  // only odd slots were named
      for (std::int64_t i = 0; i < layout.row_bytes; ++i)
        ASSERT_EQ(got[static_cast<std::size_t>(slot * layout.row_bytes + i)], std::byte{0x5A})
            << "slot " << slot;
  }
}

TEST(Projections, SaysWhatIsMissing) {
  std::byte memory[64] = {};
  const ConstTensorRef x(memory, DType::kBF16, {1, 8}), w(memory, DType::kF16, {1, 8});
  try {
    device_ops::linear(x, w, {}, TensorRef(memory, DType::kF32, {1, 1}), {});
    FAIL() << "nothing thrown";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "w is f16, but must be bf16");
  }
  if (const Support s = device_ops::projections_available(); !s) {
    EXPECT_NE(s.why, "");
  }
}

}  // namespace
