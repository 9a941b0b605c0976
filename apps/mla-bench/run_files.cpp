// SPDX-License-Identifier: Apache-2.0
#include "run_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "program.hpp"
#include "report/where.hpp"
#include "run/sweep_run.hpp"

namespace mla::bench {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const std::string& path) {
  if (!fs::is_directory(path)) return {path};
  if (fs::exists(fs::path(path) / "run.jsonl")) return {fs::path(path) / "run.jsonl"};
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.path().filename() == "run.jsonl") files.push_back(entry.path());
  }
  if (files.empty())
    throw Error(ErrorCode::kIo, fmt::format("there is no run.jsonl in or below {}", text::quoted(path)));
  std::ranges::sort(files);
  return files;
}

/// A point that failed and was measured when the run was continued has two records in its file: the later counts.
void drop_superseded(std::vector<report::BenchRecord>& records) {
  std::map<std::string, std::size_t> last;
  for (std::size_t i = 0; i < records.size(); ++i) last[run::done_key(records[i])] = i;
  std::size_t i = 0;
  std::erase_if(records, [&](const report::BenchRecord& record) {
    const bool superseded = record.status == "error" && last[run::done_key(record)] != i;
    ++i;
    return superseded;
  });
}

}  // namespace

report::RunFile read_runs(const std::vector<std::string>& paths) {
  report::RunFile all;
  for (const std::string& path : paths) {
    for (const fs::path& file : files_of(path)) {
      report::RunFile run = report::read_run(file);
      for (const std::string& warning : run.warnings) fmt::print(stderr, "mla-bench: warning: {}\n", warning);
      drop_superseded(run.records);
      std::ranges::move(run.environments, std::back_inserter(all.environments));
      std::ranges::move(run.records, std::back_inserter(all.records));
    }
  }
  return all;
}

void select(std::vector<report::BenchRecord>& records, const std::string& where) {
  if (where.empty()) return;
  const report::Table table = report::record_table(records, true);
  const report::Where condition(where, table.columns);
  std::vector<report::BenchRecord> kept;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (condition.matches(table.rows[i])) kept.push_back(std::move(records[i]));
  }
  records = std::move(kept);
  if (records.empty())
    throw Error(ErrorCode::kInvalidArgument, fmt::format("no record meets {}", text::quoted(where)));
}

int verdict(const report::RunChange& change, const std::string& fail_on) {
  using report::Change;
  if (fail_on != "slower" && fail_on != "any" && fail_on != "none") {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("--fail-on {} is not known", text::quoted(fail_on)),
                "allowed are slower, any and none");
  }
  if (fail_on == "none") return cli::kOk;
  std::int64_t bad = change.count(Change::kSlower) + change.count(Change::kBroken);
  if (fail_on == "any") bad += change.count(Change::kFaster);
  return bad > 0 ? cli::kCheckFailed : cli::kOk;
}

}  // namespace mla::bench
