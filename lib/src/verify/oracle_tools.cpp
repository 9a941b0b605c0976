// SPDX-License-Identifier: Apache-2.0
#include "verify/oracle_tools.hpp"

#include <fmt/format.h>

#include <bit>

#include "mla/error.hpp"
#include "verify/limits_file.hpp"

namespace mla::verify {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

}  // namespace

Execution StagedProblem::run(std::int32_t num_splits, const AttentionShape* planned) {
  PlanOptions options = plan_options(problem_.get_case());
  options.num_splits = num_splits;
  Execution run = execute(*subject_.backend, stage_, problem_, subject_.machine.device, options, planned);
  if (run.failed != Failure::kNone) throw RunFailure(run);
  return run;
}

Execution run_problem(const OracleSubject& subject, const Problem& problem, const AttentionShape* planned) {
  return StagedProblem(subject, problem).run(problem.get_case().num_splits, planned);
}

std::string name_row(const Problem& problem, std::int64_t row) {
  const std::int64_t heads = problem.shape().dims.num_heads;
  const std::int64_t token = row / heads;
  std::size_t request = 0;
  while (token >= problem.cu_seqlens_q()[request + 1]) ++request;
  return fmt::format("request {}, query {}, head {}", request, token - problem.cu_seqlens_q()[request],
                     row % heads);
}

std::optional<std::string> bit_difference(const Execution& a, const Execution& b, const Problem& problem) {
  const auto width = static_cast<std::size_t>(output_width(problem.shape()));
  for (std::size_t i = 0; i < a.out.size(); ++i) {
    if (same_bits(a.out[i], b.out[i])) continue;
    return fmt::format("{}, column {}: {:.9g} and {:.9g}",
                       name_row(problem, static_cast<std::int64_t>(i / width)), i % width, a.out[i],
                       b.out[i]);
  }
  for (std::size_t i = 0; i < a.lse.size(); ++i) {
    if (same_bits(a.lse[i], b.lse[i])) continue;
    return fmt::format("{}, LSE: {:.9g} and {:.9g}", name_row(problem, static_cast<std::int64_t>(i)),
                       a.lse[i], b.lse[i]);
  }
  return std::nullopt;
}

std::string against(const OracleSubject& subject, const Execution& run, Expected& budgets_of,
                    std::span<const double> want, std::span<const double> want_lse) {
  const Problem& problem = budgets_of.problem();
  const AttentionShape& shape = problem.shape();
  const std::string_view strategy = subject.backend->info().strategy;
  reference::AttentionOutput rows;
  rows.out.assign(want.begin(), want.end());
  rows.lse.assign(want_lse.begin(), want_lse.end());
  const std::vector<RowBudget> budgets =
      row_budgets(rows, budgets_of.stats(strategy), subject.backend->rounding(shape), shape,
                  problem.values().softmax_scale, active_limits());
  CompareOptions options;
  options.num_heads = shape.dims.num_heads;
  options.limits = active_limits();
  const std::span<const double> lse = run.lse.empty() ? std::span<const double>() : want_lse;
  const ErrorReport report =
      compare_rows(run.out, want, run.lse, lse, output_width(shape), budgets, shape.out_dtype, options);
  return report.passed() ? std::string() : to_text(report, options.num_heads);
}

std::string against_reference(const OracleSubject& subject, const Execution& run, Expected& expected) {
  const reference::AttentionOutput& want = expected.result(subject.backend->info().strategy);
  return against(subject, run, expected, want.out, want.lse);
}

std::string against_reference(const OracleSubject& subject, const Execution& run, const Problem& problem) {
  Expected expected(problem);
  return against_reference(subject, run, expected);
}

Case single_request(const Case& base, std::int32_t q_len, std::int32_t n) {
  Case c = base;
  c.shape.batch = {{q_len, n}};
  return c;
}

}  // namespace mla::verify
