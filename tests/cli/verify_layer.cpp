// SPDX-License-Identifier: Apache-2.0
// mla-verify layer on checkpoints in the shape of published ones: one file and shards, bf16 and fp8 with
// block scales, every family's names; and a sentence for whatever may be wrong with one.
#include <gtest/gtest.h>
#include <unistd.h>

#include "../unit/checkpoint_files.hpp"
#include "mla/error.hpp"
#include "run_program.hpp"
#include "verify/layer_weights.hpp"

namespace {

namespace fs = std::filesystem;
using namespace mla;
using test::RunResult;
using test::Tensors;

const std::string kPrefix = "model.layers.3.self_attn.";

class VerifyLayer : public testing::Test {
 protected:
  VerifyLayer()
      : dir_(fs::path(testing::TempDir()) / ("mla_layer_" + std::to_string(::getpid()) + "_" +
                                             testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    configure(test::small_config());
  }
  ~VerifyLayer() override { fs::remove_all(dir_); }

  void configure(const JsonText& config) const { std::ofstream(dir_ / "config.json") << config.text(); }
  void store(const Tensors& tensors) const { test::write_file(dir_ / "model.safetensors", tensors); }
  /// The golden set's first sequence and its output, as transformers computed it in single precision.
  void store_golden_input() const {
    Tensors all = test::golden_tensors();
    test::write_file(dir_ / "golden.safetensors", {{"hidden", all.at("seq0.hidden")},
                                                   {"positions", all.at("seq0.positions")},
                                                   {"out", all.at("seq0.out_f32")}});
  }
  [[nodiscard]] RunResult layer(std::vector<std::string> more) const {
    if (std::ranges::find(more, "--layer") == more.end()) more.insert(more.begin(), {"--layer", "3"});
    more.insert(more.begin(), {"layer", "--weights", dir_.string(), "-q"});
    return test::run_program(MLA_VERIFY, more);
  }
  /// Out, attention, lse, rows and q of the reference, as bytes.
  [[nodiscard]] std::string saved(const std::string& name) const {
    const std::string path = (dir_ / name).string();
    const RunResult r = layer({"--tokens", "9", "--backends", "cpu-absorbed", "--save", path});
    EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void expect_error(const std::vector<std::string>& says, const std::vector<std::string>& more = {}) const {
    const RunResult r = layer(more);
    EXPECT_EQ(r.exit_code, 2) << r.out;
    for (const std::string& part : says)
      EXPECT_NE(r.err.find(part), std::string::npos) << part << "\nin: " << r.err;
  }
  /// The sentence that loading a changed set of weights ends with.
  void expect_refused(const std::function<void(Tensors&)>& change,
                      const std::vector<std::string>& says) const {
    Tensors tensors = test::layer_weights(kPrefix);
    change(tensors);
    store(tensors);
    expect_error(says);
  }
  fs::path dir_;
};

test::StoredTensor zeros(DType dtype, std::vector<std::int64_t> shape) {
  std::int64_t n = static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t e : shape) n *= e;
  return {dtype, std::move(shape), std::vector<std::byte>(static_cast<std::size_t>(n))};
}

/// Every fp8 matrix as doubles of what it stands for.
Tensors dequantised(const Tensors& fp8) {
  Tensors plain;
  for (const auto& [name, t] : fp8) {
    if (name.ends_with("_scale_inv")) continue;
    if (t.dtype != DType::kE4M3) {
      plain[name] = t;
      continue;
    }
    const test::StoredTensor& scales = fp8.at(name + "_scale_inv");
    test::StoredTensor wide = zeros(DType::kF64, t.shape);
    for (std::int64_t r = 0; r < t.shape[0]; ++r) {
      for (std::int64_t c = 0; c < t.shape[1]; ++c) {
        const auto at = static_cast<std::size_t>(r * t.shape[1] + c);
        wide.set(at, t.get(at) * scales.get(static_cast<std::size_t>(r / 128 * scales.shape[1] + c / 128)));
      }
    }
    plain[name] = wide;
  }
  return plain;
}

TEST_F(VerifyLayer, GivesTheOutputOfTransformers) {
  store(test::layer_weights(kPrefix));
  store_golden_input();
  const RunResult r = layer({"--hidden", (dir_ / "golden.safetensors").string()});
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("the given output"), std::string::npos) << r.out;
}

TEST_F(VerifyLayer, OneWrongWeightIsNoticed) {
  store_golden_input();
  for (const char* matrix : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"}) {
    Tensors tensors = test::layer_weights(kPrefix);
    test::StoredTensor& t = tensors.at(kPrefix + matrix + ".weight");
    t.set(5, t.get(5) + 0.25);  // one element of a thousand
    store(tensors);
    const RunResult r = layer(
        {"--hidden", (dir_ / "golden.safetensors").string(), "--backends", "cpu-absorbed", "--cache", "f64"});
    EXPECT_EQ(r.exit_code, 1) << matrix << r.out << r.err;
    EXPECT_NE(r.out.find("the given output"), std::string::npos) << matrix;
  }
}

TEST_F(VerifyLayer, ShardLayoutDoesNotMatter) {
  const Tensors tensors = test::layer_weights(kPrefix);
  store(tensors);
  const std::string one = saved("one.out");
  fs::remove(dir_ / "model.safetensors");
  test::write_shards(dir_, tensors, 2);
  const std::string two = saved("two.out");
  fs::remove(dir_ / "model.safetensors.index.json");
  test::write_shards(dir_, tensors, 5);
  EXPECT_FALSE(one.empty());
  EXPECT_EQ(one, two);
  EXPECT_EQ(one, saved("five.out"));
}

TEST_F(VerifyLayer, Fp8BlocksAreTheirScaledValues) {
  Tensors fp8 = test::layer_weights(kPrefix);
  // kv_b_proj is [160, 32]: two blocks of rows, the second and every column block not full.
  for (const char* matrix : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"}) {
    test::make_fp8(fp8, kPrefix + matrix);
  }
  ASSERT_EQ(fp8.at(kPrefix + "kv_b_proj.weight_scale_inv").shape, (std::vector<std::int64_t>{2, 1}));
  test::write_shards(dir_, fp8, 2);
  const std::string quantised = saved("fp8.out");
  fs::remove(dir_ / "model.safetensors.index.json");
  store(dequantised(fp8));
  EXPECT_FALSE(quantised.empty());
  EXPECT_EQ(quantised, saved("wide.out"));
  store(test::layer_weights(kPrefix));
  EXPECT_NE(quantised, saved("bf16.out")) << "the scales had no effect";
}

TEST_F(VerifyLayer, BlocksOfTheConfigurationAreUsed) {
  Tensors fp8 = test::layer_weights(kPrefix);
  test::make_fp8(fp8, kPrefix + "kv_b_proj", 64);  // [160, 32] in blocks of 64: [3, 1]
  store(fp8);
  configure(test::small_config().with(
      "quantization_config", R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [64, 64]})"));
  const RunResult r = layer({"--backends", "cpu-absorbed"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_NE(r.out.find("blocks of 64 x 64"), std::string::npos) << r.out;
}

TEST_F(VerifyLayer, PrefixesOfOtherFamilies) {
  for (const char* prefix : {"layers.3.self_attn.", "language_model.model.layers.3.self_attn.",
                             "model.language_model.layers.3.self_attn."}) {
    Tensors tensors = test::layer_weights(prefix);
    // Another tower and a drafting module have layers of the same number.
    tensors["vision_tower.encoder.layers.3.self_attn.q_proj.weight"] = zeros(DType::kBF16, {8, 8});
    tensors["model.mtp.layers.3.self_attn.q_a_proj.weight"] = zeros(DType::kBF16, {8, 8});
    tensors["model.layers.33.self_attn.q_a_proj.weight"] = zeros(DType::kBF16, {8, 8});
    store(tensors);
    const RunResult r = layer({"--backends", "cpu-absorbed", "-o", "json"});
    EXPECT_EQ(r.exit_code, 0) << prefix << r.err;
    EXPECT_NE(r.out.find(std::string("\"") + prefix), std::string::npos) << r.out;
  }
}

TEST_F(VerifyLayer, LongCatHasTwoBlocks) {
  Tensors tensors = test::layer_weights(kPrefix + "0.");
  for (auto& [name, t] : test::layer_weights(kPrefix + "1.")) tensors[name] = t;
  store(tensors);
  const RunResult both = layer({"--backends", "cpu-absorbed", "-o", "json"});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_NE(both.out.find(kPrefix + "0."), std::string::npos);
  EXPECT_NE(both.out.find(kPrefix + "1."), std::string::npos);
  const RunResult second = layer({"--backends", "cpu-absorbed", "-o", "json", "--block", "1"});
  EXPECT_EQ(second.out.find(kPrefix + "0."), std::string::npos);
  expect_error({"--block is 2", "2 attention blocks"}, {"--block", "2"});
}

TEST_F(VerifyLayer, WhatIsWrongWithATensorIsSaid) {
  const auto rename = [](const char* from, const char* to) {
    return [from, to](Tensors& t) {
      t[kPrefix + to] = t.at(kPrefix + from);
      t.erase(kPrefix + from);
    };
  };
  expect_refused([](Tensors& t) { t.erase(kPrefix + "o_proj.weight"); },
                 {"model.layers.3.self_attn.o_proj.weight is missing"});
  expect_refused([](Tensors& t) { t.erase(kPrefix + "kv_a_layernorm.weight"); },
                 {"kv_a_layernorm.weight is missing"});
  expect_refused(
      [](Tensors& t) {
        t.at(kPrefix + "kv_b_proj.weight").shape = {32, 160};
      },
      {"kv_b_proj.weight has the shape [32, 160]", "[160, 32]"});
  expect_refused(
      [](Tensors& t) {
        t.at(kPrefix + "kv_a_layernorm.weight").shape = {4, 8};
      },
      {"kv_a_layernorm.weight", "[4, 8]", "[32]"});
  expect_refused(rename("q_a_proj.weight", "fused_qkv_a_proj_with_mqa.weight"),
                 {"q_a_proj.weight is missing", "fused_qkv_a_proj_with_mqa", "in one"});
  expect_refused(rename("kv_b_proj.weight", "k_b_proj.weight"), {"kv_b_proj.weight is missing", "k_b_proj"});
  expect_refused(rename("o_proj.weight", "o_proj.qweight"), {"o_proj is stored as qweight"});
  expect_refused(
      [](Tensors& t) {
        t.erase(kPrefix + "q_a_proj.weight");
        t[kPrefix + "q_proj.weight"] = zeros(DType::kBF16, {120, 80});
      },
      {"q_proj.weight is there", "q_lora_rank 24", "q_a_proj and q_b_proj"});
  expect_refused(
      [](Tensors& t) {
        t[kPrefix + "o_proj.weight"] = zeros(DType::kI32, {80, 80});
      },
      {"o_proj.weight is stored as I32"});
  expect_refused([](Tensors& t) { t[kPrefix + "o_proj.bias"] = zeros(DType::kBF16, {80}); },
                 {"o_proj.bias is there", "attention_bias"});
  expect_refused([](Tensors& t) { t.at(kPrefix + "o_proj.weight").set(7, std::nan("")); },
                 {"o_proj", "element 7", "nan"});
  expect_refused(
      [](Tensors& t) {
        test::make_fp8(t, kPrefix + "kv_b_proj");
        t.erase(kPrefix + "kv_b_proj.weight_scale_inv");
      },
      {"kv_b_proj.weight_scale_inv is missing", "fp8"});
  expect_refused(
      [](Tensors& t) {
        test::make_fp8(t, kPrefix + "kv_b_proj");
        t[kPrefix + "kv_b_proj.weight_scale_inv"] = zeros(DType::kF32, {1, 1});
      },
      {"kv_b_proj.weight_scale_inv has the shape [1, 1]", "[2, 1]", "128 x 128"});
  expect_refused(
      [](Tensors& t) {
        t.clear();
        t[kPrefix + "q_proj.weight"] = t[kPrefix + "k_proj.weight"] = zeros(DType::kBF16, {8, 8});
      },
      {"layer 3", "is not MLA", "k_proj, q_proj"});
  expect_refused(
      [](Tensors& t) {
        t["other.layers.3.self_attn.q_a_proj.weight"] = zeros(DType::kBF16, {8, 8});
      },
      {"more than one layer 3", "other.layers.3."});
}

TEST_F(VerifyLayer, ConfigurationsThatDoNotFit) {
  store(test::layer_weights(kPrefix));
  configure(test::small_config().with("q_lora_rank", "null"));
  expect_error({"q_a_proj.weight is there", "q_lora_rank", "null"});
  configure(test::small_config().with("attention_bias", "true"));
  expect_error({"q_a_proj.bias is missing"});
  configure(test::small_config().with("hidden_size", "96"));
  expect_error({"q_a_proj.weight has the shape [24, 80]", "[24, 96]"});
  fs::remove(dir_ / "config.json");
  expect_error({"no config.json beside", "--config"});
}

TEST_F(VerifyLayer, FilesThatDoNotFit) {
  store(test::layer_weights(kPrefix));
  expect_error({"no tensor of layer 4"}, {"--layer", "4"});
  expect_error({"'hidden'"}, {"--hidden", (dir_ / "model.safetensors").string()});
  test::write_file(dir_ / "in.safetensors", {{"hidden", zeros(DType::kBF16, {3, 8})}});
  expect_error({"'hidden'", "[3, 8]", "[tokens, 80]"}, {"--hidden", (dir_ / "in.safetensors").string()});
  fs::remove(dir_ / "model.safetensors");
  expect_error({"neither model.safetensors.index.json nor model.safetensors"});
  const auto index = [this](const std::string& text) {
    std::ofstream(dir_ / "model.safetensors.index.json") << text;
  };
  index("{");
  expect_error({"model.safetensors.index.json", "not valid JSON"});
  index(R"({"weight_map": 3})");
  expect_error({"weight_map"});
  index(R"({"weight_map": {"a": "../secret.safetensors"}})");
  expect_error({"'../secret.safetensors'", "beside its index"});
  test::write_shards(dir_, test::layer_weights(kPrefix), 2);
  fs::remove(dir_ / "model-00002-of-00002.safetensors");
  expect_error({"cannot open", "model-00002-of-00002"});
  test::write_file(dir_ / "model-00002-of-00002.safetensors", {{"x", zeros(DType::kF32, {1})}});
  expect_error({"the index says that model-00002-of-00002.safetensors holds", "but it does not"});
}

}  // namespace
