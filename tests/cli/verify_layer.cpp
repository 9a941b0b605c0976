// SPDX-License-Identifier: Apache-2.0
// mla-verify layer on files in the shape of published checkpoints, whose right output another implementation computed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "../unit/checkpoint_files.hpp"
#include "run_program.hpp"

namespace {

namespace fs = std::filesystem;
using namespace mla::test;
using Args = std::vector<std::string>;

const std::string kPrefix = "model.layers.3.self_attn.";

class VerifyLayer : public testing::Test {
 protected:
  VerifyLayer() : dir_(fs::path(testing::TempDir()) / ("mla_verify_layer_" + std::to_string(::getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    write_config(small_config());
    const Tensors golden = golden_tensors();
    Tensors input{{"hidden", golden.at("seq0.hidden")},
                  {"positions", golden.at("seq0.positions")},
                  {"out", golden.at("seq0.out_f32")}};
    write_file(dir_ / "states.safetensors", input);
    input.erase("out");
    write_file(dir_ / "states_only.safetensors", input);
  }
  ~VerifyLayer() override { fs::remove_all(dir_); }

  void write_config(const JsonText& config) const { std::ofstream(dir_ / "config.json") << config.text(); }

  /// The checkpoint in `shards` files; a fresh folder each time.
  void write(const Tensors& tensors, std::size_t shards = 2) const {
    for (const auto& entry : fs::directory_iterator(dir_)) {
      if (entry.path().filename().string().starts_with("model")) fs::remove(entry.path());
    }
    if (shards == 1) {
      write_file(dir_ / "model.safetensors", tensors);
    } else {
      write_shards(dir_, tensors, shards);
    }
  }

  [[nodiscard]] RunResult layer(Args more = {}, const std::string& hidden = "states.safetensors") const {
    Args args{"layer", "--weights", dir_.string(), "--layer", "3", "--hidden", (dir_ / hidden).string(),
              "-q"};
    args.insert(args.end(), more.begin(), more.end());
    return run_program(MLA_VERIFY, args);
  }

  void expect_refusal(const Tensors& tensors, const std::vector<std::string>& says) const {
    write(tensors);
    expect_refusal(layer(), says);
  }
  static void expect_refusal(const RunResult& r, const std::vector<std::string>& says) {
    EXPECT_EQ(r.exit_code, 2) << r.out << r.err;
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(r.err.starts_with("mla-verify: error: ")) << r.err;
    for (const std::string& part : says)
      EXPECT_NE(r.err.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << r.err;
  }

  /// Output of the reference layer as --save keeps it.
  [[nodiscard]] std::vector<double> saved_out(const std::string& hidden = "states_only.safetensors") const {
    const fs::path file = dir_ / "saved.safetensors";
    fs::remove(file);
    const RunResult r = layer({"--save", file.string()}, hidden);
    EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
    return mla::SafetensorsFile::open(file).at("out").to_double();
  }

  fs::path dir_;
};

TEST_F(VerifyLayer, ShardsBehindAnIndexGiveThePublishedOutput) {
  Tensors all = layer_weights(kPrefix);
  all.merge(layer_weights("model.layers.2.self_attn."));  // a neighbour
  for (auto& [name, t] : layer_weights("model.mtp.layers.3.self_attn."))
    all[name] = t;  // a drafter's layer 3
  write(all);
  const RunResult r = layer();
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
  EXPECT_TRUE(r.out.starts_with("PASS: layer 3")) << r.out;
  EXPECT_NE(r.out.find("the given output"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("cpu-absorbed"), std::string::npos) << r.out;
}

TEST_F(VerifyLayer, TheLayoutOfFilesDoesNotMatter) {
  const Tensors all = layer_weights(kPrefix);
  write(all, 2);
  const std::vector<double> two = saved_out();
  write(all, 1);
  EXPECT_EQ(saved_out(), two);
  write(all, 5);
  EXPECT_EQ(saved_out(), two);
  write(layer_weights("language_model.model.layers.3.self_attn."));
  EXPECT_EQ(saved_out(), two);
}

TEST_F(VerifyLayer, OneWrongWeightIsNoticed) {
  for (const char* name :
       {"q_a_proj.weight", "q_b_proj.weight", "kv_a_proj_with_mqa.weight", "kv_b_proj.weight",
        "o_proj.weight", "q_a_layernorm.weight", "kv_a_layernorm.weight"}) {
    SCOPED_TRACE(name);
    Tensors all = layer_weights(kPrefix);
    StoredTensor& w = all.at(kPrefix + name);
    w.set(3, w.get(3) + 0.25);
    write(all);
    const RunResult r = layer();
    EXPECT_EQ(r.exit_code, 1) << r.out << r.err;
    EXPECT_NE(r.out.find("FAIL the given output"), std::string::npos) << r.out;
  }
}

/// fp8 in blocks of 16: 24, 40 and 120 rows or columns are no multiples of it.
TEST_F(VerifyLayer, Fp8BlockScalesMeanWhatTheySay) {
  write_config(small_config().with(
      "quantization_config",
      R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [16, 16]})"));
  Tensors coded = layer_weights(kPrefix), plain = coded;
  for (const char* name : {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"}) {
    const std::string matrix = kPrefix + name;
    make_fp8(coded, matrix, 16);
    // The same values in f32, dequantised here element by element.
    const StoredTensor &codes = coded.at(matrix + ".weight"),
                       &scales = coded.at(matrix + ".weight_scale_inv");
    const std::int64_t columns = codes.shape[1], across = (columns + 15) / 16;
    StoredTensor values{mla::DType::kF64, codes.shape, std::vector<std::byte>(codes.bytes.size() * 8)};
    for (std::int64_t i = 0; i < codes.shape[0] * columns; ++i) {
      const std::int64_t block = i / columns / 16 * across + i % columns / 16;
      values.set(static_cast<std::size_t>(i),
                 codes.get(static_cast<std::size_t>(i)) * scales.get(static_cast<std::size_t>(block)));
    }
    plain[matrix + ".weight"] = values;
  }
  write(coded);
  const std::vector<double> from_codes = saved_out();
  write(plain);
  EXPECT_EQ(from_codes, saved_out());

  Tensors lost = coded;
  lost.erase(kPrefix + "kv_b_proj.weight_scale_inv");
  expect_refusal(lost, {kPrefix + "kv_b_proj.weight_scale_inv is missing"});
  Tensors bent = coded;
  bent.at(kPrefix + "o_proj.weight_scale_inv").shape = {25, 1};
  expect_refusal(bent, {"o_proj.weight_scale_inv has the shape [25, 1]", "wants [5, 5]"});
}

TEST_F(VerifyLayer, LongCatHasTwoAttentionsALayer) {
  Tensors all = layer_weights(kPrefix + "0.");
  Tensors second = layer_weights(kPrefix + "1.");
  StoredTensor& w = second.at(kPrefix + "1.o_proj.weight");
  for (std::size_t i = 0; i < w.bytes.size() / 2; ++i) w.set(i, -w.get(i));
  all.merge(second);
  write(all);
  const RunResult both = layer();
  EXPECT_EQ(both.exit_code, 1) << both.out << both.err;  // the second one gives minus the output
  EXPECT_EQ(layer({"--block", "0"}).exit_code, 0);
  EXPECT_EQ(layer({"--block", "1"}).exit_code, 1);
  expect_refusal(layer({"--block", "2"}), {"--block is 2, but layer 3 has 2 attention blocks"});
}

TEST_F(VerifyLayer, MissingMisshapedAndFusedTensorsAreNamed) {
  const Tensors good = layer_weights(kPrefix);
  const auto without = [&good](const std::string& name) {
    Tensors t = good;
    t.erase(kPrefix + name);
    return t;
  };
  const auto renamed = [&](const std::string& name, const std::string& to) {
    Tensors t = without(name);
    t[kPrefix + to] = good.at(kPrefix + name);
    return t;
  };
  for (const char* name :
       {"q_a_proj.weight", "q_b_proj.weight", "kv_a_proj_with_mqa.weight", "kv_b_proj.weight",
        "o_proj.weight", "q_a_layernorm.weight", "kv_a_layernorm.weight"}) {
    expect_refusal(without(name), {kPrefix + name + " is missing"});
  }
  expect_refusal(renamed("q_a_proj.weight", "fused_qkv_a_proj_with_mqa.weight"),
                 {"q_a_proj.weight is missing", "fused_qkv_a_proj_with_mqa", "as published"});
  expect_refusal(renamed("kv_b_proj.weight", "w_kc"), {"kv_b_proj.weight is missing", "w_kc"});
  expect_refusal(renamed("o_proj.weight", "o_proj.qweight"), {"o_proj is stored as qweight"});
  expect_refusal(renamed("q_a_proj.weight", "q_proj.weight"), {"q_proj.weight is there", "q_lora_rank 24"});

  Tensors bent = good;
  bent.at(kPrefix + "kv_b_proj.weight").shape = {32, 160};
  expect_refusal(bent, {kPrefix + "kv_b_proj.weight has the shape [32, 160]", "wants [160, 32]"});
  Tensors poisoned = good;
  poisoned.at(kPrefix + "o_proj.weight").set(7, std::numeric_limits<double>::quiet_NaN());
  expect_refusal(poisoned, {kPrefix + "o_proj: element 7 is nan"});
  Tensors biased = good;
  biased[kPrefix + "o_proj.bias"] = good.at(kPrefix + "q_a_layernorm.weight");
  expect_refusal(biased, {"o_proj.bias is there, but attention_bias"});
}

TEST_F(VerifyLayer, WhatIsNoMlaLayerIsSaid) {
  const Tensors good = layer_weights(kPrefix);
  write(good);
  Args other{"layer", "--weights", dir_.string(), "--layer", "4", "-q"};
  expect_refusal(run_program(MLA_VERIFY, other), {"no tensor of layer 4"});
  Tensors gqa;
  for (const char* name : {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"})
    gqa[kPrefix + name] = good.at(kPrefix + "o_proj.weight");
  expect_refusal(gqa, {"is not MLA", "k_proj"});
  write(good);
  write_config(gqa_config());
  expect_refusal(layer(), {"is not of an MLA model"});
  fs::remove(dir_ / "config.json");
  expect_refusal(layer(), {"no config.json beside"});
}

TEST_F(VerifyLayer, BrokenCheckpointsAreSentences) {
  write(layer_weights(kPrefix));
  fs::remove(dir_ / "model-00002-of-00002.safetensors");
  expect_refusal(layer(), {"model-00002-of-00002.safetensors"});

  write(layer_weights(kPrefix));
  write_file(dir_ / "model-00002-of-00002.safetensors", {{"x", layer_weights("").at("o_proj.weight")}});
  expect_refusal(layer(), {"the index says that model-00002-of-00002.safetensors holds", "but it does not"});

  const auto index = [this](const std::string& text) {
    std::ofstream(dir_ / "model.safetensors.index.json") << text;
    return layer();
  };
  expect_refusal(index("{"), {"not valid JSON"});
  expect_refusal(index("[]"), {"weight_map"});
  expect_refusal(index(R"({"weight_map": {}})"), {"weight_map is empty"});
  expect_refusal(index(R"({"weight_map": {"a": 3}})"), {"is 3, not a text"});
  expect_refusal(index(R"({"weight_map": {"a": "../elsewhere.safetensors"}})"), {"lies beside its index"});
  expect_refusal(run_program(MLA_VERIFY, {"layer", "--weights", (dir_ / "none").string(), "--layer", "3"}),
                 {"none"});
}

TEST_F(VerifyLayer, HiddenStatesMustFit) {
  write(layer_weights(kPrefix));
  const Tensors golden = golden_tensors();
  Tensors input{{"hidden", golden.at("seq0.hidden")}};
  input.at("hidden").shape = {80, 13};
  write_file(dir_ / "bent.safetensors", input);
  expect_refusal(layer({}, "bent.safetensors"), {"'hidden' has the shape [80, 13]", "hidden_size being 80"});
  write_file(dir_ / "other.safetensors", {{"states", golden.at("seq0.hidden")}});
  expect_refusal(layer({}, "other.safetensors"), {"hidden"});
  Tensors late{{"hidden", golden.at("seq0.hidden")}, {"positions", golden.at("seq1.positions")}};
  write_file(dir_ / "late.safetensors", late);
  expect_refusal(layer({}, "late.safetensors"), {"'positions' is I32 [7]", "13"});
}

}  // namespace
