// SPDX-License-Identifier: Apache-2.0
#include "verify/isolated.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "verify/child_process.hpp"

namespace mla::verify {
namespace {

using Json = nlohmann::json;

constexpr int kPassed = 0, kFailed = 1, kMachine = 3;  // exit codes of mla-verify

/// What a judged case's own report says: share of the budget and finding.
void read_report(const Json& json, Verdict& verdict) {
  const Json& rows = json.at("tables").at("cases");
  if (rows.empty()) return;
  const Json& row = rows.front();
  verdict.reason = row.at("finding").get<std::string>();
  if (row.at("budget_percent").is_number())
    verdict.report.budget_share = row.at("budget_percent").get<double>() / 100;
}

/// The last line of what a dying program said.
std::string last_words(const std::string& err) {
  const std::size_t end = err.find_last_not_of('\n');
  if (end == std::string::npos) return {};
  const std::size_t start = err.find_last_of('\n', end);
  return ": " + err.substr(start == std::string::npos ? 0 : start + 1,
                           end - (start == std::string::npos ? 0 : start + 1) + 1);
}

}  // namespace

Verdict judge_isolated(const std::string& program, const std::string& backend, const Case& c,
                       double timeout) {
  Verdict verdict;
  verdict.c = c;
  verdict.backend = backend;
  const ChildResult child = run_child(
      {program, "run", "--backends", backend, "--case", to_text(c), "--no-shrink", "-q", "-o", "json"},
      timeout);
  if (child.timed_out) {
    verdict.outcome = Outcome::kFailed;
    verdict.reason = fmt::format("no answer within {:g} s", timeout);
  } else if (child.signal != 0) {
    verdict.outcome = Outcome::kFailed;
    verdict.reason = fmt::format("it died of signal {} ({})", child.signal, ::strsignal(child.signal));
  } else if (child.exit_code == kPassed || child.exit_code == kFailed) {
    verdict.outcome = child.exit_code == kPassed ? Outcome::kPassed : Outcome::kFailed;
    try {
      read_report(Json::parse(child.out), verdict);
    } catch (const Json::exception& e) {
      verdict.outcome = Outcome::kFailed;
      verdict.reason = fmt::format("its report cannot be read: {}", e.what());
    }
    if (verdict.outcome == Outcome::kPassed) verdict.reason.clear();
  } else if (child.exit_code == kMachine) {
    verdict.outcome = Outcome::kUnsupported;
    verdict.reason = fmt::format("not supported{}", last_words(child.err));
    try {
      const Json json = Json::parse(child.out);
      if (!json.at("notes").empty()) verdict.reason = json.at("notes").front().get<std::string>();
    } catch (const Json::exception&) {
      // It refused before it judged anything: stderr has the sentence.
    }
  } else {
    verdict.outcome = Outcome::kFailed;
    verdict.reason = fmt::format("it ended with exit code {}{}", child.exit_code, last_words(child.err));
  }
  return verdict;
}

}  // namespace mla::verify
