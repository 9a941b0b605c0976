// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "spec/sweep.hpp"

/// Reading a sweep's texts, so that every complaint names the key and who gave it.
namespace mla::spec {

/// Runs `read` and puts key and origin before what it has to complain about.
template <class Read>
auto with_context(const SweepSpec& spec, std::string_view key, Read read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("'{}' (from {}): {}", key, spec.settings.find(key)->second.origin, error.what()),
                error.hint());
  }
}

/// The value whose name is `text`; throws kInvalidArgument naming all.
template <class T>
T pick(std::string_view text, std::initializer_list<std::pair<std::string_view, T>> allowed) {
  std::vector<std::string> names;
  for (const auto& [name, value] : allowed) {
    if (name == text) return value;
    names.emplace_back(name);
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is not known", text::quoted(text)),
              fmt::format("allowed: {}", text::join_or(names)));
}

}  // namespace mla::spec
