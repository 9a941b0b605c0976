// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/text.hpp"
#include "model/json_value.hpp"

namespace mla::json {
namespace {

// Stands before NaN, Infinity and -Infinity where they were rewritten as strings. A file that spells the mark
// itself as "\u0001..." gains nothing by it: the result is a number no field accepts.
constexpr char kMark = '\x01';

// Python's json writes NaN and Infinity bare, and real config.json files have them (Nemotron-H:
// time_step_limit). JSON has no such words, so they are passed through the parser as marked strings. Nothing
// if there is none.
std::optional<std::string> mark_non_finite(std::string_view text) {
  if (text.find("NaN") == std::string_view::npos && text.find("Infinity") == std::string_view::npos) {
    return std::nullopt;
  }
  std::string marked;
  marked.reserve(text.size() + 64);
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      marked += text[i++];
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      const auto word = [&]() -> std::string_view {
        for (const std::string_view candidate : {"NaN", "Infinity", "-Infinity"}) {
          if (text.substr(i, candidate.size()) == candidate) return candidate;
        }
        return {};
      }();
      if (!word.empty()) {
        marked += fmt::format("\"\\u0001{}\"", word);
        i += word.size() - 1;
        continue;
      }
    }
    marked += text[i];
  }
  return marked;
}

// "line 3, column 7" of the last byte the parser read, `bytes_read` of them in all.
std::string place(std::string_view text, std::size_t bytes_read) {
  const std::string_view before =
      text.substr(0, std::min(std::max<std::size_t>(bytes_read, 1) - 1, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
  return fmt::format("line {}, column {}", line, before.size() - start + 1);
}

// The parser's own words without its prefix, and without the offending token at full length.
std::string reason_of(std::string_view what) {
  const std::size_t dash = what.find(" - ");
  std::string_view reason =
      dash == std::string_view::npos ? what.substr(what.rfind(']') + 1) : what.substr(dash + 3);
  const std::size_t token = reason.find("; last read: '");
  const std::string_view head = reason.substr(0, token);
  std::string shown(head.substr(0, 120));
  if (token != std::string_view::npos) {
    shown += fmt::format(" near {}", text::quoted(reason.substr(token + 14, 40)));
  }
  return shown;
}

class Builder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  Builder(std::string_view text, std::string_view origin, const ParseOptions& options)
      : text_(text), origin_(origin), options_(options) {}

  bool null() { return add(Value(Null{})); }
  bool boolean(bool value) { return add(Value(value)); }
  bool number_integer(number_integer_t value) { return add(Value(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) {
    if (value <= static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return add(Value(static_cast<std::int64_t>(value)));
    }
    return add(Value(Real{static_cast<double>(value), fmt::format("{}", value)}));
  }
  bool number_float(number_float_t value, const string_t& literal) {
    return add(Value(Real{value, literal}));
  }
  bool string(string_t& value) {
    if (!value.empty() && value.front() == kMark) {
      return add(Value(Real{std::numeric_limits<double>::quiet_NaN(), value.substr(1)}));
    }
    return add(Value(std::move(value)));
  }
  bool binary(binary_t& /*value*/) { return false; }

  bool start_object(std::size_t /*unknown*/) { return open(Value(Object{})); }
  bool start_array(std::size_t /*unknown*/) { return open(Value(Array{})); }
  bool key(string_t& value) {
    levels_.back().key = std::move(value);
    return true;
  }
  bool end_object() {
    refuse_duplicates(*levels_.back().value.get_if<Object>());
    return close();
  }
  bool end_array() { return close(); }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) {
    const bool ends = position > text_.size();
    throw Error(ErrorCode::kParse,
                fmt::format("{}: not valid JSON at {}{}: {}", origin_, place(text_, position), inside(),
                            text_.empty() ? "it is empty"
                            : ends        ? "it ends here, as if it had been cut off"
                                          : reason_of(error.what())));
  }

  Value take() { return std::move(result_); }

 private:
  struct Level {
    Value value;
    std::string key;
  };

  bool add(Value value) {
    if (++values_ > options_.max_values) {
      throw Error(ErrorCode::kParse,
                  fmt::format("{}: more than {} values{}", origin_, options_.max_values, inside()));
    }
    if (levels_.empty()) {
      result_ = std::move(value);
    } else if (Object* object = levels_.back().value.get_if<Object>()) {
      object->emplace_back(std::move(levels_.back().key), std::move(value));
      levels_.back().key.clear();
    } else {
      levels_.back().value.get_if<Array>()->push_back(std::move(value));
    }
    return true;
  }

  bool open(Value value) {
    if (levels_.size() >= options_.max_depth) {
      throw Error(ErrorCode::kParse,
                  fmt::format("{}: nested deeper than {} levels{}", origin_, options_.max_depth, inside()));
    }
    levels_.push_back({std::move(value), {}});
    return true;
  }

  bool close() {
    Value value = std::move(levels_.back().value);
    levels_.pop_back();
    return add(std::move(value));
  }

  void refuse_duplicates(const Object& object) const {
    std::vector<std::string_view> keys;
    keys.reserve(object.size());
    for (const Member& member : object) keys.emplace_back(member.first);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice == keys.end()) return;
    throw Error(ErrorCode::kParse,
                fmt::format("{}: the key {} is given twice{}", origin_, text::quoted(*twice), inside(1)),
                "keep one of them: readers disagree on which would count");
  }

  // " in text_config.rope_scaling", the objects open now but for the last `closed` of them.
  std::string inside(std::size_t closed = 0) const {
    std::string path;
    for (std::size_t i = 0; i + closed < levels_.size(); ++i) {
      if (!levels_[i].key.empty()) path += (path.empty() ? "" : ".") + levels_[i].key;
    }
    return path.empty() ? path : fmt::format(" in {}", text::quoted(path));
  }

  std::string_view text_, origin_;
  ParseOptions options_;
  std::vector<Level> levels_;
  std::size_t values_ = 0;
  Value result_;
};

}  // namespace

const Value* Value::find(std::string_view key) const noexcept {
  const Object* object = get_if<Object>();
  if (object == nullptr) return nullptr;
  const auto found =
      std::find_if(object->begin(), object->end(), [&](const Member& member) { return member.first == key; });
  return found == object->end() ? nullptr : &found->second;
}

std::string describe(const Value& value) {
  if (value.is_null()) return "null";
  if (const bool* flag = value.get_if<bool>()) return *flag ? "true" : "false";
  if (const auto* integer = value.get_if<std::int64_t>()) return fmt::format("{}", *integer);
  if (const Real* real = value.get_if<Real>()) return real->text.substr(0, 40);
  if (const std::string* word = value.get_if<std::string>()) return text::quoted(*word);
  if (const Array* array = value.get_if<Array>()) return fmt::format("an array of {}", array->size());
  return "an object";
}

std::string quote(std::string_view text) {
  try {
    return nlohmann::json(std::string(text)).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is not UTF-8", text::quoted(text)));
  }
}

Value parse(std::string_view text, std::string_view origin, const ParseOptions& options) {
  // Comments may hold quotes, which the word scan would take for strings; files with comments are ours and
  // finite.
  const std::optional<std::string> marked = options.comments ? std::nullopt : mark_non_finite(text);
  if (marked) text = *marked;
  Builder builder(text, origin, options);
  // Every failure throws from the builder, so the result of sax_parse says nothing more.
  static_cast<void>(nlohmann::json::sax_parse(text.begin(), text.end(), &builder,
                                              nlohmann::json::input_format_t::json,
                                              /*strict=*/true, options.comments));
  return builder.take();
}

}  // namespace mla::json
