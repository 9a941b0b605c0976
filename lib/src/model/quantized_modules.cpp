// SPDX-License-Identifier: Apache-2.0
// Which modules a quantised checkpoint keeps as they were: names, globs and regular expressions as files
// write them.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "mla/model.hpp"

namespace mla {
namespace {

// '*' stands for anything, '?' for one character. Linear in practice: one step back a star.
bool glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(p), pattern.end(),
                     [](char c) { return c == '*'; });
}

// A pattern names a module itself, or any module it lies in: "lm_head", "model.layers.0.self_attn", "gate".
bool names(std::string_view pattern, std::string_view module) {
  const std::string inner(pattern);
  return glob(inner, module) || glob(inner + ".*", module) || glob("*." + inner, module) ||
         glob("*." + inner + ".*", module);
}

// The expressions of compressed-tensors are globs in disguise: ".*", "\.", digits and one (a|b|c). As globs,
// one an alternative; empty if it is none of these, and then it keeps nothing.
std::vector<std::string> globs_of(std::string_view expression) {
  std::vector<std::string> globs{""};
  const auto append = [&](std::string_view piece) {
    for (std::string& one : globs) one += piece;
  };
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    const std::string_view rest = expression.substr(i);
    if (c == '^' || c == '$') continue;
    if (rest.starts_with(".*") || rest.starts_with("\\d+")) {
      append("*");
      i += rest.starts_with(".*") ? 1 : 2;
    } else if (c == '\\' && i + 1 < expression.size()) {
      append(expression.substr(++i, 1));
    } else if (c == '.') {
      append("?");
    } else if (c == '(') {
      const std::size_t close = rest.find(')');
      if (close == std::string_view::npos || globs.size() > 1) return {};
      std::string_view choices = rest.substr(1, close - 1);
      const std::string head = globs.front();
      globs.clear();
      for (;;) {
        const std::size_t bar = choices.find('|');
        globs.push_back(head + std::string(choices.substr(0, bar)));
        if (bar == std::string_view::npos || globs.size() > 64) break;
        choices.remove_prefix(bar + 1);
      }
      i += close;
    } else if (c == '[' || c == '{' || c == '+' || c == '?' || c == ')' || c == '|') {
      return {};
    } else {
      append(expression.substr(i, 1));
    }
  }
  // re.match is anchored at the beginning only.
  append("*");
  return globs;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  if (const std::size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

bool keeps(const std::string& written, const std::string& module) {
  if (written.starts_with("re:")) {
    const std::vector<std::string> globs = globs_of(std::string_view(written).substr(3));
    return std::any_of(globs.begin(), globs.end(), [&](const std::string& one) { return glob(one, module); });
  }
  // Multimodal checkpoints put their text model one level down.
  return names(replaced(written, "language_model.", ""), module);
}

}  // namespace

bool QuantizationConfig::covers(std::string_view module) const {
  const std::string name(module);
  const auto has = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  const bool experts = has(".experts.");
  // No method quantises these, listed or not: the head, embeddings, norms, and the router, which decides by
  // small differences.
  if (name.ends_with("lm_head") || has("embed") || has("norm") || name.ends_with(".gate") || has("router"))
    return false;
  if (experts_only && !experts) return false;
  // DeepSeek's own checkpoints say attn and ffn where transformers says self_attn and mlp.
  const std::array<std::string, 2> spellings = {
      name, replaced(replaced(replaced(name, "self_attn", "attn"), "mlp", "ffn"), "model.", "")};
  const auto listed = [&](const std::vector<std::string>& list) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& written) {
      return keeps(written, spellings[0]) || keeps(written, spellings[1]);
    });
  };
  if (!converted.empty() && !listed(converted)) return false;
  return !listed(not_converted);
}

}  // namespace mla
