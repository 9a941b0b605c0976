// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "mla/reference.hpp"
#include "verify/problem.hpp"

namespace mla::verify {

/// The fp64 reference of a problem. Each form is computed when first asked for. The problem must outlive it.
class Expected {
 public:
  explicit Expected(const Problem& problem) : problem_(&problem) {}
  [[nodiscard]] const Problem& problem() const noexcept { return *problem_; }
  /// What a backend of this strategy ("expanded" or "absorbed") is compared with: in head space the *other*
  /// form, so that a fault of one form cannot hide in a reference that shares it; in latent space the one
  /// form there is.
  [[nodiscard]] const reference::AttentionOutput& result(std::string_view strategy);
  /// Row statistics of the backend's own form: they bound *its* rounding.
  [[nodiscard]] std::span<const reference::RowStats> stats(std::string_view strategy);

 private:
  const reference::AttentionOutput& form(bool expanded);

  const Problem* problem_;
  std::optional<reference::AttentionOutput> expanded_, absorbed_;
};

}  // namespace mla::verify
