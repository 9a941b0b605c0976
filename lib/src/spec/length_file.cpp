// SPDX-License-Identifier: Apache-2.0
#include "spec/length_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla::spec {
namespace {

/// What a column may be called, alone or as num_X, X_len, X_length or X_tokens.
using Names = std::array<std::string_view, 5>;
constexpr Names kPrompt{"prompt", "input", "context", "prefill", "request"};
constexpr Names kOutput{"output", "completion", "generated", "decode", "response"};
constexpr const char* kAccepted =
    "columns are called prompt, input, context, prefill or request, and output, completion, generated, "
    "decode or "
    "response; also as num_X, X_len, X_length or X_tokens, in any case, with _, - or blanks";
constexpr std::int64_t kMostTokens = std::int64_t{1} << 32;

[[noreturn]] void wrong(
    std::string_view origin, int line, const std::string& what,
    const char* hint =
        "a request is two numbers (prompt, output) or a JSON object with prompt_len and output_len") {
  throw Error(ErrorCode::kParse, fmt::format("{}, line {}: {}", origin, line, what), hint);
}

/// How surely `column` is meant: 2 for a name with num_, _len, _length or _tokens, 1 for the bare word (which may also
/// be a text), 0 if it is none of `names`. A bare "request" is more often its number.
int certainty(std::string_view column, const Names& names) {
  std::string word;
  for (const char c : text::to_lower(column)) {
    if (c != '_' && c != '-' && c != ' ') word += c;
  }
  int affixes = 0;
  if (word.starts_with("num")) {
    word.erase(0, 3);
    ++affixes;
  }
  for (const std::string_view suffix : {"tokens", "token", "length", "len"}) {
    if (!word.ends_with(suffix)) continue;
    word.resize(word.size() - suffix.size());
    ++affixes;
    break;
  }
  if (std::ranges::find(names, std::string_view(word)) == names.end()) return 0;
  if (affixes == 0 && word == "request") return 0;
  return affixes > 0 ? 2 : 1;
}

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> columns;
  const bool comma = line.find(',') != std::string_view::npos;
  const std::string_view separators = comma ? "," : " \t";
  while (!line.empty()) {
    const std::size_t end = line.find_first_of(separators);
    std::string_view column = line.substr(0, end);
    while (!column.empty() && (column.front() == ' ' || column.front() == '"')) column.remove_prefix(1);
    while (!column.empty() && (column.back() == ' ' || column.back() == '"' || column.back() == '\r')) {
      column.remove_suffix(1);
    }
    if (comma || !column.empty()) columns.push_back(column);
    if (end == std::string_view::npos) break;
    line.remove_prefix(end + 1);
  }
  return columns;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::int64_t length_of(std::string_view text, std::string_view origin, int line) {
  const std::optional<std::int64_t> value = whole_number(text);
  if (!value || *value < 0 || *value > kMostTokens) {
    wrong(origin, line,
          fmt::format("{} is not a number of tokens from 0 to {}", text::quoted(text), kMostTokens));
  }
  return *value;
}

template <class Json>
std::int64_t member_of(const Json& object, const Names& names, std::string_view origin, int line) {
  for (const auto& [key, value] : object.items()) {
    const int sure = certainty(key, names);
    if (sure == 0 || (sure == 1 && !value.is_number())) continue;  // "prompt": its text
    if (!value.is_number_integer()) wrong(origin, line, fmt::format("\"{}\" is not a whole number", key));
    const auto tokens = value.template get<std::int64_t>();
    if (tokens < 0 || tokens > kMostTokens) wrong(origin, line, fmt::format("\"{}\" is {}", key, tokens));
    return tokens;
  }
  std::vector<std::string> words;
  for (const std::string_view name : names) words.push_back(fmt::format("{}_len", name));
  wrong(origin, line, fmt::format("none of {} is there", text::join_or(words)), kAccepted);
}

capacity::RequestLengths from_json(std::string_view line_text, std::string_view origin, int line) {
  try {
    const auto object = nlohmann::json::parse(line_text);
    if (!object.is_object()) wrong(origin, line, "not a JSON object");
    return {member_of(object, kPrompt, origin, line), member_of(object, kOutput, origin, line)};
  } catch (const nlohmann::json::exception&) {
    wrong(origin, line, "not a whole JSON object");
  }
}

/// A whole file that is one array of objects or of pairs.
std::vector<capacity::RequestLengths> from_array(std::string_view text, std::string_view origin) {
  const auto bad = [&](const std::string& what) {
    throw Error(ErrorCode::kParse, fmt::format("{}: {}", origin, what),
                "an array holds objects with prompt_len and output_len, or pairs of numbers");
  };
  nlohmann::json array;
  try {
    array = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception&) {
    bad("begins with [, but is not a whole JSON array");
  }
  std::vector<capacity::RequestLengths> trace;
  int number = 0;
  for (const nlohmann::json& one : array) {
    ++number;
    if (one.is_object()) {
      trace.push_back({member_of(one, kPrompt, origin, number), member_of(one, kOutput, origin, number)});
      continue;
    }
    const bool pair =
        one.is_array() && one.size() == 2 && one[0].is_number_integer() && one[1].is_number_integer();
    if (!pair) bad(fmt::format("request {} is neither an object nor a pair of whole numbers", number));
    const auto prompt = one[0].get<std::int64_t>();
    const auto output = one[1].get<std::int64_t>();
    if (prompt < 0 || output < 0 || prompt > kMostTokens || output > kMostTokens) {
      bad(fmt::format("request {} has {} and {} tokens; 0 to {} are allowed", number, prompt, output,
                      kMostTokens));
    }
    trace.push_back({prompt, output});
  }
  if (trace.empty()) throw Error(ErrorCode::kParse, fmt::format("{} holds no request", origin));
  return trace;
}

/// Which columns hold the two lengths: as a heading says, else the first two.
struct Columns {
  std::size_t prompt = 0, output = 1;
};

std::optional<Columns> heading(const std::vector<std::string_view>& columns) {
  const auto column_of = [&](const Names& names) -> std::optional<std::size_t> {
    std::optional<std::size_t> best;
    int most = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const int sure = certainty(columns[i], names);
      if (sure <= most) continue;
      most = sure;
      best = i;
    }
    return best;
  };
  const std::optional<std::size_t> prompt = column_of(kPrompt);
  const std::optional<std::size_t> output = column_of(kOutput);
  if (prompt && output) return Columns{*prompt, *output};
  return std::nullopt;
}

/// Whether somebody meant a number, even one that is no count of tokens: 1.5, -3, nan, 1e9, a date.
bool meant_as_number(std::string_view column) {
  const std::string word = text::to_lower(column);
  const std::size_t sign = word.starts_with('-') || word.starts_with('+') ? 1 : 0;
  const std::string_view rest = std::string_view(word).substr(sign);
  return rest == "nan" || rest.starts_with("inf") ||
         (!rest.empty() && (rest[0] == '.' || (rest[0] >= '0' && rest[0] <= '9')));
}

}  // namespace

std::vector<capacity::RequestLengths> parse_lengths(std::string_view text, std::string_view origin) {
  constexpr std::size_t kMostRequests = 20000000;
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text[begin] == '[') return from_array(text, origin);
  std::vector<capacity::RequestLengths> trace;
  Columns where;
  int number = 0;
  bool first = true;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    if (line.front() == '{') {
      trace.push_back(from_json(line, origin, number));
      first = false;
      continue;
    }
    const std::vector<std::string_view> columns = columns_of(line);
    if (first && !columns.empty() && !whole_number(columns.front())) {
      first = false;
      const std::optional<Columns> named = heading(columns);
      if (named) {
        where = *named;
        continue;
      }
      if (std::ranges::none_of(columns, meant_as_number)) {
        wrong(origin, number,
              fmt::format("{} names no column of prompt and output lengths", text::quoted(line)), kAccepted);
      }
    }
    first = false;
    if (columns.size() <= std::max(where.prompt, where.output)) {
      wrong(origin, number, fmt::format("{} has too few columns", text::quoted(line)));
    }
    trace.push_back(
        {length_of(columns[where.prompt], origin, number), length_of(columns[where.output], origin, number)});
    if (trace.size() > kMostRequests)
      wrong(origin, number, fmt::format("more than {} requests", kMostRequests));
  }
  if (trace.empty()) throw Error(ErrorCode::kParse, fmt::format("{} holds no request", origin));
  return trace;
}

}  // namespace mla::spec
