// SPDX-License-Identifier: Apache-2.0
#include "run/sampled_check.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "mla/numerics.hpp"
#include "mla/random.hpp"
#include "run/threads.hpp"
#include "verify/values.hpp"

namespace mla::run {
namespace {

constexpr std::size_t kMostTokens = 6;
constexpr std::size_t kMostHeads = 4;
constexpr double kMostKeys = 0x1p17;                     // of all tokens: each key is copied and decoded
constexpr double kFlopsPerThread = 2e9;                  // about a second of the reference, both forms
constexpr std::uint64_t kSampleStream = 0x73616d706c65;  // "sample"

/// A query token: which request, which of its new tokens, and its row in q.
struct Token {
  std::size_t request = 0;
  std::int64_t index = 0, row = 0;
};

/// Candidates in the order they are wanted: the two ends, then at random.
std::vector<Token> candidates_of(const AttentionShape& shape, std::uint64_t seed) {
  std::vector<Token> all;
  std::int64_t row = 0;
  for (std::size_t b = 0; b < shape.batch.size(); ++b) {
    for (std::int64_t i = 0; i < shape.batch[b].q_len; ++i) all.push_back({b, i, row++});
  }
  if (all.size() > 2) {
    std::swap(all[1], all.back());
    const CounterRng rng(seed, kSampleStream);
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

/// Cuts both lists to what fits the budgets of keys and of the dearer form: tokens first, then heads, one of each
/// at least. Of two heads the first and the last are kept.
void make_affordable(const AttentionShape& shape, std::vector<Token>& tokens, std::vector<int>& heads) {
  const MlaDims& d = shape.dims;
  const double per_key = shape.space == QuerySpace::kHead
                             ? 2.0 * d.kv_lora_rank * (d.qk_nope_head_dim + d.v_head_dim)
                             : 2.0 * (2.0 * d.kv_lora_rank + d.qk_rope_head_dim);
  const double budget = kFlopsPerThread * hardware_threads();
  const auto keys = [&] {
    double sum = 0;
    for (const Token& token : tokens) sum += shape.batch[token.request].kv_len;
    return sum;
  };
  const auto cost = [&] { return per_key * static_cast<double>(heads.size()) * keys(); };
  while (tokens.size() > 1 && (keys() > kMostKeys || cost() > budget)) tokens.pop_back();
  while (heads.size() > 1 && cost() > budget) heads.erase(heads.end() - (heads.size() > 2 ? 2 : 1));
}

void append(std::vector<double>& to, const std::vector<double>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

/// A problem and its run in host memory.
class HostInputs final : public SampleInputs {
 public:
  explicit HostInputs(const verify::Problem& problem) : problem_(problem) {
    std::int64_t key = 0;
    for (const Request& request : problem.shape().batch) {
      first_key_.push_back(key);
      key += request.kv_len;
    }
  }
  const AttentionShape& shape() const override { return problem_.shape(); }
  std::uint64_t seed() const override { return problem_.get_case().seed; }
  double softmax_scale() const override { return values().softmax_scale; }
  std::vector<double> query(std::int64_t row) const override {
    return slice(values().q, row, verify::query_width(shape()));
  }
  std::vector<double> latent(std::size_t request, std::int64_t keys) const override {
    const int width = shape().dims.latent_width();
    const auto first = values().latent.begin() + first_key_[request] * width;
    return {first, first + keys * width};
  }
  std::vector<double> w_uk(int head) const override {
    return slice(values().w_uk, head,
                 static_cast<std::int64_t>(shape().dims.qk_nope_head_dim) * shape().dims.kv_lora_rank);
  }
  std::vector<double> w_uv(int head) const override {
    return slice(values().w_uv, head,
                 static_cast<std::int64_t>(shape().dims.v_head_dim) * shape().dims.kv_lora_rank);
  }
  std::vector<std::int32_t> token_index(std::int64_t token) const override {
    const auto first = values().token_index.begin() + token * shape().topk;
    return {first, first + shape().topk};
  }

 private:
  static std::vector<double> slice(const std::vector<double>& from, std::int64_t row, std::int64_t width) {
    return {from.begin() + row * width, from.begin() + (row + 1) * width};
  }
  [[nodiscard]] const verify::Values& values() const { return problem_.values(); }
  const verify::Problem& problem_;
  std::vector<std::int64_t> first_key_;
};

}  // namespace

SampleInputs::~SampleInputs() = default;

SampledCheck::SampledCheck(const SampleInputs& inputs)
    : shape_(inputs.shape()), softmax_scale_(inputs.softmax_scale()) {
  const AttentionShape& shape = inputs.shape();
  std::vector<Token> tokens = candidates_of(shape, inputs.seed());
  std::vector<int> heads = sample_heads(shape.dims.num_heads, inputs.seed());
  make_affordable(shape, tokens, heads);
  shape_.batch.clear();
  shape_.shared.clear();  // of the requests below each has its rows to itself
  shape_.dims.num_heads = static_cast<int>(heads.size());
  for (const Token& token : tokens) {
    const Request& request = shape.batch[token.request];
    const bool ends_at_query = shape.mask.causal && shape.topk == 0;
    const std::int64_t keys =
        ends_at_query ? request.kv_len - request.q_len + token.index + 1 : request.kv_len;
    shape_.batch.push_back({.q_len = 1, .kv_len = static_cast<std::int32_t>(keys)});
    append(latent_, inputs.latent(token.request, keys));
    for (const int h : heads) {
      rows_.push_back(token.row * shape.dims.num_heads + h);
      append(q_, inputs.query(rows_.back()));
    }
    if (shape.topk > 0) {
      const std::vector<std::int32_t> index = inputs.token_index(token.row);
      token_index_.insert(token_index_.end(), index.begin(), index.end());
    }
  }
  if (shape.space == QuerySpace::kHead) {
    for (const int h : heads) {
      append(w_uk_, inputs.w_uk(h));
      append(w_uv_, inputs.w_uv(h));
    }
  }
}

const reference::AttentionOutput& SampledCheck::form(bool expanded) {
  std::unique_ptr<reference::AttentionOutput>& kept = expanded ? expanded_ : absorbed_;
  if (!kept) {
    const reference::MlaProblem problem{
        shape_.dims,   shape_.batch, q_, latent_, w_uk_, w_uv_, {shape_.mask, token_index_, shape_.topk},
        softmax_scale_};
    const reference::Options options{.row_stats = true};
    kept = std::make_unique<reference::AttentionOutput>(
        shape_.space == QuerySpace::kLatent ? reference::mla_latent(problem, options)
        : expanded                          ? reference::mla_expanded(problem, options)
                                            : reference::mla_absorbed(problem, options));
  }
  return *kept;
}

CheckResult SampledCheck::judge(std::string_view strategy, const RoundingProfile& rounding,
                                const SampleOutputs& outputs) {
  CheckResult result;
  if (rows_.empty()) {  // a batch without queries has no rows to be wrong
    result.passed = true;
    return result;
  }
  std::vector<double> got;
  std::vector<double> got_lse;
  for (const std::int64_t row : rows_) {
    append(got, outputs.out(row));
    if (outputs.lse) got_lse.push_back(outputs.lse(row));
  }
  // As mla-verify does: compared with the other form, limits from the backend's own.
  const bool head_space = shape_.space == QuerySpace::kHead;
  const bool expanded = head_space && strategy == "expanded";
  const reference::AttentionOutput& own = form(expanded);
  const reference::AttentionOutput& other = form(head_space && !expanded);
  const std::vector<RowBudget> budgets = row_budgets(other, own.stats, rounding, shape_, softmax_scale_);
  CompareOptions compare;
  compare.num_heads = shape_.dims.num_heads;
  const std::span<const double> want_lse = got_lse.empty() ? std::span<const double>() : std::span(other.lse);
  const ErrorReport report = compare_rows(got, other.out, got_lse, want_lse, verify::output_width(shape_),
                                          budgets, shape_.out_dtype, compare);
  result.passed = report.passed();
  result.share = report.budget_share;
  result.rows = report.rows;
  if (!result.passed) result.reason = to_text(report, shape_.dims.num_heads);
  return result;
}

CheckResult check_sample(const verify::Problem& problem, const Backend& backend,
                         const verify::Execution& run) {
  if (!run.failure.empty()) return {.reason = run.failure};
  const std::int64_t width = verify::output_width(problem.shape());
  SampleOutputs outputs;
  outputs.out = [&](std::int64_t row) {
    const auto first = run.out.begin() + row * width;
    return std::vector<double>(first, first + width);
  };
  if (!run.lse.empty())
    outputs.lse = [&](std::int64_t row) { return run.lse[static_cast<std::size_t>(row)]; };
  SampledCheck check{HostInputs(problem)};
  return check.judge(backend.info().strategy, backend.rounding(check.shape()), outputs);
}

}  // namespace mla::run
