// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "verify/case.hpp"
#include "verify/run_case.hpp"

namespace mla::verify {

/// A failure that can be run again: what `mla-verify run` writes and `mla-verify run --replay` reads.
struct Repro {
  std::string backend;
  std::string oracle;  ///< name, or empty: the case is compared with the reference
  Case c;
  Case found_as;  ///< the case before it was reduced
  Failure failure = Failure::kNone;
  std::string finding;
  std::string version;                 ///< of the build that found it
  std::vector<std::string> plugins{};  ///< shared objects that hold the backend
};

/// JSON text, one object; `file` is where it will stand, for the command line in it.
[[nodiscard]] std::string to_json(const Repro& repro, std::string_view file);
/// Throws kParse naming `origin` and the key.
[[nodiscard]] Repro parse_repro(std::string_view json, std::string_view origin);

}  // namespace mla::verify
