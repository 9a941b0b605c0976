// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mla/shape.hpp"

namespace mla::kernels::latent {

/// Rows (queries x heads) of the longest request.
[[nodiscard]] std::int64_t most_rows(const AttentionShape& shape);
/// Upper bounds of the keys that each request's queries see between them, at least 1.
[[nodiscard]] std::vector<std::int64_t> keys_of(const AttentionShape& shape);

/// What the choice of clusters depends on; no CUDA in here.
struct Work {
  std::span<const std::int64_t> keys;  ///< of each request: upper bounds of what its queries see
  std::int64_t row_groups = 1;
  std::int64_t num_sms = 132;
  std::int32_t splits = 0;  ///< > 0: parts that the caller wants each request's keys cut into
};

/// Clusters of each row group (latent::Params).
struct Clusters {
  std::int32_t size = 1;
  std::int32_t count = 1;
  std::int32_t per_request = 0;
  friend bool operator==(const Clusters&, const Clusters&) = default;
};

/// Clusters of `size` CTAs that fit side by side where a CTA fills a multiprocessor: fewer than num_sms /
/// size, since a cluster stays within a GPC whose multiprocessors eight does not divide.
[[nodiscard]] std::int64_t resident_clusters(std::int64_t size, std::int64_t num_sms);

/// The small-work kernel (clusters of one CTA), in one wave. Requests that are alike have CTAs of their own,
/// as long as that keeps enough of the GPU busy, and not more than their keys are worth; else all keys are
/// shared out evenly. Never more to count than kCountersPerPlan.
[[nodiscard]] Clusters choose_small(const Work& work);

/// Rows of the small-work kernel's tile, 16 or 32, for requests of up to `rows` rows.
[[nodiscard]] std::int64_t small_rows(std::span<const std::int64_t> keys, std::int64_t rows);

/// Parts of all requests where each is cut by its own length alone (small work): not more for shorter ones.
[[nodiscard]] std::int64_t fixed_parts(std::span<const std::int64_t> keys);
/// The small-work kernel with such parts, laid end to end and shared out.
[[nodiscard]] Clusters choose_invariant(const Work& work);

/// The large-work kernel, whose clusters of `size` CTAs load together and have 64 rows each. All keys are
/// shared out evenly over as many clusters as fit side by side, or over slightly fewer if then no equal
/// request is cut.
[[nodiscard]] Clusters choose_large(const Work& work, std::int32_t size);

/// What the large-work kernel is built for: whole rows of 512 + 64, pages that boxes of 16 keys fill.
[[nodiscard]] bool suits_large(const AttentionShape& shape);

/// Whether the large-work kernel is the faster one for requests of up to `rows` rows, by a model of what both
/// take: adding up the parts of a request takes the large one about as long as one of its blocks each, so few
/// long requests are not for it.
[[nodiscard]] bool prefers_large(std::span<const std::int64_t> keys, std::int64_t rows, std::int64_t num_sms);

}  // namespace mla::kernels::latent
