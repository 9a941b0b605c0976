// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

#include "model/json_value.hpp"

/// Writing JSON without the parser's header, which costs every file that includes it seconds.
namespace mla::json {

/// A truth, a whole number, a number, a text, or a list of such as a value.
template <class T>
[[nodiscard]] Value to_value(const T& x) {
  if constexpr (std::same_as<T, bool>) {
    return Value(x);
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    return Value(static_cast<std::int64_t>(x));
  } else if constexpr (std::is_floating_point_v<T>) {
    return Value(Real{static_cast<double>(x), {}});
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return Value(std::string(std::string_view(x)));
  } else {
    Array array;
    for (const auto& item : x) array.push_back(to_value(item));
    return Value(std::move(array));
  }
}

/// Sets a member, at the end unless it is there already.
MLA_EXPORT void put(Object& object, std::string_view key, Value value);

/// The text of a value: one line, or with `indent` spaces a level. Members stay in order. Numbers read back as the same
/// double; those that are not finite, which JSON has not, are null. Bytes that are no UTF-8 (a path, a driver's answer)
/// become U+FFFD.
[[nodiscard]] MLA_EXPORT std::string dump(const Value& value, int indent = -1);

}  // namespace mla::json
