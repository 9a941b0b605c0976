// SPDX-License-Identifier: Apache-2.0
#include "model/json_node.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/text.hpp"

namespace mla::json {

std::string Node::where() const {
  return path_.empty() ? origin_ : fmt::format("{}: {}", origin_, text::quoted(path_));
}

void Node::refuse(std::string_view sentence) const {
  throw Error(ErrorCode::kParse, fmt::format("{}{} {}", where(), path_.empty() ? ":" : "", sentence));
}

Node Node::member(std::string_view key, const Value& value) const {
  return {value, origin_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key)};
}

const Object& Node::object() const {
  const Object* object = value_->get_if<Object>();
  if (object == nullptr) refuse(fmt::format("is {}, but must be an object", describe(*value_)));
  return *object;
}

Node Node::at(std::string_view key) const {
  static_cast<void>(object());
  const Value* found = value_->find(key);
  if (found == nullptr) refuse(fmt::format("has no '{}'", key));
  return member(key, *found);
}

std::optional<Node> Node::find(std::string_view key) const {
  static_cast<void>(object());
  const Value* found = value_->find(key);
  if (found == nullptr || found->is_null()) return std::nullopt;
  return member(key, *found);
}

const std::string& Node::text() const {
  const auto* text = value_->get_if<std::string>();
  if (text == nullptr) refuse(fmt::format("is {}, but must be a text", describe(*value_)));
  return *text;
}

bool Node::flag() const {
  const bool* flag = value_->get_if<bool>();
  if (flag == nullptr) refuse(fmt::format("is {}, but must be true or false", describe(*value_)));
  return *flag;
}

double Node::number() const {
  if (const auto* integer = value_->get_if<std::int64_t>()) return static_cast<double>(*integer);
  const Real* real = value_->get_if<Real>();
  if (real == nullptr || !std::isfinite(real->value)) {
    refuse(fmt::format("is {}, but must be a number", describe(*value_)));
  }
  return real->value;
}

std::int64_t Node::count(std::int64_t least, std::int64_t most) const {
  const auto* integer = value_->get_if<std::int64_t>();
  if (integer == nullptr) refuse(fmt::format("is {}, but must be a whole number", describe(*value_)));
  if (*integer < least || *integer > most) {
    refuse(fmt::format("is {}, but must lie in {}..{}", *integer, least, most));
  }
  return *integer;
}

std::vector<Node> Node::items() const {
  const Array* array = value_->get_if<Array>();
  if (array == nullptr) refuse(fmt::format("is {}, but must be an array", describe(*value_)));
  std::vector<Node> nodes;
  for (std::size_t i = 0; i < array->size(); ++i)
    nodes.push_back(Node((*array)[i], origin_, fmt::format("{}[{}]", path_, i)));
  return nodes;
}

std::vector<std::pair<std::string, Node>> Node::members() const {
  std::vector<std::pair<std::string, Node>> members;
  for (const auto& [key, value] : object()) members.emplace_back(key, member(key, value));
  return members;
}

}  // namespace mla::json
