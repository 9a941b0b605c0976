// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "program.hpp"

/// What the user asked for, as text: request.hpp turns it into numbers, so that errors speak one language.
namespace mla::memcalc {

enum class Command { kPlan, kSolve, kCompare, kSweep, kSavings, kTable, kExamples, kExplain, kCheck, kList };

/// Options of every command that plans. Empty: the default of engine or model.
struct RequestOptions {
  std::string model;
  std::string gpu, gpu_memory, gpus, gpus_per_node = "8";
  std::string attention = "auto", tp, dp, pp, dcp, ep, stages;
  std::string engine = "vllm", cache = "auto", cache_v, block, mla_storage;
  std::string utilization, weights, expert_weights, weight_bytes, activations, graphs, other, cache_bytes;
  std::string index;  ///< real sizes of the weights
  std::string context, concurrency, batched_tokens = "8k", max_sequences = "256";
  std::string speculative, state_blocks = "one", micro_batch = "512", window_sequences = "1";
  std::string prefill_chunks = "1", draft_layers;
  bool mtp = false, swa_full = false;
};

struct Options {
  Command command = Command::kPlan;
  RequestOptions request;
  std::vector<std::string> models;    ///< table, sweep
  std::string unknown = "context";    ///< solve --for
  std::string what;                   ///< list
  std::string cases;                  ///< check
  std::string log = "-";              ///< explain
  std::string log_engine, log_cache;  ///< explain: instead of what the log says
  std::string lengths;                ///< plan: a trace
  std::string versus;                 ///< plan: mha, gqa:8, mqa
  bool emit_sweep = false;            ///< plan: a spec for mla-bench instead of the answer
  std::string layouts = "auto";       ///< sweep
  std::string window, sink = "0";     ///< savings
  std::string plot;                   ///< a file for the picture
  std::string command_line;           ///< for the foot of a page
  std::string top = "10";             ///< compare
  bool names = false;                 ///< list
  bool formulas = false;
  std::string with;  ///< plan: a run of mla-bench whose times to use
  cli::Output output;
};

/// Fills `options`. Empty: go on. A value: the program ends with that code.
[[nodiscard]] std::optional<int> parse_options(int argc, char** argv, Options& options);

}  // namespace mla::memcalc
