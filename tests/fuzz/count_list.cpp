// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/count.hpp"
#include "fuzz.hpp"
#include "spec/values.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return mla::fuzz::try_text(data, size, [](std::string_view text) {
    const auto values = mla::spec::parse_count_list(text, "the list");
    mla::fuzz::require(!values.empty() && *std::min_element(values.begin(), values.end()) >= 0);
    std::string again;
    for (const std::int64_t value : values)
      again += (again.empty() ? "" : ",") + mla::text::format_count(value);
    mla::fuzz::require(mla::spec::parse_count_list(again, "the list") == values);
  });
}
