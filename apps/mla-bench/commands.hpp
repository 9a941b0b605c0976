// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "program.hpp"

/// The subcommands of mla-bench: what the user asked for, as plain values, and what does it.
namespace mla::bench {

struct RunRequest {
  std::string spec;  ///< name, path, "-"; empty: flags alone
  /// Key of the sweep and its text, in the order given, e.g. {"window", "full,256"}.
  std::vector<std::pair<std::string, std::string>> overrides;
  std::vector<std::string> peers;  ///< command lines of kernels in other processes, beside the backends
  std::string filter;
  std::string out;           ///< folder; empty: results/<device>/<date>-<name>; "none": nothing is kept
  std::string gbench_json;   ///< file, or empty
  std::string gpu;           ///< ordinal, "none", or empty: the first there is
  std::string device;        ///< a described GPU to model instead of measuring, or empty
  std::string crossover;     ///< axis to bisect instead of sweeping, or empty
  std::string memory_limit;  ///< size, or empty: half of what is free
  bool explain = false;      ///< a sentence on each row
  bool formulas = false;     ///< the arithmetic of each row
  bool resume = false;
  bool dry_run = false;
  bool print_spec = false;
  int process = -1;                ///< which of several processes of a run this is; -1: the run itself
  std::string folder;              ///< of that run
  std::vector<std::string> words;  ///< the command line, to be run again by the processes
  std::string command_line;        ///< for the records
  cli::Output output;
};
[[nodiscard]] int answer(const RunRequest& request);

struct CompareRequest {
  std::string base, now;  ///< folders or files
  std::string threshold = "3%";
  std::string fail_on = "slower";
  std::string where;
  cli::Output output;
};
[[nodiscard]] int answer(const CompareRequest& request);

struct ReportRequest {
  std::vector<std::string> paths;  ///< folders or files
  std::string x = "kv", y = "time_us", by = "backend", facet = "window";
  std::string where;
  std::string format = "table";  ///< table, json, csv, md, html, svg, png
  std::string chart = "lines";   ///< lines, roofline, speedup (svg, png)
  std::string to;                ///< file; empty: stdout
  bool explain = false;          ///< a sentence on each row
  bool formulas = false;         ///< the arithmetic of each row
  bool pivot = false;            ///< the chart as a table
  std::string command_line;
  cli::Output output;
};
[[nodiscard]] int answer(const ReportRequest& request);

struct RerunRequest {
  std::string path;
  std::int64_t row = 0;  ///< 1-based; 0: all
  std::string threshold = "3%";
  std::string fail_on = "slower";
  std::string max_time, noise;  ///< as in run, or empty
  std::string out = "none";
  std::string gpu;  ///< as in run
  std::string memory_limit;
  std::string command_line;
  cli::Output output;
};
[[nodiscard]] int answer(const RerunRequest& request);

struct TuneRequest {
  std::vector<std::string> paths;  ///< folders or files
  std::string where;
  std::string to;  ///< file; empty: only shown
  std::string command_line;
  cli::Output output;
};
[[nodiscard]] int answer(const TuneRequest& request);

struct ListRequest {
  std::string what;      ///< backends, models, gpus, specs, axes
  bool explain = false;  ///< backends: answer for a shape, with reasons
  std::string shape;     ///< that shape, or empty: one decode step of `model`
  std::string model;     ///< name, or empty: the default of a sweep
  std::string gpu;       ///< backends: ordinal of a real GPU, or a described one; empty: the first there is
  std::string selector;  ///< backends: a table of `tune`; empty: that of the config folder
  bool names = false;    ///< one name a line, for shells
  cli::Output output;
};
[[nodiscard]] int answer(const ListRequest& request);

}  // namespace mla::bench
