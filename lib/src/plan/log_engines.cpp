// SPDX-License-Identifier: Apache-2.0
// What vLLM, SGLang and TensorRT-LLM print about memory.
#include <algorithm>
#include <string>

#include "core/text.hpp"
#include "plan/log_line.hpp"

namespace mla::capacity {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// "To serve at least one request with the models's max seq len (262144), (24.0 GiB KV cache is needed, ..."
/// and, before 0.8, "The model's max seq len (131072) is larger than the maximum number of tokens that can be
/// stored in KV cache (81536)".
void read_vllm_refusal(const LogLine& line) {
  const auto length = number_after(line.text, "max seq len (");
  if (!length) return;
  const auto tokens = static_cast<std::int64_t>(length->value);
  keep(line.reading.max_length, tokens);
  if (const auto rest = after(length->rest, ")")) {
    const auto need = leading_number(rest->substr(std::min(rest->size(), rest->find_first_of("0123456789"))));
    if (need && unit_of(need->rest) > 0) {
      line.add(LogKind::kNeed, *need, unit_of(need->rest)).length = tokens;
      line.engine("vllm");
    }
  }
  line.bytes(LogKind::kBudget, "available KV cache memory (");
  if (line.count(LogKind::kTokens, "that can be stored in KV cache (")) line.engine("vllm");
}

/// A budget that was given in bytes, in a command or in the list of what is not default. "Replace ... with
/// `--kv-cache-memory=N`" is advice.
void read_given_budget(const LogLine& line) {
  if (line.has("Replace ") || !line.reading.numbers.empty()) return;
  for (const char* key : {"kv-cache-memory-bytes", "kv_cache_memory_bytes", "kv-cache-memory"}) {
    const std::optional<std::int64_t> bytes = setting_number(line.text, key);
    if (!bytes || *bytes < 1) continue;
    ScannedNumber number;
    number.value = static_cast<double>(*bytes) / kGiB;
    number.half_digit = 0.5 / kGiB;
    line.add(LogKind::kBudget, number, kGiB);
    return;
  }
}

void read_vllm_hybrid(const LogLine& line) {
  LogReading& r = line.reading;
  for (const char* key : {"Setting attention block size to", "Setting kv cache block size to",
                          "Forcing kv cache block size to"}) {
    if (const auto block = number_after(line.text, key)) r.block = small(*block);
  }
  if (const auto padding = number_after(line.text, "Padding mamba page size by"))
    r.page_padding = padding->value;
  if (line.has("padding layers")) {
    if (const auto layers = number_after(line.text, "Add ")) r.padding_layers = small(*layers);
  }
  if (!line.has("Multiplying the GPU KV cache size")) return;
  for (const char* key : {"dcp_world_size", "cp_world_size"}) {
    const auto world = number_after(line.text, key);
    if (world && r.dcp == 0) r.dcp = std::max(1, small(*world));
  }
}

}  // namespace

void read_vllm_line(const LogLine& line) {
  const std::string_view t = line.text;
  LogReading& r = line.reading;
  read_given_budget(line);
  for (const char* key : {"KV cache memory:", "memory reserved for KV Cache is",
                          "Current kv cache memory in use is", " kv_cache_size="}) {
    if (line.bytes(LogKind::kBudget, key) || line.bytes(LogKind::kDeficit, std::string(key) + " -"))
      line.engine("vllm");
  }
  if (line.has("memory for KV Cache as specified by") && line.bytes(LogKind::kBudget, "reserved "))
    line.engine("vllm");
  if (line.has(" for weight, ") && line.bytes(LogKind::kWeights, "Actual usage is ")) line.engine("vllm");
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
  for (const char* key : {"GPU blocks:", "# cuda blocks:", "# CUDA blocks:", "num_gpu_blocks is:"}) {
    if (line.count(LogKind::kBlocks, key)) line.engine("vllm");
  }
  read_vllm_refusal(line);
  line.count(LogKind::kEstimate, "estimated maximum model length is");
  for (const char* key :
       {"Model loading took", "Loading model weights took", "Model weights take", "model weights take"}) {
    if (line.bytes(LogKind::kWeights, key)) line.engine("vllm");
  }
  read_vllm_hybrid(line);
  if (line.has("fp8_ds_mla KV cache format")) {
    r.cache_dtype = line.has("nvfp4_ds_mla") ? "nvfp4_ds_mla" : "fp8_ds_mla";
    line.engine("vllm");
  }
}

void read_sglang_line(const LogLine& line) {
  const std::string_view t = line.text;
  if (line.has("KV Cache is allocated")) {
    line.engine("sglang");
    line.count(LogKind::kTokens, "#tokens:");
    line.bytes(LogKind::kCacheBytes, "KV size:");
    line.bytes(LogKind::kKeyBytes, " K size:");
    line.bytes(LogKind::kValueBytes, " V size:");
    const std::optional<std::string> dtype = setting_word(t, "dtype");
    if (dtype && dtype->starts_with("torch.")) {
      const bool fp8 = dtype->starts_with("torch.float8");
      line.reading.cache_dtype = fp8 ? "fp8" : dtype->substr(std::string_view("torch.").size());
    }
  }
  if (line.has("Mamba Cache is allocated")) {
    line.engine("sglang");
    const auto states = number_after(t, "max_mamba_cache_size:");
    const auto conv = number_after(t, "conv_state size:");
    auto sum = number_after(t, " ssm_state size:");
    if (states && conv && sum && states->value >= 1 && states->value < 1e9) {
      constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
      sum->value += conv->value;
      sum->half_digit += conv->half_digit;
      line.add(LogKind::kStateBytes, *sum, kGiB).length = static_cast<std::int64_t>(states->value);
    }
  }
  if (const auto tokens = number_after(t, "max_total_num_tokens=")) {
    line.add(LogKind::kTokens, *tokens, 1);
    line.engine("sglang");
  }
  if (line.has("Load weight end") && line.bytes(LogKind::kWeights, "mem usage=")) line.engine("sglang");
}

namespace {

/// TensorRT-LLM's PyTorch backend measures its memory with a small pool, which it frees: its lines come before the one that
/// says what the measuring found.
void forget_profiling_pool(const LogLine& line) {
  std::vector<LogNumber>& numbers = line.reading.numbers;
  const bool measured =
      std::ranges::any_of(numbers, [](const LogNumber& number) { return number.kind == LogKind::kBudget; });
  if (measured) return;
  std::erase_if(numbers, [&](const LogNumber& number) {
    const bool pool = number.kind == LogKind::kBlocks || number.kind == LogKind::kTokens ||
                      number.kind == LogKind::kCacheBytes;
    if (pool) line.reading.profiling_line = number.line;
    return pool;
  });
}

}  // namespace

void read_tensorrt_line(const LogLine& line) {
  const std::string_view t = line.text;
  if (line.has("paged KV cache")) {
    if (line.bytes(LogKind::kCacheBytes, "Allocated")) line.engine("tensorrt-llm");
    line.count(LogKind::kTokens, "paged KV cache (");
    if (line.has("tokens in paged KV cache") && line.count(LogKind::kTokens, "Using "))
      line.engine("tensorrt-llm");
  }
  if (line.has("max tokens in paged kv cache:")) {
    if (const auto free = number_after(t, "available:"); free && unit_of(free->rest) == kGiB) {
      line.add(LogKind::kBudget, *free, kGiB).free_memory = true;
      line.engine("tensorrt-llm");
    }
  }
  // The PyTorch backend names what is left of the share it takes, and what a token takes.
  for (const char* key :
       {"available KV cache memory when calculating max tokens:", "Estimated max memory in KV cache :"}) {
    if (number_after(t, key)) forget_profiling_pool(line);
    if (line.bytes(LogKind::kBudget, key)) line.engine("tensorrt-llm");
  }
  for (const char* key : {"kv size is ", "kv size per token is "}) line.count(LogKind::kTokenBytes, key);
  for (const char* key : {"blocks in KV cache primary pool:", "primary blocks="}) {
    if (line.count(LogKind::kBlocks, key)) line.engine("tensorrt-llm");
  }
  for (const char* key : {"Number of tokens per block:", "tokens per block="}) {
    if (const auto block = number_after(t, key)) line.reading.block = small(*block);
  }
}

}  // namespace mla::capacity
