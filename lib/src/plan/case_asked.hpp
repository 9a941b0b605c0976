// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "plan/case_inputs.hpp"
#include "plan/cases.hpp"
#include "plan/plan_request.hpp"
#include "plan/pools.hpp"

/// What the quantities of a case are worked out from, and the tables of those quantities.
namespace mla::capacity {

/// What a quantity is asked of: the case, and which value of a list.
struct Asked {
  const CapacityCase& one;
  CaseInputs in;
  std::string_view key;
  std::size_t index;
};

struct Quantity {
  std::string_view name;
  Computed (*compute)(const Asked&);
};

/// Bytes of tokens that the case says a pool or a context holds.
[[nodiscard]] std::span<const Quantity> stored_quantities() noexcept;
/// Sizes of blocks, groups, states, tensors and weights.
[[nodiscard]] std::span<const Quantity> layout_quantities() noexcept;

/// The case's inputs as a request. Throws kInvalidArgument for a layout its model cannot have.
[[nodiscard]] PlanRequest request_of(const Asked& asked);
/// The cache formula of one rank: "61 layers x (512 + 64) x 2 B + 61 layers x (128 + 4 scale) B".
[[nodiscard]] std::string cost_formula(const Asked& asked, const PlanRequest& request);
[[nodiscard]] Computed exactly(double value, std::string formula);
[[noreturn]] void refuse(const std::string& sentence);

}  // namespace mla::capacity
