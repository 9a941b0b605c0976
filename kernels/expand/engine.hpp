// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "common/arch_table.hpp"
#include "common/params.hpp"
#include "expand/checks.hpp"
#include "expand/table.hpp"
#include "mla/backend.hpp"

/// The expanded form as cuda-expand, cuda-prefill-varlen and cuda-prefill-ragged share it: gather rows of the
/// paged cache, make K and V of every head with two matrix products, attend, merge. A backend says in which
/// passes and in pieces of which size.
namespace mla::kernels::expand {

/// How a backend walks the keys.
struct Strategy {
  Phase phase = Phase::kDecode;
  std::vector<Part> passes = {Part::kAll};
  std::int64_t chunk_bytes = 0;  ///< bound of the expanded K and V at a time; 0: all of a pass at once
};

/// A backend that is the expanded form with one strategy.
class ExpandedBackend final : public Backend {
 public:
  ExpandedBackend(BackendInfo info, Strategy strategy)
      : info_(std::move(info)), strategy_(std::move(strategy)) {}
  [[nodiscard]] const BackendInfo& info() const noexcept override { return info_; }
  [[nodiscard]] RoundingProfile rounding(const AttentionShape& shape) const override;
  [[nodiscard]] Support supports(const AttentionShape& shape, const Device& device) const override;
  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions& options) const override;
  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override;

 private:
  BackendInfo info_;
  Strategy strategy_;
};

/// The images of the attention kernel, for users of their own.
[[nodiscard]] std::span<const ArchImage<Table>> images();

}  // namespace mla::kernels::expand
