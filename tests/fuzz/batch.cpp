// SPDX-License-Identifier: Apache-2.0
#include "fuzz.hpp"
#include "mla/shape.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return mla::fuzz::try_text(data, size, [](std::string_view text) {
    const auto batch = mla::parse_batch(text);
    mla::fuzz::require(!batch.empty() && mla::parse_batch(mla::format_batch(batch)) == batch);
  });
}
