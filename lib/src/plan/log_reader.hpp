// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mla/export.h"

/// Reads what serving engines log about memory, as users paste it: with prefixes, ranks, colours, several
/// ranks mixed, cut lines.
namespace mla::capacity {

enum class LogKind : std::uint8_t {
  kBudget,       ///< GiB a rank has for the cache
  kDeficit,      ///< GiB by which weights and runtime exceed the budget: no cache at all
  kTokens,       ///< tokens the pool holds
  kConcurrency,  ///< x at `length` tokens
  kNeed,         ///< GiB one sequence of the maximum length needs
  kEstimate,     ///< estimated maximum length
  kBlocks,       ///< GPU blocks
  kWeights,      ///< GiB of weights on a rank
  kCacheBytes,   ///< GiB of the whole cache, K and V together
  kKeyBytes,     ///< GiB of K (llama.cpp: c^KV)
  kValueBytes,   ///< GiB of V
  kTokenBytes,   ///< bytes of a token on a rank
  kStateBytes,   ///< GiB of the states of `length` sequences and a spare one (SGLang)
};
[[nodiscard]] MLA_EXPORT std::string_view name_of(LogKind kind) noexcept;

/// Which of llama.cpp's caches of one model a line speaks of. kDense, kSparse: DeepSeek-V4's compressed entries.
enum class CacheOf : std::uint8_t { kUnknown, kFull, kWindow, kDense, kSparse, kIndex };

struct LogNumber {
  LogKind kind = LogKind::kTokens;
  double value = 0;
  double half_digit = 0;              ///< half of the last printed digit: the true number is that near
  double unit = 1;                    ///< bytes of one: 2^30, 2^20; 1 for counts
  std::int64_t length = 0;            ///< kConcurrency, kNeed: tokens of a sequence; kStateBytes: sequences
  int streams = 1;                    ///< kTokens of llama.cpp: caches of so many cells each
  int layers = 0;                     ///< kTokens of llama.cpp: layers that the line speaks of; 0: not said
  CacheOf cache = CacheOf::kUnknown;  ///< kTokens of llama.cpp
  bool free_memory = false;           ///< kBudget: all free memory, of which the engine takes a share
  std::string rank;                   ///< "TP0", "PP1", "Worker_TP3", or empty
  int line = 0;                       ///< 1-based
  std::string text;                   ///< the line without colours, cut to a screen's width
};

/// An allocation that failed. Bytes; 0: not said.
struct LogFailure {
  double wanted = 0, free = 0, total = 0;
  std::string rank;
  int line = 0;
  bool share = false;  ///< the engine's share of the memory was taken, not all memory
};

/// Everything found. Empty or 0: not said.
struct LogReading {
  std::string engine, version, model, cache_dtype, cache_dtype_v, backend;
  int tp = 0, pp = 0, dp = 0, dcp = 0, ep = 0, block = 0;
  int last_tp_rank = -1;        ///< highest that any line is marked with, numbers in it or not
  int mla_mode = -1;            ///< llama.cpp family: -mla
  std::int64_t max_length = 0;  ///< maximum model length, or llama.cpp's context
  std::int64_t batched_tokens = 0;
  std::int64_t micro_batch = 0;       ///< llama.cpp: n_ubatch
  std::int64_t slots_context = 0;     ///< ik_llama.cpp: n_ctx_slot of all slots
  int sequences = 0;                  ///< llama.cpp: sequences that share one cache
  bool full_windows = false;          ///< llama.cpp: --swa-full
  CacheOf cache = CacheOf::kUnknown;  ///< of the llama.cpp lines that follow
  int drafted = 0;                    ///< speculative tokens
  bool eagle = false;                 ///< an EAGLE drafter is named
  bool prefix_caching = false;
  double free_share = 0;     ///< TensorRT-LLM: share of free memory for the cache; 0: not said
  int padding_layers = -1;   ///< vLLM: "Add 1 padding layers"
  double page_padding = -1;  ///< per cent
  std::int64_t layers = 0;   ///< llama.cpp: n_layer
  double buffer_bytes = 0, buffer_slack = 0;  ///< llama.cpp: sum of KV buffers, and half digits of it
  int buffer_line = 0;
  int other_start = 0;     ///< the first line that names another version than the first; 0: none
  int profiling_line = 0;  ///< TensorRT-LLM: the last line about a pool that was for measuring alone; 0: none
  bool cut = false;        ///< the log is longer than what was read
  std::vector<LogNumber> numbers;
  std::vector<LogFailure> failures;
  std::vector<int> unreadable;  ///< lines where something else stands in place of a number
  [[nodiscard]] bool empty() const noexcept { return numbers.empty() && failures.empty(); }
};

/// Never throws for what the text holds; rubbish gives an empty reading.
[[nodiscard]] MLA_EXPORT LogReading read_log(std::string_view text);

}  // namespace mla::capacity
