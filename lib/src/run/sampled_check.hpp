// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mla/backend.hpp"
#include "mla/reference.hpp"
#include "verify/problem.hpp"
#include "verify/run_case.hpp"

namespace mla::run {

/// Outcome of comparing a run with the reference before it is timed.
struct CheckResult {
  bool passed = false;
  std::string reason;  ///< what is wrong, or empty
  double share = 0;    ///< largest share of the error budget among the rows looked at
  std::int64_t rows = 0;
};

/// Inputs of a call as the backend sees them, wherever they lie: asked for the few rows that are checked.
class SampleInputs {
 public:
  SampleInputs() = default;
  SampleInputs(const SampleInputs&) = delete;
  SampleInputs& operator=(const SampleInputs&) = delete;
  virtual ~SampleInputs();
  [[nodiscard]] virtual const AttentionShape& shape() const = 0;
  [[nodiscard]] virtual std::uint64_t seed() const = 0;
  [[nodiscard]] virtual double softmax_scale() const = 0;
  /// Row token * H + head of the query.
  [[nodiscard]] virtual std::vector<double> query(std::int64_t row) const = 0;
  /// The first `keys` cache rows of a request, [keys, L+R].
  [[nodiscard]] virtual std::vector<double> latent(std::size_t request, std::int64_t keys) const = 0;
  [[nodiscard]] virtual std::vector<double> w_uk(int head) const = 0;                         ///< [P, L]
  [[nodiscard]] virtual std::vector<double> w_uv(int head) const = 0;                         ///< [V, L]
  [[nodiscard]] virtual std::vector<std::int32_t> token_index(std::int64_t token) const = 0;  ///< [topk]
};

/// What a call gave, asked for by row token * H + head.
struct SampleOutputs {
  std::function<std::vector<double>(std::int64_t row)> out;
  std::function<double(std::int64_t row)> lse;  ///< empty: there is none
};

/// Some (token, head) rows of a call and what the fp64 reference says about them: the first token of the
/// first request, the last token of the last one, then random ones, on the first, the last and two random
/// heads, as many as the reference can compute within a second or two, at least one. Made once for all
/// backends that get the same inputs.
class SampledCheck {
 public:
  explicit SampledCheck(const SampleInputs& inputs);
  /// A shape of the same kind with the sampled rows alone.
  [[nodiscard]] const AttentionShape& shape() const noexcept { return shape_; }
  /// Limits are those of mla-verify, from where the call rounds; in head space the reference is the form that
  /// `strategy` is not.
  [[nodiscard]] CheckResult judge(std::string_view strategy, const RoundingProfile& rounding,
                                  const SampleOutputs& outputs);

 private:
  [[nodiscard]] const reference::AttentionOutput& form(bool expanded);

  AttentionShape shape_;  ///< the sampled rows as a problem of their own: one request of one query a token
  double softmax_scale_;
  std::vector<std::int64_t> rows_;
  std::vector<double> q_, latent_, w_uk_, w_uv_;
  std::vector<std::int32_t> token_index_;
  std::unique_ptr<reference::AttentionOutput> absorbed_, expanded_;
};

/// The same for a finished run of a problem in host memory.
[[nodiscard]] CheckResult check_sample(const verify::Problem& problem, const Backend& backend,
                                       const verify::Execution& run);

}  // namespace mla::run
