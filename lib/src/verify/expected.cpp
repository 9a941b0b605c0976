// SPDX-License-Identifier: Apache-2.0
#include "verify/expected.hpp"

#include "verify/threads.hpp"

namespace mla::verify {

const reference::AttentionOutput& Expected::form(bool expanded) {
  reference::Options options;
  options.row_stats = true;
  options.threads = thread_limit();
  if (problem_->shape().space == QuerySpace::kLatent) {
    if (!absorbed_) absorbed_ = reference::mla_latent(problem_->reference_problem(), options);
    return *absorbed_;
  }
  if (expanded) {
    if (!expanded_) expanded_ = reference::mla_expanded(problem_->reference_problem(), options);
    return *expanded_;
  }
  if (!absorbed_) absorbed_ = reference::mla_absorbed(problem_->reference_problem(), options);
  return *absorbed_;
}

const reference::AttentionOutput& Expected::result(std::string_view strategy) {
  return form(strategy == "absorbed");
}

std::span<const reference::RowStats> Expected::stats(std::string_view strategy) {
  return form(strategy == "expanded").stats;
}

}  // namespace mla::verify
