// SPDX-License-Identifier: Apache-2.0
// Oracles that change a problem so that its result changes in a known way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mla/random.hpp"
#include "verify/oracle_list.hpp"
#include "verify/oracle_tools.hpp"

namespace mla::verify {
namespace {

constexpr std::int32_t kKeys = 150;  // crosses blocks, tiles and splits

/// One request that sees all its keys: their order and number may be changed.
Case open_request(const Case& base, std::int32_t q_len, std::int32_t n) {
  Case c = single_request(base, q_len, n);
  c.shape.mask = {.causal = false, .window = {}, .sink = 0};
  c.shape.topk = 0;
  c.lse = true;
  return c;
}

bool serves(const OracleSubject& subject, const Case& c) {
  return static_cast<bool>(subject.backend->supports(c.shape, subject.machine.device));
}

/// One query needs no mask: a causal backend serves it as well.
Case closest(const OracleSubject& subject, Case c) {
  if (!serves(subject, c) && c.shape.batch.front().q_len == 1) c.shape.mask.causal = true;
  return c;
}

/// Row r of a latent array.
std::span<double> latent_row(Values& values, std::size_t width, std::size_t r) {
  return std::span(values.latent).subspan(r * width, width);
}

}  // namespace

OracleOutcome oracle_permuted_keys(const OracleSubject& subject) {
  const Case c = closest(subject, open_request(subject.base, 1, kKeys));
  const Problem problem(c);
  const auto width = static_cast<std::size_t>(c.shape.dims.latent_width());
  Expected expected(problem);
  const reference::AttentionOutput& want = expected.result(subject.backend->info().strategy);
  std::vector<std::size_t> within(kKeys), across(kKeys);
  std::iota(across.begin(), across.end(), std::size_t{0});
  within = across;
  constexpr std::size_t kPiece = 8;  // every tile of every kernel holds whole ones
  for (std::size_t i = 0; i + kPiece <= within.size(); i += kPiece) {
    const auto piece = within.begin() + static_cast<std::ptrdiff_t>(i);
    std::reverse(piece, piece + kPiece);
  }
  const CounterRng rng(c.seed, 70);
  for (std::size_t i = across.size() - 1; i > 0; --i) {
    std::swap(across[i], across[static_cast<std::size_t>(rng.between(i, 0, static_cast<std::int64_t>(i)))]);
  }
  for (const auto& [order, where] :
       {std::pair(&within, "within tiles"), std::pair(&across, "across tiles")}) {
    Values values = problem.values();
    for (std::size_t i = 0; i < order->size(); ++i) {
      std::copy_n(problem.values().latent.begin() + static_cast<std::ptrdiff_t>((*order)[i] * width), width,
                  latent_row(values, width, i).begin());
    }
    const Problem permuted(c, std::move(values));
    const std::string wrong = against(subject, run_problem(subject, permuted), expected, want.out, want.lse);
    if (!wrong.empty()) return OracleOutcome::failed(fmt::format("{}: {}", where, wrong));
  }
  return OracleOutcome::passed();
}

OracleOutcome oracle_duplicates(const OracleSubject& subject) {
  const Case c = closest(subject, open_request(subject.base, 1, kKeys));
  const Problem once(c);
  Case twice_case = c;
  twice_case.shape.batch.front().kv_len = 2 * kKeys;
  Values values = once.values();
  values.latent.insert(values.latent.end(), once.values().latent.begin(), once.values().latent.end());
  const Problem twice(twice_case, std::move(values));
  Expected expected(once);
  const reference::AttentionOutput& want = expected.result(subject.backend->info().strategy);
  std::vector<double> lse = want.lse;
  for (double& x : lse) x += std::log(2.0);
  Expected budgets(twice);
  const std::string wrong = against(subject, run_problem(subject, twice), budgets, want.out, lse);
  return wrong.empty() ? OracleOutcome::passed() : OracleOutcome::failed(wrong);
}

OracleOutcome oracle_shifted_scores(const OracleSubject& subject) {
  const MlaDims& d = subject.base.shape.dims;
  if (d.qk_rope_head_dim == 0) return OracleOutcome::not_for("there is no rotary channel to shift with");
  const Case c = subject.base;
  Values values = make_values(c);
  // One rotary channel carries the shift and nothing else: query 8, key 0 before and 4 after.
  const auto query = static_cast<std::size_t>(query_width(c.shape));
  const auto width = static_cast<std::size_t>(d.latent_width());
  const auto rank = static_cast<std::size_t>(d.kv_lora_rank);
  const auto carrier = query - static_cast<std::size_t>(d.qk_rope_head_dim);
  for (std::size_t i = carrier; i < values.q.size(); i += query) values.q[i] = 8;
  for (std::size_t i = rank; i < values.latent.size(); i += width) values.latent[i] = 0;
  const Problem before(c, std::move(values));
  Values moved = before.values();
  for (std::size_t i = rank; i < moved.latent.size(); i += width) moved.latent[i] = 4;
  const Problem after(c, std::move(moved));
  const double shift =
      8 * after.values().latent[rank] * after.values().softmax_scale;  // as the format holds it
  Expected expected(before);
  const reference::AttentionOutput& want = expected.result(subject.backend->info().strategy);
  std::vector<double> lse = want.lse;
  for (double& x : lse) x += shift;
  Expected budgets(after);
  const std::string wrong = against(subject, run_problem(subject, after), budgets, want.out, lse);
  return wrong.empty() ? OracleOutcome::passed() : OracleOutcome::failed(wrong);
}

OracleOutcome oracle_one_by_one(const OracleSubject& subject) {
  constexpr std::int32_t kQueries = 4;
  Case c = single_request(subject.base, kQueries, kKeys);
  c.shape.topk = 0;
  if (!serves(subject, c))
    return OracleOutcome::not_for(subject.backend->supports(c.shape, subject.machine.device).why);
  const Problem problem(c);
  const Execution together = run_problem(subject, problem);
  const std::size_t heads = static_cast<std::size_t>(c.shape.dims.num_heads);
  const std::size_t q_size = heads * static_cast<std::size_t>(query_width(c.shape));
  const std::size_t out_size = heads * static_cast<std::size_t>(output_width(c.shape));
  const auto width = static_cast<std::size_t>(c.shape.dims.latent_width());
  Execution single;
  for (std::size_t i = 0; i < kQueries; ++i) {
    Case step = c;
    const std::size_t keys = static_cast<std::size_t>(kKeys - kQueries) + i + 1;
    step.shape.batch = {{1, static_cast<std::int32_t>(keys)}};
    Values values = problem.values();
    values.q.assign(problem.values().q.begin() + static_cast<std::ptrdiff_t>(i * q_size),
                    problem.values().q.begin() + static_cast<std::ptrdiff_t>((i + 1) * q_size));
    values.latent.resize(keys * width);
    const Problem one(step, std::move(values));
    const Execution run = run_problem(subject, one);
    single.out.insert(single.out.end(), run.out.begin(), run.out.end());
    single.lse.insert(single.lse.end(), run.lse.begin(), run.lse.end());
  }
  if (single.out.size() != kQueries * out_size)
    return OracleOutcome::failed("single queries gave fewer rows");
  Expected expected(problem);
  const std::string wrong_together = against_reference(subject, together, expected);
  if (!wrong_together.empty())
    return OracleOutcome::failed(fmt::format("{} at once: {}", kQueries, wrong_together));
  const std::string wrong_single = against_reference(subject, single, expected);
  if (!wrong_single.empty())
    return OracleOutcome::failed(fmt::format("{} one by one: {}", kQueries, wrong_single));
  return OracleOutcome::passed();
}

OracleOutcome oracle_shorter(const OracleSubject& subject) {
  // As a captured graph is replayed: the plan of the longest batch, and in it shorter requests and padding.
  Case c = subject.base;
  c.shape.topk = 0;
  for (std::size_t b = 0; b < c.shape.batch.size(); ++b) {
    Request& r = c.shape.batch[b];
    if (b % 3 == 0) r.kv_len = std::max(r.q_len, r.kv_len / 2);
    if (b % 3 == 2) r.kv_len = 0;
  }
  AttentionShape planned = subject.base.shape;
  planned.topk = 0;
  const Problem problem(c);
  const std::string wrong = against_reference(subject, run_problem(subject, problem, &planned), problem);
  return wrong.empty() ? OracleOutcome::passed() : OracleOutcome::failed(wrong);
}

OracleOutcome oracle_splits(const OracleSubject& subject) {
  const Problem problem(subject.base);
  Expected expected(problem);
  StagedProblem staged(subject, problem);
  for (std::int32_t splits = 1; splits <= 32; ++splits) {
    const std::string wrong = against_reference(subject, staged.run(splits), expected);
    if (!wrong.empty()) return OracleOutcome::failed(fmt::format("{} splits: {}", splits, wrong));
  }
  return OracleOutcome::passed();
}

OracleOutcome oracle_chunks(const OracleSubject& subject) {
  Case whole_case = closest(subject, open_request(subject.base, 1, kKeys));
  if (unit_roundoff(whole_case.shape.out_dtype) > unit_roundoff(DType::kF32)) {
    whole_case.shape.out_dtype = DType::kF32;  // parts that are merged must not be rounded coarsely
    if (!serves(subject, whole_case))
      return OracleOutcome::not_for("it has no single-precision output, and coarser parts cannot be merged");
  }
  const DType computed_in = subject.backend->rounding(whole_case.shape).accumulate;
  if (unit_roundoff(whole_case.shape.out_dtype) > unit_roundoff(computed_in)) {
    return OracleOutcome::not_for("its outputs are coarser than what it computes in and cannot be merged");
  }
  const Problem whole(whole_case);
  const auto width = static_cast<std::size_t>(whole_case.shape.dims.latent_width());
  // 0 | 1 | 63 | 64 | 22 keys; the empty chunk must not count.
  std::vector<reference::AttentionOutput> parts;
  std::size_t first = 0;
  for (const std::int32_t keys : {0, 1, 63, 64, kKeys - 128}) {
    Case c = whole_case;
    c.shape.batch = {{1, keys}};
    Values values = whole.values();
    values.latent.assign(whole.values().latent.begin() + static_cast<std::ptrdiff_t>(first * width),
                         whole.values().latent.begin() +
                             static_cast<std::ptrdiff_t>((first + static_cast<std::size_t>(keys)) * width));
    const Problem chunk(c, std::move(values));
    const Execution run = run_problem(subject, chunk);
    parts.push_back({run.out, run.lse, {}});
    first += static_cast<std::size_t>(keys);
  }
  const reference::AttentionOutput merged =
      reference::merge(parts, whole_case.shape.dims.num_heads, output_width(whole_case.shape));
  Execution run;
  run.out = merged.out;
  run.lse = merged.lse;
  const std::string wrong = against_reference(subject, run, whole);
  return wrong.empty() ? OracleOutcome::passed() : OracleOutcome::failed(wrong);
}

}  // namespace mla::verify
