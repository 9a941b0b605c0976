// SPDX-License-Identifier: Apache-2.0
#include "model/fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.hpp"

namespace mla {
namespace {

std::string shown(std::int64_t value) {
  return fmt::format("{}", value);
}
std::string shown(double value) {
  return fmt::format("{}", value);
}
std::string shown(bool value) {
  return value ? "true" : "false";
}
std::string shown(const std::string& value) {
  return value;
}

}  // namespace

Fields::Fields(const json::Value& object, std::string origin, std::string prefix,
               std::vector<FieldNote>* notes)
    : object_(&object), origin_(std::move(origin)), prefix_(std::move(prefix)), notes_(notes) {
  if (object.get_if<json::Object>() == nullptr) {
    throw Error(ErrorCode::kParse,
                fmt::format("{}: {} must be an object, but is {}", origin_,
                            prefix_.empty() ? "the file" : prefix_, json::describe(object)));
  }
}

bool Fields::has(std::string_view key) const noexcept {
  const json::Value* value = object_->find(key);
  return value != nullptr && !value->is_null();
}

bool Fields::has_any(Keys keys) const noexcept {
  return std::any_of(keys.begin(), keys.end(), [&](std::string_view key) { return has(key); });
}

std::string Fields::path(std::string_view key) const {
  return prefix_.empty() ? std::string(key) : fmt::format("{}.{}", prefix_, key);
}

void Fields::wrong(std::string_view key, std::string_view allowed) const {
  const json::Value* value = object_->find(key);
  throw Error(ErrorCode::kParse, fmt::format("{}: {} must be {}, but is {}", origin_, path(key), allowed,
                                             value == nullptr ? "missing" : json::describe(*value)));
}

void Fields::missing(Keys keys, std::string_view why) const {
  const auto null_key =
      std::find_if(keys.begin(), keys.end(), [&](std::string_view key) { return present(key); });
  const std::string state = null_key != keys.end() ? fmt::format("{} is null", path(*null_key))
                                                   : fmt::format("{} is missing", path(*keys.begin()));
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}: {}{}{}", origin_, state,
                          why.empty() ? ", and nothing says what it would be" : ": ", why));
}

template <class T, class Read>
std::optional<T> Fields::first(std::string_view ours, Keys keys, Read read) const {
  std::optional<T> found;
  std::string_view found_key, null_key;
  for (const std::string_view key : keys) {
    const json::Value* value = object_->find(key);
    if (value == nullptr) continue;
    if (value->is_null()) {
      null_key = key;
      continue;
    }
    const T next = read(key, *value);
    if (found && *found != next) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: {} is {}, but {} is {}: they name the same thing", origin_,
                              path(found_key), shown(*found), path(key), shown(next)));
    }
    if (!found) {
      found = next;
      found_key = key;
    }
  }
  if (found) {
    note(ours, shown(*found), path(found_key));
  } else if (!null_key.empty()) {
    note(ours, "null", path(null_key));
  }
  return found;
}

std::int64_t Fields::to_integer(std::string_view key, const json::Value& value, Range range) const {
  const std::int64_t* integer = value.get_if<std::int64_t>();
  if (integer == nullptr || *integer < range.low || *integer > range.high) {
    throw Error(ErrorCode::kParse,
                fmt::format("{}: {} must be a whole number from {} to {}, but is {}", origin_, path(key),
                            range.low, range.high, json::describe(value)));
  }
  return *integer;
}

std::optional<std::int64_t> Fields::integer(std::string_view ours, Keys keys, Range range) const {
  return first<std::int64_t>(ours, keys, [&](std::string_view key, const json::Value& value) {
    return to_integer(key, value, range);
  });
}

std::optional<double> Fields::real(std::string_view ours, Keys keys, double low, double high) const {
  return first<double>(ours, keys, [&](std::string_view key, const json::Value& value) {
    double number = NAN;
    if (const auto* integer = value.get_if<std::int64_t>()) number = static_cast<double>(*integer);
    if (const auto* written = value.get_if<json::Real>()) number = written->value;
    if (!(number >= low && number <= high)) wrong(key, fmt::format("a number from {} to {}", low, high));
    return number;
  });
}

std::optional<bool> Fields::boolean(std::string_view ours, Keys keys) const {
  return first<bool>(ours, keys, [&](std::string_view key, const json::Value& value) {
    const bool* flag = value.get_if<bool>();
    if (flag == nullptr) wrong(key, "true or false");
    return *flag;
  });
}

std::optional<std::string> Fields::string(std::string_view ours, Keys keys) const {
  return first<std::string>(ours, keys, [&](std::string_view key, const json::Value& value) {
    const std::string* word = value.get_if<std::string>();
    if (word == nullptr) wrong(key, "a text in quotes");
    return *word;
  });
}

int Fields::required(std::string_view ours, Keys keys, Range range, std::string_view why) const {
  const std::optional<std::int64_t> value = integer(ours, keys, range);
  if (!value) missing(keys, why);
  return static_cast<int>(*value);
}

std::string Fields::required_string(std::string_view ours, Keys keys) const {
  std::optional<std::string> value = string(ours, keys);
  if (!value || value->empty()) missing(keys, "every file must have it, and not empty");
  return *value;
}

int Fields::integer_or(std::string_view ours, Keys keys, Range range, int fallback,
                       std::string_view from) const {
  const std::optional<std::int64_t> value = integer(ours, keys, range);
  if (value) return static_cast<int>(*value);
  note(ours, shown(std::int64_t{fallback}), std::string(from));
  return fallback;
}

bool Fields::boolean_or(std::string_view ours, Keys keys, bool fallback) const {
  return boolean(ours, keys).value_or(fallback);
}

std::vector<std::int64_t> Fields::integers(std::string_view key, Range range) const {
  std::vector<std::int64_t> numbers;
  if (!has(key)) return numbers;
  const json::Array* array = object_->find(key)->get_if<json::Array>();
  if (array == nullptr) wrong(key, "a list of whole numbers");
  for (std::size_t i = 0; i < array->size(); ++i) {
    numbers.push_back(to_integer(fmt::format("{}[{}]", key, i), (*array)[i], range));
  }
  return numbers;
}

std::vector<std::string> Fields::strings(std::string_view key) const {
  std::vector<std::string> words;
  if (!has(key)) return words;
  const json::Array* array = object_->find(key)->get_if<json::Array>();
  if (array == nullptr) wrong(key, "a list of texts");
  for (const json::Value& item : *array) {
    const std::string* word = item.get_if<std::string>();
    if (word == nullptr) wrong(key, fmt::format("a list of texts without {}", json::describe(item)));
    words.push_back(*word);
  }
  return words;
}

std::optional<Fields> Fields::nested(std::string_view key) const {
  if (!has(key)) return std::nullopt;
  return Fields(*object_->find(key), origin_, path(key), notes_);
}

void Fields::note(std::string_view field, std::string value, std::string from) const {
  if (notes_ == nullptr) return;
  // Values come straight out of a stranger's file and are printed later.
  if (value.size() > 80) value = value.substr(0, 77) + "...";
  // Some fields are asked for by several topics.
  const bool known = std::any_of(notes_->begin(), notes_->end(), [&](const FieldNote& old) {
    return old.field == field && old.value == value && old.from == from;
  });
  if (!known) notes_->push_back({std::string(field), std::move(value), std::move(from)});
}

void Fields::refuse_unknown(std::span<const std::string> known) const {
  for (const auto& [key, value] : *object_->get_if<json::Object>()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw Error(ErrorCode::kParse,
                fmt::format("{}: {} is not a key of this file", origin_, text::quoted(path(key))),
                text::suggestion(key, known));
  }
}

}  // namespace mla
