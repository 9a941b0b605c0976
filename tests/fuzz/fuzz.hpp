// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "mla/error.hpp"

/// What every entry point of this folder shares.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace mla::fuzz {

/// Calls `body` with the input as text. An mla::Error with a sentence is a good answer to bad input, unless it says that
/// the library itself is at fault; everything else that escapes ends the program, which is what a fuzzer looks for.
template <class Body>
int try_text(const std::uint8_t* data, std::size_t size, const Body& body) {
  try {
    body(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kInternal || std::string_view(e.what()).empty()) std::abort();
  }
  return 0;
}

/// A property of every accepted input.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace mla::fuzz
