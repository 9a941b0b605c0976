// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

/// NVIDIA's management library, opened at run time: what the card did while it was measured.
namespace mla::run {

/// One look at a card.
struct CardState {
  std::optional<double> sm_clock_mhz, power_w, temperature_c;
  std::uint64_t slowed_by = 0;  ///< NVML's clock event reasons
};

/// Reasons that lower the clock below what was asked for, as words: "power", "thermal", "power-brake",
/// "sync"; several are joined by '+'. Idleness and clocks set by a user are none.
[[nodiscard]] std::string slowdown_words(std::uint64_t reasons);

/// Facts that stay.
struct CardFacts {
  std::string driver, id;  ///< id: hash of the card's UUID, so that two runs can be told to be on one card
  std::optional<double> power_limit_w, max_sm_clock_mhz;
};

class Card {
 public:
  /// `bus_id` as CUDA names the card.
  explicit Card(const std::string& bus_id);
  ~Card();
  /// Why nothing can be known, or empty.
  [[nodiscard]] const std::string& why_none() const noexcept { return why_none_; }
  [[nodiscard]] CardState look() const;
  [[nodiscard]] CardFacts facts() const;
  /// Processes with work on the card beside this one, if it can be known.
  [[nodiscard]] std::optional<int> other_processes() const;

 private:
  struct Api;
  std::unique_ptr<Api> api_;
  void* handle_ = nullptr;
  std::string why_none_;
};

}  // namespace mla::run
