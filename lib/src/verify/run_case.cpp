// SPDX-License-Identifier: Apache-2.0
#include "verify/run_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "verify/limits_file.hpp"

namespace mla::verify {
namespace {

/// Rows whose errors are independent and average out. Not so for crafted values: with one channel far above
/// the others, for example, all heads that see the same keys share the rounding of that one number.
bool has_random_rows(const Case& c) {
  return c.values == ValueKind::kNormal;
}

/// An infinite score makes the row NaN. Its LSE is infinite by definition, but the usual max + log(sum exp(s - max)) makes
/// it NaN as well: either will do. Elsewhere an infinite LSE would hide a NaN.
std::vector<double> judged_lse(const Case& c, std::vector<double> got, std::span<const double> want) {
  for (std::size_t i = 0; c.values == ValueKind::kInfinity && i < got.size(); ++i) {
    if (std::isnan(want[i]) && got[i] == std::numeric_limits<double>::infinity()) got[i] = want[i];
  }
  return got;
}

ErrorReport compare(const Problem& problem, Expected& expected, const Backend& backend,
                    const Execution& run) {
  const BackendInfo& info = backend.info();
  const reference::AttentionOutput& want = expected.result(info.strategy);
  const AttentionShape& shape = problem.shape();
  const std::vector<RowBudget> budgets =
      row_budgets(want, expected.stats(info.strategy), backend.rounding(shape), shape,
                  problem.values().softmax_scale, active_limits());
  CompareOptions options;
  options.num_heads = shape.dims.num_heads;
  options.cu_seqlens_q = problem.cu_seqlens_q();
  options.keep_rows = true;
  options.limits = active_limits();
  options.independent_rows = has_random_rows(problem.get_case());
  const std::span<const double> want_lse = run.lse.empty() ? std::span<const double>() : std::span(want.lse);
  return compare_rows(run.out, want.out, judged_lse(problem.get_case(), run.lse, want_lse), want_lse,
                      output_width(shape), budgets, shape.out_dtype, options);
}

/// Which lengths and heads the shares of the rows belong to.
void fill_strips(const AttentionShape& shape, std::span<const double> row_shares, Verdict& verdict) {
  const auto raise = [](Strip& strip, std::int64_t at, double share) {
    double& worst = strip.try_emplace(at, 0.0).first->second;
    worst = std::max(worst, share);
  };
  std::size_t row = 0;
  for (const Request& request : shape.batch) {
    for (std::int64_t i = 0; i < request.q_len; ++i) {
      for (std::int64_t h = 0; h < shape.dims.num_heads; ++h, ++row) {
        raise(verdict.by_length, request.kv_len, row_shares[row]);
        raise(verdict.by_head, h, row_shares[row]);
      }
    }
  }
}

constexpr std::pair<Failure, std::string_view> kFailures[] = {
    {Failure::kNone, "none"},   {Failure::kError, "error"},   {Failure::kNan, "nan"},
    {Failure::kThrew, "threw"}, {Failure::kMemory, "memory"}, {Failure::kCrash, "crash"},
    {Failure::kHang, "hang"}};

}  // namespace

std::string_view name_of(Failure failure) noexcept {
  for (const auto& [value, name] : kFailures) {
    if (value == failure) return name;
  }
  return "unknown";
}

Failure parse_failure(std::string_view text) {
  std::vector<std::string> names;
  for (const auto& [value, name] : kFailures) {
    if (name == text) return value;
    names.emplace_back(name);
  }
  throw Error(ErrorCode::kParse,
              fmt::format("failure '{}' is unknown; allowed are {}", text, text::join_or(names)));
}

Machine machine_for(const Backend& backend) {
  if (!backend.info().on_device) return {host_device(), &host_memory()};
  const RealDevices found = real_devices();
  if (found.devices.empty()) throw Error(ErrorCode::kDevice, found.why_none);
  return {found.devices.front(), &device_memory(found.devices.front())};
}

std::string_view name_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::kPassed:
      return "pass";
    case Outcome::kFailed:
      return "FAIL";
    case Outcome::kUnsupported:
      return "unsupported";
  }
  return "unknown";
}

double Verdict::share() const noexcept {
  if (outcome == Outcome::kFailed && report.passed()) return std::numeric_limits<double>::infinity();
  return report.budget_share;
}

PlanOptions plan_options(const Case& c) {
  PlanOptions options;
  options.num_splits = c.num_splits;
  options.batch_invariant = c.batch_invariant;
  options.prefix_reads = c.prefix_reads;
  return options;
}

bool is_taken(const Backend& backend, const Case& c, const Device& device) {
  if (!backend.supports(c.shape, device)) return false;
  try {
    (void)backend.plan(c.shape, device, plan_options(c));
    return true;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kUnsupported) return false;
    return true;  // the case shows what is wrong
  }
}

Execution execute(const Backend& backend, Stage& stage, const Problem& problem, const Device& device,
                  const PlanOptions& options, const AttentionShape* planned) {
  const AttentionShape& shape = planned != nullptr ? *planned : problem.shape();
  const Support support = backend.supports(shape, device);
  if (!support) throw Error(ErrorCode::kUnsupported, support.why);
  const BackendInfo& info = backend.info();
  if (options.batch_invariant && !info.batch_invariant && !info.batch_invariant_option) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} has no way to the same bits in any batch", info.name));
  }
  Execution run;
  try {
    const std::unique_ptr<Plan> plan = backend.plan(shape, device, options);
    run.plan = plan->describe();
    stage.reset_outputs();
    const std::span<std::byte> workspace = stage.workspace(plan->workspace_bytes());
    const auto start = std::chrono::steady_clock::now();
    backend.run(*plan, stage.args(), workspace);
    stage.memory().synchronize();
    run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kUnsupported) throw;
    run.failed = Failure::kThrew;
    run.failure = fmt::format("it threw: {}", e.what());
    return run;
  } catch (const std::exception& e) {
    run.failed = Failure::kThrew;
    run.failure = fmt::format("it threw: {}", e.what());
    return run;
  }
  const HostTensor out = stage.read_out();
  run.out = load(out);
  if (!gaps_hold(out, kNanByte)) run.failure = "it wrote between the rows of its output";
  if (problem.get_case().lse) {
    const HostTensor lse = stage.read_lse();
    run.lse = load(lse);
    if (!gaps_hold(lse, kNanByte)) run.failure = "it wrote between the rows of its LSE";
  }
  const std::string changed = stage.changed_input();
  if (!changed.empty()) run.failure = fmt::format("it changed its input '{}'", changed);
  if (!run.failure.empty()) run.failed = Failure::kMemory;
  return run;
}

CaseRun::CaseRun(const Case& c) : problem_(c), expected_(problem_) {}
CaseRun::CaseRun(Problem problem) : problem_(std::move(problem)), expected_(problem_) {}

Verdict CaseRun::judge(const Backend& backend, const Machine& machine) {
  Verdict verdict;
  verdict.c = problem_.get_case();
  verdict.backend = backend.info().name;
  const PlanOptions options = plan_options(verdict.c);
  Execution run;
  try {
    Stage stage(problem_, *machine.memory);
    run = execute(backend, stage, problem_, machine.device, options);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUnsupported) throw;
    verdict.outcome = Outcome::kUnsupported;
    verdict.reason = e.what();
    return verdict;
  }
  verdict.plan = run.plan;
  verdict.seconds = run.seconds;
  if (!run.out.empty()) {
    verdict.report = compare(problem_, expected_, backend, run);
    fill_strips(problem_.shape(), std::exchange(verdict.report.row_shares, {}), verdict);
  }
  if (run.failed != Failure::kNone) {
    verdict.outcome = Outcome::kFailed;
    verdict.failure = run.failed;
    verdict.reason = run.failure;
  } else if (!verdict.report.passed()) {
    verdict.outcome = Outcome::kFailed;
    verdict.failure = verdict.report.nan_mismatches > 0 ? Failure::kNan : Failure::kError;
    verdict.reason = to_text(verdict.report, verdict.c.shape.dims.num_heads);
  }
  return verdict;
}

void CaseRun::prepare(const Backend& backend) {
  (void)expected_.result(backend.info().strategy);
  (void)expected_.stats(backend.info().strategy);
}

Verdict run_case(const Backend& backend, const Case& c) {
  CaseRun run(c);
  return run.judge(backend, machine_for(backend));
}

}  // namespace mla::verify
