// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <string>

#include "core/text.hpp"
#include "plan/log_line.hpp"

namespace mla::capacity {
namespace {

/// "version 0.11.0", "(v0.11.0)".
void read_version(const LogLine& line) {
  for (const std::string_view key :
       {"vLLM API server version ", "LLM engine (v", "vLLM version ", "vllm==", "vllm-openai:v",
        "TensorRT-LLM version: ", "TensorRT LLM version: ", "sglang==", "█  version "}) {
    const std::optional<std::string_view> rest = after(line.text, key);
    if (!rest || rest->empty()) continue;
    const std::string_view version =
        rest->substr(0, std::min<std::size_t>(rest->find_first_of(" ),;'\""), 40));
    if (!line.reading.version.empty()) {
      if (version != line.reading.version && line.reading.other_start == 0)
        line.reading.other_start = line.number;
      return;
    }
    line.reading.version = std::string(version);
    line.engine(key.starts_with("Tensor") ? "tensorrt-llm" : key.starts_with("sglang") ? "sglang" : "vllm");
    return;
  }
}

/// "build: 7912 (4bd3e2f0c) with GNU 13.3.0 ...": llama.cpp's number of commits is its version.
void read_build(const LogLine& line) {
  if (!line.reading.version.empty() || !line.has(" with ")) return;
  const std::optional<std::string_view> rest = after(line.text, "build: ");
  const std::size_t end = rest ? rest->find(" (") : std::string_view::npos;
  if (end == std::string_view::npos || end == 0 || end > 6) return;
  const std::string_view number = rest->substr(0, end);
  if (number.find_first_not_of("0123456789") != std::string_view::npos) return;
  line.reading.version = "b" + std::string(number);
  line.engine("llama.cpp");
}

/// "True", "true", "1", or a flag alone before the next one.
void keep_flag(bool& slot, std::optional<std::string> word) {
  if (!word) return;
  const std::string lower = text::to_lower(*word);
  slot = slot || lower == "true" || lower == "1" || lower.starts_with("--");
}

/// "general.name     = DeepSeek V2 Lite Chat", "general.name str = ...": a title, blanks and all, to the line's end.
std::string gguf_title(std::string_view text) {
  constexpr std::size_t kMost = 200;
  const std::optional<std::string_view> rest = after(text, "general.name");
  const std::size_t equals = rest ? rest->find('=') : std::string_view::npos;
  if (equals == std::string_view::npos) return {};
  std::string_view title = rest->substr(equals + 1);
  const std::size_t begin = title.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  title = title.substr(begin);
  title = title.substr(0, title.find_last_not_of(' ') + 1);
  return title.size() > kMost ? std::string() : std::string(title);
}

/// The model that a command line names without a flag: "vllm serve moonshotai/Kimi-K2-Thinking".
std::string served_model(const LogLine& line) {
  struct Command {
    const char* words;
    const char* engine;
  };
  constexpr Command kCommands[] = {{"vllm serve ", "vllm"},
                                   {"sglang.launch_server ", "sglang"},
                                   {"trtllm-serve serve ", "tensorrt-llm"},
                                   {"trtllm-serve ", "tensorrt-llm"}};
  for (const auto& [words, engine] : kCommands) {
    std::optional<std::string_view> rest = after(line.text, words);
    if (!rest) continue;
    line.engine(engine);
    rest->remove_prefix(std::min(rest->find_first_not_of(" '\""), rest->size()));
    const std::string_view word = rest->substr(0, rest->find_first_of(" '\""));
    if (word.starts_with('-') || word.find_first_of("-/") == std::string_view::npos) return {};
    return std::string(word);
  }
  return {};
}

void read_model(const LogLine& line) {
  std::string& model = line.reading.model;
  const std::string served = served_model(line);
  if (model.empty()) model = served;
  if (model.empty()) model = gguf_title(line.text);
  for (const char* key : {"model_path", "model-path", "model", "model_tag", "served_model_name"}) {
    const std::optional<std::string> word = setting_word(line.text, key);
    if (word && model.empty() && word->find_first_of("-/") != std::string::npos) model = *word;
  }
}

/// "(Worker_TP3 pid=1)", "[2025-10-07 23:17:19 DP0 TP3]": lines of ranks that say nothing else of use.
void read_rank(const LogLine& line) {
  constexpr int kMost = 1023;
  const std::string rank = rank_of(line.text);
  const std::size_t at = rank.find("TP");
  if (at == std::string::npos) return;
  int number = 0;
  const char* end = rank.data() + rank.size();
  if (std::from_chars(rank.data() + at + 2, end, number).ec != std::errc{} || number > kMost) return;
  line.reading.last_tp_rank = std::max(line.reading.last_tp_rank, number);
}

}  // namespace

void keep(int& slot, std::optional<std::int64_t> value) {
  constexpr std::int64_t kMost = 65536;
  if (value && *value >= 1 && *value <= kMost && slot == 0) slot = static_cast<int>(*value);
}

void keep(std::int64_t& slot, std::optional<std::int64_t> value) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (value && *value >= 1 && *value <= kMost && slot == 0) slot = *value;
}

int small(const ScannedNumber& number) {
  return static_cast<int>(std::min(number.value, 1e6));
}

void read_log_settings(const LogLine& line) {
  LogReading& r = line.reading;
  const std::string_view t = line.text;
  read_rank(line);
  if (const auto length = number_after(t, "Using max model len "))
    keep(r.max_length, static_cast<std::int64_t>(length->value));
  read_version(line);
  read_build(line);
  read_model(line);
  for (const char* key :
       {"tensor_parallel_size", "tp_size", "tensor-parallel-size", "tp-size", "tensor_parallel", "-tp"}) {
    keep(r.tp, setting_number(t, key));
  }
  for (const char* key : {"pipeline_parallel_size", "pp_size", "pipeline-parallel-size", "pp-size", "-pp"}) {
    keep(r.pp, setting_number(t, key));
  }
  for (const char* key : {"data_parallel_size", "dp_size", "data-parallel-size", "dp-size"})
    keep(r.dp, setting_number(t, key));
  for (const char* key : {"ep_size", "expert_parallel_size", "moe_expert_parallel_size", "ep-size"})
    keep(r.ep, setting_number(t, key));
  for (const char* key : {"decode_context_parallel_size", "dcp_size", "decode-context-parallel-size"}) {
    keep(r.dcp, setting_number(t, key));
  }
  for (const char* key : {"block_size", "page_size", "tokens_per_block", "block-size", "page-size"}) {
    keep(r.block, setting_number(t, key));
  }
  for (const char* key :
       {"max_seq_len", "max_model_len", "max-model-len", "context_len", "context_length", "context-length"}) {
    keep(r.max_length, setting_number(t, key));
  }
  for (const char* key : {"max_num_batched_tokens", "max-num-batched-tokens"}) {
    keep(r.batched_tokens, setting_number(t, key));
  }
  for (const char* key : {"num_speculative_tokens", "num_spec_tokens"}) {
    keep(r.drafted, setting_number(t, key));
  }
  if (line.has("speculative") && (line.has("eagle") || line.has("EAGLE"))) r.eagle = true;
  for (const char* key : {"kv_cache_dtype", "kv-cache-dtype"}) {
    const std::optional<std::string> word = setting_word(t, key);
    if (word && r.cache_dtype.empty()) r.cache_dtype = text::to_lower(*word);
  }
  for (const char* key : {"enable_prefix_caching", "enable-prefix-caching"}) {
    keep_flag(r.prefix_caching, setting_word(t, key));
  }
  for (const char* key :
       {"free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction", "kv_cache_free_gpu_memory_fraction"}) {
    const std::optional<ScannedNumber> share = number_after(t, std::string(key) + "=");
    if (share && share->value > 0 && share->value <= 1) r.free_share = share->value;
  }
  for (const char* backend : {"FLASHMLA_SPARSE", "FLASHMLA", "FlashMLA", "CUTLASS_MLA", "Cutlass MLA",
                              "TRITON_MLA", "Triton MLA", "FLASHINFER_MLA", "FlashInfer MLA"}) {
    if (r.backend.empty() && t.find(backend) != std::string_view::npos) r.backend = backend;
  }
}

}  // namespace mla::capacity
