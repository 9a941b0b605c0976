// SPDX-License-Identifier: Apache-2.0
#include "plan/holding.hpp"

#include <fmt/format.h>

#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/plan_request.hpp"

namespace mla::capacity {
namespace {

PlanRequest checked(const ModelConfig& model, const PlanRequest& request) {
  check(request);
  validate(request.layout, model, request.engine);
  PlanRequest whole = completed(model, request);
  validate(whole.cache, model, whole.engine);
  return whole;
}

}  // namespace

Holding::Holding(const ModelConfig& model, const PlanRequest& request)
    : model_(model),
      request_(checked(model, request)),
      inputs_(pool_inputs(model, request_)),
      stages_(plan_stages(model, request_, inputs_, Words::kNone)) {
  if (stages_[limiting_stage(stages_)].pools.pools.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has no layer that keeps a cache: there is nothing to plan", model.name));
  }
}

const Stage& Holding::deciding(std::int64_t context) {
  for (Stage& stage : stages_) {
    // An engine may split its pools by the longest sequence it takes.
    fill(stage.pools, inputs_, plus(stage.plan.cache_budget, inputs_.scratch.bytes(request_.context)),
         context);
    stage.plan.sequences = sequences_of(inputs_, stage.pools, context);
  }
  return stages_[limiting_stage(stages_)];
}

std::int64_t Holding::sequences(std::int64_t context) {
  return times(deciding(context).plan.sequences, request_.layout.dp);
}

std::int64_t Holding::at_once(std::int64_t context) {
  return times(run_at_once(request_, deciding(context).plan.sequences), request_.layout.dp);
}

std::int64_t Holding::longest_context() {
  static_cast<void>(deciding(request_.context));  // fills the pools of every stage
  return longest_of(inputs_, stages_, longest_asked(model_, request_));
}

}  // namespace mla::capacity
