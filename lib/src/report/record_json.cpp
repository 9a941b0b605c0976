// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <optional>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/shape.hpp"
#include "model/json_write.hpp"
#include "report/record_fields.hpp"

namespace mla::report {
namespace {

/// Throws kParse: file, line, key and what was expected there.
[[noreturn]] void refuse(std::string_view where, std::string_view key, std::string_view expected) {
  throw Error(ErrorCode::kParse, fmt::format("{}: '{}' is not {}", where, key, expected));
}

void put(json::Object& object, const std::string& key, const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) json::put(object, key, json::to_value(*text));
  if (const auto* integer = std::get_if<std::int64_t>(&cell))
    json::put(object, key, json::to_value(*integer));
  if (const auto* truth = std::get_if<bool>(&cell)) json::put(object, key, json::to_value(*truth));
  if (const auto* real = std::get_if<double>(&cell); real != nullptr && std::isfinite(*real))
    json::put(object, key, json::to_value(*real));
}

/// Integers are numbers too.
std::optional<double> number_of(const json::Value& value) {
  if (const auto* integer = value.get_if<std::int64_t>()) return static_cast<double>(*integer);
  if (const auto* real = value.get_if<json::Real>(); real != nullptr && std::isfinite(real->value))
    return real->value;
  return std::nullopt;
}

void read_field(const json::Value& value, const RecordField& field, BenchRecord& record,
                std::string_view where) {
  if (const auto* text = std::get_if<std::string BenchRecord::*>(&field.member)) {
    const auto* found = value.get_if<std::string>();
    if (found == nullptr) refuse(where, field.column.key, "a text");
    record.** text = *found;
  } else if (const auto* integer = std::get_if<std::int64_t BenchRecord::*>(&field.member)) {
    const auto* found = value.get_if<std::int64_t>();
    if (found == nullptr) refuse(where, field.column.key, "a 64-bit integer");
    record.** integer = *found;
  } else {
    const std::optional<double> found = number_of(value);
    if (!found) refuse(where, field.column.key, "a number");
    record.*std::get<std::optional<double> BenchRecord::*>(field.member) = found;
  }
}

template <class T>
const T& member(const json::Value& object, const char* key, std::string_view expected,
                std::string_view where) {
  const json::Value* found = object.find(key);
  const T* value = found == nullptr ? nullptr : found->get_if<T>();
  if (value == nullptr) refuse(where, key, expected);
  return *value;
}

BenchRecord read_record(const json::Value& object, std::string_view where) {
  BenchRecord record;
  record.key = member<std::string>(object, "key", "there as a text", where);
  try {
    static_cast<void>(parse_shape(record.key));
  } catch (const Error& error) {
    throw Error(ErrorCode::kParse, fmt::format("{}: 'key': {}", where, error.what()), error.hint());
  }
  for (const RecordField& field : record_fields()) {
    if (const json::Value* found = object.find(field.column.key)) read_field(*found, field, record, where);
  }
  if (record.backend.empty()) refuse(where, "backend", "there as a text");
  if (record.status.empty()) refuse(where, "status", "there as a text");
  if (object.find("flags") != nullptr) {
    for (const json::Value& flag : member<json::Array>(object, "flags", "a list of texts", where)) {
      const auto* text = flag.get_if<std::string>();
      if (text == nullptr) refuse(where, "flags", "a list of texts");
      record.flags.push_back(*text);
    }
  }
  if (object.find("samples_us") != nullptr) {
    for (const json::Value& sample : member<json::Array>(object, "samples_us", "a list of numbers", where)) {
      const std::optional<double> number = number_of(sample);
      if (!number) refuse(where, "samples_us", "a list of numbers");
      record.samples_us.push_back(*number);
    }
  }
  return record;
}

Environment read_environment(const json::Value& object, std::string_view where) {
  Environment environment;
  environment.id = member<std::string>(object, "id", "there as a text", where);
  for (const auto& [key, value] : member<json::Object>(object, "facts", "there as an object", where)) {
    Cell cell;
    if (const auto* text = value.get_if<std::string>()) {
      cell = *text;
    } else if (const auto* truth = value.get_if<bool>()) {
      cell = *truth;
    } else if (const auto* integer = value.get_if<std::int64_t>()) {
      cell = *integer;
    } else if (const std::optional<double> real = number_of(value)) {
      cell = *real;
    } else {
      refuse(where, key, "a text, a number or a truth");
    }
    environment.facts.emplace_back(key, std::move(cell));
  }
  return environment;
}

void read_line(const json::Value& object, std::string_view where, RunFile& run) {
  const auto schema = member<std::int64_t>(object, "schema_version", "there as an integer", where);
  if (schema > kRecordSchema) {
    throw Error(ErrorCode::kParse,
                fmt::format("{}: schema version {} is newer than {}, the newest this program knows", where,
                            schema, kRecordSchema),
                "read it with the program that wrote it, or a newer one");
  }
  const auto& type = member<std::string>(object, "type", "there as a text", where);
  if (type == "environment") {
    run.environments.push_back(read_environment(object, where));
  } else if (type == "point") {
    run.records.push_back(read_record(object, where));
  } else {
    refuse(where, "type", fmt::format("'environment' or 'point' (it is {})", text::quoted(type)));
  }
}

}  // namespace

std::string to_json_line(const Environment& environment) {
  json::Object facts;
  for (const auto& [key, value] : environment.facts) put(facts, key, value);
  const json::Object object{{"schema_version", json::to_value(kRecordSchema)},
                            {"type", json::to_value("environment")},
                            {"id", json::to_value(environment.id)},
                            {"facts", json::Value(std::move(facts))}};
  return json::dump(json::Value(object)) + '\n';
}

std::string to_json_line(const BenchRecord& record) {
  json::Object object{{"schema_version", json::to_value(kRecordSchema)},
                      {"type", json::to_value("point")},
                      {"key", json::to_value(record.key)}};
  for (const RecordField& field : record_fields()) put(object, field.column.key, get(record, field));
  if (!record.flags.empty()) json::put(object, "flags", json::to_value(record.flags));
  std::vector<double> samples = record.samples_us;
  std::erase_if(samples, [](double sample) { return !std::isfinite(sample); });
  if (!samples.empty()) json::put(object, "samples_us", json::to_value(samples));
  return json::dump(json::Value(std::move(object))) + '\n';
}

RunFile parse_run(std::string_view text, std::string_view origin) {
  RunFile run;
  run.path = std::string(origin);
  int line = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string where = fmt::format("{} line {}", origin, ++line);
    const std::string_view body = text.substr(at, end - at);
    at = end + 1;
    if (body.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    json::Value value;
    try {
      value = json::parse(body, where);
    } catch (const Error&) {
      // A crash in the middle of a write can only cut the last line, and then it has no line end.
      if (end < text.size()) throw;
      run.warnings.push_back(fmt::format("{} is cut off and was left out", where));
      continue;
    }
    read_line(value, where, run);
  }
  return run;
}

RunFile read_run(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream.is_open() || stream.bad() || std::filesystem::is_directory(file)) {
    throw Error(ErrorCode::kIo, fmt::format("cannot read '{}'", file.string()));
  }
  return parse_run(text, file.string());
}

}  // namespace mla::report
