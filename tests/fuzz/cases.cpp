// SPDX-License-Identifier: Apache-2.0
// Files of published cases: each is refused by name or computed.
#include "plan/cases.hpp"
#include "fuzz.hpp"
#include "spec/capacity_cases.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return mla::fuzz::try_text(data, size, [](std::string_view text) {
    for (const mla::capacity::CapacityCase& one : mla::spec::parse_cases(text, "the cases")) {
      const auto results = mla::capacity::check_case(one);
      mla::fuzz::require(results.size() == one.expected.size());
    }
  });
}
