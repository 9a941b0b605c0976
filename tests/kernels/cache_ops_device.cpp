// SPDX-License-Identifier: Apache-2.0
// Cache operations on the device, byte for byte: the rounding contract of CacheWrite is written out here once
// more and encoded by the host's encode_row.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "device_array.hpp"
#include "mla/cache.hpp"
#include "mla/device_ops.hpp"
#include "mla/error.hpp"
#include "mla/layer.hpp"
#include "mla/random.hpp"

namespace {

using namespace mla;
using mla::testing::DeviceArray;
using Bytes = std::vector<std::byte>;

constexpr std::byte kCanary{0xA5};

// f32 operations rounded once: products, sums, quotients and roots of floats in double and then to float give
// the same as f32 arithmetic (53 >= 2 * 24 + 2 bits). This file is compiled without contraction: a compiler
// may narrow such a product back to float, and would then fuse it with the sum behind it.
float mul(float a, float b) {
  return static_cast<float>(static_cast<double>(a) * b);
}
float add(float a, float b) {
  return static_cast<float>(static_cast<double>(a) + b);
}
float div(float a, float b) {
  return static_cast<float>(static_cast<double>(a) / b);
}

float sum_of_squares(const std::vector<float>& x) {
  float lanes[32] = {};
  for (std::size_t i = 0; i < x.size(); ++i) {
    float& lane = lanes[i / 8 % 32];
    lane = std::fma(x[i], x[i], lane);
  }
  for (std::size_t d = 16; d > 0; d /= 2) {
    float next[32];
    for (std::size_t t = 0; t < 32; ++t) next[t] = add(lanes[t], lanes[t ^ d]);
    std::copy(std::begin(next), std::end(next), std::begin(lanes));
  }
  return lanes[0];
}

std::vector<float> contract_norm(const std::vector<float>& x, const std::vector<float>& weight, float eps) {
  const float mean = div(sum_of_squares(x), static_cast<float>(x.size()));
  const float r = div(1.0F, static_cast<float>(std::sqrt(static_cast<double>(add(mean, eps)))));
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = mul(mul(x[i], r), weight[i]);
  return y;
}

struct Layouts {
  RopeLayout input = RopeLayout::kInterleaved, output = RopeLayout::kInterleaved;
};
std::vector<float> contract_rope(const std::vector<float>& x, const float* cos, const float* sin,
                                 Layouts layouts) {
  const std::size_t half = x.size() / 2;
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < half; ++i) {
    const bool in = layouts.input == RopeLayout::kInterleaved,
               out = layouts.output == RopeLayout::kInterleaved;
    const float a = x[in ? 2 * i : i], b = x[in ? 2 * i + 1 : i + half];
    y[out ? 2 * i : i] = add(mul(a, cos[i]), -mul(b, sin[i]));
    y[out ? 2 * i + 1 : i + half] = add(mul(a, sin[i]), mul(b, cos[i]));
  }
  return y;
}

/// Random numbers on the grid of a type, as stored and as float.
struct Values {
  Bytes bytes;
  std::vector<float> floats;
  Values(DType dtype, std::size_t count, std::uint64_t stream, double scale = 1.0)
      : bytes(count * size_of(dtype)), floats(count) {
    const CounterRng rng(11, stream);
    for (std::size_t i = 0; i < count; ++i) {
      const double spread = i % 97 == 0 ? 100.0 : 1.0;  // tiles with an outlier
      store_element(bytes.data(), dtype, static_cast<std::int64_t>(i), rng.normal(i) * scale * spread);
      floats[i] = static_cast<float>(load_element(bytes.data(), dtype, static_cast<std::int64_t>(i)));
    }
  }
};

std::vector<double> widened(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

/// A pool in host memory, full of canaries, with its packed or padded strides.
struct HostPool {
  CacheLayout layout;
  PagedLatentCache view;  // pointers into the vectors below
  Bytes rows, k_pe;
  HostPool(CacheFormat format, const MlaDims& dims, std::int32_t block_size, std::int64_t blocks,
           std::int64_t gap, float scale)
      : layout(cache_layout(format, dims)) {
    view.format = format;
    view.block_size = block_size;
    view.num_blocks = blocks;
    view.scale = scale;
    view.row_stride_bytes = layout.row_bytes + gap;
    view.block_stride_bytes = view.row_stride_bytes * block_size + 2 * gap;
    rows.assign(static_cast<std::size_t>(view.block_stride_bytes * blocks), kCanary);
    view.data = rows.data();
    if (layout.split()) {
      view.k_pe_row_stride_bytes = layout.rope_row_bytes + gap;
      view.k_pe_block_stride_bytes = view.k_pe_row_stride_bytes * block_size;
      k_pe.assign(static_cast<std::size_t>(view.k_pe_block_stride_bytes * blocks), kCanary);
      view.k_pe = k_pe.data();
    }
  }
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;
};

/// The same pool on the device.
struct DevicePool {
  DeviceArray<std::byte> rows, k_pe;
  PagedLatentCache view;
  explicit DevicePool(const HostPool& host)
      : rows(host.rows), k_pe(host.k_pe.empty() ? Bytes(1) : host.k_pe), view(host.view) {
    view.data = rows.data();
    view.k_pe = host.k_pe.empty() ? nullptr : k_pe.data();
  }
  void expect_equals(const HostPool& want, const std::string& what) const {
    compare(rows.read(), want.rows, what + ", rows");
    if (!want.k_pe.empty()) compare(k_pe.read(), want.k_pe, what + ", k_pe");
  }
  static void compare(const Bytes& got, const Bytes& want, const std::string& what) {
    ASSERT_EQ(got.size(), want.size());
    const auto [g, w] = std::mismatch(got.begin(), got.end(), want.begin());
    if (g != got.end()) {
      ADD_FAILURE() << what << ": byte " << g - got.begin() << " is " << std::to_integer<int>(*g)
                    << ", wanted " << std::to_integer<int>(*w);
    }
  }
};

struct WriteCase {
  CacheFormat format = CacheFormat::kBF16;
  DType input = DType::kBF16;
  MlaDims dims;
  bool norm = true, rope = true, packed = true;
  DType intermediate = DType::kF32;
  Layouts layouts;
  float scale = 1.0F;
  [[nodiscard]] std::string text() const {
    return std::string(name_of(format)) + " from " + std::string(name_of(input)) + " L " +
           std::to_string(dims.kv_lora_rank) + " R " + std::to_string(dims.qk_rope_head_dim) +
           (norm ? " norm" : "") + (rope ? " rope" : "") + (packed ? "" : " strided") + " via " +
           std::string(name_of(intermediate));
  }
};

void check_write(const WriteCase& c) {
  const auto latent = static_cast<std::size_t>(c.dims.kv_lora_rank),
             rope = static_cast<std::size_t>(c.dims.qk_rope_head_dim);
  constexpr std::int64_t kTokens = 21;
  constexpr std::size_t kPositions = 64;
  const std::size_t gap = c.packed ? 0 : 24,
                    stride = latent + rope + gap;  // one projection's output, or with a gap
  const Values x(c.input, kTokens * stride, 1), weight(DType::kBF16, latent, 2);
  std::vector<float> cos(kPositions * std::max<std::size_t>(rope / 2, 1)), sin(cos.size());
  for (std::size_t i = 0; i < cos.size(); ++i) {
    cos[i] = static_cast<float>(std::cos(0.37 * static_cast<double>(i)));
    sin[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
  }
  std::vector<std::int64_t> positions(kTokens), slots(kTokens);
  constexpr std::int32_t kBlockSize = 5;
  HostPool host(c.format, c.dims, kBlockSize, 9, c.packed ? 0 : 48, c.scale);
  const DevicePool pool(host);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    positions[static_cast<std::size_t>(t)] = (t * 29) % static_cast<std::int64_t>(kPositions);
    slots[static_cast<std::size_t>(t)] =
        t % 6 == 5 ? (t % 12 == 5 ? kSkipSlot : 45) : (t * 2 + 1) % 45;  // 45 is past the end
  }

  const auto round = [&](std::vector<float> y) {
    for (float& v : y) v = static_cast<float>(round_to(c.intermediate, v));
    return y;
  };
  for (std::size_t t = 0; t < kTokens; ++t) {
    if (slots[t] < 0 || slots[t] >= 45) continue;
    const auto* const row = x.floats.data() + t * stride;
    std::vector<float> c_kv(row, row + latent), k_pe(row + latent, row + latent + rope);
    if (c.norm) c_kv = contract_norm(c_kv, weight.floats, 1e-5F);
    const std::size_t at = static_cast<std::size_t>(positions[t]) * (rope / 2);
    if (c.rope && rope > 0) k_pe = contract_rope(k_pe, cos.data() + at, sin.data() + at, c.layouts);
    encode_row(host.layout, c.dims, widened(round(c_kv)), widened(round(k_pe)), host.view.row(slots[t]),
               host.layout.split() ? host.view.k_pe_row(slots[t]) : nullptr, c.scale);
  }

  const DeviceArray<std::byte> device_x(x.bytes), device_weight(weight.bytes);
  const DeviceArray<float> device_cos(cos), device_sin(sin);
  const DeviceArray<std::int64_t> device_positions(positions), device_slots(slots);
  device_ops::CacheWrite args;
  args.dims = c.dims;
  const auto tensor = [&](std::size_t first, std::size_t width) {
    ConstTensorRef t(device_x.data() + first * size_of(c.input), c.input,
                     {kTokens, static_cast<std::int64_t>(width)});
    t.stride[0] = static_cast<std::int64_t>(stride);
    return t;
  };
  args.c_kv = tensor(0, latent);
  if (rope > 0) args.k_pe = tensor(latent, rope);
  if (c.norm)
    args.norm_weight =
        ConstTensorRef(device_weight.data(), DType::kBF16, {static_cast<std::int64_t>(latent)});
  args.norm_eps = 1e-5F;
  if (c.rope && rope > 0) {
    args.rotation.cos = {device_cos.data(), {kPositions, static_cast<std::int64_t>(rope / 2)}};
    args.rotation.sin = {device_sin.data(), {kPositions, static_cast<std::int64_t>(rope / 2)}};
    args.rotation.positions = {device_positions.data(), {kTokens}};
    args.rotation.input = c.layouts.input;
    args.rotation.output = c.layouts.output;
  }
  args.intermediate = c.intermediate;
  args.slot_mapping = {device_slots.data(), {kTokens}};
  args.cache = pool.view;
  device_ops::write_cache(args);
  pool.expect_equals(host, c.text());
}

constexpr CacheFormat kFormats[] = {CacheFormat::kF32,       CacheFormat::kBF16,     CacheFormat::kF16,
                                    CacheFormat::kBF16Split, CacheFormat::kF16Split, CacheFormat::kFp8,
                                    CacheFormat::kFp8DsMla};

TEST(CacheWrite, EveryFormatByteForByte) {
  MLA_NEEDS_GPU();
  constexpr Layouts kLayouts[] = {{RopeLayout::kInterleaved, RopeLayout::kInterleaved},
                                  {RopeLayout::kHalfSplit, RopeLayout::kHalfSplit},
                                  {RopeLayout::kInterleaved, RopeLayout::kHalfSplit}};
  int number = 0;
  for (const CacheFormat format : kFormats) {
    for (const DType input : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const auto& [latent, rope] : {std::pair{512, 64}, {256, 32}, {128, 0}, {640, 8}}) {
        for (const bool norm : {false, true}) {
          WriteCase c;
          c.format = format;
          c.input = input;
          c.dims = {.num_heads = 1,
                    .kv_lora_rank = latent,
                    .qk_rope_head_dim = rope,
                    .qk_nope_head_dim = 8,
                    .v_head_dim = 8};
          c.norm = norm;
          c.rope = number % 3 != 0;
          c.packed = number % 2 == 0;
          c.intermediate = number % 5 < 2 ? DType::kF32 : (number % 5 == 4 ? DType::kF16 : DType::kBF16);
          c.layouts = kLayouts[number % 3];
          c.scale =
              number % 4 == 0
                  ? 0.25F
                  : 0.0371F;  // the second is no power of two: the quotient is rounded once all the same
          ++number;
          check_write(c);
        }
      }
    }
  }
}

TEST(CacheWrite, WidthsThatVectorsDoNotDivide) {
  MLA_NEEDS_GPU();
  for (const CacheFormat format :
       {CacheFormat::kBF16, CacheFormat::kF32, CacheFormat::kFp8, CacheFormat::kF16Split}) {
    for (const auto& [latent, rope] : {std::pair{37, 6}, {32, 8}, {5, 2}, {300, 10}}) {
      WriteCase c;
      c.format = format;
      c.dims = {.num_heads = 1,
                .kv_lora_rank = latent,
                .qk_rope_head_dim = rope,
                .qk_nope_head_dim = 8,
                .v_head_dim = 8};
      check_write(c);
    }
  }
}

// The contract itself is the RMSNorm and the rotation of the reference, to f32 accuracy.
TEST(CacheWrite, ContractIsTheReferenceNorm) {
  const Values x(DType::kBF16, 512, 1), weight(DType::kBF16, 512, 2);
  const std::vector<float> got = contract_norm(x.floats, weight.floats, 1e-6F);
  const std::vector<double> want = rms_norm(widened(x.floats), widened(weight.floats), 1e-6);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 6e-7 * std::abs(want[i])) << i;
}
TEST(CacheWrite, ContractIsTheReferenceRotation) {
  const std::vector<std::int64_t> positions = {0, 1, 77, 4095};
  RopeTable table = make_rope_table({.dim = 16}, YarnRule::kDeepSeek, positions);
  std::vector<float> cos(table.cos.begin(), table.cos.end()), sin(table.sin.begin(), table.sin.end());
  table.cos.assign(cos.begin(), cos.end());
  table.sin.assign(sin.begin(), sin.end());
  for (const Layouts layouts : {Layouts{}, Layouts{RopeLayout::kHalfSplit, RopeLayout::kHalfSplit},
                                Layouts{RopeLayout::kInterleaved, RopeLayout::kHalfSplit}}) {
    for (std::size_t p = 0; p < positions.size(); ++p) {
      const Values x(DType::kBF16, 16, 5 + p);
      const std::vector<float> got = contract_rope(x.floats, cos.data() + p * 8, sin.data() + p * 8, layouts);
      std::vector<double> want(4 * 16, 0.0);
      std::copy(x.floats.begin(), x.floats.end(), want.begin() + static_cast<std::ptrdiff_t>(p * 16));
      apply_rope(want, table, 4, 1, layouts.input, layouts.output);
      for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(got[i], want[p * 16 + i], 3e-7 * 100) << p << " " << i;
    }
  }
}

/// One bf16 row of 512 + 64 to a one-block fp8_ds_mla or fp8 pool; returns its bytes.
Bytes write_one(CacheFormat format, const std::vector<float>& c_kv, float scale) {
  const MlaDims dims{.num_heads = 1,
                     .kv_lora_rank = static_cast<int>(c_kv.size()),
                     .qk_rope_head_dim = 0,
                     .qk_nope_head_dim = 8,
                     .v_head_dim = 8};
  const HostPool host(format, dims, 1, 1, 0, scale);
  const DevicePool pool(host);
  const DeviceArray<float> x(c_kv);
  const DeviceArray<std::int64_t> slot(std::vector<std::int64_t>{0});
  device_ops::CacheWrite args;
  args.dims = dims;
  args.c_kv = ConstTensorRef(x.data(), DType::kF32, {1, static_cast<std::int64_t>(c_kv.size())});
  args.slot_mapping = {slot.data(), {1}};
  args.cache = pool.view;
  device_ops::write_cache(args);
  return pool.rows.read();
}

// MLA-062 and MLA-065: the power-of-two scale of a tile, exact powers of two included.
TEST(CacheWrite, TileScales) {
  MLA_NEEDS_GPU();
  const float nan = std::nanf(""), infinity = INFINITY;
  const std::pair<float, float> cases[] = {{336.0F, 1.0F},
                                           {1.0F, 0x1p-8F},
                                           {0.0F, 0x1p-13F},
                                           {448.0F, 1.0F},
                                           {224.0F, 0.5F},
                                           {449.0F, 2.0F},
                                           {448.0F * 0x1p20F, 0x1p20F},
                                           {1e-30F, 0x1p-13F},
                                           {std::nextafter(448.0F, 500.0F), 2.0F}};
  for (const auto& [amax, want] : cases) {
    std::vector<float> row(128, amax / 3);
    row[77] = -amax;
    const Bytes bytes = write_one(CacheFormat::kFp8DsMla, row, 1.0F);
    float scale = 0;
    std::memcpy(&scale, bytes.data() + 128, sizeof scale);
    EXPECT_EQ(scale, want) << "amax " << amax;
    EXPECT_EQ(scale, fp8_tile_scale(amax)) << "amax " << amax;
  }
  for (const float loud : {nan, infinity}) {
    std::vector<float> row(128, 1.0F);
    row[5] = loud;
    const Bytes bytes = write_one(CacheFormat::kFp8DsMla, row, 1.0F);
    float scale = 0;
    std::memcpy(&scale, bytes.data() + 128, sizeof scale);
    EXPECT_FALSE(std::isfinite(scale)) << loud;
  }
}

// MLA-066: saturation of the plain format.
TEST(CacheWrite, PlainFp8Codes) {
  MLA_NEEDS_GPU();
  EXPECT_EQ(std::to_integer<int>(write_one(CacheFormat::kFp8, {2.0F}, 0.5F)[0]), 0x48);
  EXPECT_EQ(std::to_integer<int>(write_one(CacheFormat::kFp8, {1000.0F}, 1.0F)[0]), 0x7E);
  EXPECT_EQ(std::to_integer<int>(write_one(CacheFormat::kFp8, {-1000.0F}, 1.0F)[0]), 0xFE);
  // Every finite f16 value through the device's rounding, against the host's.
  std::vector<float> all;
  for (int bits = 0; bits < 65536; ++bits) {
    const float x = f16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isfinite(x)) all.push_back(x);
  }
  all.resize(all.size() / 8 * 8);
  for (std::size_t first = 0; first < all.size(); first += 2048) {
    const std::vector<float> part(
        all.begin() + static_cast<std::ptrdiff_t>(first),
        all.begin() + static_cast<std::ptrdiff_t>(std::min(first + 2048, all.size())));
    const Bytes got = write_one(CacheFormat::kFp8, part, 1.0F);
    for (std::size_t i = 0; i < part.size(); ++i)
      ASSERT_EQ(std::to_integer<int>(got[i]), float_to_e4m3(part[i])) << part[i];
  }
}

// MLA-056: padded tokens (slot -1) write nothing, whatever their rows hold.
TEST(CacheWrite, PaddedTokensWriteNothing) {
  MLA_NEEDS_GPU();
  const MlaDims dims{
      .num_heads = 4, .kv_lora_rank = 32, .qk_rope_head_dim = 8, .qk_nope_head_dim = 16, .v_head_dim = 16};
  HostPool host(CacheFormat::kF32, dims, 4, 3, 0, 1.0F);
  const DevicePool pool(host);
  std::vector<float> rows(3 * 40, std::nanf(""));
  for (int i = 0; i < 40; ++i) rows[static_cast<std::size_t>(i)] = static_cast<float>(i);
  const DeviceArray<float> x(rows);
  const DeviceArray<std::int64_t> slots(std::vector<std::int64_t>{6, -1, -1});
  device_ops::CacheWrite args;
  args.dims = dims;
  args.c_kv = ConstTensorRef(x.data(), DType::kF32, {3, 32});
  args.c_kv.stride[0] = 40;
  args.k_pe = ConstTensorRef(x.data() + 32, DType::kF32, {3, 8});
  args.k_pe.stride[0] = 40;
  args.slot_mapping = {slots.data(), {3}};
  args.cache = pool.view;
  device_ops::write_cache(args);
  std::memcpy(host.view.row(6), rows.data(), 160);
  pool.expect_equals(host, "slot 6 alone");
}

// MLA-018: slot times row width passes 2^31 elements; 4.0 GiB.
TEST(CacheWrite, SlotsBeyond32Bits) {
  MLA_NEEDS_GPU();
  const MlaDims dims{
      .num_heads = 1, .kv_lora_rank = 512, .qk_rope_head_dim = 64, .qk_nope_head_dim = 8, .v_head_dim = 8};
  constexpr std::int64_t kSlots = 3'728'273, kRow = 576 * 2;
  DeviceArray<std::byte> pool(static_cast<std::size_t>(kSlots * kRow));
  const std::vector<std::int64_t> slots = {0, 3'728'270, 3'728'271};
  const Bytes canary(static_cast<std::size_t>(2 * kRow), kCanary);
  pool.write(canary, 0);
  pool.write(canary, static_cast<std::size_t>(3'728'269 * kRow));
  pool.write(canary, static_cast<std::size_t>(3'728'271 * kRow));
  std::vector<float> rows(3 * 576);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(1 + i / 576);
  const DeviceArray<float> x(rows);
  const DeviceArray<std::int64_t> device_slots(slots);
  device_ops::CacheWrite args;
  args.dims = dims;
  args.c_kv = ConstTensorRef(x.data(), DType::kF32, {3, 512});
  args.c_kv.stride[0] = 576;
  args.k_pe = ConstTensorRef(x.data() + 512, DType::kF32, {3, 64});
  args.k_pe.stride[0] = 576;
  args.slot_mapping = {device_slots.data(), {3}};
  args.cache.format = CacheFormat::kBF16;
  args.cache.block_size = 1;
  args.cache.num_blocks = kSlots;
  args.cache.data = pool.data();
  args.cache.block_stride_bytes = args.cache.row_stride_bytes = kRow;
  device_ops::write_cache(args);
  for (std::size_t t = 0; t < slots.size(); ++t) {
    const Bytes got = pool.read(kRow, static_cast<std::size_t>(slots[t] * kRow));
    for (std::int64_t i = 0; i < 576; ++i)
      ASSERT_EQ(load_element(got.data(), DType::kBF16, i), static_cast<double>(t + 1)) << "slot " << slots[t];
  }
  for (const std::int64_t untouched : {1, 3'728'269, 3'728'272}) {
    const Bytes got = pool.read(kRow, static_cast<std::size_t>(untouched * kRow));
    EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](std::byte b) { return b == kCanary; }))
        << "slot " << untouched;
  }
}

TEST(CacheGather, EqualsTheDecodedRows) {
  MLA_NEEDS_GPU();
  const std::vector<std::int32_t> lens = {7, 0, 1, 23}, first = {2, 0, 0, 5};
  for (const CacheFormat format : kFormats) {
    for (const auto& [latent, rope] : {std::pair{512, 64}, {256, 0}, {128, 6}}) {
      const MlaDims dims{.num_heads = 1,
                         .kv_lora_rank = latent,
                         .qk_rope_head_dim = rope,
                         .qk_nope_head_dim = 8,
                         .v_head_dim = 8};
      HostPool host(format, dims, 4, 20, 16, 0.0371F);
      const Values values(DType::kF32, static_cast<std::size_t>(80 * (latent + rope)), 9);
      for (std::int64_t slot = 0; slot < 80; ++slot) {
        const auto row = widened({values.floats.begin() + slot * (latent + rope),
                                  values.floats.begin() + (slot + 1) * (latent + rope)});
        encode_row(host.layout, dims, std::span(row).first(static_cast<std::size_t>(latent)),
                   std::span(row).last(static_cast<std::size_t>(rope)), host.view.row(slot),
                   host.layout.split() ? host.view.k_pe_row(slot) : nullptr, 0.0371F);
      }
      constexpr std::int64_t kColumns = 8;
      std::vector<std::int32_t> table(4 * kColumns, 999);
      for (std::int32_t b = 0; b < 4; ++b)
        for (std::int32_t j = 0; j < 7; ++j)
          table[static_cast<std::size_t>(b * kColumns + j)] = (b * 5 + j * 3) % 20;
      table[3 * kColumns + 2] = -1;  // positions 8..11 of request 3 have no block
      std::vector<std::int32_t> cu = {0};
      for (const std::int32_t len : lens) cu.push_back(cu.back() + len);

      const DevicePool pool(host);
      const DeviceArray<std::int32_t> device_table(table), device_cu(cu), device_first(first);
      const std::size_t width = static_cast<std::size_t>(latent + rope),
                        total = static_cast<std::size_t>(cu.back());
      for (const DType out : {DType::kBF16, DType::kF32}) {
        const DeviceArray<std::byte> rows(Bytes((total + 3) * width * size_of(out), kCanary));
        device_ops::CacheGather args;
        args.dims = dims;
        args.cache = pool.view;
        args.cache.block_table = {device_table.data(), {4, kColumns}};
        args.cu_seqlens_k = {device_cu.data(), {5}};
        args.first = {device_first.data(), {4}};
        args.rows = TensorRef(rows.data(), out,
                              {static_cast<std::int64_t>(total + 3), static_cast<std::int64_t>(width)});
        device_ops::gather_cache(args);
        const Bytes got = rows.read();
        Bytes want((total + 3) * width * size_of(out), kCanary);
        std::vector<double> row(width);
        for (std::size_t b = 0; b < 4; ++b) {
          for (std::int32_t i = 0; i < lens[b]; ++i) {
            const std::int32_t position = first[b] + i,
                               block = table[b * kColumns + static_cast<std::size_t>(position / 4)];
            const std::int64_t slot = std::int64_t{block} * 4 + position % 4;
            std::fill(row.begin(), row.end(), 0.0);
            if (block >= 0)
              decode_row(host.layout, dims, host.view.row(slot),
                         host.layout.split() ? host.view.k_pe_row(slot) : nullptr, 0.0371F, row);
            for (std::size_t c = 0; c < width; ++c)  // decoded in f32, then rounded once
              store_element(want.data(), out,
                            static_cast<std::int64_t>((static_cast<std::size_t>(cu[b] + i)) * width + c),
                            static_cast<float>(row[c]));
          }
        }
        DevicePool::compare(got, want, std::string(name_of(format)) + " to " + std::string(name_of(out)));
      }
    }
  }
}

TEST(CacheBlocks, CopyAndPermute) {
  MLA_NEEDS_GPU();
  for (const CacheFormat format :
       {CacheFormat::kBF16, CacheFormat::kFp8DsMla, CacheFormat::kBF16Split, CacheFormat::kFp8}) {
    for (const auto& [latent, gap] : {std::pair{128, 0}, {512, 16}, {128, 2}}) {
      const MlaDims dims{.num_heads = 1,
                         .kv_lora_rank = latent,
                         .qk_rope_head_dim = 6,
                         .qk_nope_head_dim = 8,
                         .v_head_dim = 8};
      HostPool host(format, dims, 3, 8, gap, 1.0F);
      for (std::size_t i = 0; i < host.rows.size(); ++i)
        host.rows[i] = static_cast<std::byte>(i * 7 + i / 251);
      for (std::size_t i = 0; i < host.k_pe.size(); ++i)
        host.k_pe[i] = static_cast<std::byte>(i * 5 + i / 241);
      const DevicePool pool(host);
      const auto move = [&](const Bytes& before_rows, const Bytes& before_k_pe, std::int64_t from,
                            std::int64_t to) {
        for (std::int64_t r = 0; r < 3; ++r) {
          std::memcpy(host.view.row(to * 3 + r),
                      before_rows.data() + (host.view.row(from * 3 + r) - host.rows.data()),
                      static_cast<std::size_t>(host.layout.row_bytes));
          if (host.layout.split())
            std::memcpy(host.view.k_pe_row(to * 3 + r),
                        before_k_pe.data() + (host.view.k_pe_row(from * 3 + r) - host.k_pe.data()),
                        static_cast<std::size_t>(host.layout.rope_row_bytes));
        }
      };
      const std::vector<std::int64_t> copies = {0, 5, -1, 3, 2,
                                                6, 8, 1,  1, 8};  // three of them name no block
      const DeviceArray<std::int64_t> pairs(copies);
      device_ops::copy_blocks(host.layout, pool.view, pool.view, {pairs.data(), {5, 2}});
      const Bytes r0 = host.rows, k0 = host.k_pe;
      move(r0, k0, 0, 5);
      move(r0, k0, 2, 6);
      pool.expect_equals(host, "copy");

      const std::vector<std::int64_t> cycle = {0, 1, 1, 2, 2, 0, 7, 7, 3, -1, 5, 6};
      const DeviceArray<std::int64_t> moves(cycle);
      DeviceArray<std::byte> space(device_ops::permute_workspace_bytes(host.layout, pool.view, 6));
      device_ops::permute_blocks(host.layout, pool.view, {moves.data(), {6, 2}},
                                 {space.data(), space.size()});
      const Bytes r1 = host.rows, k1 = host.k_pe;
      for (const auto& [from, to] : {std::pair{0, 1}, {1, 2}, {2, 0}, {5, 6}}) move(r1, k1, from, to);
      pool.expect_equals(host, "permutation");
    }
  }
}

TEST(RowOps, NormAndRotation) {
  MLA_NEEDS_GPU();
  for (const std::int64_t width : {1536, 7168, 100, 8}) {
    const auto w = static_cast<std::size_t>(width);
    const Values x(DType::kBF16, 5 * w, 3), weight(DType::kBF16, w, 4);
    const DeviceArray<std::byte> device_x(x.bytes), device_weight(weight.bytes);
    DeviceArray<float> out(5 * w);
    device_ops::rms_norm(ConstTensorRef(device_x.data(), DType::kBF16, {5, width}),
                         ConstTensorRef(device_weight.data(), DType::kBF16, {width}), 1e-6F,
                         TensorRef(out.data(), DType::kF32, {5, width}));
    const std::vector<float> got = out.read();
    for (std::size_t r = 0; r < 5; ++r) {
      const std::vector<float> row(x.floats.begin() + static_cast<std::ptrdiff_t>(r * w),
                                   x.floats.begin() + static_cast<std::ptrdiff_t>((r + 1) * w));
      const std::vector<float> want = contract_norm(row, weight.floats, 1e-6F);
      ASSERT_TRUE(std::equal(want.begin(), want.end(), got.begin() + static_cast<std::ptrdiff_t>(r * w)))
          << "width " << width << " row " << r;
    }
  }
  constexpr std::size_t kTokens = 3, kHeads = 5, kWidth = 40, kRope = 24;
  const Values x(DType::kF32, kTokens * kHeads * kWidth, 6), angles(DType::kF32, 8 * kRope, 7);
  DeviceArray<float> device_x(x.floats);
  const DeviceArray<float> cos(angles.floats);
  const DeviceArray<std::int64_t> positions(std::vector<std::int64_t>{7, 0, 3});
  device_ops::Rotation rotation;
  rotation.cos = {cos.data(), {8, kRope / 2}};
  rotation.sin = {cos.data() + 8 * kRope / 2, {8, kRope / 2}};
  rotation.positions = {positions.data(), {kTokens}};
  rotation.output = RopeLayout::kHalfSplit;
  device_ops::rotate(TensorRef(device_x.data(), DType::kF32, {kTokens, kHeads, kWidth}), kRope, rotation);
  const std::vector<float> got = device_x.read();
  const std::size_t at[3] = {7, 0, 3};
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t h = 0; h < kHeads; ++h) {
      const float* const row = x.floats.data() + (t * kHeads + h) * kWidth;
      std::vector<float> want(row, row + kWidth);
      const std::vector<float> turned =
          contract_rope({want.end() - kRope, want.end()}, angles.floats.data() + at[t] * kRope / 2,
                        angles.floats.data() + 8 * kRope / 2 + at[t] * kRope / 2,
                        {RopeLayout::kInterleaved, RopeLayout::kHalfSplit});
      std::copy(turned.begin(), turned.end(), want.end() - kRope);
      ASSERT_TRUE(std::equal(want.begin(), want.end(),
                             got.begin() + static_cast<std::ptrdiff_t>((t * kHeads + h) * kWidth)));
    }
  }
}

TEST(CacheOps, WrongArgumentsAreNamed) {
  const auto sentence = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.code() == ErrorCode::kInvalidArgument ? e.what() : std::string("other: ") + e.what();
    }
    return "nothing thrown";
  };
  std::byte memory[4096] = {};
  const std::int64_t slots[2] = {0, 1};
  device_ops::CacheWrite args;
  args.dims = {
      .num_heads = 1, .kv_lora_rank = 32, .qk_rope_head_dim = 8, .qk_nope_head_dim = 8, .v_head_dim = 8};
  args.c_kv = ConstTensorRef(memory, DType::kBF16, {2, 32});
  args.k_pe = ConstTensorRef(memory, DType::kBF16, {2, 8});
  args.slot_mapping = {slots, {2}};
  args.cache.data = memory;
  args.cache.num_blocks = 1;
  args.cache.row_stride_bytes = 80;
  args.cache.block_stride_bytes = 64 * 80;
  auto with = args;
  with.c_kv = ConstTensorRef(memory, DType::kBF16, {2, 31});
  EXPECT_EQ(sentence([&] { device_ops::write_cache(with); }), "c_kv is [2, 31], but must be [.., 32]");
  with = args;
  with.k_pe.dtype = DType::kF16;
  EXPECT_EQ(sentence([&] { device_ops::write_cache(with); }), "k_pe is f16, but must be bf16");
  with = args;
  with.slot_mapping = {slots, {1}};
  EXPECT_EQ(sentence([&] { device_ops::write_cache(with); }),
            "slot_mapping has 1 entries, but must have at least 2");
  with = args;
  with.cache.data = memory + 1;
  EXPECT_EQ(sentence([&] { device_ops::write_cache(with); }),
            "the rows of a bf16 cache must start at multiples of 2 bytes");
  with = args;
  with.cache.format = CacheFormat::kF64;
  EXPECT_EQ(sentence([&] { device_ops::write_cache(with); }), "an f64 cache is for the CPU");
  with = args;
  with.cache.format = CacheFormat::kBF16Split;
  EXPECT_EQ(sentence([&] { device_ops::write_cache(with); }), "the cache has no k_pe pool");
  with = args;
  with.intermediate = DType::kI32;
  EXPECT_EQ(sentence([&] { device_ops::write_cache(with); }),
            "the intermediate type is i32, but must be f32, bf16 or f16");
  with = args;
  with.norm_weight = ConstTensorRef(memory, DType::kBF16, {32});
  with.norm_eps = -1;
  EXPECT_EQ(sentence([&] { device_ops::write_cache(with); }), "the norm's eps is -1, but must be in 0..1");
}

}  // namespace
