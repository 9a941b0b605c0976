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

Execution run_problem(const OracleSubject& subject, const Problem& problem, const AttentionShape* planned) {
  Stage stage(problem, *subject.machine.memory);
  PlanOptions options;
  options.num_splits = problem.get_case().num_splits;
  options.batch_invariant = problem.get_case().batch_invariant;
  Execution run = execute(*subject.backend, stage, problem, subject.machine.device, options, planned);
  if (run.failed != Failure::kNone) throw RunFailure(run);
  return run;
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

std::string against(const OracleSubject& subject, const Execution& run, const Problem& budget_problem,
                    std::span<const double> want, std::span<const double> want_lse) {
  Expected expected(budget_problem);
  const AttentionShape& shape = budget_problem.shape();
  const std::string_view strategy = subject.backend->info().strategy;
  reference::AttentionOutput rows;
  rows.out.assign(want.begin(), want.end());
  rows.lse.assign(want_lse.begin(), want_lse.end());
  const std::vector<RowBudget> budgets =
      row_budgets(rows, expected.stats(strategy), subject.backend->rounding(shape), shape,
                  budget_problem.values().softmax_scale, active_limits());
  CompareOptions options;
  options.num_heads = shape.dims.num_heads;
  options.limits = active_limits();
  const std::span<const double> lse = run.lse.empty() ? std::span<const double>() : want_lse;
  const ErrorReport report =
      compare_rows(run.out, want, run.lse, lse, output_width(shape), budgets, shape.out_dtype, options);
  return report.passed() ? std::string() : to_text(report, options.num_heads);
}

std::string against_reference(const OracleSubject& subject, const Execution& run, const Problem& problem) {
  Expected expected(problem);
  const reference::AttentionOutput& want = expected.result(subject.backend->info().strategy);
  return against(subject, run, problem, want.out, want.lse);
}

Case single_request(const Case& base, std::int32_t q_len, std::int32_t n) {
  Case c = base;
  c.shape.batch = {{q_len, n}};
  return c;
}

}  // namespace mla::verify
