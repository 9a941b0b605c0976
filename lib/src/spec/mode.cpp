// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "spec/sweep.hpp"

namespace mla::spec {
namespace {

/// A word, when it is said, and what it sets.
struct Mode {
  std::string_view word;
  bool (*said)(const PlanOptions&);
  void (*set)(PlanOptions&);
};
constexpr Mode kModes[] = {
    {"invariant", [](const PlanOptions& o) { return o.batch_invariant; },
     [](PlanOptions& o) { o.batch_invariant = true; }},
    {"prefix-once", [](const PlanOptions& o) { return o.prefix_reads == PrefixReads::kOnce; },
     [](PlanOptions& o) { o.prefix_reads = PrefixReads::kOnce; }},
    {"prefix-each", [](const PlanOptions& o) { return o.prefix_reads == PrefixReads::kEach; },
     [](PlanOptions& o) { o.prefix_reads = PrefixReads::kEach; }}};

}  // namespace

std::string mode_text(const PlanOptions& options) {
  std::string text;
  for (const Mode& mode : kModes) {
    if (!mode.said(options)) continue;
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
    mode->set(options);
  }
}

}  // namespace mla::spec
