// SPDX-License-Identifier: Apache-2.0
// The host conversions over every bit pattern. The oracle never touches the library's arithmetic: it decodes
// by the textbook formula and encodes by searching the sorted list of decoded values for the nearest.
#include "mla/dtype.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "mla/error.hpp"
#include "mla/random.hpp"

namespace {

using mla::DType;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Format {
  const char* name;
  DType dtype;
  int exponent_bits;
  int mantissa_bits;
  bool finite;  // e4m3 "fn": no infinity, all ones is the only NaN
  std::function<float(unsigned)> decode;
  std::function<unsigned(float)> encode;
  [[nodiscard]] unsigned patterns() const { return 1U << (1 + exponent_bits + mantissa_bits); }
  [[nodiscard]] unsigned sign_bit() const { return patterns() / 2; }
};

const Format kFormats[] = {
    {"bf16", DType::kBF16, 8, 7, false,
     [](unsigned b) { return mla::bf16_to_float(static_cast<std::uint16_t>(b)); },
     [](float v) { return unsigned{mla::float_to_bf16(v)}; }},
    {"f16", DType::kF16, 5, 10, false,
     [](unsigned b) { return mla::f16_to_float(static_cast<std::uint16_t>(b)); },
     [](float v) { return unsigned{mla::float_to_f16(v)}; }},
    {"e4m3", DType::kE4M3, 4, 3, true,
     [](unsigned b) { return mla::e4m3_to_float(static_cast<std::uint8_t>(b)); },
     [](float v) { return unsigned{mla::float_to_e4m3(v)}; }},
};

/// (-1)^s 2^(e-bias) (1 + m / 2^M), the definition.
double by_formula(const Format& f, unsigned bits) {
  const int m = static_cast<int>(bits & ((1U << f.mantissa_bits) - 1));
  const int e = static_cast<int>(bits >> f.mantissa_bits & ((1U << f.exponent_bits) - 1));
  const int top = (1 << f.exponent_bits) - 1;
  const int bias = top / 2;
  const double sign = (bits & f.sign_bit()) != 0 ? -1.0 : 1.0;
  const double fraction = m / std::pow(2.0, f.mantissa_bits);
  if (e == top && !f.finite) return m == 0 ? sign * kInf : kNan;
  if (e == top && m == (1 << f.mantissa_bits) - 1) return kNan;
  return sign * (e == 0 ? fraction * std::pow(2.0, 1 - bias) : (1 + fraction) * std::pow(2.0, e - bias));
}

/// Finite non-negative values of a format in order: the index is the bit pattern.
std::vector<double> ladder(const Format& f) {
  std::vector<double> values;
  for (unsigned bits = 0; bits < f.sign_bit(); ++bits) {
    const double v = by_formula(f, bits);
    if (std::isfinite(v)) values.push_back(v);
  }
  return values;
}

/// Nearest value by search; ties to the even pattern; beyond the last: half a step further is the border to
/// infinity.
double nearest(const Format& f, const std::vector<double>& values, double v) {
  if (std::isnan(v)) return v;
  const double a = std::abs(v);
  const double last_step = values.back() - values[values.size() - 2];
  double found = 0;
  if (f.finite && a >= values.back()) {
    found = values.back();
  } else if (a >= values.back() + last_step / 2) {
    found = kInf;
  } else {
    const auto above =
        static_cast<std::size_t>(std::lower_bound(values.begin(), values.end(), a) - values.begin());
    if (above == values.size()) {
      found = values.back();
    } else if (above == 0 || values[above] == a) {
      found = values[above];
    } else {
      const double down = a - values[above - 1];
      const double up = values[above] - a;
      const bool take_up = up < down || (up == down && above % 2 == 0);
      found = values[take_up ? above : above - 1];
    }
  }
  return std::copysign(found, v);
}

bool same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

class SmallFloat : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Every, SmallFloat, testing::ValuesIn(kFormats),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(SmallFloat, DecodesEveryPatternByTheFormula) {
  const Format& f = GetParam();
  for (unsigned bits = 0; bits < f.patterns(); ++bits) {
    ASSERT_TRUE(same(f.decode(bits), by_formula(f, bits))) << std::hex << bits << " gave " << f.decode(bits);
  }
}

TEST_P(SmallFloat, EveryPatternSurvivesTheRoundTrip) {
  const Format& f = GetParam();
  for (unsigned bits = 0; bits < f.patterns(); ++bits) {
    const double v = by_formula(f, bits);
    const unsigned back = f.encode(f.decode(bits));
    if (std::isnan(v)) {
      ASSERT_TRUE(std::isnan(by_formula(f, back))) << std::hex << bits;
      ASSERT_EQ(back & f.sign_bit(), bits & f.sign_bit()) << "the sign of NaN " << std::hex << bits;
    } else {
      ASSERT_EQ(back, bits);
    }
    ASSERT_TRUE(same(mla::round_to(f.dtype, v), v)) << std::hex << bits;
  }
}

TEST_P(SmallFloat, RoundsAtEveryBorderOnce) {
  const Format& f = GetParam();
  const std::vector<double> values = ladder(f);
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const double middle = (values[i] + values[i + 1]) / 2;  // exact in double
    for (const double sign : {1.0, -1.0}) {
      for (const double v : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, kInf),
                             std::nextafter(values[i], kInf), std::nextafter(values[i + 1], 0.0)}) {
        ASSERT_TRUE(same(mla::round_to(f.dtype, sign * v), nearest(f, values, sign * v)))
            << std::hexfloat << v;
        const auto single = static_cast<float>(sign * v);
        ASSERT_TRUE(same(by_formula(f, f.encode(single)), nearest(f, values, single)))
            << std::hexfloat << single;
      }
    }
  }
}

TEST_P(SmallFloat, OverflowAndSpecials) {
  const Format& f = GetParam();
  const std::vector<double> values = ladder(f);
  const double largest = values.back();
  const double step = largest - values[values.size() - 2];
  const double beyond = f.finite ? largest : kInf;
  for (const double sign : {1.0, -1.0}) {
    EXPECT_EQ(mla::round_to(f.dtype, sign * std::nextafter(largest + step / 2, 0.0)), sign * largest);
    EXPECT_EQ(mla::round_to(f.dtype, sign * (largest + step / 2)),
              sign * beyond);  // a tie goes to the even one
    EXPECT_EQ(mla::round_to(f.dtype, sign * (largest + step)), sign * beyond);
    EXPECT_EQ(mla::round_to(f.dtype, sign * 1e300), sign * beyond);
    EXPECT_EQ(mla::round_to(f.dtype, sign * kInf), sign * beyond);
    EXPECT_TRUE(same(mla::round_to(f.dtype, sign * values[1] / 2), sign * 0.0));
    EXPECT_EQ(mla::round_to(f.dtype, sign * std::nextafter(values[1] / 2, 1.0)), sign * values[1]);
    EXPECT_TRUE(same(mla::round_to(f.dtype, sign * 5e-324), sign * 0.0));
  }
  EXPECT_TRUE(std::isnan(mla::round_to(f.dtype, kNan)));
  // A NaN whose payload sits only in bits that are cut off must not turn into infinity.
  EXPECT_TRUE(std::isnan(mla::round_to(f.dtype, std::bit_cast<double>(0x7FF0000000000001ULL))));
  EXPECT_TRUE(std::isnan(by_formula(f, f.encode(std::bit_cast<float>(0x7F800001U)))));
}

TEST_P(SmallFloat, AgreesWithTheSearchAllOverTheFloats) {
  const Format& f = GetParam();
  const std::vector<double> values = ladder(f);
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32);
       bits += 10007) {  // a prime: every exponent, odd bits
    const auto v = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    ASSERT_TRUE(same(by_formula(f, f.encode(v)), nearest(f, values, v))) << std::hexfloat << v;
  }
}

TEST_P(SmallFloat, UnitRoundoffIsHalfAStepAtOne) {
  const Format& f = GetParam();
  const std::vector<double> values = ladder(f);
  const auto one = std::find(values.begin(), values.end(), 1.0);
  ASSERT_NE(one, values.end());
  EXPECT_EQ(mla::unit_roundoff(f.dtype), (one[1] - 1.0) / 2);
}

TEST(DType, ValuesKnownByHeart) {
  EXPECT_EQ(mla::bf16_to_float(0x3F80), 1.0F);
  EXPECT_EQ(mla::bf16_to_float(0x7F7F), 0x1.FEp127F);
  EXPECT_EQ(mla::bf16_to_float(0x0001), 0x1p-133F);
  EXPECT_EQ(mla::f16_to_float(0x3C00), 1.0F);
  EXPECT_EQ(mla::f16_to_float(0x7BFF), 65504.0F);
  EXPECT_EQ(mla::f16_to_float(0x0001), 0x1p-24F);
  EXPECT_EQ(mla::e4m3_to_float(0x7E), 448.0F);
  EXPECT_EQ(mla::e4m3_to_float(0x08), 0x1p-6F);
  EXPECT_EQ(mla::e4m3_to_float(0x01), 0x1p-9F);
  EXPECT_EQ(mla::float_to_e4m3(1000.0F), 0x7E);
  EXPECT_EQ(mla::float_to_e4m3(-std::numeric_limits<float>::infinity()), 0xFE);
  EXPECT_EQ(mla::float_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(mla::float_to_bf16(3.14159265F), 0x4049);
}

TEST(DType, OneRoundingFromDoubleWhereFloatInBetweenWouldMislead) {
  struct Trap {
    DType dtype;
    double value, want;
  };
  const Trap traps[] = {
      {DType::kBF16, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-7},  // just above the tie between 1 and 1 + 2^-7
      {DType::kBF16, 1 + 0x3p-8 - 0x1p-40, 1 + 0x1p-7},  // just below the tie whose even side is above
      {DType::kF16, 1 + 0x1p-11 + 0x1p-45, 1 + 0x1p-10}, {DType::kE4M3, 1 + 0x1p-4 + 0x1p-50, 1 + 0x1p-3},
      {DType::kE4M3, 0x1p-10 + 0x1p-60, 0x1p-9},  // the same among the denormals
  };
  for (const Trap& trap : traps) {
    EXPECT_EQ(mla::round_to(trap.dtype, trap.value), trap.want) << std::hexfloat << trap.value;
    const double through_float = mla::round_to(trap.dtype, mla::round_to(DType::kF32, trap.value));
    EXPECT_NE(through_float, trap.want) << "this value is no trap: " << std::hexfloat << trap.value;
  }
  EXPECT_EQ(mla::round_to(DType::kF32, 1 + 0x1p-24 + 0x1p-50), 1 + 0x1p-23);
  EXPECT_EQ(mla::round_to(DType::kF32, 1e300), kInf);
  EXPECT_EQ(mla::round_to(DType::kF64, 0.1), 0.1);
}

TEST(E8M0, EveryPatternAndTheBordersBetween) {
  for (unsigned bits = 0; bits < 255; ++bits) {
    const double v = std::pow(2.0, static_cast<int>(bits) - 127);
    ASSERT_EQ(mla::e8m0_to_float(static_cast<std::uint8_t>(bits)), v);
    ASSERT_EQ(mla::float_to_e8m0(static_cast<float>(v)), bits);
    ASSERT_EQ(mla::round_to(DType::kE8M0, v), v);
    if (bits < 254) {
      ASSERT_EQ(mla::round_to(DType::kE8M0, std::nextafter(v, kInf)), 2 * v);  // up, never down
    }
    if (bits > 0) {
      ASSERT_EQ(mla::round_to(DType::kE8M0, std::nextafter(v, 0.0)), v);
    }
  }
  EXPECT_TRUE(std::isnan(mla::e8m0_to_float(0xFF)));
  EXPECT_EQ(mla::float_to_e8m0(0.0F), 0);
  EXPECT_EQ(mla::float_to_e8m0(-0.0F), 0);
  EXPECT_EQ(mla::float_to_e8m0(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(mla::float_to_e8m0(std::numeric_limits<float>::max()), 254);
  EXPECT_EQ(mla::float_to_e8m0(std::numeric_limits<float>::infinity()), 254);
  EXPECT_EQ(mla::float_to_e8m0(-1.0F), 0xFF);
  EXPECT_EQ(mla::float_to_e8m0(std::numeric_limits<float>::quiet_NaN()), 0xFF);
}

TEST(Elements, IntegersRoundToEvenAndSaturate) {
  EXPECT_EQ(mla::round_to(DType::kI32, 2.5), 2);
  EXPECT_EQ(mla::round_to(DType::kI32, -3.5), -4);
  EXPECT_EQ(mla::round_to(DType::kI32, 1e10), 2147483647);
  EXPECT_EQ(mla::round_to(DType::kI32, -1e10), -2147483648.0);
  EXPECT_EQ(mla::round_to(DType::kU8, 255.4), 255);
  EXPECT_EQ(mla::round_to(DType::kU8, 256.0), 255);
  EXPECT_EQ(mla::round_to(DType::kU8, -1.0), 0);
  EXPECT_EQ(mla::round_to(DType::kI32, kNan), 0);
  std::int64_t big = 0;
  mla::store_element(&big, DType::kI64, 0, 1e19);
  EXPECT_EQ(big, std::numeric_limits<std::int64_t>::max());
  mla::store_element(&big, DType::kI64, 0, 0x1p53 - 1);
  EXPECT_EQ(big, 9007199254740991);
}

TEST(Elements, LoadAndStoreOfEveryTypeAtAnOddAddress) {
  const std::map<DType, double> samples = {
      {DType::kF64, 0.1},   {DType::kF32, 0.5},   {DType::kF16, -65504.0},
      {DType::kBF16, 1.5},  {DType::kE4M3, -448}, {DType::kE8M0, 0.25},
      {DType::kI64, -7e15}, {DType::kI32, -5},    {DType::kU8, 200}};
  for (const auto& [dtype, value] : samples) {
    std::vector<unsigned char> bytes(1 + 3 * mla::size_of(dtype) + 1, 0xAB);
    mla::store_element(bytes.data() + 1, dtype, 1, value);
    EXPECT_EQ(mla::load_element(bytes.data() + 1, dtype, 1), value) << mla::name_of(dtype);
    for (std::size_t i = 0; i < bytes.size(); ++i) {  // no byte outside the element was touched
      if (i < 1 + mla::size_of(dtype) || i >= 1 + 2 * mla::size_of(dtype)) {
        EXPECT_EQ(bytes[i], 0xAB) << mla::name_of(dtype) << " byte " << i;
      }
    }
  }
}

TEST(DType, NamesAndSizes) {
  const std::map<std::string, std::size_t> sizes = {{"f64", 8},  {"f32", 4},  {"f16", 2},
                                                    {"bf16", 2}, {"e4m3", 1}, {"e8m0", 1},
                                                    {"i64", 8},  {"i32", 4},  {"u8", 1}};
  for (const auto& [name, size] : sizes) {
    EXPECT_EQ(mla::name_of(mla::parse_dtype(name)), name);
    EXPECT_EQ(mla::size_of(mla::parse_dtype(name)), size);
  }
  const std::map<std::string, std::string> aliases = {
      {"fp64", "f64"},    {"float64", "f64"},   {"fp32", "f32"}, {"float32", "f32"},  {"fp16", "f16"},
      {"float16", "f16"}, {"bfloat16", "bf16"}, {"fp8", "e4m3"}, {"fp8_e4m3", "e4m3"}};
  for (const auto& [alias, name] : aliases) EXPECT_EQ(mla::name_of(mla::parse_dtype(alias)), name);
}

TEST(DType, UnknownNameSaysWhatIsAllowed) {
  try {
    static_cast<void>(mla::parse_dtype("bf61"));
    FAIL() << "bf61 was accepted";
  } catch (const mla::Error& e) {
    EXPECT_EQ(e.code(), mla::ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(e.what()).find("'bf61'"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("f64, f32, f16, bf16, e4m3, e8m0, i64, i32 or u8"),
              std::string::npos)
        << e.what();
    EXPECT_EQ(e.hint(), "did you mean 'bf16'?");
  }
}

}  // namespace
