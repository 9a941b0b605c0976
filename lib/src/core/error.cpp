// SPDX-License-Identifier: Apache-2.0
#include "mla/error.hpp"

#include <utility>

namespace mla {

Error::Error(ErrorCode code, const std::string& message, std::string hint)
    : std::runtime_error(message), code_(code), hint_(std::move(hint)) {}

// Out of line, so that the type information lives in libmla alone and a catch in another module finds it.
Error::~Error() = default;

}  // namespace mla
