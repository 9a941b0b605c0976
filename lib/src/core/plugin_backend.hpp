// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "mla/backend.hpp"
#include "mla/plugin.h"

namespace mla {

/// What a plug-in says of itself, in our struct: fields that it does not know are 0.
[[nodiscard]] mla_plugin_v1 as_known(const mla_plugin_v1& plugin);

/// A plug-in's functions as one of our backends.
class PluginBackend final : public Backend {
 public:
  /// `plugin` was checked by load_plugin, and what it points to lives as long as the process; `file` is for
  /// the origin.
  PluginBackend(const mla_plugin_v1& plugin, const std::string& file);
  [[nodiscard]] const BackendInfo& info() const noexcept override { return info_; }
  [[nodiscard]] RoundingProfile rounding(const AttentionShape& shape) const override;
  [[nodiscard]] Support supports(const AttentionShape& shape, const Device& device) const override;
  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions& options) const override;
  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override;
  [[nodiscard]] const std::string& origin() const noexcept { return origin_; }

 private:
  [[noreturn]] void fail(const char* what) const;
  mla_plugin_v1 plugin_;
  std::string name_, summary_, strategy_, origin_;
  BackendInfo info_;
};

}  // namespace mla
