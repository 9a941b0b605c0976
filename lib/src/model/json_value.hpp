// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "mla/error.hpp"
#include "mla/export.h"

/// Strictly read JSON as a plain tree. The parser behind it is nlohmann/json; only json_parse.cpp includes
/// that (a heavy header), and only there can its leniencies (a second key wins, any depth, 1e999 by way of
/// infinity) come in.
namespace mla::json {

struct Null {};

/// A number that is no int64: with a fraction or exponent, too large, NaN or infinite. `text` is what the
/// file says.
struct Real {
  double value = 0;
  std::string text;
};

class Value;
using Array = std::vector<Value>;
using Member = std::pair<std::string, Value>;
using Object = std::vector<Member>;  ///< in file order, keys unique

class Value {
 public:
  using Data = std::variant<Null, bool, std::int64_t, Real, std::string, Array, Object>;
  Value() = default;
  template <class T>
  requires(!std::same_as<std::remove_cvref_t<T>, Value>) explicit Value(T&& value)
      : data_(std::forward<T>(value)) {}

  [[nodiscard]] bool is_null() const noexcept { return std::holds_alternative<Null>(data_); }
  template <class T>
  [[nodiscard]] const T* get_if() const noexcept {
    return std::get_if<T>(&data_);
  }
  template <class T>
  [[nodiscard]] T* get_if() noexcept {
    return std::get_if<T>(&data_);
  }
  /// The member of that name, or null if this is no object or has none.
  [[nodiscard]] MLA_EXPORT const Value* find(std::string_view key) const noexcept;

 private:
  Data data_;
};

/// The value for a message: `null`, `true`, `3.5`, `"text"`, `an array of 3`, `an object`.
[[nodiscard]] MLA_EXPORT std::string describe(const Value& value);

/// The text as a JSON string, quotes included. Throws kInvalidArgument if it is no UTF-8.
[[nodiscard]] MLA_EXPORT std::string quote(std::string_view text);
/// The same, with U+FFFD for bytes that are no UTF-8.
[[nodiscard]] MLA_EXPORT std::string quote_lossy(std::string_view text);

struct ParseOptions {
  bool comments = false;               ///< // and /* */: our own files only
  std::size_t max_depth = 64;          ///< nested arrays and objects
  std::size_t max_values = 2'000'000;  ///< bounds the memory a hostile file can ask for
};

/// Throws kParse naming `origin`, the line and column, and the key being read: malformed JSON, a key given
/// twice, numbers beyond double, invalid UTF-8, more depth or values than allowed. NaN and Infinity, which
/// Python writes, are kept as Real, so that only a field that is used can fail over them.
[[nodiscard]] MLA_EXPORT Value parse(std::string_view text, std::string_view origin,
                                     const ParseOptions& options = {});

}  // namespace mla::json
