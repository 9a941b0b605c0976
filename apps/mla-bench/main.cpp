// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

int main(int argc, char** argv) {
  using namespace mla;
  return cli::guard("mla-bench", [&] {
    std::optional<int> exit_code;
    const bench::Request request = bench::read_command_line(argc, argv, exit_code);
    if (exit_code) return *exit_code;
    return std::visit([](const auto& wanted) { return bench::answer(wanted); }, request);
  });
}
