// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

namespace mla::test {

/// A Python 3 that runs `import package` ("" for none), or empty: the one CMake found, or the system's.
inline std::string python_with(const std::string& package) {
  for (const std::string& python : {std::string(MLA_PYTHON), std::string("/usr/bin/python3")}) {
    if (python.empty()) continue;
    const std::string command =
        python + " -c 'import sys" + (package.empty() ? "" : ", " + package) + "' >/dev/null 2>&1";
    if (std::system(command.c_str()) == 0) return python;
  }
  return {};
}

}  // namespace mla::test
