// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <memory>
#include <string>

namespace mla::test {

/// The interpreter itself that `python` starts (a version manager's wrapper costs more than a test does), or empty if it
/// cannot run `import package`.
inline std::string interpreter_of(const std::string& python, const std::string& package) {
  const std::string command = python + " -c 'import sys" + (package.empty() ? "" : ", " + package) +
                              "; sys.stdout.write(sys.executable)' 2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::string path;
  if (pipe == nullptr) return path;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get())) path += static_cast<char>(c);
  return path;
}

/// A Python 3 that runs `import package` ("" for none), or empty: the one CMake found, or the system's.
inline std::string python_with(const std::string& package) {
  for (const std::string& python : {std::string(MLA_PYTHON), std::string("/usr/bin/python3")}) {
    if (python.empty()) continue;
    const std::string interpreter = interpreter_of(python, package);
    if (!interpreter.empty()) return interpreter;
  }
  return {};
}

}  // namespace mla::test
