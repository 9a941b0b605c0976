// SPDX-License-Identifier: Apache-2.0
#include "mla/backend.hpp"

#include <fmt/format.h>

namespace mla {

// Out of line: each class needs one home for its virtual table.
Plan::~Plan() = default;
Backend::~Backend() = default;

Support without_shared_prefix(const AttentionShape& shape) {
  if (shape.shared.empty()) return Support::yes();
  const SharedPrefix& s = shape.shared.front();
  return Support::no(
      fmt::format("it reads the keys of each request for itself and has no use for the prefix of {} tokens "
                  "that {} requests share",
                  s.tokens, s.count));
}

}  // namespace mla
