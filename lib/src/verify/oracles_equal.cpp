// SPDX-License-Identifier: Apache-2.0
// Oracles that change what must not matter: the results must be the same bit by bit.
#include <fmt/format.h>

#include <cmath>

#include "verify/oracle_list.hpp"
#include "verify/oracle_tools.hpp"

namespace mla::verify {
namespace {

OracleOutcome same(const Execution& a, const Execution& b, const Problem& problem, std::string_view what) {
  const std::optional<std::string> difference = bit_difference(a, b, problem);
  if (!difference) return OracleOutcome::passed();
  return OracleOutcome::failed(fmt::format("{}: {}", what, *difference));
}

/// Runs the base case and a changed one; both must give the same.
template <class Change>
OracleOutcome unchanged_by(const OracleSubject& subject, const Execution& first, std::string_view what,
                           Change change) {
  Case c = subject.base;
  change(c);
  const Problem problem(c);
  return same(first, run_problem(subject, problem), problem, what);
}

}  // namespace

OracleOutcome oracle_permuted_pages(const OracleSubject& subject) {
  const Problem problem(subject.base);
  const Execution first = run_problem(subject, problem);
  return unchanged_by(subject, first, "blocks in order and in random order differ",
                      [](Case& c) { c.permuted = !c.permuted; });
}

OracleOutcome oracle_wide_table(const OracleSubject& subject) {
  const Problem problem(subject.base);
  const Execution first = run_problem(subject, problem);
  for (const std::int32_t spare : {0, 1, 37}) {
    const OracleOutcome outcome =
        unchanged_by(subject, first, fmt::format("{} spare columns of the block table matter", spare),
                     [spare](Case& c) { c.spare_columns = spare; });
    if (outcome.outcome != Outcome::kPassed) return outcome;
  }
  return OracleOutcome::passed();
}

OracleOutcome oracle_poison(const OracleSubject& subject) {
  const Problem problem(subject.base);
  const Execution first = run_problem(subject, problem);
  for (const Poison poison : {Poison::kNan, Poison::kInfinity, Poison::kZero, Poison::kMaximum}) {
    const OracleOutcome outcome = unchanged_by(
        subject, first, fmt::format("unused memory full of {} reaches the result", name_of(poison)),
        [poison](Case& c) { c.poison = poison; });
    if (outcome.outcome != Outcome::kPassed) return outcome;
  }
  return OracleOutcome::passed();
}

OracleOutcome oracle_no_nan_left(const OracleSubject& subject) {
  const Problem problem(subject.base);
  const Execution run = run_problem(subject, problem);  // outputs were NaN before
  const auto width = static_cast<std::size_t>(output_width(problem.shape()));
  for (std::size_t i = 0; i < run.out.size(); ++i) {
    if (!std::isnan(run.out[i])) continue;
    return OracleOutcome::failed(fmt::format("{}, column {} still is the NaN that stood there before",
                                             name_row(problem, static_cast<std::int64_t>(i / width)),
                                             i % width));
  }
  for (std::size_t i = 0; i < run.lse.size(); ++i) {
    if (!std::isnan(run.lse[i])) continue;
    return OracleOutcome::failed(fmt::format("the LSE of {} still is the NaN that stood there before",
                                             name_row(problem, static_cast<std::int64_t>(i))));
  }
  return OracleOutcome::passed();
}

OracleOutcome oracle_repeats(const OracleSubject& subject) {
  const Problem problem(subject.base);
  StagedProblem staged(subject, problem);
  const Execution first = staged.run(subject.base.num_splits);
  for (int i = 1; i < subject.repeats; ++i) {
    const OracleOutcome outcome = same(first, staged.run(subject.base.num_splits), problem,
                                       fmt::format("run {} differs from the first", i + 1));
    if (outcome.outcome != Outcome::kPassed) return outcome;
  }
  return OracleOutcome::passed();
}

/// Four, whose root is two: kernels that scale query and keys by the root of the scale each multiply by
/// powers of two as well, and must not differ either.
OracleOutcome oracle_scaled_query(const OracleSubject& subject) {
  const DType absorbed = subject.backend->rounding(subject.base.shape).absorbed_query;
  if (subject.base.shape.space == QuerySpace::kHead && absorbed == DType::kF16) {
    return OracleOutcome::not_for(
        "the absorbed query is f16, whose subnormals keep more digits of a larger query");
  }
  const Problem problem(subject.base);
  const Execution first = run_problem(subject, problem);
  Values values = problem.values();
  for (double& x : values.q) x *= 4;
  values.softmax_scale /= 4;
  const Problem scaled(subject.base, std::move(values));
  return same(first, run_problem(subject, scaled), scaled, "q * 4 with scale / 4 differs");
}

OracleOutcome oracle_batch(const OracleSubject& subject) {
  // The same request alone, and as first and last of a batch whose other members differ.
  const Request request = subject.base.shape.batch.front();
  const Problem alone(single_request(subject.base, request.q_len, request.kv_len));
  const Execution one = run_problem(subject, alone);
  Case c = subject.base;
  c.shape.batch.push_back(request);
  const auto tokens = static_cast<std::size_t>(request.q_len);
  const auto row = static_cast<std::size_t>(c.shape.dims.num_heads);
  const auto query = row * static_cast<std::size_t>(query_width(c.shape));
  const auto keys =
      static_cast<std::size_t>(request.kv_len) * static_cast<std::size_t>(c.shape.dims.latent_width());
  const auto index = static_cast<std::size_t>(c.shape.topk);
  Values values = make_values(c);
  const auto plant = [](auto& to, const auto& from, std::size_t n) {
    std::copy_n(from.begin(), n, to.begin());
    std::copy_n(from.begin(), n, to.end() - static_cast<std::ptrdiff_t>(n));
  };
  plant(values.q, alone.values().q, tokens * query);
  plant(values.latent, alone.values().latent, keys);
  plant(values.token_index, alone.values().token_index, tokens * index);
  values.w_uk = alone.values().w_uk;
  values.w_uv = alone.values().w_uv;
  values.cache_scale = alone.values().cache_scale;
  const Problem batch(c, std::move(values));
  const Execution many = run_problem(subject, batch);

  Expected expected(alone);
  const std::size_t out = tokens * row * static_cast<std::size_t>(output_width(c.shape));
  const std::size_t rows = tokens * row;
  std::string remark;
  for (const bool last : {false, true}) {
    Execution part;
    part.out.assign(last ? many.out.end() - static_cast<std::ptrdiff_t>(out) : many.out.begin(),
                    last ? many.out.end() : many.out.begin() + static_cast<std::ptrdiff_t>(out));
    if (!many.lse.empty()) {
      part.lse.assign(last ? many.lse.end() - static_cast<std::ptrdiff_t>(rows) : many.lse.begin(),
                      last ? many.lse.end() : many.lse.begin() + static_cast<std::ptrdiff_t>(rows));
    }
    const char* place = last ? "last" : "first";
    if (subject.backend->info().batch_invariant || subject.base.batch_invariant) {
      const OracleOutcome outcome =
          same(one, part, alone,
               fmt::format("alone and as {} of a batch differ, though it claims invariance", place));
      if (outcome.outcome != Outcome::kPassed) return outcome;
    } else if (const auto difference = bit_difference(one, part, alone)) {
      remark = fmt::format("alone and as {} of a batch differ, as is its right: {}", place, *difference);
    }
    const std::string wrong = against_reference(subject, part, expected);
    if (!wrong.empty()) return OracleOutcome::failed(fmt::format("as {} of a batch: {}", place, wrong));
  }
  return OracleOutcome::passed(remark);
}

}  // namespace mla::verify
