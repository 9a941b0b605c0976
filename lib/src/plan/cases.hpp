// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mla/capacity.hpp"

/// Published numbers of real runs, and what the planner makes of the same inputs. A case names quantities
/// ("kv_tokens", "weights_gib"); one table says how each is computed, so a new log needs no new code unless
/// it logs a new quantity.
namespace mla::capacity {

struct Tolerance {
  std::optional<double> abs, rel;  ///< allowed distance from the computed value or interval
  std::optional<double> min, max;  ///< interval the computed one must meet
  bool informational = false;      ///< shown, never judged
};

struct Expectation {
  std::string key;        ///< "kv_tokens", "group_page_bytes.main"
  std::size_t index = 0;  ///< of a list: one value a run or stage
  double value = 0;
  Tolerance tolerance;
};

struct CapacityCase {
  std::string id, source, model_name, hand_calc, explanation;
  bool not_reproduced = false;  ///< the log is known to disagree; `explanation` says why
  ModelConfig model;
  std::string engine;  ///< as the file says
  EngineRules rules;
  std::map<std::string, std::vector<double>>
      numbers;  ///< inputs; objects become "key.name", objects in lists "key"
  std::map<std::string, std::string> words;
  std::vector<Expectation> expected;
  std::vector<std::string> notes;  ///< how the inputs were read, keys that were not used
};

/// A computed quantity: an interval where an input was a rounded number of a log.
struct Computed {
  double low = 0, high = 0;
  std::string formula;
};
/// Throws kInvalidArgument for a quantity that does not exist or inputs that lack what it needs.
[[nodiscard]] MLA_EXPORT Computed compute(const CapacityCase& one, std::string_view key, std::size_t index);
[[nodiscard]] MLA_EXPORT std::vector<std::string> quantity_names();

enum class Verdict : std::uint8_t {
  kAgrees,       ///< inside the interval, or within the tolerance
  kInformative,  ///< not judged
  kExplained,    ///< differs, and the case says why
  kDiffers,
  kUnknown,  ///< could not be computed: `formula` says why
};
[[nodiscard]] MLA_EXPORT std::string_view name_of(Verdict verdict) noexcept;

struct CaseResult {
  std::string id, key;
  double expected = 0;
  Computed got;
  Verdict verdict = Verdict::kUnknown;
  double gap = 0;  ///< (expected - nearest computed) / expected
  bool by_tolerance =
      false;  ///< agrees by the file's tolerance alone: outside the interval by more than printing rounds
};
/// One result for each expectation.
[[nodiscard]] MLA_EXPORT std::vector<CaseResult> check_case(const CapacityCase& one);

}  // namespace mla::capacity
