// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mla/cache.hpp"
#include "mla/layer.hpp"
#include "program.hpp"
#include "verify/run_suite.hpp"

namespace mla::verify_app {

/// mla-verify golden
struct GoldenRequest {
  std::string dir;
  std::vector<std::string> sets;  ///< empty: all
  std::string backends = "all";
  bool summary = false;  ///< one line a set only
  cli::Output output;
};

/// mla-verify run
struct RunRequest {
  std::string suite = "quick";     ///< a name, or a file of cases
  std::vector<std::string> cases;  ///< given as text; then no suite is run
  std::string backends = "all";
  std::vector<std::string> plugins;   ///< shared objects with backends
  std::vector<std::string> peers;     ///< command lines of kernels in other processes
  std::string filter;                 ///< regular expression over the cases' texts
  std::optional<std::uint64_t> seed;  ///< default: 1, or the clock for a fuzzer
  double fuzz_seconds = 0;            ///< > 0: random cases for so long in place of the suite's
  int show = 20;                      ///< passing cases shown in a table
  int repeats = 0;                    ///< of the oracle that wants equal bits; 0: by the backend
  int jobs = 0;                       ///< judges side by side; 0: by the machine
  verify::Shard shard{};              ///< the part of suite and oracles that is run
  bool list_cases = false;
  bool fail_fast = false;
  bool no_oracles = false;
  bool no_shrink = false;
  bool in_process = false;    ///< no process beside: for debuggers and sanitizers
  bool log_progress = false;  ///< lines on stderr
  bool formulas = false;      ///< the arithmetic of the budgets
  double timeout = 120;       ///< seconds for one call of a backend
  std::string replay;         ///< a repro.json: nothing but its case is run
  std::string repro = "repro.json";
  std::string junit;
  std::string html;
  cli::Output output;
};

/// mla-verify capabilities
struct CapabilitiesRequest {
  std::string backends = "all";
  std::vector<std::string> plugins;
  std::vector<std::string> peers;  ///< command lines of kernels in other processes
  std::uint64_t seed = 1;
  double timeout = 120;
  cli::Output output;
};

/// The hidden process beside: answers what the others ask (verify/judge.hpp).
struct WorkerRequest {
  std::string backends = "all";
  std::vector<std::string> plugins;
  int threads = 0;  ///< of the reference; 0: all
  int parent = 0;   ///< process that started it, whose end is its end
};

/// mla-verify oracles: what each one expects.
struct OraclesRequest {
  cli::Output output;
};

/// mla-verify mutants
struct MutantsRequest {
  std::string backend;  ///< a device kernel whose wrong variants are tried; empty: those of the host
  std::string suite = "quick";
  std::uint64_t seed = 1;
  std::int64_t ideal_seeds = 1000;
  cli::Output output;
};

/// mla-verify layer
struct LayerRequest {
  std::string weights;  ///< a safetensors file, an index, or their folder
  std::int64_t layer = 0;
  std::optional<int> block;       ///< LongCat: which of the layer's attentions; empty: all
  std::string config;             ///< empty: config.json beside the weights
  std::string hidden = "random";  ///< or a safetensors file
  std::int64_t tokens = 32, start = 0;
  std::uint64_t seed = 1;
  std::vector<CacheFormat> caches{CacheFormat::kF64, CacheFormat::kBF16};
  YarnRule rule = YarnRule::kTransformers;
  bool f32_angles = false;
  std::optional<double> norm_eps;  ///< empty: the configuration's
  std::string backends = "all";
  std::string save;
  cli::Output output;
};

/// mla-verify index
struct IndexRequest {
  std::int64_t cases = 500;
  std::uint64_t seed = 0;
  cli::Output output;
};

int golden(const GoldenRequest& request);
int index(const IndexRequest& request);
int layer(const LayerRequest& request);
int mutants(const MutantsRequest& request);
int device_mutants(const MutantsRequest& request);
/// Makes the wrong device kernels of a build that has them known by name.
void hand_over_device_mutants();
int run(const RunRequest& request);
int replay(const RunRequest& request);
int capabilities(const CapabilitiesRequest& request);
int serve(const WorkerRequest& request);
int list_oracles(const OraclesRequest& request);

}  // namespace mla::verify_app
