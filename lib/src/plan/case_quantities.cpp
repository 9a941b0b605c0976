// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/case_asked.hpp"

namespace mla::capacity {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// A number of the plan at both ends of the budget's rounding.
Computed from_plan(const Asked& asked, PlanRequest request, std::size_t run,
                   const std::function<double(const MemoryPlan&)>& value) {
  std::vector<std::int64_t> low;
  std::vector<std::int64_t> high;
  std::string budgets;
  for (std::size_t stage = 0; stage < static_cast<std::size_t>(request.layout.pp); ++stage) {
    const CaseInputs::Budget budget = asked.in.budget(stage, run);
    low.push_back(budget.low);
    high.push_back(budget.high);
    budgets += (budgets.empty() ? "" : ", ") + budget.text;
  }
  const auto at = [&](const std::vector<std::int64_t>& bytes) {
    request.cache_bytes = bytes;
    return plan_memory(asked.one.model, request);
  };
  const MemoryPlan smallest = at(low);
  const MemoryPlan largest = at(high);
  return {value(smallest), value(largest),
          fmt::format("{} in blocks of {} tokens: {}", budgets, largest.block, cost_formula(asked, request))};
}

/// "kv_tokens_2nd_run" is kv_tokens of the second budget.
std::size_t run_of(const Asked& asked) {
  return asked.key.ends_with("_2nd_run") ? 1 : asked.index;
}

Computed num_blocks(const Asked& asked) {
  return from_plan(asked, request_of(asked), run_of(asked),
                   [](const MemoryPlan& plan) { return static_cast<double>(plan.blocks); });
}

Computed kv_tokens(const Asked& asked) {
  if (const std::optional<double> blocks = asked.in.number({"num_blocks"})) {
    const int block = asked.in.block();
    return exactly(*blocks * block, fmt::format("{} blocks x {}", num(*blocks), block));
  }
  return from_plan(asked, request_of(asked), run_of(asked),
                   [](const MemoryPlan& plan) { return static_cast<double>(plan.tokens_logged); });
}

/// The concurrency that the tokens logged by the same run stand for, where one pool of one group holds them:
/// a budget line may belong to another rank, the two pool lines never do.
std::optional<Computed> concurrency_of_tokens(const Asked& asked) {
  const PlanRequest request = request_of(asked);
  const PoolSet pools = pool_geometry(pool_inputs(asked.one.model, request), 0);
  if (pools.pools.size() != 1 || pools.pools.front().groups.size() != 1 || request.context < 1)
    return std::nullopt;
  const std::string tokens_key =
      "kv_tokens" + std::string(asked.key.substr(std::string_view("max_concurrency").size()));
  for (const Expectation& other : asked.one.expected) {
    if (other.key != tokens_key || other.index != asked.index) continue;
    const std::int64_t blocks =
        sequence_blocks(pool_inputs(asked.one.model, request), pools.pools.front(), request.context);
    const double pool = other.value / static_cast<double>(pools.block) / request.layout.dcp;
    return exactly(
        pool / static_cast<double>(blocks),
        fmt::format("{} tokens logged / ({} blocks of {})", num(other.value), num(blocks), pools.block));
  }
  return std::nullopt;
}

Computed max_concurrency(const Asked& asked) {
  if (const std::optional<Computed> by_tokens = concurrency_of_tokens(asked)) return *by_tokens;
  return from_plan(asked, request_of(asked), run_of(asked),
                   [](const MemoryPlan& plan) { return plan.concurrency_logged; });
}

/// vLLM's estimate counts the null block as usable and, before its fix, all layers against one rank.
PlanRequest estimate_request(const Asked& asked) {
  PlanRequest request = request_of(asked);
  request.engine.reserved_blocks = 0;
  if (asked.key.ends_with("_as_logged")) request.layout = {.tp = request.layout.tp};
  return request;
}

Computed estimated_max_len(const Asked& asked) {
  return from_plan(asked, estimate_request(asked), run_of(asked),
                   [](const MemoryPlan& plan) { return static_cast<double>(plan.longest_context); });
}

Computed need_gib(const Asked& asked) {
  const PlanRequest request = estimate_request(asked);
  const PoolInputs inputs = pool_inputs(asked.one.model, request);
  if (request.context < 1) refuse("the inputs lack max_model_len");
  const auto stage = std::min(asked.index, static_cast<std::size_t>(request.layout.pp) - 1);
  const PoolSet pools = pool_geometry(inputs, static_cast<int>(stage));
  return exactly(static_cast<double>(sequence_bytes(inputs, pools, request.context)) / kGiB,
                 fmt::format("{} tokens in blocks of {}: {}", num(request.context), pools.block,
                             cost_formula(asked, request)));
}

constexpr Quantity kPoolQuantities[] = {
    {"num_blocks", num_blocks},
    {"kv_tokens", kv_tokens},
    {"max_concurrency", max_concurrency},
    {"estimated_max_len", estimated_max_len},
    {"need_gib", need_gib},
};

std::array<std::span<const Quantity>, 3> all_quantities() {
  return {kPoolQuantities, layout_quantities(), stored_quantities()};
}

/// The quantity of a key without what says of which run, rank or group: "kv_tokens_2nd_run" -> "kv_tokens".
std::string_view base_of(std::string_view key) {
  key = key.substr(0, key.find('.'));
  for (const std::string_view suffix : {"_2nd_run", "_as_logged", "_true_per_rank", "_per_rank"}) {
    if (key.ends_with(suffix)) return key.substr(0, key.size() - suffix.size());
  }
  return key;
}

}  // namespace
Computed compute(const CapacityCase& one, std::string_view key, std::size_t index) {
  const std::string_view base = base_of(key);
  for (const std::span<const Quantity> table : all_quantities()) {
    for (const Quantity& quantity : table) {
      if (quantity.name == base) return quantity.compute({one, CaseInputs(one), key, index});
    }
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no quantity {}", text::quoted(key)),
              text::suggestion(base, quantity_names()));
}

std::vector<std::string> quantity_names() {
  std::vector<std::string> names;
  for (const std::span<const Quantity> table : all_quantities()) {
    for (const Quantity& quantity : table) names.emplace_back(quantity.name);
  }
  return names;
}

}  // namespace mla::capacity
