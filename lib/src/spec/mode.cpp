// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "spec/sweep.hpp"

namespace mla::spec {
namespace {

/// A word, the option it is about, and the value that is worth the word.
struct Mode {
  std::string_view word;
  bool PlanOptions::*option;
  bool value;
};
constexpr Mode kModes[] = {{"invariant", &PlanOptions::batch_invariant, true},
                           {"prefix-each", &PlanOptions::share_prefixes, false}};

}  // namespace

std::string mode_text(const PlanOptions& options) {
  std::string text;
  for (const Mode& mode : kModes) {
    if (options.*mode.option != mode.value) continue;
    text += fmt::format("{}{}", text.empty() ? "" : " ", mode.word);
  }
  return text;
}

void read_mode(std::string_view text, PlanOptions& options) {
  for (const std::string& word : text::split(text, ' ')) {
    if (word.empty()) continue;
    const auto* const mode = std::ranges::find(kModes, word, &Mode::word);
    if (mode == std::end(kModes)) {
      std::vector<std::string> known;
      for (const Mode& m : kModes) known.emplace_back(m.word);
      throw Error(ErrorCode::kParse, fmt::format("mode {} is unknown", text::quoted(word)),
                  text::suggestion(word, known));
    }
    options.*mode->option = mode->value;
  }
}

}  // namespace mla::spec
