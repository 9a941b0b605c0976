// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "mla/capacity.hpp"

namespace mla::capacity {

/// One worked number or statement of the source documents beside the right one. Numbers on both sides are
/// computed: the document's by its own formula and inputs, the corrected one from the model's config and the
/// index rules.
struct Example {
  std::string place;              ///< "appendix F"
  std::string subject;            ///< what it is about
  std::string printed;            ///< as the document prints it
  std::string document;           ///< its arithmetic carried out, or empty for statements
  std::string corrected;          ///< the right value or statement
  std::string corrected_formula;  ///< arithmetic of it, or empty
  std::string why;
};

/// `v3` and `k2` are the configs of DeepSeek-V3 and Kimi-K2, the two models the documents mix up.
[[nodiscard]] MLA_EXPORT std::vector<Example> document_examples(const ModelConfig& v3, const ModelConfig& k2);

}  // namespace mla::capacity
