// SPDX-License-Identifier: Apache-2.0
#include "mla/backend.hpp"

namespace mla {

// Out of line: each class needs one home for its virtual table.
Plan::~Plan() = default;
Backend::~Backend() = default;

}  // namespace mla
