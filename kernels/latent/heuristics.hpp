// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace mla::kernels::latent {

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

/// The small-work kernel, in one wave. Requests that are alike have clusters of their own, the largest that
/// keep enough of the GPU busy, and not more than their keys are worth; else all keys are shared out evenly.
/// Never more slices to count than kCountersPerPlan.
[[nodiscard]] Clusters choose_small(const Work& work);

}  // namespace mla::kernels::latent
