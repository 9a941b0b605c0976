// SPDX-License-Identifier: Apache-2.0
#include "verify/run_case.hpp"

#include <fmt/format.h>

#include <chrono>
#include <limits>

#include "mla/error.hpp"

namespace mla::verify {
namespace {

/// Rows whose errors are independent and average out. Not so for crafted values: with one channel far above the
/// others, for example, all heads that see the same keys share the rounding of that one number.
bool has_random_rows(const Case& c) {
  return c.values == ValueKind::kNormal;
}

ErrorReport compare(const Problem& problem, Expected& expected, const Backend& backend,
                    const Execution& run) {
  const BackendInfo& info = backend.info();
  const reference::AttentionOutput& want = expected.result(info.strategy);
  const AttentionShape& shape = problem.shape();
  const std::vector<RowBudget> budgets = row_budgets(
      want, expected.stats(info.strategy), backend.rounding(shape), shape, problem.values().softmax_scale);
  CompareOptions options;
  options.num_heads = shape.dims.num_heads;
  options.cu_seqlens_q = problem.cu_seqlens_q();
  options.independent_rows = has_random_rows(problem.get_case());
  const std::span<const double> want_lse = run.lse.empty() ? std::span<const double>() : std::span(want.lse);
  return compare_rows(run.out, want.out, run.lse, want_lse, output_width(shape), budgets, shape.out_dtype,
                      options);
}

}  // namespace

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

Execution execute(const Backend& backend, Stage& stage, const Problem& problem, const Device& device,
                  const PlanOptions& options) {
  const Support support = backend.supports(problem.shape(), device);
  if (!support) throw Error(ErrorCode::kUnsupported, support.why);
  Execution run;
  try {
    const std::unique_ptr<Plan> plan = backend.plan(problem.shape(), device, options);
    run.plan = plan->describe();
    stage.reset_outputs();
    const std::span<std::byte> workspace = stage.workspace(plan->workspace_bytes());
    const auto start = std::chrono::steady_clock::now();
    backend.run(*plan, stage.args(), workspace);
    stage.memory().synchronize();
    run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kUnsupported) throw;
    run.failure = fmt::format("it threw: {}", e.what());
    return run;
  } catch (const std::exception& e) {
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
  return run;
}

CaseRun::CaseRun(const Case& c) : problem_(c), expected_(problem_) {}
CaseRun::CaseRun(Problem problem) : problem_(std::move(problem)), expected_(problem_) {}

Verdict CaseRun::judge(const Backend& backend, const Machine& machine) {
  Verdict verdict;
  verdict.c = problem_.get_case();
  verdict.backend = backend.info().name;
  PlanOptions options;
  options.num_splits = verdict.c.num_splits;
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
  if (!run.out.empty()) verdict.report = compare(problem_, expected_, backend, run);
  if (!run.failure.empty()) {
    verdict.outcome = Outcome::kFailed;
    verdict.reason = run.failure;
  } else if (!verdict.report.passed()) {
    verdict.outcome = Outcome::kFailed;
    verdict.reason = to_text(verdict.report, verdict.c.shape.dims.num_heads);
  }
  return verdict;
}

Verdict run_case(const Backend& backend, const Case& c) {
  CaseRun run(c);
  return run.judge(backend, machine_for(backend));
}

}  // namespace mla::verify
