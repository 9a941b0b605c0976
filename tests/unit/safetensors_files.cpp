// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "expect_error.hpp"
#include "mla/safetensors.hpp"

namespace {

namespace fs = std::filesystem;
using mla::DType;
using mla::ErrorCode;
using mla::SafetensorsFile;

class Safetensors : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path path(const char* name = "x.safetensors") const { return folder_ / name; }

  static std::string prefix(std::uint64_t length) {
    std::string bytes(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
    return bytes;
  }

  SafetensorsFile open_bytes(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
    return SafetensorsFile::open(path());
  }
  SafetensorsFile open_header(const std::string& header, std::size_t data_bytes) const {
    return open_bytes(prefix(header.size()) + header + std::string(data_bytes, '\1'));
  }
  void refused(const std::string& header, std::size_t data_bytes,
               const std::vector<std::string_view>& parts) const {
    expect_error([&] { return open_header(header, data_bytes); }, ErrorCode::kParse, parts);
  }

  fs::path folder_ = fs::temp_directory_path() / ("mla-safetensors-" + std::to_string(::getpid()));
};

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST_F(Safetensors, WritesWhatItReads) {
  const std::vector<float> floats = {1.5F, -2.0F, 3.25F, 0.0F, 1e-30F, 7.0F};
  const std::vector<std::uint16_t> halves = {0x3F80, 0xC000};
  const std::vector<std::int64_t> longs = {-1, std::int64_t{1} << 40};
  const std::vector<std::uint8_t> bytes = {0x38, 0xFF, 0x7E};
  const std::vector<mla::TensorToWrite> tensors = {
      {"longs", DType::kI64, {2}, bytes_of(longs)},
      {"a \"quoted\" name", DType::kF32, {2, 3}, bytes_of(floats)},
      {"scalar", DType::kF32, {}, bytes_of(floats).subspan(0, 4)},
      {"halves", DType::kBF16, {1, 2}, bytes_of(halves)},
      {"none", DType::kF32, {0, 7}, {}},
      {"eights", DType::kE4M3, {3}, bytes_of(bytes)},
  };
  mla::write_safetensors(path(), tensors, {{"by", "a test"}, {"k\n", "v\""}});
  const SafetensorsFile file = SafetensorsFile::open(path());
  EXPECT_EQ(file.tensors().size(), 6U);
  EXPECT_EQ(file.metadata().at("k\n"), "v\"");
  EXPECT_EQ(file.at("longs").to_double(), (std::vector<double>{-1, 1099511627776.0}));
  const mla::SafeTensor& matrix = file.at("a \"quoted\" name");
  EXPECT_EQ(matrix.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(matrix.to_double()[2], 3.25);
  EXPECT_EQ(file.at("scalar").numel(), 1);
  EXPECT_EQ(file.at("halves").stored_dtype, "BF16");
  EXPECT_EQ(file.at("halves").to_double(), (std::vector<double>{1.0, -2.0}));
  EXPECT_TRUE(file.at("none").to_double().empty());
  EXPECT_EQ(file.at("eights").to_double()[0], 1.0);
  EXPECT_TRUE(std::isnan(file.at("eights").to_double()[1]));
  EXPECT_EQ(file.find("other"), nullptr);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator{}), 1)
      << "a temporary file is left";
  // Data begins at a multiple of 8 bytes.
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.at("longs").bytes.data()) % 8, 0U);
}

TEST_F(Safetensors, SuggestsNames) {
  const std::vector<float> one = {1};
  const std::vector<mla::TensorToWrite> tensors = {{"q_a_proj", DType::kF32, {1}, bytes_of(one)}};
  mla::write_safetensors(path(), tensors);
  const SafetensorsFile file = SafetensorsFile::open(path());
  try {
    static_cast<void>(file.at("q_a_porj"));
    FAIL();
  } catch (const mla::Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(e.hint(), "did you mean 'q_a_proj'?");
  }
  // A moved-to file keeps its views.
  SafetensorsFile moved = SafetensorsFile::open(path());
  const mla::SafeTensor& tensor = moved.at("q_a_proj");
  const SafetensorsFile other = std::move(moved);
  EXPECT_EQ(tensor.to_double().front(), 1.0);
  EXPECT_EQ(&other.at("q_a_proj"), &tensor);
}

TEST_F(Safetensors, RefusesToWriteNonsense) {
  const std::vector<float> two = {1, 2};
  const auto refused = [&](std::vector<mla::TensorToWrite> tensors, std::vector<std::string_view> parts) {
    expect_error([&] { return (mla::write_safetensors(path(), tensors), 0); }, ErrorCode::kInvalidArgument,
                 parts);
    EXPECT_FALSE(fs::exists(path()));
  };
  refused({{"a", DType::kF32, {3}, bytes_of(two)}}, {"'a'", "needs 12 bytes", "8 were given"});
  refused({{"a", DType::kF32, {-1}, bytes_of(two)}}, {"'a'", "-1"});
  refused({{"a", DType::kF32, {std::int64_t{1} << 62, 8}, bytes_of(two)}}, {"no tensor has"});
  refused({{"a", DType::kF32, {2}, bytes_of(two)}, {"a", DType::kF32, {2}, bytes_of(two)}},
          {"'a' is given twice"});
  refused({{"__metadata__", DType::kF32, {2}, bytes_of(two)}}, {"metadata"});
  refused({{"a", DType::kU8, {1}, bytes_of(two).subspan(0, 1)}, {"b", DType::kF32, {2}, bytes_of(two)}},
          {"'b' would begin at byte 1"});
  refused({{"\xFF", DType::kF32, {2}, bytes_of(two)}}, {"UTF-8"});
  const std::vector<mla::TensorToWrite> good = {{"a", DType::kF32, {2}, bytes_of(two)}};
  expect_error([&] { return (mla::write_safetensors("/no/such/folder/x", good), 0); }, ErrorCode::kIo,
               {"/no/such/folder/x"});
}

TEST_F(Safetensors, PrefixAndLength) {
  expect_error([&] { return open_bytes(""); }, ErrorCode::kParse, {"0 bytes are too few"});
  expect_error([&] { return open_bytes("1234567"); }, ErrorCode::kParse, {"7 bytes are too few"});
  expect_error([&] { return open_bytes(prefix(100) + "{}"); }, ErrorCode::kParse,
               {"100 bytes long, but only 2 follow"});
  for (const std::uint64_t length : {~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{1} << 32}) {
    expect_error([&] { return open_bytes(prefix(length) + "{}"); }, ErrorCode::kParse,
                 {std::to_string(length)});
  }
  expect_error([&] { return open_bytes(prefix(0)); }, ErrorCode::kParse, {"not valid JSON"});
  EXPECT_TRUE(open_header("{}", 0).tensors().empty());
  EXPECT_EQ(open_header(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}      )", 4)
                .tensors()
                .size(),
            1U);
  // A sparse file of more than the format's limit of header bytes.
  std::ofstream(path(), std::ios::binary) << prefix(200'000'000);
  fs::resize_file(path(), 200'000'008);
  expect_error([&] { return SafetensorsFile::open(path()); }, ErrorCode::kParse, {"200000000", "100000000"});
}

TEST_F(Safetensors, Files) {
  expect_error([&] { return SafetensorsFile::open(path("absent")); }, ErrorCode::kIo,
               {"cannot open", "absent"});
  expect_error([&] { return SafetensorsFile::open(folder_); }, ErrorCode::kIo, {"not a regular file"});
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_error([&] { return SafetensorsFile::open(path("pipe")); }, ErrorCode::kIo, {"not a regular file"});
}

TEST_F(Safetensors, HeaderIsStrictJson) {
  refused("", 0, {"not valid JSON"});
  refused("[]", 0, {"must be an object", "an array"});
  refused("null", 0, {"must be an object", "null"});
  refused("{", 0, {"not valid JSON"});
  refused("{} {}", 0, {"not valid JSON"});
  refused("{\"a\": // comment\n 1}", 0, {"not valid JSON"});
  refused("{\"a\": \"\xC0\x80\"}", 0, {"UTF-8"});
  refused("{\"a\":" + std::string(10'000, '[') + "}", 0, {"nested deeper than 8 levels"});
  const std::string entry = R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})";
  refused("{\"a\": " + entry + ", \"a\": " + entry + "}", 4, {"'a' is given twice"});
}

TEST_F(Safetensors, EntriesAreWellFormed) {
  const auto entry = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string(R"({"weight": {"dtype": )") + dtype + ", \"shape\": " + shape +
           ", \"data_offsets\": " + offsets + "}}";
  };
  EXPECT_EQ(open_header(entry("\"F32\"", "[2]", "[0, 8]"), 8).at("weight").numel(), 2);
  refused(entry("\"F99\"", "[2]", "[0, 8]"), 8, {"'weight' has dtype 'F99'", "F32"});
  refused(entry("7", "[2]", "[0, 8]"), 8, {"dtype 7"});
  refused(entry("\"F32\"", "[3]", "[0, 8]"), 8, {"needs 12 bytes", "hold 8"});
  refused(entry("\"F32\"", "2", "[0, 8]"), 8, {"shape", "must be a list"});
  refused(entry("\"F32\"", "[-2]", "[0, 8]"), 8, {"-2", "shape"});
  refused(entry("\"F32\"", "[2.0]", "[0, 8]"), 8, {"2.0"});
  refused(entry("\"F32\"", "[\"2\"]", "[0, 8]"), 8, {"'2'"});
  refused(entry("\"F32\"", "[NaN]", "[0, 8]"), 8, {"NaN"});
  refused(entry("\"F32\"", "[99999999999999999999]", "[0, 8]"), 8, {"99999999999999999999"});
  refused(entry("\"F32\"", "[281474976710656, 281474976710656]", "[0, 8]"), 8, {"more than 2^63"});
  refused(entry("\"F32\"", "[281474976710656, 281474976710656, 0]", "[0, 0]"), 0, {"more than 2^63"});
  refused(entry("\"F32\"", "[2]", "[0]"), 8, {"1 data_offsets, not two"});
  refused(entry("\"F32\"", "[2]", "[0, 8, 16]"), 8, {"3 data_offsets"});
  refused(entry("\"F32\"", "[2]", "[8, 0]"), 8, {"ends at byte 0, before its begin at 8"});
  refused(entry("\"F32\"", "[2]", "[-8, 0]"), 8, {"-8"});
  refused(entry("\"F32\"", "[2]", "[0, 16]"), 8, {"16", "from 0 to 8"});
  refused(entry("\"F32\"", "[2]", "[0, 8.0]"), 8, {"8.0"});
  refused(R"({"weight": 3})", 0, {"'weight' must be an object"});
  refused(R"({"weight": {"dtype": "F32", "shape": []}})", 0, {"'weight' has no data_offsets"});
  refused(R"({"weight": {"dtype": "F32", "shape": [], "data_offsets": [0, 4], "x": 1}})", 4, {"'x'"});
  refused(R"({"__metadata__": {"a": 1}})", 0, {"__metadata__ 'a' must be a text"});
  refused(R"({"__metadata__": []})", 0, {"__metadata__ must be an object"});
  std::string many = R"({"weight": {"dtype": "F32", "shape": [1)";
  for (int i = 0; i < 40; ++i) many += ",1";
  refused(many + R"(], "data_offsets": [0, 4]}})", 4, {"41 dimensions"});
}

TEST_F(Safetensors, TensorsCoverTheData) {
  const auto two = [](const char* first, const char* second) {
    return std::string(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": )") + first +
           R"(}, "b": {"dtype": "U8", "shape": [4], "data_offsets": )" + second + "}}";
  };
  EXPECT_EQ(open_header(two("[0, 4]", "[4, 8]"), 8).tensors().size(), 2U);
  EXPECT_EQ(open_header(two("[4, 8]", "[0, 4]"), 8).tensors().size(), 2U);  // in any order
  refused(two("[0, 4]", "[2, 6]"), 6, {"'b' begins at byte 2, inside another tensor"});
  refused(two("[0, 4]", "[0, 4]"), 4, {"inside another tensor"});
  refused(two("[0, 4]", "[6, 10]"), 10, {"2 bytes belong to no tensor"});
  refused(two("[1, 5]", "[5, 9]"), 9, {"'a' begins at byte 1", "belong to no tensor"});
  refused(two("[0, 4]", "[4, 8]"), 12, {"end at byte 8, but the file holds 12"});
  refused("{}", 3, {"end at byte 0, but the file holds 3"});
  refused(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
              "b": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]}})",
          5, {"'b' begins at byte 1", "no multiple of the 4 bytes"});
}

// Offsets past 2^31 and 2^32, in a sparse file that takes no room.
TEST_F(Safetensors, LargeOffsets) {
  constexpr std::int64_t kBig = (std::int64_t{5} << 30);
  const std::string header =
      R"({"big": {"dtype": "U8", "shape": [5368709120], "data_offsets": [0, 5368709120]},
      "last": {"dtype": "F32", "shape": [1], "data_offsets": [5368709120, 5368709124]}})";
  std::ofstream(path(), std::ios::binary) << prefix(header.size()) << header;
  fs::resize_file(path(), 8 + header.size() + static_cast<std::uint64_t>(kBig));
  std::ofstream(path(), std::ios::binary | std::ios::app) << std::string("\0\0\x80\x3f", 4);
  const SafetensorsFile file = SafetensorsFile::open(path());
  EXPECT_EQ(file.at("big").bytes.size(), static_cast<std::size_t>(kBig));
  EXPECT_EQ(file.at("last").to_double(), (std::vector<double>{1.0}));
}

TEST_F(Safetensors, EveryTruncationOfAGoldenFileIsAnError) {
  std::ifstream in(MLA_TEST_DATA "/golden/v3_small.safetensors", std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  ASSERT_GT(whole.size(), 1000U);
  EXPECT_GT(open_bytes(whole).tensors().size(), 10U);
  for (std::size_t cut = 0; cut < whole.size(); cut += 1 + whole.size() / 97) {
    EXPECT_THROW(static_cast<void>(open_bytes(whole.substr(0, cut))), mla::Error) << cut;
  }
  EXPECT_THROW(static_cast<void>(open_bytes(whole + "x")), mla::Error);
}

// What a checkpoint stores beside what is computed with: its bytes are counted, its values are not read.
TEST_F(Safetensors, TypesThatNothingReads) {
  const SafetensorsFile file = open_header(
      R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
          "packed": {"dtype": "F4", "shape": [3, 6], "data_offsets": [8, 17]},
          "six": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [17, 20]},
          "flags": {"dtype": "BOOL", "shape": [5], "data_offsets": [20, 25]},
          "bytes": {"dtype": "I8", "shape": [], "data_offsets": [25, 26]},
          "shorts": {"dtype": "U16", "shape": [2, 0], "data_offsets": [26, 26]},
          "eights": {"dtype": "F8_E5M2", "shape": [2], "data_offsets": [26, 28]},
          "pairs": {"dtype": "C64", "shape": [1], "data_offsets": [32, 40]},
          "pad": {"dtype": "F8_E4M3FNUZ", "shape": [4], "data_offsets": [28, 32]}})",
      40);
  EXPECT_EQ(file.tensors().size(), 1U);
  ASSERT_EQ(file.unread().size(), 8U);
  EXPECT_EQ(file.unread().at("packed").bytes, 9);
  EXPECT_EQ(file.unread().at("packed").shape, (std::vector<std::int64_t>{3, 6}));
  EXPECT_EQ(file.unread().at("six").bytes, 3);
  EXPECT_EQ(file.unread().at("shorts").bytes, 0);
  EXPECT_EQ(file.find("packed"), nullptr);
  expect_error([&] { return file.at("packed"); }, ErrorCode::kInvalidArgument, {"'packed' is stored as F4"});
  // They are held to their sizes like all others.
  const auto one = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string(R"({"x": {"dtype": ")") + dtype + "\", \"shape\": " + shape +
           ", \"data_offsets\": " + offsets + "}}";
  };
  refused(one("F4", "[3]", "[0, 2]"), 2, {"12 bits", "no whole bytes"});
  refused(one("F4", "[4]", "[0, 4]"), 4, {"needs 2 bytes", "hold 4"});
  refused(one("I16", "[4]", "[0, 4]"), 4, {"needs 8 bytes"});
  refused(one("F4", "[281474976710656, 281474976710656]", "[0, 4]"), 4, {"more than 2^63"});
}

}  // namespace
