// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "expect_error.hpp"
#include "mla/cache.hpp"
#include "mla/random.hpp"

namespace {

using mla::CacheFormat;
using mla::CacheLayout;
using mla::ErrorCode;
using mla::MlaDims;
using Bytes = std::vector<std::byte>;

const MlaDims kV3;

std::vector<double> normals(std::size_t n, std::uint64_t stream, double sigma = 1) {
  const mla::CounterRng rng(1, stream);
  std::vector<double> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = sigma * rng.normal(i);
  return values;
}

/// One row in memory, with a guard behind each pool that must stay as it is.
struct Row {
  static constexpr std::byte kGuard{0x5A};
  CacheLayout layout;
  MlaDims dims;
  Bytes main, rope;
  Row(CacheFormat format, const MlaDims& d)
      : layout(mla::cache_layout(format, d)),
        dims(d),
        main(static_cast<std::size_t>(layout.row_bytes) + 16, kGuard),
        rope(static_cast<std::size_t>(layout.rope_row_bytes) + 16, kGuard) {}
  void encode(std::span<const double> c_kv, std::span<const double> k_pe, float scale = 1) {
    mla::encode_row(layout, dims, c_kv, k_pe, main.data(), rope.data(), scale);
    for (std::size_t i = main.size() - 16; i < main.size(); ++i) ASSERT_EQ(main[i], kGuard);
    for (std::size_t i = rope.size() - 16; i < rope.size(); ++i) ASSERT_EQ(rope[i], kGuard);
  }
  [[nodiscard]] std::vector<double> decode(float scale = 1) const {
    std::vector<double> out(static_cast<std::size_t>(dims.latent_width()), -777);
    mla::decode_row(layout, dims, main.data(), rope.data(), scale, out);
    return out;
  }
  [[nodiscard]] float f32_at(std::size_t offset) const {
    float value = 0;
    std::memcpy(&value, main.data() + offset, sizeof(value));
    return value;
  }
};

TEST(Layout, BytesOfDeepSeekV3) {
  const std::map<CacheFormat, std::int64_t> bytes = {
      {CacheFormat::kF64, 4608}, {CacheFormat::kF32, 2304},       {CacheFormat::kBF16, 1152},
      {CacheFormat::kF16, 1152}, {CacheFormat::kBF16Split, 1152}, {CacheFormat::kF16Split, 1152},
      {CacheFormat::kFp8, 576},  {CacheFormat::kFp8DsMla, 656}};
  ASSERT_EQ(bytes.size(), mla::all_cache_formats().size());
  for (const CacheFormat format : mla::all_cache_formats()) {
    EXPECT_EQ(mla::cache_layout(format, kV3).bytes_per_token(), bytes.at(format)) << mla::name_of(format);
  }
}

TEST(Layout, OffsetsOfThe656ByteRow) {
  const CacheLayout layout = mla::cache_layout(CacheFormat::kFp8DsMla, kV3);
  EXPECT_EQ(layout.latent_bytes, 512);
  EXPECT_EQ(layout.scale_offset, 512);
  EXPECT_EQ(layout.scale_bytes, 16);
  EXPECT_EQ(layout.rope_offset, 528);
  EXPECT_EQ(layout.rope_bytes, 128);
  EXPECT_EQ(layout.row_bytes, 656);
  EXPECT_EQ(layout.alignment, 16);
  EXPECT_FALSE(layout.split());
  EXPECT_EQ(mla::kIndexKeyBytes, 132);
}

TEST(Layout, EveryFormatAndWidthAddsUp) {
  for (const CacheFormat format : mla::all_cache_formats()) {
    for (const MlaDims& dims :
         {kV3, MlaDims{40, 256, 32, 64, 64}, MlaDims{128, 512, 0, 128, 128}, MlaDims{8, 128, 2, 16, 16}}) {
      const CacheLayout layout = mla::cache_layout(format, dims);
      const std::int64_t rope_in_row = layout.split() ? 0 : layout.rope_bytes;
      EXPECT_EQ(layout.row_bytes, layout.latent_bytes + layout.scale_bytes + rope_in_row);
      EXPECT_EQ(layout.latent_bytes,
                dims.kv_lora_rank * static_cast<std::int64_t>(mla::size_of(layout.latent_dtype)));
      EXPECT_EQ(layout.rope_bytes,
                dims.qk_rope_head_dim * static_cast<std::int64_t>(mla::size_of(layout.rope_dtype)));
      EXPECT_EQ(layout.row_bytes % layout.alignment, 0);
      EXPECT_EQ(layout.rope_row_bytes % layout.alignment, 0);
      EXPECT_TRUE(std::has_single_bit(static_cast<std::uint64_t>(layout.alignment)));
    }
  }
}

TEST(Layout, RefusesWhatDoesNotFit) {
  expect_error(
      [] {
        return mla::cache_layout(CacheFormat::kFp8DsMla, {40, 288, 32, 64, 64});
      },
      ErrorCode::kUnsupported, {"fp8_ds_mla", "128", "kv_lora_rank is 288"});
  expect_error(
      [] {
        return mla::cache_layout(CacheFormat::kBF16, {0, 512, 64, 128, 128});
      },
      ErrorCode::kInvalidArgument, {"num_heads is 0"});
  expect_error([] { return mla::cache_layout(static_cast<CacheFormat>(99), kV3); },
               ErrorCode::kInvalidArgument, {"99"});
}

TEST(Layout, Names) {
  for (const CacheFormat format : mla::all_cache_formats()) {
    EXPECT_EQ(mla::parse_cache_format(mla::name_of(format)), format);
  }
  expect_error([] { return mla::parse_cache_format("bf61"); }, ErrorCode::kInvalidArgument,
               {"'bf61'", "f64, f32, bf16, f16, bf16_split, f16_split, fp8 or fp8_ds_mla"});
}

TEST(Rows, PlainFormatsRoundOnceAndLieInOrder) {
  const std::map<CacheFormat, mla::DType> types = {
      {CacheFormat::kF64, mla::DType::kF64},        {CacheFormat::kF32, mla::DType::kF32},
      {CacheFormat::kBF16, mla::DType::kBF16},      {CacheFormat::kF16, mla::DType::kF16},
      {CacheFormat::kBF16Split, mla::DType::kBF16}, {CacheFormat::kF16Split, mla::DType::kF16}};
  auto c_kv = normals(512, 1);
  auto k_pe = normals(64, 2);
  c_kv[7] = k_pe[3] = 1 + 0x1p-8 + 0x1p-40;  // through float bf16 would give 1
  for (const auto& [format, dtype] : types) {
    Row row(format, kV3);
    row.encode(c_kv, k_pe);
    const auto out = row.decode();
    for (std::size_t i = 0; i < 576; ++i) {
      ASSERT_EQ(out[i], mla::round_to(dtype, i < 512 ? c_kv[i] : k_pe[i - 512]))
          << mla::name_of(format) << " " << i;
      const bool second_pool = row.layout.split() && i >= 512;
      const std::byte* from = second_pool ? row.rope.data() : row.main.data();
      ASSERT_EQ(mla::load_element(from, dtype, static_cast<std::int64_t>(second_pool ? i - 512 : i)), out[i]);
    }
  }
}

TEST(Rows, PlainFp8UsesTheTensorScaleForBothParts) {
  auto c_kv = normals(512, 1, 10);
  auto k_pe = normals(64, 2, 10);
  c_kv[0] = 448 * 0.25;
  c_kv[1] = 1000;  // beyond 448 * scale: saturates
  k_pe[0] = -1000;
  Row row(CacheFormat::kFp8, kV3);
  row.encode(c_kv, k_pe, 0.25F);
  const auto out = row.decode(0.25F);
  EXPECT_EQ(out[0], 112);
  EXPECT_EQ(out[1], 112);
  EXPECT_EQ(out[512], -112);
  for (std::size_t i = 2; i < 576; ++i) {
    if (i == 512) continue;
    const double want = i < 512 ? c_kv[i] : k_pe[i - 512];
    ASSERT_EQ(out[i], mla::round_to(mla::DType::kE4M3, want * 4) / 4) << i;
  }
  for (const float bad :
       {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    expect_error([&] { row.encode(c_kv, k_pe, bad); }, ErrorCode::kInvalidArgument,
                 {"scale", "finite and > 0"});
    expect_error([&] { return row.decode(bad); }, ErrorCode::kInvalidArgument, {"scale", "finite and > 0"});
  }
}

/// 2^ceil(log2(max(amax / 448, 1e-4))) by trying powers until one is large enough.
float scale_by_search(double amax) {
  const double wanted = std::max(amax / 448, 1e-4);
  double scale = 0x1p-20;
  while (scale < wanted) scale *= 2;
  return static_cast<float>(scale);
}

TEST(Fp8TileScale, IsTheNextPowerOfTwo) {
  EXPECT_EQ(mla::fp8_tile_scale(0), 0x1p-13F);
  EXPECT_EQ(mla::fp8_tile_scale(448), 1);
  EXPECT_EQ(mla::fp8_tile_scale(448.5), 2);
  EXPECT_EQ(mla::fp8_tile_scale(447), 1);
  EXPECT_EQ(mla::fp8_tile_scale(224), 0.5);
  EXPECT_EQ(mla::fp8_tile_scale(1), 0x1p-8F);  // 1/448 lies between 2^-9 and 2^-8
  const mla::CounterRng rng(9);
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double amax = std::exp2(40 * rng.uniform(i) - 20);
    ASSERT_EQ(mla::fp8_tile_scale(amax), scale_by_search(amax)) << amax;
  }
  EXPECT_TRUE(std::isnan(mla::fp8_tile_scale(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(std::isinf(mla::fp8_tile_scale(std::numeric_limits<double>::infinity())));
}

TEST(Rows, The656BytesOneByOne) {
  std::vector<double> c_kv(512, 0);
  std::vector<double> k_pe(64, 0);
  c_kv[0] = 448;  // tile 0: scale 1
  c_kv[1] = -1;
  c_kv[128] = 896;        // tile 1: scale 2
  c_kv[129] = 3;          // 1.5 on the grid
  c_kv[256] = 0;          // tile 2: all zero, scale 2^-13
  c_kv[384] = 1;          // tile 3: scale 2^-8, so 256
  c_kv[511] = 1.0 / 512;  // 0.5
  k_pe[0] = 1;
  k_pe[63] = 3.140625;
  Row row(CacheFormat::kFp8DsMla, kV3);
  row.encode(c_kv, k_pe);
  Bytes want(656, std::byte{0});
  const auto put = [&](std::size_t at, std::initializer_list<unsigned> bytes) {
    for (const unsigned b : bytes) want[at++] = static_cast<std::byte>(b);
  };
  put(0, {0x7E, 0xB8});                // 448, -1
  put(128, {0x7E, 0x3C});              // 448 (x2), 1.5 (x2)
  put(384, {0x78});                    // 256 (x 2^-8)
  put(511, {0x30});                    // 0.5
  put(512, {0x00, 0x00, 0x80, 0x3F,    // 1.0F, little endian
            0x00, 0x00, 0x00, 0x40,    // 2.0F
            0x00, 0x00, 0x00, 0x39,    // 2^-13
            0x00, 0x00, 0x80, 0x3B});  // 2^-8
  put(528, {0x80, 0x3F});              // bf16 1
  put(654, {0x49, 0x40});              // bf16 3.140625
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(row.main[i], want[i]) << "byte " << i;
  const auto out = row.decode();
  for (std::size_t i = 0; i < 512; ++i) ASSERT_EQ(out[i], c_kv[i]) << i;
  for (std::size_t i = 0; i < 64; ++i) ASSERT_EQ(out[512 + i], k_pe[i]) << i;
}

TEST(Rows, The656BytesOfRandomTiles) {
  const auto c_kv = normals(512, 4, 3);
  const auto k_pe = normals(64, 5);
  Row row(CacheFormat::kFp8DsMla, kV3);
  row.encode(c_kv, k_pe);
  const auto out = row.decode();
  for (std::size_t tile = 0; tile < 4; ++tile) {
    double amax = 0;
    for (std::size_t i = 0; i < 128; ++i) amax = std::max(amax, std::abs(c_kv[tile * 128 + i]));
    const double scale = scale_by_search(amax);
    ASSERT_EQ(row.f32_at(512 + 4 * tile), scale);
    for (std::size_t i = tile * 128; i < (tile + 1) * 128; ++i) {
      ASSERT_EQ(out[i], mla::round_to(mla::DType::kE4M3, c_kv[i] / scale) * scale) << i;
    }
  }
  for (std::size_t i = 0; i < 64; ++i) ASSERT_EQ(out[512 + i], mla::round_to(mla::DType::kBF16, k_pe[i]));
}

TEST(Rows, ANanSpoilsItsTileAndNoOther) {
  auto c_kv = normals(512, 4);
  c_kv[130] = std::numeric_limits<double>::quiet_NaN();
  Row row(CacheFormat::kFp8DsMla, kV3);
  row.encode(c_kv, normals(64, 5));
  const auto out = row.decode();
  for (std::size_t i = 0; i < 576; ++i) ASSERT_EQ(std::isnan(out[i]), i >= 128 && i < 256) << i;
}

TEST(Rows, NoRotaryPart) {
  const MlaDims dims{128, 512, 0, 128, 128};
  const auto c_kv = normals(512, 6);
  for (const CacheFormat format : mla::all_cache_formats()) {
    Row row(format, dims);
    row.encode(c_kv, {});
    EXPECT_EQ(row.decode().size(), 512U);
    EXPECT_NEAR(row.decode()[5], c_kv[5], 0.07 * std::abs(c_kv[5])) << mla::name_of(format);
  }
}

TEST(Rows, RefusesWrongSizes) {
  Row row(CacheFormat::kBF16Split, kV3);
  const std::vector<double> c_kv(512), k_pe(64), wrong(63);
  std::vector<double> out(576);
  expect_error([&] { row.encode(wrong, k_pe); }, ErrorCode::kInvalidArgument, {"c_kv has 63", "512"});
  expect_error([&] { row.encode(c_kv, wrong); }, ErrorCode::kInvalidArgument, {"k_pe has 63", "64"});
  expect_error(
      [&] { mla::decode_row(row.layout, kV3, row.main.data(), row.rope.data(), 1, std::span(out).first(9)); },
      ErrorCode::kInvalidArgument, {"out has 9", "576"});
  expect_error([&] { mla::decode_row(row.layout, kV3, row.main.data(), nullptr, 1, out); },
               ErrorCode::kInvalidArgument, {"bf16_split", "k_pe_row is null"});
  const MlaDims other{128, 256, 64, 128, 128};
  expect_error(
      [&] {
        mla::encode_row(row.layout, other, std::span(c_kv).first(256), k_pe, row.main.data(), row.rope.data(),
                        1);
      },
      ErrorCode::kInvalidArgument, {"layout", "kv_lora_rank 256"});
}

TEST(IndexKey, Record132) {
  auto key = normals(128, 7, 20);
  key[0] = 448;  // amax: scale 1
  for (double& x : key) x = std::clamp(x, -400.0, 448.0);
  Bytes record(132 + 16, Row::kGuard);
  mla::encode_index_key(key, record.data());
  EXPECT_EQ(record[0], std::byte{0x7E});
  float scale = 0;
  std::memcpy(&scale, record.data() + 128, 4);
  EXPECT_EQ(scale, 1);
  for (std::size_t i = 132; i < record.size(); ++i) ASSERT_EQ(record[i], Row::kGuard);
  std::vector<double> out(128);
  mla::decode_index_key(record.data(), out);
  for (std::size_t i = 0; i < 128; ++i) ASSERT_EQ(out[i], mla::round_to(mla::DType::kE4M3, key[i])) << i;
  expect_error([&] { mla::encode_index_key(std::span(key).first(64), record.data()); },
               ErrorCode::kInvalidArgument, {"64 elements", "128"});
  expect_error([&] { mla::decode_index_key(record.data(), std::span(out).first(64)); },
               ErrorCode::kInvalidArgument, {"64 elements", "128"});
}

TEST(PagedCache, RowsAndSlotsAre64Bit) {
  mla::PagedLatentCache cache;
  cache.block_size = 64;
  const std::int32_t table[] = {58254, 58255};
  cache.block_table = {table, {1, 2}};
  cache.row_stride_bytes = 1152;
  cache.block_stride_bytes = 64 * 1152 + 128;  // not packed
  EXPECT_EQ(cache.slot(0, 0), std::int64_t{58254} * 64);
  EXPECT_EQ(cache.slot(0, 65), std::int64_t{58255} * 64 + 1);
  std::byte base{};  // only addresses are computed
  cache.data = &base;
  EXPECT_EQ(
      reinterpret_cast<std::intptr_t>(cache.row(cache.slot(0, 65))) - reinterpret_cast<std::intptr_t>(&base),
      std::int64_t{58255} * (64 * 1152 + 128) + 1152);
}

}  // namespace
