// SPDX-License-Identifier: Apache-2.0
#include "model/json_write.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace mla::json {
namespace {

std::string number_text(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = fmt::format("{}", value);
  // A double stays one for readers that tell 1.0 from 1.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

class Writer {
 public:
  explicit Writer(int indent) : indent_(indent) {}

  void write(const Value& value, int level) {
    if (const Array* array = value.get_if<Array>()) {
      list('[', ']', *array, level, [&](const Value& item) { write(item, level + 1); });
    } else if (const Object* object = value.get_if<Object>()) {
      list('{', '}', *object, level, [&](const Member& member) {
        text_ += quote_lossy(member.first);
        text_ += indent_ < 0 ? ":" : ": ";
        write(member.second, level + 1);
      });
    } else if (const auto* text = value.get_if<std::string>()) {
      text_ += quote_lossy(*text);
    } else if (const Real* real = value.get_if<Real>()) {
      text_ += number_text(real->value);
    } else {
      text_ += describe(value);  // null, true, false and whole numbers look the same in JSON
    }
  }

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  template <class Items, class Item>
  void list(char open, char close, const Items& items, int level, Item item) {
    text_ += open;
    bool first = true;
    for (const auto& one : items) {
      if (!first) text_ += ',';
      first = false;
      new_line(level + 1);
      item(one);
    }
    if (!first) new_line(level);
    text_ += close;
  }
  void new_line(int level) {
    if (indent_ < 0) return;
    text_ += '\n';
    text_.append(static_cast<std::size_t>(indent_ * level), ' ');
  }

  int indent_;
  std::string text_;
};

}  // namespace

void put(Object& object, std::string_view key, Value value) {
  const auto found =
      std::find_if(object.begin(), object.end(), [&](const Member& member) { return member.first == key; });
  if (found == object.end()) {
    object.emplace_back(key, std::move(value));
  } else {
    found->second = std::move(value);
  }
}

std::string dump(const Value& value, int indent) {
  Writer writer(indent);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace mla::json
