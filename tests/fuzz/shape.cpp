// SPDX-License-Identifier: Apache-2.0
#include "mla/shape.hpp"

#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return mla::fuzz::try_text(data, size, [](std::string_view text) {
    const auto shape = mla::parse_shape(text);
    mla::fuzz::require(mla::parse_shape(mla::to_text(shape)) == shape);
    if (!shape.batch.empty()) mla::validate(shape);
  });
}
