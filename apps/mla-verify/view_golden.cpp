// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "view.hpp"

namespace mla::verify_app {
namespace {

using report::Cell;
using verify::GoldenCheck;
using verify::GoldenResult;

double share_of(const GoldenCheck& check) {
  return check.limit > 0 ? check.error / check.limit : check.error;
}

report::Column scientific(const char* key, const char* title) {
  report::Column column{key, title};
  column.scientific = true;
  return column;
}

std::string verdict_of(bool passed) {
  return passed ? "pass" : "FAIL";
}

/// "seq0.out_f64" -> "out_f64": the sequences of a set stand in one row.
std::string without_sequence(const std::string& tensor) {
  const std::size_t dot = tensor.find('.');
  return tensor.starts_with("seq") && dot != std::string::npos ? tensor.substr(dot + 1) : tensor;
}

report::Table sets_table(std::span<const GoldenResult> results) {
  report::Table table;
  table.name = "sets";
  table.title = "Sets";
  table.columns = {{"verdict", "verdict"},
                   {"set", "set"},
                   {"checks", "checks"},
                   {"worst_share_percent", "% of limit", 2},
                   {"worst_tensor", "worst tensor"},
                   {"worst_path", "computed as"},
                   scientific("worst_error", "error")};
  for (const GoldenResult& r : results) {
    const GoldenCheck* worst = r.worst();
    std::vector<Cell> row{verdict_of(r.passed()), r.set, static_cast<std::int64_t>(r.checks.size())};
    if (worst != nullptr) {
      row.insert(row.end(), {100 * share_of(*worst), worst->tensor, worst->path, worst->error});
    } else {
      row.resize(table.columns.size());
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// One row for each set, tensor and path: the worst of the set's sequences.
report::Table tensors_table(std::span<const GoldenResult> results) {
  report::Table table;
  table.name = "tensors";
  table.title = "Tensors (errors relative to the largest value of the tensor)";
  table.columns = {{"verdict", "verdict"},
                   {"set", "set"},
                   {"tensor", "tensor"},
                   {"path", "computed as"},
                   scientific("error", "error"),
                   scientific("limit", "limit"),
                   {"share_percent", "% of limit", 2}};
  for (const GoldenResult& r : results) {
    std::vector<std::pair<std::string, const GoldenCheck*>> rows;
    for (const GoldenCheck& check : r.checks) {
      const std::string name = without_sequence(check.tensor);
      const auto same = [&](const auto& row) { return row.first == name && row.second->path == check.path; };
      const auto found = std::find_if(rows.begin(), rows.end(), same);
      if (found == rows.end()) {
        rows.emplace_back(name, &check);
      } else if (share_of(check) > share_of(*found->second)) {
        found->second = &check;
      }
    }
    for (const auto& [name, check] : rows) {
      if (check->skipped) {
        table.rows.push_back({std::string("not checked"), r.set, name, check->path, {}, {}, {}});
        continue;
      }
      table.rows.push_back({verdict_of(check->passed), r.set, name, check->path, check->error, check->limit,
                            100 * share_of(*check)});
    }
  }
  return table;
}

}  // namespace

report::Document golden_document(const verify::GoldenManifest& manifest,
                                 std::span<const GoldenResult> results, bool details) {
  report::Document document;
  document.kind = "verify.golden";
  std::int64_t checks = 0, failed = 0, sets_passed = 0;
  std::map<std::string, int> left_out;
  for (const GoldenResult& r : results) {
    sets_passed += r.passed() ? 1 : 0;
    for (const GoldenCheck& check : r.checks) {
      checks += check.skipped ? 0 : 1;
      failed += check.passed ? 0 : 1;
      if (check.skipped) ++left_out[fmt::format("{} of {}: {}", check.path, check.tensor, check.detail)];
      if (!check.passed) {
        document.notes.push_back(
            fmt::format("FAIL {} {} ({}): {}", r.set, check.tensor, check.path, check.detail));
      }
    }
  }
  for (const auto& [what, sets] : left_out)
    document.notes.push_back(fmt::format("not checked in {} sets: {}", sets, what));
  document.headline = {fmt::format("{} of {} sets pass: {} checks, {} failed (vectors made with {})",
                                   sets_passed, results.size(), checks, failed, manifest.environment)};
  document.facts = {{"sets", static_cast<std::int64_t>(results.size())},
                    {"sets_passed", sets_passed},
                    {"checks", checks},
                    {"checks_failed", failed}};
  document.tables.push_back(sets_table(results));
  if (details) document.tables.push_back(tensors_table(results));
  return document;
}

}  // namespace mla::verify_app
