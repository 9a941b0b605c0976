// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "mla/capacity.hpp"
#include "plan/stages.hpp"

namespace mla::capacity {

/// What one layout holds at any context: plan_memory()'s arithmetic without its words, for searches.
class Holding {
 public:
  /// `model` must outlive it. Throws what plan_memory() throws.
  Holding(const ModelConfig& model, const PlanRequest& request);
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;

  /// Whole sequences of `context` tokens on all GPUs.
  [[nodiscard]] std::int64_t sequences(std::int64_t context);
  [[nodiscard]] std::int64_t sequences() { return sequences(request_.context); }
  /// As MemoryPlan::at_once.
  [[nodiscard]] std::int64_t at_once(std::int64_t context);
  [[nodiscard]] std::int64_t at_once() { return at_once(request_.context); }
  /// As MemoryPlan::longest_context.
  [[nodiscard]] std::int64_t longest_context();

 private:
  const Stage& deciding(std::int64_t context);

  const ModelConfig& model_;
  PlanRequest request_;
  PoolInputs inputs_;
  std::vector<Stage> stages_;
};

}  // namespace mla::capacity
