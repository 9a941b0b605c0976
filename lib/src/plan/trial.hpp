// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/explain.hpp"
#include "plan/hypotheses.hpp"

namespace mla::capacity {

/// How a number was explained that vLLM computes wrongly.
inline constexpr std::string_view kAllLayers =
    "all layers charged to one rank, as vLLM does under pipeline parallelism (vllm#34076)";

/// How a number was explained that SGLang printed before it counted index keys.
inline constexpr std::string_view kNoIndexKeys = ", index keys left out as this engine once did";

/// How a number was explained whose line counts other layers than the model has.
inline constexpr std::string_view kOtherLayers = " in another number of layers";

/// "715,072", "2.73".
[[nodiscard]] std::string count_text(double value);

/// A hypothesis at work on one log. Log and model must outlive it.
class Trial {
 public:
  /// Whether results say from what they follow; a search needs no words.
  enum class Say : bool { kNothing, kHow };

  /// An interval, or nothing where the planner has no number.
  using Range = std::optional<std::pair<double, double>>;

  Trial(const LogReading& log, const ModelConfig& model, const Hypothesis& hypothesis, Say say = Say::kHow);

  /// What the planner makes of the number, trying each logged budget for those that follow from one.
  [[nodiscard]] Explained judge(const LogNumber& logged) const;

  [[nodiscard]] std::int64_t block() const;
  /// Tokens of the smallest block of a group: what the logged tokens count.
  [[nodiscard]] std::int64_t smallest_block() const;
  [[nodiscard]] std::size_t groups() const;
  /// Bytes of a block on the first stage, all its pools together.
  [[nodiscard]] std::int64_t block_bytes() const;
  /// GiB that a rank which holds `tokens` tokens of this pool must have had.
  [[nodiscard]] double implied_gib(double tokens) const;
  /// GiB that one sequence of the logged length takes on a stage.
  [[nodiscard]] double stage_need_gib(int stage, const LogNumber& logged) const;
  /// Steps that judging every number of the log takes, the trial's own making included: about as many microseconds as
  /// there are hundreds of them.
  [[nodiscard]] std::int64_t work() const;

 private:
  struct Option {
    Range range;
    std::string how;
  };
  using Budgets = std::vector<const LogNumber*>;  ///< one a stage

  [[nodiscard]] std::vector<Option> options(const LogNumber& logged) const;
  [[nodiscard]] std::vector<Option> from_budgets(const LogNumber& logged) const;
  [[nodiscard]] std::vector<Option> need(const LogNumber& logged) const;
  [[nodiscard]] std::vector<Option> bytes(const LogNumber& logged) const;
  [[nodiscard]] std::vector<Option> token_bytes() const;
  [[nodiscard]] std::vector<Option> state_bytes(const LogNumber& logged) const;
  [[nodiscard]] Range from_budget(const LogNumber& logged, const Budgets& budgets, std::int64_t length) const;
  [[nodiscard]] Option all_layers_on_one(const Budgets& budgets, std::int64_t length) const;
  void add_from_pool(std::vector<Option>& found, const LogNumber& logged, std::int64_t length) const;
  [[nodiscard]] std::vector<Budgets> budget_choices() const;
  template <class Value>
  [[nodiscard]] Range over_stages(const Budgets& budgets, std::int64_t length, Value value) const;
  [[nodiscard]] std::int64_t estimate_of(PoolSet& set, std::int64_t length) const;
  [[nodiscard]] std::int64_t length_of(const LogNumber& logged) const;
  void add_cells(std::vector<Option>& found, const LogNumber& logged) const;
  template <class Text>
  [[nodiscard]] std::string how(const Text& text) const {
    return say_ == Say::kHow ? text() : std::string();
  }
  [[nodiscard]] double share_of(const LogNumber& budget) const;
  [[nodiscard]] std::string budget_text(const Budgets& budgets) const;

  const LogReading& log_;
  const ModelConfig& model_;
  Say say_;
  PoolInputs inputs_;
  std::vector<PoolSet> sets_;     ///< of each stage
  Budgets budgets_;               ///< those logged that may decide
  std::vector<Budgets> choices_;  ///< budget_choices()
};

}  // namespace mla::capacity
