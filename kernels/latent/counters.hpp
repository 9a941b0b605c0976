// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace mla::kernels::latent {

/// A plan's places in the zeroed device memory where parts of a request count themselves: one for each
/// workspace that it is run with, since calls with one workspace are ordered and others may overlap. Given
/// back when the plan goes. Thread-safe.
class CounterPlaces {
 public:
  CounterPlaces() = default;
  CounterPlaces(const CounterPlaces&) = delete;
  CounterPlaces& operator=(const CounterPlaces&) = delete;
  ~CounterPlaces();

  /// 0 .. kMostPlans - 1. Throws kUnsupported if all are taken.
  [[nodiscard]] std::int32_t place_for(const std::byte* workspace) const;

 private:
  struct Entry {
    const std::byte* workspace;
    std::int32_t place;
  };
  mutable std::mutex mutex_;
  mutable std::vector<Entry> entries_;
};

}  // namespace mla::kernels::latent
