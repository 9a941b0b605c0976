// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>

#include "commands.hpp"
#include "mla/error.hpp"
#include "run_files.hpp"
#include "session.hpp"

namespace mla::bench {
namespace {

using report::Cell;

/// Facts that explain a difference by themselves, where they differ between the runs.
void note_differences(const report::RunFile& base, const report::RunFile& now, report::Document& document) {
  if (base.environments.empty() || now.environments.empty()) return;
  const auto& was = base.environments.back().facts;
  const std::map<std::string, Cell> is(now.environments.back().facts.begin(),
                                       now.environments.back().facts.end());
  for (const auto& [key, value] : was) {
    const auto found = is.find(key);
    if (found == is.end() || found->second == value || key == "command" || key == "load_1min") continue;
    const bool measured = std::holds_alternative<double>(value);
    const auto text = [&](const Cell& cell) {
      if (const auto* real = std::get_if<double>(&cell)) return fmt::format("{:.4g}", *real);
      if (const auto* integer = std::get_if<std::int64_t>(&cell)) return fmt::format("{}", *integer);
      if (const auto* word = std::get_if<std::string>(&cell)) return *word;
      return std::string(std::get<bool>(cell) ? "yes" : "no");
    };
    document.notes.push_back(fmt::format("{} {}: {} -> {}", key, measured ? "was measured as" : "differs",
                                         text(value), text(found->second)));
  }
}

}  // namespace

int answer(const CompareRequest& request) {
  const double threshold = parse_threshold(request.threshold);
  report::RunFile base = read_runs({request.base});
  report::RunFile now = read_runs({request.now});
  select(base.records, request.where);
  select(now.records, request.where);
  const report::RunChange change = report::compare_runs(base.records, now.records, threshold);
  if (change.points.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                change.untimed > 0 ? "the points that the two runs have in common have no times"
                                   : "the two runs have no point in common",
                "points match when shape, backend, device, caches, timer, splits and threads do");
  }
  report::Document document = report::compare_document(change, threshold);
  note_differences(base, now, document);
  cli::Output output = request.output;
  output.fold_constant_columns = true;
  const int code = verdict(change, request.fail_on);
  cli::print(document, output);
  return code;
}

}  // namespace mla::bench
