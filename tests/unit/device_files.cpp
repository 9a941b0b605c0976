// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "expect_error.hpp"
#include "json_text.hpp"
#include "mla/device.hpp"

namespace {

namespace fs = std::filesystem;
using mla::Device;
using mla::ErrorCode;

JsonText gpu() {
  return {{"name", R"("x1")"},
          {"title", R"("Example X1")"},
          {"vendor", R"("nvidia")"},
          {"architecture", R"("hopper")"},
          {"compute_capability", "90"},
          {"memory_bytes", "80000000000"},
          {"memory_bandwidth", "3.35e12"},
          {"dense_flops", R"({"bf16": 9.894e14})"},
          {"source", R"("a data sheet")"},
          {"checked", R"("2026-11-29")"}};
}

TEST(DeviceFiles, ReadsADescription) {
  const Device device = mla::parse_device("// with a comment\n" + gpu().text(), "x1.json");
  EXPECT_EQ(device.name, "x1");
  EXPECT_EQ(device.origin, mla::DeviceOrigin::kDescribed);
  EXPECT_EQ(device.memory_bytes, 80'000'000'000);
  EXPECT_DOUBLE_EQ(device.memory_bandwidth, 3.35e12);
  EXPECT_DOUBLE_EQ(device.dense_flops.at("bf16"), 9.894e14);
  EXPECT_EQ(device.dense_flops.count("f16"), 0U);
  EXPECT_EQ(device.l2_bytes, 0);
}

TEST(DeviceFiles, BadDescriptions) {
  const auto refused = [](const JsonText& text, ErrorCode code, std::vector<std::string_view> parts) {
    expect_error([&] { return mla::parse_device(text.text(), "x1.json"); }, code, parts);
  };
  for (const char* key : {"name", "vendor", "memory_bytes", "memory_bandwidth", "source", "checked"}) {
    refused(gpu().without(key), ErrorCode::kInvalidArgument, {"x1.json", std::string(key) + " is missing"});
  }
  for (const char* literal : {"-1", "0", "80.5", "\"80GB\"", "NaN", "1e999999", "[1]"}) {
    EXPECT_THROW(static_cast<void>(mla::parse_device(gpu().with("memory_bytes", literal).text(), "x")),
                 mla::Error)
        << literal;
  }
  refused(gpu().with("memory_byte", "1"), ErrorCode::kParse, {"'memory_byte' is not a key of this file"});
  refused(gpu().with("dense_flops", R"({"bf17": 1e12})"), ErrorCode::kParse, {"'dense_flops.bf17'"});
  refused(gpu().with("dense_flops", "1e12"), ErrorCode::kParse, {"dense_flops must be an object"});
  refused(gpu().with("dense_flops", R"({"bf16": -5})"), ErrorCode::kParse, {"dense_flops.bf16", "-5"});
  refused(gpu().with("checked", "\"yesterday!\""), ErrorCode::kParse, {"a date yyyy-mm-dd"});
  expect_error([] { return mla::parse_device("{\"name\": ", "x1.json"); }, ErrorCode::kParse,
               {"x1.json: not valid JSON"});
}

TEST(DeviceFiles, AllOfThemLoad) {
  const std::vector<Device> devices = mla::list_devices();
  std::set<std::string> names;
  for (const Device& device : devices) {
    EXPECT_EQ(fs::path(device.path).stem().string(), device.name);
    EXPECT_TRUE(names.insert(device.name).second) << device.name;
    for (const std::string& alias : device.aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
    EXPECT_GT(device.dense_flops.count("bf16"), 0U) << device.name;
    EXPECT_FALSE(device.source.empty()) << device.name;
    // Plain sanity of a data sheet: 0.2..16 TB/s, an intensity of 50..1500 bf16 operations a byte.
    EXPECT_GT(device.memory_bandwidth, 2e11) << device.name;
    EXPECT_LT(device.memory_bandwidth, 1.6e13) << device.name;
    const double intensity = device.dense_flops.at("bf16") / device.memory_bandwidth;
    EXPECT_GT(intensity, 30) << device.name;
    EXPECT_LT(intensity, 1500) << device.name;
  }
  for (const char* name :
       {"a100-40gb", "a100-80gb", "h100-sxm", "h100-pcie", "h200", "h800", "h20", "b200", "b300", "gb200",
        "l4", "l40s", "rtx-4090", "rtx-5090", "rtx-pro-6000", "mi300x", "mi325x", "mi355x", "gaudi3"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
}

TEST(DeviceFiles, DenseNotSparseRates) {
  // The H200's data sheet prints 1,979 TFLOP/s of bf16 "with sparsity"; half of it is what a dense product
  // reaches.
  const Device h200 = mla::load_device("H200");
  EXPECT_DOUBLE_EQ(h200.dense_flops.at("bf16"), 989.4e12);
  EXPECT_DOUBLE_EQ(h200.memory_bandwidth, 4.8e12);
  EXPECT_EQ(h200.num_sms, 132);
  EXPECT_EQ(h200.compute_capability, 90);
  EXPECT_NEAR(static_cast<double>(h200.memory_bytes) / (1 << 30), 139.81, 0.01);
}

TEST(DeviceFiles, FoundByNameAliasAndPath) {
  EXPECT_EQ(mla::load_device("h200-sxm").name, "h200");
  EXPECT_EQ(mla::load_device("A100").name, "a100-80gb");
  const Device device = mla::load_device(MLA_SOURCE_DIR "/configs/gpus/l4.json");
  EXPECT_EQ(device.name, "l4");
  try {
    static_cast<void>(mla::load_device("h20o"));
    FAIL();
  } catch (const mla::Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(e.hint().find("did you mean"), std::string::npos) << e.hint();
  }
  expect_error([] { return mla::load_device("no/such.json"); }, ErrorCode::kIo, {"no/such.json"});
  expect_error([] { return mla::load_device("/"); }, ErrorCode::kIo, {"is a folder"});
}

TEST(DeviceFiles, Host) {
  const Device host = mla::host_device();
  EXPECT_EQ(host.vendor, "cpu");
  EXPECT_EQ(host.origin, mla::DeviceOrigin::kHost);
  EXPECT_FALSE(host.title.empty());
  EXPECT_GT(host.memory_bytes, 1 << 28);
  EXPECT_GE(host.num_sms, 1);
  EXPECT_EQ(host.compute_capability, 0);
}

TEST(DeviceFiles, ConfigFolders) {
  const std::vector<fs::path> dirs = mla::config_dirs();
  ASSERT_FALSE(dirs.empty());
  for (const fs::path& dir : dirs) EXPECT_TRUE(fs::is_directory(dir)) << dir;
  expect_error([] { return (mla::set_config_dir("/no/such/folder"), 0); }, ErrorCode::kIo,
               {"/no/such/folder"});
  mla::set_config_dir(MLA_SOURCE_DIR "/tests");
  EXPECT_EQ(mla::config_dirs().front(), fs::path(MLA_SOURCE_DIR "/tests"));
  mla::set_config_dir({});
  EXPECT_EQ(mla::config_dirs(), dirs);
}

}  // namespace
