// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mla/model.hpp"

namespace mla::spec {

/// The short config of a case: numbers by key (lists and objects flattened), null as absent.
struct ShortConfig {
  std::string attention;  ///< "mla", "gqa", "mha", "v4-csa"
  std::map<std::string, std::vector<double>> numbers;
};

/// A model of those shapes. Keys that it used are added to `used`. Throws kInvalidArgument naming a missing
/// key.
[[nodiscard]] ModelConfig model_of(const ShortConfig& config, const std::string& name,
                                   std::vector<std::string>& used);

}  // namespace mla::spec
