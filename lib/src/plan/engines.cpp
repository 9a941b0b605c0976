// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "mla/capacity.hpp"
#include "mla/error.hpp"

namespace mla::capacity {
namespace {

// Each engine's rule sets, oldest first. A later one starts from the one before and says what changed, so
// that a new version is one more function and one more row.

// MLA classes whose model files in these engines call ordinary attention. Read 2026-11-30.
constexpr std::array kVllmExpanded{ExpandedClass{
    "minicpm3", true,
    "its model file runs ordinary attention with a KV head for each query head, V padded to the "
    "width of K (vllm model_executor/models/minicpm3.py @009ccee0)"}};
constexpr std::array kLmcacheExpanded{
    ExpandedClass{"minicpm3", true, "it keeps what vLLM caches, whose MiniCPM3 has K and V heads"}};
constexpr std::array kGgmlExpanded{ExpandedClass{
    "minicpm3", false, "its graph caches K and V of every head (llama.cpp src/models/minicpm3.cpp)"}};

// The cache formats an engine takes. Read 2026-11-30.
constexpr std::array<std::string_view, 9> kVllmFormats{
    "bf16",  "f16",         "f32", "fp8", "fp8_ds_mla", "fp8_per_token_head", "int8_per_token_head",
    "nvfp4", "nvfp4_ds_mla"};
constexpr std::array<std::string_view, 6> kSglangFormats{"bf16", "f16", "f32", "fp8", "nvfp4", "fp8_ds_mla"};
constexpr std::array<std::string_view, 6> kTensorrtFormats{"bf16", "f16", "f32", "fp8", "int8", "nvfp4"};
constexpr std::array<std::string_view, 9> kLlamaFormats{"f32",  "f16",  "bf16", "q8_0",  "q5_1",
                                                        "q5_0", "q4_1", "q4_0", "iq4_nl"};
constexpr std::array<std::string_view, 10> kIkFormats{"f32",  "f16",  "bf16", "q8_0", "q6_0",
                                                      "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"};

// Values of vLLM's --block-size (vllm config/cache.py). 1 is for AMD's AITER MLA kernels.
constexpr std::array kVllmBlocks{1, 8, 16, 32, 64, 128, 256};

constexpr EngineRules exact() {
  return {.name = "none",
          .title = "no engine: tokens counted one by one, without pages or a reserve",
          .utilization = 0.9,
          .block = 1,
          .mla_block = 1,
          .block_alignment = 1,
          .mla_block_alignment = 1,
          .source = "arithmetic of the model's shapes"};
}

constexpr EngineRules vllm_0_5() {
  return {
      .name = "vllm",
      .date = "2024-06",
      .title = "vLLM 0.5: every layer charged at full length, f32 rope tables",
      .mla_storage = MlaStorage::kExpanded,
      .expanded = kVllmExpanded,
      .no_latent = "it had no MLA before 0.7.1 and ran ordinary attention, K and V of a head padded to 256",
      .expanded_width = 256,
      .window = WindowRule::kFullLength,
      .block = 16,
      .mla_block = 16,
      .block_step = 8,
      .asked_blocks = kVllmBlocks,
      .sparse_fp8 = "fp8_ds_mla",
      .rope_table_bytes = 4,
      .entry_pages = EntryPages::kTuples,
      .replicas = false,
      .expert_ranks = false,
      .context_ranks = false,
      .sparse_models = false,
      .cache_formats = kVllmFormats,
      .source = "logs of vllm#4650, vllm#10927",
      .oldest = "0.5",
      .newest = "0.26"};
}
constexpr EngineRules vllm_0_6() {
  EngineRules rules = vllm_0_5();
  rules.since = "0.6";
  rules.date = "2024-09";
  rules.title = "vLLM 0.6: rope tables in the model's dtype";
  rules.rope_table_bytes = 2;
  rules.source = "logs of vllm#10517, DeepSeek-V3#205";
  return rules;
}
constexpr EngineRules vllm_0_7() {
  EngineRules rules = vllm_0_6();
  rules.since = "0.7.1";
  rules.date = "2025-02";
  rules.title = "vLLM 0.7.1: MLA models keep their latent";
  rules.mla_storage = MlaStorage::kLatent;
  rules.no_latent = {};
  rules.expanded_width = 0;
  rules.absorbed_copies = true;
  rules.source = "release notes of vLLM 0.7.1; vllm#16692";
  return rules;
}
constexpr EngineRules vllm_0_8() {
  EngineRules rules = vllm_0_7();
  rules.since = "0.8";
  rules.date = "2025-03";
  rules.title = "vLLM 0.8 (V1 engine): block 0 is the null block; FlashMLA blocks of 64; replicas (dp), ep";
  rules.replicas = true;
  rules.expert_ranks = true;
  rules.reserved_blocks = 1;
  rules.mla_block = 64;
  rules.sparse_block = 64;
  rules.source = "vllm v1/core/kv_cache_utils.py, v1/core/block_pool.py";
  return rules;
}
constexpr EngineRules vllm_0_10() {
  EngineRules rules = vllm_0_8();
  rules.since = "0.10";
  rules.date = "2025-07";
  rules.title = "vLLM 0.10: hybrid manager, window and recurrent layers in groups of their own";
  rules.window = WindowRule::kWithChunk;
  rules.group_padding_limit = 1.25;
  rules.marlin_experts = true;
  rules.sparse_models = true;  // from 0.11 on
  rules.context_ranks = true;  // from 0.10.2 on
  return rules;
}
constexpr EngineRules vllm_0_16() {
  EngineRules rules = vllm_0_10();
  rules.since = "0.16";
  rules.date = "2026-02";
  rules.title = "vLLM 0.16: groups padded up to 1.5 x the smallest";
  rules.group_padding_limit = 1.5;
  rules.source = "vllm v1/core/kv_cache_utils.py @001cabc1";
  return rules;
}
constexpr EngineRules vllm_0_22() {
  EngineRules rules = vllm_0_16();
  rules.since = "0.22";
  rules.date = "2026-06";
  rules.title = "vLLM 0.22: logged tokens = concurrency x max length";
  rules.token_count = TokenCount::kConcurrency;
  rules.source = "logs of vllm#43308, vllm#51041";
  return rules;
}

constexpr EngineRules vllm_0_24() {
  EngineRules rules = vllm_0_22();
  rules.since = "0.24";
  rules.date = "2026-07";
  rules.title = "vLLM 0.24: DeepSeek-V4's page sizes packed into a block without gaps";
  rules.entry_pages = EntryPages::kPacked;
  rules.source = "logs of vllm#51041, vllm#51454";
  return rules;
}

constexpr EngineRules sglang() {
  return {.name = "sglang",
          .date = "2025-01",
          .title = "SGLang: token pools with a spare page, K and V apart, index keys on every layer",
          .pools = PoolKind::kPoolPerKind,
          .weights_by_free_memory = true,
          .utilization = 0.88,
          .runtime_outside_share = true,
          .block = 1,
          .mla_block = 64,
          .sparse_block = 64,
          .spare_blocks = 1,
          .window_pool_ratio = 0.8,
          .state_pool_ratio = 0.9,
          .index_on_every_layer = true,
          .index_whole_under_dcp = true,
          .sparse_fp8 = "fp8_ds_mla",
          .k_and_v_logged_apart = true,
          .rope_table_bytes = 4,
          .cache_formats = kSglangFormats,
          .source = "sglang mem_cache/memory_pool.py; logs of sglang#11309, #15464, #17392",
          .oldest = "0.4",
          .newest = "0.5"};
}

constexpr EngineRules tensorrt_llm() {
  return {.name = "tensorrt-llm",
          .date = "2024-03",
          .title = "TensorRT-LLM: blocks rounded up, 0.9 of what is free; windows at full length",
          .pools = PoolKind::kPoolPerKind,
          .window = WindowRule::kFullLength,
          .budget = Budget::kShareOfFree,
          .block = 32,
          .mla_block = 32,
          .sparse_block = 64,
          .round_blocks_up = true,
          .power_of_two_blocks = true,
          .cache_formats = kTensorrtFormats,
          .source = "TensorRT-LLM#1400, #2268",
          .oldest = "0.8",
          .newest = "1.2"};
}
constexpr EngineRules tensorrt_llm_1() {
  EngineRules rules = tensorrt_llm();
  rules.since = "1.0";
  rules.date = "2025-09";
  rules.title = "TensorRT-LLM 1.0: windows have pools of their own, each with window x bytes of a token";
  rules.window = WindowRule::kExact;
  rules.pool_share = PoolShare::kLength;
  rules.source = "TensorRT-LLM batch_manager/kvCacheManager.cpp, calculateWindowSizeToShare";
  return rules;
}

constexpr EngineRules llama_cpp_2023() {
  return {.name = "llama.cpp",
          .date = "2023-08",
          .title = "llama.cpp before 2025-04: MLA models cached as MHA",
          .pools = PoolKind::kCells,
          .mla_storage = MlaStorage::kExpanded,
          .expanded = kGgmlExpanded,
          .window = WindowRule::kFullLength,
          .utilization = 1.0,
          .block = 256,
          .mla_block = 256,
          .block_step = 256,
          .most_sequences = 256,  // LLAMA_MAX_SEQ of src/llama-cparams.h
          .index_keys = IndexKeys::kNone,
          .k_and_v_logged_apart = true,
          .splits_heads = false,
          .replicas = false,
          .expert_ranks = false,
          .context_ranks = false,
          .gguf = true,
          .runtime = RuntimeRule::kMicroBatch,
          .cache_formats = kLlamaFormats,
          .mixed_cache = true,
          .source = "llama.cpp logs; context padded to 256 cells",
          .oldest = "b1000",
          .newest = "b11200"};
}
constexpr EngineRules llama_cpp_2025() {
  EngineRules rules = llama_cpp_2023();
  rules.since = "b5100";
  rules.date = "2025-04";
  rules.title = "llama.cpp of 2025-04 to 2026-01: the latent stored as K and again as V";
  rules.mla_storage = MlaStorage::kLatentAndValue;
  rules.window = WindowRule::kWithBatch;
  return rules;
}
constexpr EngineRules llama_cpp_2026() {
  EngineRules rules = llama_cpp_2025();
  rules.since = "b7800";
  rules.date = "2026-01";
  rules.title = "llama.cpp from 2026-01 (PR 19067): no V of MLA layers";
  rules.mla_storage = MlaStorage::kLatent;
  return rules;
}
constexpr EngineRules llama_cpp_2026_07() {
  EngineRules rules = llama_cpp_2026();
  rules.since = "b10000";
  rules.date = "2026-07";
  rules.title = "llama.cpp from 2026-07: index keys of top-k sparse models in a cache of their own";
  rules.index_keys = IndexKeys::kElements;
  rules.source = "llama.cpp logs of llama_kv_cache_dsa";
  return rules;
}
constexpr EngineRules ik_llama_cpp() {
  EngineRules rules = llama_cpp_2023();
  rules.name = "ik_llama.cpp";
  rules.date = "2025-02";
  rules.title = "ik_llama.cpp -mla 2 or 3: the latent alone; windows at full length";
  rules.mla_storage = MlaStorage::kLatent;
  rules.cache_formats = kIkFormats;
  rules.source = "ik_llama.cpp pull 237, 259, 616";
  rules.oldest = rules.newest = {};  // it numbers no versions
  return rules;
}

constexpr EngineRules lmcache() {
  return {.name = "lmcache",
          .date = "2025-01",
          .title = "LMCache: chunks of 256 tokens off the GPU",
          .pools = PoolKind::kSharedBlocks,
          .expanded = kLmcacheExpanded,
          .window = WindowRule::kFullLength,
          .utilization = 1.0,
          .block = 256,
          .mla_block = 256,
          .sparse_fp8 = "fp8_ds_mla",
          .runtime = RuntimeRule::kNone,
          .off_gpu = true,
          .cache_formats = kVllmFormats,
          .source = "LMCache default chunk_size"};
}

constexpr std::array kEngines{exact(),          vllm_0_5(),       vllm_0_6(),       vllm_0_7(),
                              vllm_0_8(),       vllm_0_10(),      vllm_0_16(),      vllm_0_22(),
                              vllm_0_24(),      sglang(),         tensorrt_llm(),   tensorrt_llm_1(),
                              llama_cpp_2023(), llama_cpp_2025(), llama_cpp_2026(), llama_cpp_2026_07(),
                              ik_llama_cpp(),   lmcache()};

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kAliases{{
    {"trtllm", "tensorrt-llm"},
    {"trt-llm", "tensorrt-llm"},
    {"tensorrt_llm", "tensorrt-llm"},
    {"llamacpp", "llama.cpp"},
    {"ollama", "llama.cpp"},
    {"ik", "ik_llama.cpp"},
    {"ik_llama", "ik_llama.cpp"},
    {"exact", "none"},
}};

/// The numbers of "0.8.3.dev172", "v0.21", "b5100" up to the first that is none: {0, 8, 3}.
std::vector<int> version_numbers(std::string_view text) {
  while (!text.empty() && (text.front() < '0' || text.front() > '9')) text.remove_prefix(1);
  std::vector<int> numbers;
  while (!text.empty()) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{}) break;
    numbers.push_back(value);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty() || text.front() != '.') break;
    text.remove_prefix(1);
  }
  return numbers;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// "2025-11" or "2025-11-06" or "2025".
bool is_month(std::string_view text) {
  if (text.size() < 4 || text.substr(0, 2) != "20") return false;
  if (!std::all_of(text.begin(), text.begin() + 4, is_digit)) return false;
  return text.size() == 4 || text[4] == '-';
}

/// Of a text that is_month(): that its month exists.
bool has_month(std::string_view text) {
  if (text.size() == 4) return true;
  if (text.size() < 7 || !is_digit(text[5]) || !is_digit(text[6])) return false;
  const int month = 10 * (text[5] - '0') + (text[6] - '0');
  return month >= 1 && month <= 12 && (text.size() == 7 || text[7] == '-');
}

bool well_formed_version(std::string_view text) {
  const bool begins =
      !text.empty() && (is_digit(text.front()) || (text.front() >= 'a' && text.front() <= 'z'));
  return begins && std::any_of(text.begin(), text.end(), is_digit) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_digit(c) || (c >= 'a' && c <= 'z') || c == '.' || c == '-' || c == '+' || c == '_';
         });
}

/// A version against those that were checked; "0.26.1" is still 0.26.
VersionFit fit_of(const EngineRules& rules, std::string_view version) {
  if (rules.oldest.empty() || is_month(version)) return VersionFit::kCovered;
  const std::vector<int> asked = version_numbers(version);
  std::vector<int> shortened = asked;
  const std::vector<int> newest = version_numbers(rules.newest);
  shortened.resize(std::min(shortened.size(), newest.size()));
  if (asked < version_numbers(rules.oldest)) return VersionFit::kOlder;
  return shortened > newest ? VersionFit::kNewer : VersionFit::kCovered;
}

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const EngineRules& rules : kEngines) {
    if (names.empty() || names.back() != rules.name) names.emplace_back(rules.name);
  }
  return names;
}

}  // namespace

std::span<const EngineRules> all_engines() noexcept {
  return kEngines;
}

EngineRules find_engine(std::string_view what) {
  const std::string lower = text::to_lower(what);
  const std::size_t at = lower.find('@');
  std::string name = lower.substr(0, at);
  const std::string version = at == std::string::npos ? std::string() : lower.substr(at + 1);
  for (const auto& [alias, target] : kAliases) {
    if (name == alias) name = target;
  }
  const EngineRules* best = nullptr;
  bool known = false;
  const std::vector<int> asked = version_numbers(version);
  // "0.7" means the newest of 0.7.
  const auto reached = [&](const EngineRules& rules) {
    std::vector<int> since = version_numbers(rules.since);
    if (asked.size() > 1) since.resize(std::min(since.size(), asked.size()));
    return asked >= since;
  };
  for (const EngineRules& rules : kEngines) {
    if (rules.name != name) continue;
    known = true;
    const bool applies = version.empty()     ? true
                         : is_month(version) ? rules.since.empty() || version.substr(0, 7) >= rules.date
                                             : rules.since.empty() || reached(rules);
    if (applies) best = &rules;
  }
  if (!known) {
    const std::vector<std::string> names = engine_names();
    throw Error(ErrorCode::kInvalidArgument, fmt::format("no engine is called {}", text::quoted(name)),
                text::suggestion(name, names));
  }
  if (at != std::string::npos && name == "none") {
    throw Error(ErrorCode::kInvalidArgument, "engine 'none' stands for no engine and has no versions");
  }
  if (at != std::string::npos && !(is_month(version) ? has_month(version) : well_formed_version(version))) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is neither a version nor a month of {}", text::quoted(version), name),
                "write it as in vllm@0.11 or vllm@2025-10");
  }
  EngineRules rules = *best;
  if (!version.empty()) rules.fit = fit_of(rules, version);
  return rules;
}

}  // namespace mla::capacity
