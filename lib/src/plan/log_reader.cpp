// SPDX-License-Identifier: Apache-2.0
#include "plan/log_reader.hpp"

#include <algorithm>

#include "core/text.hpp"
#include "plan/log_scan.hpp"

namespace mla::capacity {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// One line being read into the reading.
struct Line {
  std::string_view text;
  int number = 0;
  LogReading& reading;

  LogNumber& add(LogKind kind, const ScannedNumber& found, double unit) const {
    constexpr std::size_t kWidth = 160;
    LogNumber number_found;
    number_found.kind = kind;
    number_found.value = found.value;
    number_found.half_digit = found.half_digit;
    number_found.unit = unit;
    number_found.rank = rank_of(text);
    number_found.line = number;
    number_found.text = std::string(text.substr(0, kWidth));
    reading.numbers.push_back(std::move(number_found));
    return reading.numbers.back();
  }
  /// A number of bytes behind `key`, in the unit that follows it (GiB if none does).
  bool bytes(LogKind kind, std::string_view key) const {
    const std::optional<ScannedNumber> found = number_after(text, key);
    if (!found) return false;
    const double unit = unit_of(found->rest);
    add(kind, *found, unit > 0 ? unit : kGiB);
    return true;
  }
  bool count(LogKind kind, std::string_view key) const {
    const std::optional<ScannedNumber> found = number_after(text, key);
    if (!found) return false;
    add(kind, *found, 1);
    return true;
  }
  void engine(const char* name) const {
    if (reading.engine.empty()) reading.engine = name;
  }
};

/// "version 0.11.0", "(v0.11.0)".
void read_version(const Line& line) {
  if (!line.reading.version.empty()) return;
  for (const std::string_view key : {"vLLM API server version ", "LLM engine (v", "vLLM version ", "vllm==",
                                     "TensorRT-LLM version: ", "TensorRT LLM version: ", "sglang=="}) {
    const std::optional<std::string_view> rest = after(line.text, key);
    if (!rest || rest->empty()) continue;
    const std::size_t end = rest->find_first_of(" ),;'\"");
    line.reading.version = std::string(rest->substr(0, std::min<std::size_t>(end, 40)));
    line.engine(key.starts_with("Tensor") ? "tensorrt-llm" : key.starts_with("sglang") ? "sglang" : "vllm");
    return;
  }
}

void keep(int& slot, std::optional<std::int64_t> value) {
  constexpr std::int64_t kMost = 65536;
  if (value && *value >= 1 && *value <= kMost && slot == 0) slot = static_cast<int>(*value);
}

void keep(std::int64_t& slot, std::optional<std::int64_t> value) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (value && *value >= 1 && *value <= kMost && slot == 0) slot = *value;
}

/// A number that was found, as a small setting.
int small(const ScannedNumber& number) {
  return static_cast<int>(std::min(number.value, 1e6));
}

/// Engine arguments, wherever they are printed.
void read_settings(const Line& line) {
  LogReading& r = line.reading;
  const std::string_view t = line.text;
  for (const char* key : {"tensor_parallel_size", "tp_size", "tensor-parallel-size", "tp-size"}) {
    keep(r.tp, setting_number(t, key));
  }
  for (const char* key : {"pipeline_parallel_size", "pp_size", "pipeline-parallel-size"}) {
    keep(r.pp, setting_number(t, key));
  }
  for (const char* key : {"data_parallel_size", "dp_size", "data-parallel-size"})
    keep(r.dp, setting_number(t, key));
  for (const char* key : {"ep_size", "expert_parallel_size"}) keep(r.ep, setting_number(t, key));
  for (const char* key : {"decode_context_parallel_size", "dcp_size", "decode-context-parallel-size"}) {
    keep(r.dcp, setting_number(t, key));
  }
  for (const char* key : {"block_size", "page_size", "tokens_per_block", "block-size", "page-size"}) {
    keep(r.block, setting_number(t, key));
  }
  for (const char* key : {"max_seq_len", "max_model_len", "max-model-len", "context_len", "context_length"}) {
    keep(r.max_length, setting_number(t, key));
  }
  for (const char* key : {"max_num_batched_tokens", "max-num-batched-tokens"}) {
    keep(r.batched_tokens, setting_number(t, key));
  }
  for (const char* key : {"kv_cache_dtype", "kv-cache-dtype"}) {
    const std::optional<std::string> word = setting_word(t, key);
    if (word && r.cache_dtype.empty()) r.cache_dtype = text::to_lower(*word);
  }
  for (const char* key : {"model_path", "model", "served_model_name", "general.name"}) {
    const std::optional<std::string> word = setting_word(t, key);
    if (word && r.model.empty() && word->find_first_of("-/") != std::string::npos) r.model = *word;
  }
  for (const char* backend : {"FLASHMLA_SPARSE", "FLASHMLA", "FlashMLA", "CUTLASS_MLA", "Cutlass MLA",
                              "TRITON_MLA", "Triton MLA", "FLASHINFER_MLA", "FlashInfer MLA"}) {
    if (r.backend.empty() && t.find(backend) != std::string_view::npos) r.backend = backend;
  }
}

void read_vllm(const Line& line) {
  const std::string_view t = line.text;
  LogReading& r = line.reading;
  if (line.bytes(LogKind::kBudget, "KV cache memory:")) line.engine("vllm");
  if (const auto found = number_after(t, "GPU KV cache size:"); found && found->rest.starts_with(" t")) {
    line.add(LogKind::kTokens, *found, 1);
    line.engine("vllm");
  }
  if (const auto length = number_after(t, "Maximum concurrency for ")) {
    if (const auto times_over = number_after(length->rest, "request:")) {
      line.add(LogKind::kConcurrency, *times_over, 1).length = static_cast<std::int64_t>(length->value);
      keep(r.max_length, static_cast<std::int64_t>(length->value));
      line.engine("vllm");
    }
  }
  for (const char* key : {"# GPU blocks:", "# cuda blocks:", "num_gpu_blocks is:"}) {
    if (line.count(LogKind::kBlocks, key)) line.engine("vllm");
  }
  if (const auto length = number_after(t, "max seq len (")) {
    keep(r.max_length, static_cast<std::int64_t>(length->value));
    if (const auto rest = after(length->rest, ")")) {
      if (const auto need =
              leading_number(rest->substr(std::min(rest->size(), rest->find_first_of("0123456789"))))) {
        line.add(LogKind::kNeed, *need, kGiB).length = static_cast<std::int64_t>(length->value);
        line.engine("vllm");
      }
    }
    line.bytes(LogKind::kBudget, "available KV cache memory (");
  }
  line.count(LogKind::kEstimate, "estimated maximum model length is");
  for (const char* key :
       {"Model loading took", "Loading model weights took", "Model weights take", "model weights take"}) {
    if (line.bytes(LogKind::kWeights, key)) line.engine("vllm");
  }
  if (const auto block = number_after(t, "Setting attention block size to")) r.block = small(*block);
  if (const auto padding = number_after(t, "Padding mamba page size by")) r.page_padding = padding->value;
  if (t.find("padding layers") != std::string_view::npos) {
    if (const auto layers = number_after(t, "Add ")) r.padding_layers = small(*layers);
  }
  for (const char* key : {"dcp_world_size", "cp_world_size"}) {
    if (t.find("Multiplying the GPU KV cache size") == std::string_view::npos) break;
    const auto world = number_after(t, key);
    if (world && r.dcp == 0) r.dcp = std::max(1, small(*world));
  }
}

void read_sglang(const Line& line) {
  const std::string_view t = line.text;
  if (t.find("KV Cache is allocated") != std::string_view::npos) {
    line.engine("sglang");
    line.count(LogKind::kTokens, "#tokens:");
    line.bytes(LogKind::kCacheBytes, "KV size:");
    line.bytes(LogKind::kKeyBytes, " K size:");
    line.bytes(LogKind::kValueBytes, " V size:");
  }
  if (const auto tokens = number_after(t, "max_total_num_tokens=")) {
    line.add(LogKind::kTokens, *tokens, 1);
    line.engine("sglang");
  }
  if (t.find("Load weight end") != std::string_view::npos && line.bytes(LogKind::kWeights, "mem usage=")) {
    line.engine("sglang");
  }
}

void read_tensorrt(const Line& line) {
  const std::string_view t = line.text;
  if (t.find("paged KV cache") != std::string_view::npos) {
    if (line.bytes(LogKind::kCacheBytes, "Allocated")) line.engine("tensorrt-llm");
    line.count(LogKind::kTokens, "paged KV cache (");
  }
  if (line.count(LogKind::kBlocks, "blocks in KV cache primary pool:")) line.engine("tensorrt-llm");
  if (const auto block = number_after(t, "Number of tokens per block:")) {
    line.reading.block = small(*block);
  }
}

/// "K (f16): 9.00 MiB", "c^KV (q8_0): 1166.62 MiB", "kv^T: not used".
void read_half(const Line& line, std::string_view key, LogKind kind, std::string& dtype) {
  const std::optional<std::string_view> rest = after(line.text, key);
  if (!rest) return;
  const std::size_t close = rest->find(')');
  const std::string_view word = close == std::string_view::npos ? std::string_view() : rest->substr(0, close);
  const std::optional<ScannedNumber> size =
      close == std::string_view::npos ? std::nullopt : leading_number(rest->substr(close + 1));
  if (!size) return;
  const double unit = unit_of(size->rest);
  if (unit == 0) return;
  line.add(kind, *size, unit);
  if (dtype.empty() && word.size() < 20) dtype = std::string(word);
}

void read_llama_cpp(const Line& line) {
  const std::string_view t = line.text;
  LogReading& r = line.reading;
  const bool cache_line = t.find("llama_kv_cache") != std::string_view::npos;
  if (t.find("llama_") != std::string_view::npos || t.find("llm_load") != std::string_view::npos) {
    keep(r.max_length, setting_number(t, "n_ctx"));
    keep(r.layers, setting_number(t, "n_layer"));
    if (const auto mode = setting_number(t, "mla_attn"))
      r.mla_mode = static_cast<int>(std::min<std::int64_t>(*mode, 9));
  }
  if (!cache_line && t.find("KV self size") == std::string_view::npos) return;
  const bool latent = t.find("c^KV") != std::string_view::npos;
  line.engine(latent ? "ik_llama.cpp" : "llama.cpp");
  line.bytes(LogKind::kCacheBytes, "KV self size");
  if (const auto cells = number_after(t, "MiB ("); cells && cells->rest.find("cells") < 3) {
    line.add(LogKind::kTokens, *cells, 1);
    line.bytes(LogKind::kCacheBytes, "size =");
  }
  read_half(line, " K (", LogKind::kKeyBytes, r.cache_dtype);
  read_half(line, " V (", LogKind::kValueBytes, r.cache_dtype_v);
  read_half(line, " c^KV (", LogKind::kKeyBytes, r.cache_dtype);
  read_half(line, " kv^T (", LogKind::kValueBytes, r.cache_dtype_v);
}

}  // namespace

std::string_view name_of(LogKind kind) noexcept {
  switch (kind) {
    case LogKind::kBudget:
      return "memory for the cache";
    case LogKind::kTokens:
      return "tokens";
    case LogKind::kConcurrency:
      return "concurrency";
    case LogKind::kNeed:
      return "memory one sequence needs";
    case LogKind::kEstimate:
      return "estimated maximum length";
    case LogKind::kBlocks:
      return "blocks";
    case LogKind::kWeights:
      return "weights";
    case LogKind::kCacheBytes:
      return "cache";
    case LogKind::kKeyBytes:
      return "K";
    case LogKind::kValueBytes:
      return "V";
  }
  return "?";
}

LogReading read_log(std::string_view text) {
  LogReading reading;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string plain = plain_line(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const Line line{plain, ++number, reading};
    read_version(line);
    read_settings(line);
    read_vllm(line);
    read_sglang(line);
    read_tensorrt(line);
    read_llama_cpp(line);
  }
  return reading;
}

}  // namespace mla::capacity
