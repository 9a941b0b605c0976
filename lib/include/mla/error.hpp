// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include "mla/export.h"

namespace mla {

/// What went wrong, as far as a program must know to choose its exit code.
enum class ErrorCode {
  kInvalidArgument,  ///< a value outside what the function accepts (programs exit 2)
  kParse,            ///< a file or text that is malformed (2)
  kIo,               ///< a file that cannot be opened, read or written (2)
  kUnsupported,      ///< a correct request that nothing here can serve (3)
  kDevice,           ///< no device, or the driver refused (3)
  kInternal,         ///< a fault of this library (4)
};

/// Every failure of the library. `what()` is one sentence that names the offending value and what is allowed;
/// `hint()` is what to try next, or empty. The library never prints and never exits.
class MLA_EXPORT Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::string hint = {});
  ~Error() override;
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] const std::string& hint() const noexcept { return hint_; }

 private:
  ErrorCode code_;
  std::string hint_;
};

}  // namespace mla
