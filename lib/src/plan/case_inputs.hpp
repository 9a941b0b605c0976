// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cases.hpp"

namespace mla::capacity {

/// Reading the inputs of a case under the names that logs and people use.
class CaseInputs {
 public:
  explicit CaseInputs(const CapacityCase& one) : case_(&one) {}

  /// Value `index` of the first key that is there (a single value serves every index).
  [[nodiscard]] std::optional<double> number(std::initializer_list<std::string_view> keys,
                                             std::size_t index = 0) const;
  [[nodiscard]] double need(std::initializer_list<std::string_view> keys, std::size_t index = 0) const;
  [[nodiscard]] std::int64_t count(std::initializer_list<std::string_view> keys, std::int64_t fallback) const;
  [[nodiscard]] std::string word(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key, bool fallback) const;
  [[nodiscard]] std::size_t size(std::string_view key) const;

  [[nodiscard]] Layout layout() const;
  [[nodiscard]] KvFormat cache_format() const;
  [[nodiscard]] WeightScheme weight_scheme() const;
  [[nodiscard]] EngineRules rules() const;  ///< the case's, with what its inputs switch
  [[nodiscard]] int block() const;          ///< 0: the engine's default
  [[nodiscard]] bool mtp() const { return flag("mtp", false) || count({"draft_layers"}, 0) > 0; }
  [[nodiscard]] StateBlocks state_blocks() const;
  /// llama.cpp: caches of so many cells each, and sequences that share the windows of one.
  [[nodiscard]] std::int64_t streams() const;
  [[nodiscard]] std::int64_t window_sequences() const;

  /// A budget in bytes: the logged number and half of its last digit on each side. `stage` for per-stage
  /// lists, `run` for several runs.
  struct Budget {
    std::int64_t low = 0, high = 0;
    std::string text;
  };
  [[nodiscard]] Budget budget(std::size_t stage, std::size_t run) const;
  /// Tokens a pool holds or a context has.
  [[nodiscard]] std::int64_t tokens(std::size_t index) const;

 private:
  const CapacityCase* case_;
};

}  // namespace mla::capacity
