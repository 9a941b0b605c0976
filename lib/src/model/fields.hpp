// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/model.hpp"
#include "model/json_value.hpp"

namespace mla {

/// Names under which files give one fact, the usual one first.
using Keys = std::initializer_list<std::string_view>;

/// What a whole number may be.
struct Range {
  std::int64_t low = 1, high = 1 << 20;
};

inline constexpr Range kWidth{1, 1 << 20};  ///< any width of a matrix
inline constexpr Range kCountOrNone{0, 1 << 20};
inline constexpr Range kLayers{1, 4096};
inline constexpr Range kTokens{1, std::int64_t{1} << 40};

/// Typed access to one JSON object, with errors that name the file, the key, the value and what is allowed,
/// and a note of every field that was read. Null and absent are told apart in messages and notes; both mean
/// "no value". Where two names of one fact are given, they must agree.
class Fields {
 public:
  /// `object` and `notes` must outlive this. `prefix` is the path of the object in the file, "" for the root.
  Fields(const json::Value& object, std::string origin, std::string prefix = {},
         std::vector<FieldNote>* notes = nullptr);

  [[nodiscard]] bool present(std::string_view key) const noexcept { return object_->find(key) != nullptr; }
  [[nodiscard]] bool has(std::string_view key) const noexcept;  ///< present and not null
  [[nodiscard]] bool has_any(Keys keys) const noexcept;
  [[nodiscard]] const json::Value* get(std::string_view key) const noexcept { return object_->find(key); }
  [[nodiscard]] const json::Value& object() const noexcept { return *object_; }
  [[nodiscard]] std::string path(std::string_view key) const;
  [[nodiscard]] const std::string& origin() const noexcept { return origin_; }

  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view ours, Keys keys, Range range) const;
  [[nodiscard]] std::optional<double> real(std::string_view ours, Keys keys, double low, double high) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view ours, Keys keys) const;
  [[nodiscard]] std::optional<std::string> string(std::string_view ours, Keys keys) const;
  /// Throws kInvalidArgument saying whether it is missing or null, and `why` it is needed.
  [[nodiscard]] int required(std::string_view ours, Keys keys, Range range, std::string_view why = {}) const;
  [[nodiscard]] std::string required_string(std::string_view ours, Keys keys) const;
  /// The value, or `fallback` with a note that says where that comes from.
  [[nodiscard]] int integer_or(std::string_view ours, Keys keys, Range range, int fallback,
                               std::string_view from) const;
  [[nodiscard]] bool boolean_or(std::string_view ours, Keys keys, bool fallback) const;

  /// A list of whole numbers, or of strings; empty if there is no value.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key, Range range) const;
  [[nodiscard]] std::vector<std::string> strings(std::string_view key) const;
  /// The object under `key`, or nothing. An array or a number there is an error.
  [[nodiscard]] std::optional<Fields> nested(std::string_view key) const;

  void note(std::string_view field, std::string value, std::string from) const;
  /// Throws kParse with a suggestion for the first key that is not in `known`.
  void refuse_unknown(std::span<const std::string> known) const;

  /// "<origin>: <path of key> must be <allowed>, but is <value>".
  [[noreturn]] void wrong(std::string_view key, std::string_view allowed) const;
  [[noreturn]] void missing(Keys keys, std::string_view why) const;

 private:
  const json::Value* object_;
  std::string origin_, prefix_;
  std::vector<FieldNote>* notes_;

  template <class T, class Read>
  std::optional<T> first(std::string_view ours, Keys keys, Read read) const;
  std::int64_t to_integer(std::string_view key, const json::Value& value, Range range) const;
};

}  // namespace mla
