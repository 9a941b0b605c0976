// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "expect_error.hpp"
#include "mla/safetensors.hpp"
#include "verify/golden.hpp"

namespace mla::verify {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kGolden = fs::path(MLA_TEST_DATA) / "golden";

std::vector<const Backend*> cpu_backends() {
  return {find_backend("cpu-absorbed"), find_backend("cpu-expanded")};
}

/// A copy of one set in a folder of its own, to be spoiled.
class Copy {
 public:
  explicit Copy(std::string set) : set_(std::move(set)) {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::path(testing::TempDir()) / (std::string("mla_golden_") + test->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    std::ifstream in(kGolden / "manifest.json");
    manifest_ = Json::parse(in);
    Json only = manifest_["variants"][set_];
    manifest_["variants"] = Json::object({{set_, only}});
    fs::copy_file(kGolden / file(), dir_ / file());
    save();
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  ~Copy() { fs::remove_all(dir_); }

  [[nodiscard]] std::string file() const { return set_ + ".safetensors"; }
  [[nodiscard]] const fs::path& dir() const { return dir_; }
  Json& variant() { return manifest_["variants"][set_]; }
  Json& manifest() { return manifest_; }
  void save() const { std::ofstream(dir_ / "manifest.json") << manifest_.dump(1); }

  /// Rewrites the file with `change` applied to a tensor's elements, and the manifest's hash to match.
  void change_tensor(const std::string& name, const std::function<void(std::vector<double>&)>& change) {
    std::vector<std::pair<std::string, std::vector<std::byte>>> data;
    std::vector<TensorToWrite> tensors;
    {
      const SafetensorsFile source = SafetensorsFile::open(kGolden / file());
      for (const auto& [key, tensor] : source.tensors()) {
        std::vector<std::byte> bytes(tensor.bytes.begin(), tensor.bytes.end());
        if (key == name) {
          std::vector<double> values = tensor.to_double();
          change(values);
          for (std::size_t i = 0; i < values.size(); ++i) {
            store_element(bytes.data(), tensor.dtype, static_cast<std::int64_t>(i), values[i]);
          }
        }
        data.emplace_back(key, std::move(bytes));
        tensors.push_back({key, tensor.dtype, tensor.shape, {}});
      }
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = data[i].second;
    // Widest elements first: then every tensor starts aligned.
    std::ranges::stable_sort(
        tensors, [](const auto& a, const auto& b) { return size_of(a.dtype) > size_of(b.dtype); });
    write_safetensors(dir_ / file(), tensors);
    variant()["sha256"] = sha256_of_file(dir_ / file());
    save();
  }

  [[nodiscard]] GoldenResult check() const {
    const GoldenManifest m = load_golden_manifest(dir_);
    return check_golden(m, m.variants.front(), cpu_backends());
  }

 private:
  std::string set_;
  fs::path dir_;
  Json manifest_;
};

std::vector<std::string> failures(const GoldenResult& result) {
  std::vector<std::string> names;
  for (const GoldenCheck& check : result.checks) {
    if (!check.passed) names.push_back(check.tensor + " (" + check.path + "): " + check.detail);
  }
  return names;
}

/// The failures that name this tensor.
std::string failure_of(const GoldenResult& result, const std::string& tensor) {
  for (const std::string& text : failures(result)) {
    if (text.starts_with(tensor + " ")) return text;
  }
  return {};
}

TEST(Golden, AllElevenSetsPass) {
  const GoldenManifest manifest = load_golden_manifest(kGolden);
  EXPECT_EQ(manifest.variants.size(), 11U);
  for (const GoldenVariant& variant : manifest.variants) {
    const GoldenResult result = check_golden(manifest, variant, cpu_backends());
    EXPECT_TRUE(result.passed()) << variant.name << ": " << testing::PrintToString(failures(result));
    EXPECT_GT(result.checks.size(), 25U);
    for (const GoldenCheck& check : result.checks) {
      if (check.limit != 1e-10) continue;
      EXPECT_LT(check.error, 1e-13) << variant.name << " " << check.tensor;
    }
  }
}

TEST(Golden, AnUnspoiledCopyPasses) {
  const Copy copy("v3_small");
  EXPECT_TRUE(copy.check().passed());
}

TEST(Golden, ACorruptedTensorIsNamedWithItsElement) {
  struct Spoil {
    const char* tensor;
    std::size_t element;
    double factor;
    const char* place;
  };
  for (const Spoil& s :
       {Spoil{"seq0.out_f64", 17, 1 + 1e-8, "[0, 17]"}, Spoil{"seq1.attn_f64", 83, 1 + 1e-5, "[1, 3]"},
        Spoil{"seq0.lse_f64", 14, 1 + 1e-8, "[1, 1]"}, Spoil{"seq0.cos", 5, 0.9, "[1, 1]"},
        Spoil{"seq0.c_kv_f32", 33, 1.001, "[1, 1]"}, Spoil{"seq0.q_pe_f32", 9, 1.01, "[0, 1, 1]"},
        Spoil{"seq0.out_bf16", 3, 3.0, "[0, 3]"}, Spoil{"seq0.window_sink.out_f64", 80, 1 + 1e-8, "[1, 0]"},
        Spoil{"seq0.decode.out_f32", 81, 1.01, "[1, 1]"}, Spoil{"seq0.multi.out_f32", 1, 1.01, "[0, 1]"}}) {
    Copy copy("v3_small");
    copy.change_tensor(s.tensor, [&s](std::vector<double>& x) { x[s.element] *= s.factor; });
    const GoldenResult result = copy.check();
    EXPECT_FALSE(result.passed()) << s.tensor;
    EXPECT_NE(failure_of(result, s.tensor).find(std::string("element ") + s.place), std::string::npos)
        << s.tensor << ": " << testing::PrintToString(failures(result));
  }
}

TEST(Golden, ANanIsNotLost) {
  Copy copy("v2lite");
  copy.change_tensor("seq0.attn_f64", [](std::vector<double>& x) { x[4] = std::nan(""); });
  EXPECT_NE(failure_of(copy.check(), "seq0.attn_f64").find("element [0, 4]"), std::string::npos);
}

TEST(Golden, AFlippedBitIsSeenByTheHashAlone) {
  if (sha256_of_file(kGolden / "manifest.json").empty()) GTEST_SKIP() << "this build has no OpenSSL";
  const Copy copy("v3_small");
  std::fstream file(copy.dir() / copy.file(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const char last = static_cast<char>(file.get() ^ 1);
  file.seekp(-1, std::ios::end);
  file.put(last);
  file.close();
  EXPECT_NE(failure_of(copy.check(), "file").find("SHA-256"), std::string::npos);
}

// ---- teeth: a layer that is computed differently must not pass
// ------------------------------------------------------

TEST(GoldenTeeth, WrongScaleMasksAndEpsilon) {
  const auto spoiled = [](const char* set, const std::function<void(Json&)>& change) {
    Copy copy(set);
    change(copy.variant());
    copy.save();
    return copy.check();
  };
  EXPECT_NE(failure_of(spoiled("v3_yarn", [](Json& v) { v["softmax_scale"] = 0.2041241452319315; }),
                       "softmax_scale"),
            "");
  EXPECT_NE(
      failure_of(spoiled("v3_yarn", [](Json& v) { v["rope"].erase("mscale_all_dim"); }), "seq0.out_f64"), "");
  EXPECT_NE(failure_of(spoiled("v3_yarn", [](Json& v) { v["rope"]["factor"] = 39.0; }), "seq0.cos"), "");
  EXPECT_NE(failure_of(spoiled("v3_yarn_mixed", [](Json& v) { v["rope_attention_scaling"] = 1.0; }),
                       "rope_attention_scaling"),
            "");
  EXPECT_NE(failure_of(spoiled("v3_small", [](Json& v) { v["window"] = 5; }), "seq0.window_sink.out_f64"),
            "");
  EXPECT_NE(failure_of(spoiled("v3_small", [](Json& v) { v["window"] = 3; }), "seq0.window_sink.out_f64"),
            "");
  EXPECT_NE(
      failure_of(spoiled("v3_small", [](Json& v) { v["sink_tokens"] = 1; }), "seq0.window_sink.lse_f64"), "");
  EXPECT_NE(failure_of(spoiled("v3_bias_eps", [](Json& v) { v["latent_norm_eps"]["kv_a_layernorm"] = 1e-3; }),
                       "seq0.c_kv_f32"),
            "");
  EXPECT_NE(
      failure_of(spoiled("minicpm3_dims", [](Json& v) { v["latent_norm_eps"]["q_a_layernorm"] = 1e-5; }),
                 "seq0.out_f64"),
      "");
}

TEST(GoldenTeeth, HalfSplitRopeInPlaceOfInterleaved) {
  for (const char* set : {"v3_small", "v2lite", "glm47_flash_dims"}) {
    Copy copy(set);
    copy.variant()["rope_pairs_in_weights"] = "half-split (i, i + rope/2)";
    copy.save();
    const GoldenResult result = copy.check();
    EXPECT_NE(failure_of(result, "seq0.out_f64"), "") << set;
    EXPECT_NE(failure_of(result, "seq0.k_pe_f32"), "") << set;
  }
  Copy copy("minicpm3_dims");
  copy.variant()["rope_pairs_in_weights"] = "interleaved (2i, 2i+1)";
  copy.save();
  EXPECT_NE(failure_of(copy.check(), "seq0.out_f64"), "");
}

TEST(GoldenTeeth, SwappedHalvesOfKvB) {
  // P equals V in this set: only the numbers can tell that W_UK and W_UV are exchanged.
  Copy copy("v3_small");
  copy.change_tensor("w.kv_b_proj.weight", [](std::vector<double>& x) {
    const std::size_t half = 16 * 32;
    for (std::size_t head = 0; head < 5; ++head) {
      std::swap_ranges(x.begin() + static_cast<std::ptrdiff_t>(head * 2 * half),
                       x.begin() + static_cast<std::ptrdiff_t>(head * 2 * half + half),
                       x.begin() + static_cast<std::ptrdiff_t>(head * 2 * half + half));
    }
  });
  EXPECT_NE(failure_of(copy.check(), "seq0.attn_f64"), "");
}

TEST(GoldenTeeth, ADroppedBias) {
  Copy copy("v3_bias_eps");
  copy.change_tensor("w.kv_a_proj_with_mqa.bias",
                     [](std::vector<double>& x) { std::fill(x.begin(), x.end(), 0.0); });
  EXPECT_NE(failure_of(copy.check(), "seq0.c_kv_f32"), "");
}

// ---- files that cannot be trusted
// ---------------------------------------------------------------------------------

void expect_refused(const char* set, const std::function<void(Copy&)>& change, ErrorCode code,
                    const std::vector<std::string_view>& parts) {
  Copy copy(set);
  change(copy);
  copy.save();
  expect_error([&] { return copy.check(); }, code, parts);
}

TEST(GoldenInput, MissingExtraAndMisshapedTensorsAreNamed) {
  constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;
  expect_refused("v2lite",
                 [](Copy& c) {
                   c.variant()["tensors"]["seq9.more"] = Json::array({"F32", {1}});
                 },
                 kBad, {"v2lite.safetensors", "'seq9.more'", "missing"});
  expect_refused("v2lite", [](Copy& c) { c.variant()["tensors"].erase("seq0.hidden"); }, kBad,
                 {"'seq0.hidden'", "not in the manifest"});
  expect_refused("v2lite", [](Copy& c) { c.variant()["tensors"]["seq0.hidden"][1][0] = 12; }, kBad,
                 {"'seq0.hidden'", "[11, 80]", "[12, 80]"});
  expect_refused("v2lite", [](Copy& c) { c.variant()["tensors"]["seq0.hidden"][0] = "F16"; }, kBad,
                 {"'seq0.hidden'", "BF16", "F16"});
  expect_refused("v2lite", [](Copy& c) { c.variant()["config"]["kv_lora_rank"] = 33; }, kBad, {"[", "33"});
  expect_refused("v2lite",
                 [](Copy& c) {
                   c.variant()["sequences"] = {11, 1, 4};
                 },
                 kBad, {"seq2.hidden", "missing"});
  expect_refused("v2lite", [](Copy& c) { fs::remove(c.dir() / c.file()); }, ErrorCode::kIo, {"cannot open"});
  expect_refused("v2lite", [](Copy& c) { std::ofstream(c.dir() / "stray.safetensors") << "x"; }, kBad,
                 {"stray.safetensors", "not in manifest.json"});
  expect_refused("v2lite", [](Copy& c) { fs::resize_file(c.dir() / c.file(), 5000); }, ErrorCode::kParse,
                 {"seq0.attn_f64", "data_offsets"});
}

TEST(GoldenInput, ABrokenManifestIsASentence) {
  constexpr ErrorCode kBad = ErrorCode::kParse;
  const auto parse = [](const char* text) { return [text] { return parse_golden_manifest(text, "dir"); }; };
  expect_error(parse(""), kBad, {"dir/manifest.json", "not valid JSON"});
  expect_error(parse("{\"format\": 1"), kBad, {"not valid JSON"});
  expect_error(parse("[]"), kBad, {"must be an object"});
  expect_error(parse("{}"), kBad, {"has no 'format'"});
  expect_error(parse("{\"format\": 2}"), kBad, {"format is 2"});
  expect_error(parse("{\"format\": 1e999}"), kBad, {"manifest.json"});
  const auto spoiled = [](const char* key, const Json& value) {
    return [key, value](Copy& c) { c.variant()[key] = value; };
  };
  expect_refused("v2lite", spoiled("softmax_scale", "one"), kBad,
                 {"manifest.json: 'variants.v2lite.softmax_scale' is 'one', but must be a number"});
  expect_refused("v2lite", spoiled("file", "../v2lite.safetensors"), kBad, {"same folder"});
  expect_refused("v2lite", spoiled("sequences", {0}), kBad, {"sequences[0]", "must lie in"});
  expect_refused("v2lite", spoiled("sequences", 5), kBad, {"must be an array"});
  expect_refused("v2lite", spoiled("rope_pairs_in_weights", "diagonal"), kBad, {"diagonal"});
  expect_refused("v2lite", spoiled("window", 4), kBad, {"together or not at all"});
  expect_refused("v2lite", [](Copy& c) { c.variant()["config"].erase("v_head_dim"); }, kBad,
                 {"has no 'v_head_dim'"});
  expect_refused("v2lite", [](Copy& c) { c.variant()["config"]["qk_rope_head_dim"] = 7; }, kBad,
                 {"qk_rope_head_dim", "7"});
  expect_refused("v2lite", [](Copy& c) { c.variant()["rope"]["rope_type"] = "spiral"; }, kBad, {"spiral"});
  expect_refused("v2lite", [](Copy& c) { c.variant()["config"]["hidden_size"] = 1e30; }, kBad,
                 {"whole number"});
  expect_refused("v2lite", [](Copy& c) { c.manifest()["failed"]["x"] = "it broke"; }, kBad,
                 {"'x' failed", "it broke"});
  expect_refused("v2lite", [](Copy& c) { c.manifest()["variants"] = Json::object(); }, kBad,
                 {"variants is empty"});
  expect_error([] { return load_golden_manifest("/nonexistent/dir"); }, ErrorCode::kIo, {"/nonexistent/dir"});
}

TEST(Sha256, IsTheStandards) {
  const fs::path path = fs::path(testing::TempDir()) / "mla_sha256_abc";
  std::ofstream(path) << "abc";
  const std::string digest = sha256_of_file(path);
  fs::remove(path);
  if (digest.empty()) GTEST_SKIP() << "this build has no OpenSSL";
  EXPECT_EQ(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_THROW((void)sha256_of_file("/nonexistent"), Error);
}

}  // namespace
}  // namespace mla::verify
