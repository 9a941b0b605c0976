// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "mla/backend.hpp"

namespace mla {

/// Adds a backend behind all others. Throws kInvalidArgument if the name is taken or there are too many. The
/// span that backends() gave before stays valid but does not show it; not to be called while other threads
/// look for backends.
const Backend& add_backend(std::unique_ptr<const Backend> backend);

}  // namespace mla
