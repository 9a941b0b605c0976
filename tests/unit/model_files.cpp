// SPDX-License-Identifier: Apache-2.0
// The models of configs/models against the research's table (A2), and how models are found.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "expect_error.hpp"
#include "json_text.hpp"
#include "mla/device.hpp"
#include "mla/model.hpp"

namespace {

namespace fs = std::filesystem;
using mla::AttentionKind;
using mla::ErrorCode;
using mla::ModelConfig;

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(fs::temp_directory_path() / ("mla-models-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] fs::path write(const fs::path& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::int64_t state_bytes(const ModelConfig& model) {
  std::int64_t bytes = 0;
  for (const mla::LayerCache& layer : model.layers) bytes += layer.mtp ? 0 : layer.state_bytes;
  return bytes;
}

int indexers(const ModelConfig& model) {
  int count = 0;
  for (const mla::LayerCache& layer : model.layers) count += layer.indexer && !layer.mtp ? 1 : 0;
  return count;
}

struct MlaRow {
  const char* name;
  int caches, width;
  std::int64_t bf16, mha;  // bytes a token
  int indexers;
  std::int64_t state;
};

// Numbers of the table, not of the code: caches x width x 2 B; MHA is (n + r + v) x H x 2 B x caches.
constexpr MlaRow kMlaRows[] = {
    {"deepseek-v2", 60, 576, 69'120, 4'915'200, 0, 0},
    {"deepseek-v2-lite", 27, 576, 31'104, 276'480, 0, 0},
    {"moonlight-16b-a3b", 27, 576, 31'104, 276'480, 0, 0},
    {"kimi-vl-a3b", 27, 576, 31'104, 276'480, 0, 0},
    {"deepseek-v3", 61, 576, 70'272, 4'997'120, 0, 0},
    {"mistral-large-3", 61, 576, 70'272, 4'997'120, 0, 0},
    {"openpangu-ultra-moe-718b", 61, 576, 70'272, 4'997'120, 0, 0},
    {"deepseek-v3.2", 61, 576, 70'272, 4'997'120, 61, 0},
    {"kimi-k2", 61, 576, 70'272, 2'498'560, 0, 0},
    {"kimi-k2-0905", 61, 576, 70'272, 2'498'560, 0, 0},
    {"kimi-k2-thinking", 61, 576, 70'272, 2'498'560, 0, 0},
    {"kimi-k2.5", 61, 576, 70'272, 2'498'560, 0, 0},
    {"glm-4.7-flash", 47, 576, 54'144, 962'560, 0, 0},
    {"glm-5", 78, 576, 89'856, 5'111'808, 78, 0},
    {"glm-5.2", 78, 576, 89'856, 5'111'808, 21, 0},
    {"glm-5.3-flash", 11, 512, 11'264, 720'896, 11, 147'619'840},
    {"longcat-flash", 56, 576, 64'512, 2'293'760, 0, 0},
    {"minicpm3-4b", 62, 288, 35'712, 793'600, 0, 0},
    {"mistral-small-4", 36, 320, 23'040, 589'824, 0, 0},
    {"kimi-linear-48b-a3b", 7, 576, 8'064, 143'360, 0, 43'417'600},
    {"kimi-k3", 24, 576, 27'648, 1'474'560, 0, 449'372'160},
    {"ling-3.0-flash", 7, 576, 8'064, 143'360, 0, 75'980'800},
};

TEST(ModelFiles, MlaModelsMatchTheTable) {
  std::set<std::string> listed;
  for (const MlaRow& row : kMlaRows) {
    const ModelConfig model = mla::load_model(row.name);
    ASSERT_TRUE(model.mla.has_value()) << row.name;
    const mla::MlaDims& dims = *model.mla;
    const std::int64_t caches = model.count(AttentionKind::kMla);
    EXPECT_EQ(caches, row.caches) << row.name;
    EXPECT_EQ(dims.latent_width(), row.width) << row.name;
    EXPECT_EQ(caches * dims.latent_width() * 2, row.bf16) << row.name;
    EXPECT_EQ(caches * (dims.head_width() + dims.v_head_dim) * dims.num_heads * 2, row.mha) << row.name;
    EXPECT_EQ(indexers(model), row.indexers) << row.name;
    EXPECT_EQ(state_bytes(model), row.state) << row.name;
    EXPECT_TRUE(mla::is_mla(model).yes) << row.name;
    EXPECT_EQ(mla::is_sparse(model).yes, row.indexers > 0) << row.name;
    listed.insert(row.name);
  }
  // Every MLA model there is has a row above.
  for (const ModelConfig& model : mla::list_models()) {
    EXPECT_EQ(model.mla.has_value(), listed.count(model.name) == 1) << model.name;
  }
}

struct HeadsRow {
  const char* name;
  int full, window, none, recurrent;
  int full_heads, full_k, full_v, window_heads, window_k, window_v;
  std::int64_t window_tokens, bf16;  // bytes a token, every layer at full length
};

constexpr HeadsRow kHeadsRows[] = {
    {"llama-2-7b", 32, 0, 0, 0, 32, 128, 128, 0, 0, 0, 0, 524'288},
    {"llama-3.1-8b", 32, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 131'072},
    {"llama-3.1-70b", 80, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 327'680},
    {"llama-3.1-405b", 126, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 516'096},
    {"mistral-7b-v0.1", 0, 32, 0, 0, 0, 0, 0, 8, 128, 128, 4096, 131'072},
    {"mistral-7b", 32, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 131'072},
    {"mixtral-8x7b", 32, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 131'072},
    {"mixtral-8x22b", 56, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 229'376},
    {"qwen3-0.6b", 28, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 114'688},
    {"qwen3-8b", 36, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 147'456},
    {"qwen3-32b", 64, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 262'144},
    {"qwen3-30b-a3b", 48, 0, 0, 0, 4, 128, 128, 0, 0, 0, 0, 98'304},
    {"qwen3-235b-a22b", 94, 0, 0, 0, 4, 128, 128, 0, 0, 0, 0, 192'512},
    {"qwen3-coder-480b", 62, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 253'952},
    {"qwen2.5-7b", 28, 0, 0, 0, 4, 128, 128, 0, 0, 0, 0, 57'344},
    {"qwen3.5-27b", 16, 0, 0, 48, 4, 256, 256, 0, 0, 0, 0, 65'536},
    {"qwen3.5-35b-a3b", 10, 0, 0, 30, 2, 256, 256, 0, 0, 0, 0, 20'480},
    {"qwen3.5-122b-a10b", 12, 0, 0, 36, 2, 256, 256, 0, 0, 0, 0, 24'576},
    {"qwen3.5-397b-a17b", 15, 0, 0, 45, 2, 256, 256, 0, 0, 0, 0, 30'720},
    {"gpt-oss-20b", 12, 12, 0, 0, 8, 64, 64, 8, 64, 64, 128, 49'152},
    {"gpt-oss-120b", 18, 18, 0, 0, 8, 64, 64, 8, 64, 64, 128, 73'728},
    {"gemma-3-27b", 10, 52, 0, 0, 16, 128, 128, 16, 128, 128, 1024, 507'904},
    {"gemma-3-270m", 3, 15, 0, 0, 1, 256, 256, 1, 256, 256, 512, 18'432},
    {"gemma-4-31b", 10, 50, 0, 0, 4, 512, 512, 16, 256, 256, 1024, 901'120},
    {"gemma-4-26b-a4b", 5, 25, 0, 0, 2, 512, 512, 8, 256, 256, 1024, 225'280},
    {"mimo-v2-flash", 9, 39, 0, 0, 4, 192, 128, 8, 192, 128, 128, 222'720},
    {"mimo-7b", 36, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 147'456},
    {"minimax-m2", 62, 0, 0, 0, 8, 128, 128, 0, 0, 0, 0, 253'952},
    {"step-3.7-flash", 12, 33, 0, 0, 8, 128, 128, 8, 128, 128, 512, 184'320},
    {"nemotron-super-49b", 49, 0, 31, 0, 8, 128, 128, 0, 0, 0, 0, 200'704},
    {"nemotron-h-56b", 10, 0, 54, 54, 8, 128, 128, 0, 0, 0, 0, 40'960},
    {"nemotron-3-nano-30b-a3b", 6, 0, 23, 23, 2, 128, 128, 0, 0, 0, 0, 6'144},
    {"nemotron-3-super-120b-a12b", 8, 0, 40, 40, 2, 128, 128, 0, 0, 0, 0, 8'192},
    {"nemotron-3-ultra-550b-a55b", 12, 0, 48, 48, 2, 128, 128, 0, 0, 0, 0, 12'288},
};

TEST(ModelFiles, OtherModelsMatchTheTable) {
  for (const HeadsRow& row : kHeadsRows) {
    const ModelConfig model = mla::load_model(row.name);
    int full = 0, window = 0;
    std::int64_t bytes = 0;
    for (const mla::LayerCache& layer : model.layers) {
      if (layer.mtp || layer.kv_heads == 0) continue;
      const bool windowed = layer.window > 0;
      ++(windowed ? window : full);
      EXPECT_EQ(layer.kv_heads, windowed ? row.window_heads : row.full_heads) << row.name;
      EXPECT_EQ(layer.head_dim_k, windowed ? row.window_k : row.full_k) << row.name;
      EXPECT_EQ(layer.head_dim_v, windowed ? row.window_v : row.full_v) << row.name;
      EXPECT_EQ(layer.window, windowed ? row.window_tokens : 0) << row.name;
      bytes += std::int64_t{2} * layer.kv_heads * (layer.head_dim_k + layer.head_dim_v);
    }
    EXPECT_EQ(full, row.full) << row.name;
    EXPECT_EQ(window, row.window) << row.name;
    EXPECT_EQ(model.count(AttentionKind::kNone), row.none) << row.name;
    EXPECT_EQ(model.count(AttentionKind::kRecurrent), row.recurrent) << row.name;
    EXPECT_EQ(bytes, row.bf16) << row.name;
    EXPECT_FALSE(mla::is_mla(model).yes) << row.name;
  }
}

TEST(ModelFiles, CompressedModels) {
  struct Row {
    const char* name;
    int fine, coarse, window_only, heads;
  };
  for (const Row& row : {Row{"deepseek-v4-flash", 21, 20, 2, 64}, {"deepseek-v4-pro", 30, 31, 0, 128}}) {
    const ModelConfig model = mla::load_model(row.name);
    std::map<int, int> ratios;
    for (const mla::LayerCache& layer : model.layers) {
      if (!layer.mtp) ++ratios[layer.compress_ratio];
    }
    EXPECT_EQ(ratios[4], row.fine) << row.name;
    EXPECT_EQ(ratios[128], row.coarse) << row.name;
    EXPECT_EQ(ratios[0], row.window_only) << row.name;
    EXPECT_EQ(indexers(model), row.fine) << row.name;
    EXPECT_EQ(model.layers.back().mtp, true) << row.name;
    EXPECT_EQ(model.compressed->window, 128) << row.name;
    EXPECT_EQ(model.num_heads, row.heads) << row.name;
  }
}

TEST(ModelFiles, EveryFileSaysWhereItComesFrom) {
  const std::vector<ModelConfig> models = mla::list_models();
  EXPECT_GE(models.size(), 60U);
  std::map<std::string, std::string> names;
  for (const ModelConfig& model : models) {
    EXPECT_EQ(fs::path(model.path).stem().string(), model.name);
    EXPECT_FALSE(model.source.empty()) << model.name;
    EXPECT_EQ(model.checked.size(), 10U) << model.name;
    EXPECT_GT(model.vocab_size, 0) << model.name;
    EXPECT_FALSE(model.layers.empty()) << model.name;
    EXPECT_GT(model.notes.size(), 10U) << model.name;
    // One entry a decoder layer and MTP layer, in order.
    ASSERT_EQ(model.ffn.size(), static_cast<std::size_t>(model.num_layers + model.num_mtp_layers))
        << model.name;
    for (std::size_t i = 0; i < model.ffn.size(); ++i) {
      EXPECT_EQ(model.ffn[i].model_layer, static_cast<int>(i)) << model.name;
      EXPECT_EQ(model.ffn[i].mtp, static_cast<int>(i) >= model.num_layers) << model.name;
    }
    for (const std::string& name : model.aliases) {
      EXPECT_TRUE(names.emplace(name, model.name).second) << name << " names two models";
    }
    EXPECT_TRUE(names.emplace(model.name, model.name).second) << model.name << " is also an alias";
  }
}

TEST(ModelFiles, FoundByNameAliasAndRepository) {
  for (const char* name :
       {"deepseek-v3", "DeepSeek-V3", "deepseek-r1", "deepseek-ai/DeepSeek-R1", "DEEPSEEK-V3.1"}) {
    EXPECT_EQ(mla::load_model(name).name, "deepseek-v3") << name;
  }
  EXPECT_EQ(mla::load_model("meta-llama/Llama-3.1-70B-Instruct").name, "llama-3.1-70b");
  EXPECT_EQ(mla::load_model("-", mla_config().text()).num_layers, 4);
  expect_error([] { return mla::load_model("-", "not json"); }, ErrorCode::kParse, {"standard input"});
}

TEST(ModelFiles, UnknownNamesGetASuggestion) {
  try {
    static_cast<void>(mla::load_model("deepsek-v3"));
    FAIL();
  } catch (const mla::Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(e.hint(), "did you mean 'deepseek-v3'?");
  }
  expect_error([] { return mla::load_model("zzzzzzzzzzzz"); }, ErrorCode::kInvalidArgument,
               {"'zzzzzzzzzzzz'"});
  expect_error([] { return mla::load_model("/no/such/config.json"); }, ErrorCode::kIo,
               {"/no/such/config.json"});
  expect_error([] { return mla::load_model(""); }, ErrorCode::kInvalidArgument, {"no model is named"});
}

TEST(ModelFiles, PathsAndFolders) {
  const TemporaryFolder folder;
  const fs::path config = folder.write("My-Model/config.json", mla_config().text());
  EXPECT_EQ(mla::load_model(config.string()).name, "My-Model");
  const ModelConfig model = mla::load_model(config.parent_path().string());
  EXPECT_EQ(model.path, config.string());
  EXPECT_EQ(model.name, "My-Model");
  static_cast<void>(
      folder.write("mistral/params.json", R"({"dim": 4096, "n_layers": 2, "n_heads": 32, "n_kv_heads": 8,
      "head_dim": 128, "hidden_dim": 14336, "vocab_size": 32000})"));
  EXPECT_EQ(mla::load_model((folder.path() / "mistral").string()).num_layers, 2);
  expect_error([&] { return mla::load_model(folder.path().string()); }, ErrorCode::kIo,
               {"neither config.json nor params.json"});
  // A file that is a folder, and one that cannot be read.
  fs::create_directories(folder.path() / "odd" / "config.json");
  expect_error([&] { return mla::load_model((folder.path() / "odd").string()); }, ErrorCode::kIo,
               {"is a folder"});
  const fs::path locked = folder.write("locked.json", "{}");
  fs::permissions(locked, fs::perms::none);
  if (::geteuid() != 0) {  // root reads everything
    expect_error([&] { return mla::load_model(locked.string()); }, ErrorCode::kIo, {"cannot open"});
  }
  std::ofstream(folder.path() / "huge.json") << std::string((64U << 20) + 10, ' ');
  expect_error([&] { return mla::load_model((folder.path() / "huge.json").string()); }, ErrorCode::kParse,
               {"64 MiB"});
}

TEST(ModelFiles, QuantisationBesideTheConfig) {
  const TemporaryFolder folder;
  const fs::path config = folder.write("M/config.json", mla_config().text());
  EXPECT_FALSE(mla::load_model(config.string()).quantization_config.has_value());
  static_cast<void>(folder.write("M/hf_quant_config.json",
                                 R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4",
      "kv_cache_quant_algo": "FP8", "group_size": 16, 
      "exclude_modules": ["lm_head", "model.layers.0.self_attn*"]}})"));
  const ModelConfig model = mla::load_model(config.string());
  ASSERT_TRUE(model.quantization_config.has_value());
  EXPECT_EQ(model.quantization_config->format, "nvfp4");
  EXPECT_EQ(model.quantization_config->kv_cache_bits, 8);
  EXPECT_FALSE(model.quantization_config->covers("model.layers.0.self_attn.o_proj"));
  EXPECT_TRUE(model.quantization_config->covers("model.layers.1.self_attn.o_proj"));
}

TEST(ModelFiles, AUsersOwnFolderHidesOurs) {
  const TemporaryFolder folder;
  const JsonText mine = {{"name", "\"deepseek-v3\""},
                         {"source", "\"mine\""},
                         {"checked", "\"2026-01-01\""},
                         {"config", mla_config().text()}};
  static_cast<void>(folder.write("models/deepseek-v3.json", mine.text()));
  ASSERT_EQ(::setenv("MLA_CONFIG_DIR", folder.path().c_str(), 1), 0);
  const ModelConfig model = mla::load_model("deepseek-v3");
  const std::size_t count = mla::list_models().size();
  ASSERT_EQ(::setenv("MLA_CONFIG_DIR", "/no/such/folder", 1), 0);
  expect_error([] { return mla::load_model("deepseek-v3"); }, ErrorCode::kIo,
               {"MLA_CONFIG_DIR", "/no/such/folder"});
  ASSERT_EQ(::unsetenv("MLA_CONFIG_DIR"), 0);
  EXPECT_EQ(model.source, "mine");
  EXPECT_EQ(model.num_layers, 4);
  EXPECT_EQ(mla::list_models().size(), count);  // it replaced one, and added none
  EXPECT_EQ(mla::load_model("deepseek-v3").num_layers, 61);
}

}  // namespace
