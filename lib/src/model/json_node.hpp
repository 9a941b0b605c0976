// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/json_value.hpp"

namespace mla::json {

/// A value that knows its place in a file, for messages: "manifest.json: 'variants.v3.bytes' is 7, but must be ...".
/// Every function throws kParse. The value must outlive it.
class Node {
 public:
  /// The root of a file.
  Node(const Value& value, std::string_view origin) : value_(&value), origin_(origin) {}

  /// The member of that name.
  [[nodiscard]] MLA_EXPORT Node at(std::string_view key) const;
  /// Nothing if there is none or it is null.
  [[nodiscard]] MLA_EXPORT std::optional<Node> find(std::string_view key) const;
  [[nodiscard]] MLA_EXPORT const std::string& text() const;
  [[nodiscard]] MLA_EXPORT bool flag() const;
  /// A finite number.
  [[nodiscard]] MLA_EXPORT double number() const;
  /// A whole number in least..most.
  [[nodiscard]] MLA_EXPORT std::int64_t count(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] MLA_EXPORT std::vector<Node> items() const;
  [[nodiscard]] MLA_EXPORT std::vector<std::pair<std::string, Node>> members() const;

  [[nodiscard]] const Value& value() const noexcept { return *value_; }
  /// "manifest.json: 'variants.v3'", or the file alone.
  [[nodiscard]] MLA_EXPORT std::string where() const;
  [[noreturn]] MLA_EXPORT void refuse(std::string_view sentence) const;

 private:
  Node(const Value& value, std::string origin, std::string path)
      : value_(&value), origin_(std::move(origin)), path_(std::move(path)) {}
  [[nodiscard]] const Object& object() const;
  [[nodiscard]] Node member(std::string_view key, const Value& value) const;

  const Value* value_;
  std::string origin_, path_;
};

}  // namespace mla::json
