// SPDX-License-Identifier: Apache-2.0
#include "run/sampled_check.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "mla/numerics.hpp"
#include "mla/random.hpp"
#include "mla/reference.hpp"
#include "verify/values.hpp"

namespace mla::run {
namespace {

constexpr std::size_t kMostTokens = 6;
constexpr std::size_t kMostHeads = 4;
constexpr double kFlopBudget = 5e9;
constexpr std::uint64_t kSampleStream = 0x73616d706c65;  // "sample"

/// A query token: which request, which of its new tokens, and its row in q.
struct Token {
  std::size_t request = 0;
  std::int64_t index = 0, row = 0, first_key = 0;
};

/// Candidates in the order they are wanted: the two ends, then at random.
std::vector<Token> candidates_of(const verify::Problem& problem) {
  std::vector<Token> all;
  std::int64_t row = 0;
  std::int64_t key = 0;
  const std::vector<Request>& batch = problem.shape().batch;
  for (std::size_t b = 0; b < batch.size(); ++b) {
    for (std::int64_t i = 0; i < batch[b].q_len; ++i) all.push_back({b, i, row++, key});
    key += batch[b].kv_len;
  }
  if (all.size() > 2) {
    std::swap(all[1], all.back());
    const CounterRng rng(problem.get_case().seed, kSampleStream);
    const std::size_t wanted = std::min(kMostTokens, all.size());
    for (std::size_t i = 2; i < wanted; ++i) {
      const auto last = static_cast<std::int64_t>(all.size()) - 1;
      std::swap(all[i], all[static_cast<std::size_t>(rng.between(i, static_cast<std::int64_t>(i), last))]);
    }
  }
  all.resize(std::min(kMostTokens, all.size()));
  return all;
}

std::vector<int> sample_heads(int num_heads, std::uint64_t seed) {
  std::vector<int> heads{0, num_heads - 1};
  const CounterRng rng(seed, kSampleStream + 1);
  for (std::uint64_t i = 0; heads.size() < kMostHeads; ++i)
    heads.push_back(static_cast<int>(rng.between(i, 0, num_heads - 1)));
  std::ranges::sort(heads);
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  return heads;
}

/// The sampled rows as a problem of their own: one request of one query a token, seeing the keys that token saw.
struct SubProblem {
  AttentionShape shape;
  std::vector<double> q, latent, w_uk, w_uv, got, got_lse;
  std::vector<std::int32_t> token_index;
};

void append(std::vector<double>& to, const std::vector<double>& from, std::int64_t first,
            std::int64_t count) {
  to.insert(to.end(), from.begin() + first, from.begin() + first + count);
}

SubProblem extract(const verify::Problem& problem, const verify::Execution& run,
                   std::span<const Token> tokens, std::span<const int> heads) {
  const AttentionShape& shape = problem.shape();
  const verify::Values& values = problem.values();
  const MlaDims& d = shape.dims;
  const int q_width = verify::query_width(shape);
  const int out_width = verify::output_width(shape);
  SubProblem sub;
  sub.shape = shape;
  sub.shape.batch.clear();
  sub.shape.dims.num_heads = static_cast<int>(heads.size());
  for (const Token& token : tokens) {
    const Request& request = shape.batch[token.request];
    const bool ends_at_query = shape.mask.causal && shape.topk == 0;
    const std::int64_t keys =
        ends_at_query ? request.kv_len - request.q_len + token.index + 1 : request.kv_len;
    sub.shape.batch.push_back({.q_len = 1, .kv_len = static_cast<std::int32_t>(keys)});
    append(sub.latent, values.latent, token.first_key * d.latent_width(), keys * d.latent_width());
    for (const int h : heads) {
      const std::int64_t row = token.row * d.num_heads + h;
      append(sub.q, values.q, row * q_width, q_width);
      append(sub.got, run.out, row * out_width, out_width);
      if (!run.lse.empty()) sub.got_lse.push_back(run.lse[static_cast<std::size_t>(row)]);
    }
    const auto index = values.token_index.begin() + token.row * shape.topk;
    sub.token_index.insert(sub.token_index.end(), index, index + shape.topk);
  }
  if (shape.space == QuerySpace::kHead) {
    const std::int64_t uk = static_cast<std::int64_t>(d.qk_nope_head_dim) * d.kv_lora_rank;
    const std::int64_t uv = static_cast<std::int64_t>(d.v_head_dim) * d.kv_lora_rank;
    for (const int h : heads) {
      append(sub.w_uk, values.w_uk, h * uk, uk);
      append(sub.w_uv, values.w_uv, h * uv, uv);
    }
  }
  return sub;
}

/// Tokens that fit the budget of the dearer form, at least one.
std::size_t affordable(const AttentionShape& shape, std::span<const Token> tokens, std::size_t heads) {
  const MlaDims& d = shape.dims;
  const double per_key = shape.space == QuerySpace::kHead
                             ? 2.0 * d.kv_lora_rank * (d.qk_nope_head_dim + d.v_head_dim)
                             : 2.0 * (2.0 * d.kv_lora_rank + d.qk_rope_head_dim);
  double left = kFlopBudget;
  std::size_t count = 0;
  for (const Token& token : tokens) {
    left -= per_key * static_cast<double>(heads) * shape.batch[token.request].kv_len;
    if (left < 0 && count > 0) break;
    ++count;
  }
  return count;
}

}  // namespace

CheckResult check_sample(const verify::Problem& problem, const Backend& backend,
                         const verify::Execution& run) {
  CheckResult result;
  if (!run.failure.empty()) {
    result.reason = run.failure;
    return result;
  }
  std::vector<Token> tokens = candidates_of(problem);
  const std::vector<int> heads = sample_heads(problem.shape().dims.num_heads, problem.get_case().seed);
  tokens.resize(affordable(problem.shape(), tokens, heads.size()));
  if (tokens.empty()) {  // a batch without queries has no rows to be wrong
    result.passed = true;
    return result;
  }
  const SubProblem sub = extract(problem, run, tokens, heads);
  reference::MlaProblem reference{sub.shape.dims,
                                  sub.shape.batch,
                                  sub.q,
                                  sub.latent,
                                  sub.w_uk,
                                  sub.w_uv,
                                  {sub.shape.mask, sub.token_index, sub.shape.topk},
                                  problem.values().softmax_scale};
  const reference::Options options{.row_stats = true};
  // As mla-verify does: compared with the other form, limits from the backend's own.
  const bool head_space = sub.shape.space == QuerySpace::kHead;
  const bool expanded = backend.info().strategy == "expanded";
  const reference::AttentionOutput own = !head_space ? reference::mla_latent(reference, options)
                                         : expanded  ? reference::mla_expanded(reference, options)
                                                     : reference::mla_absorbed(reference, options);
  const reference::AttentionOutput other = !head_space ? own
                                           : expanded  ? reference::mla_absorbed(reference, options)
                                                       : reference::mla_expanded(reference, options);
  const std::vector<RowBudget> budgets = row_budgets(other, own.stats, backend.rounding(problem.shape()),
                                                     sub.shape, problem.values().softmax_scale);
  CompareOptions compare;
  compare.num_heads = sub.shape.dims.num_heads;
  const std::span<const double> want_lse =
      sub.got_lse.empty() ? std::span<const double>() : std::span(other.lse);
  const ErrorReport report =
      compare_rows(sub.got, other.out, sub.got_lse, want_lse, verify::output_width(sub.shape), budgets,
                   sub.shape.out_dtype, compare);
  result.passed = report.passed();
  result.share = report.budget_share;
  result.rows = report.rows;
  if (!result.passed) result.reason = to_text(report, sub.shape.dims.num_heads);
  return result;
}

}  // namespace mla::run
