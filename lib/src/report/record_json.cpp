// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "mla/error.hpp"
#include "mla/shape.hpp"
#include "report/record_fields.hpp"

namespace mla::report {
namespace {

using Json = nlohmann::ordered_json;

/// Throws kParse: file, line, key and what was expected there.
[[noreturn]] void refuse(std::string_view where, std::string_view key, std::string_view expected) {
  throw Error(ErrorCode::kParse, fmt::format("{}: '{}' is not {}", where, key, expected));
}

std::int64_t read_integer(const Json& value, std::string_view key, std::string_view where) {
  // JSON knows no limits: an unsigned one past 2^63 would wrap.
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX});
  if (!fits) refuse(where, key, "a 64-bit integer");
  return value.get<std::int64_t>();
}

void put(Json& object, const std::string& key, const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) object[key] = *text;
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) object[key] = *integer;
  if (const auto* truth = std::get_if<bool>(&cell)) object[key] = *truth;
  if (const auto* real = std::get_if<double>(&cell); real != nullptr && std::isfinite(*real))
    object[key] = *real;
}

std::string line_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

void read_field(const Json& value, const RecordField& field, BenchRecord& record, std::string_view where) {
  if (const auto* text = std::get_if<std::string BenchRecord::*>(&field.member)) {
    if (!value.is_string()) refuse(where, field.column.key, "a text");
    record.** text = value.get<std::string>();
  } else if (const auto* integer = std::get_if<std::int64_t BenchRecord::*>(&field.member)) {
    if (!value.is_number_integer()) refuse(where, field.column.key, "an integer");
    record.** integer = value.get<std::int64_t>();
  } else {
    if (!value.is_number()) refuse(where, field.column.key, "a number");
    record.*std::get<std::optional<double> BenchRecord::*>(field.member) = value.get<double>();
  }
}

std::string read_text(const Json& object, const char* key, std::string_view where) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) refuse(where, key, "there as a text");
  return found->get<std::string>();
}

BenchRecord read_record(const Json& object, std::string_view where) {
  BenchRecord record;
  record.key = read_text(object, "key", where);
  try {
    static_cast<void>(parse_shape(record.key));
  } catch (const Error& error) {
    throw Error(ErrorCode::kParse, fmt::format("{}: 'key': {}", where, error.what()), error.hint());
  }
  for (const RecordField& field : record_fields()) {
    if (const auto found = object.find(field.column.key); found != object.end()) {
      read_field(*found, field, record, where);
    }
  }
  if (record.backend.empty()) refuse(where, "backend", "there as a text");
  if (record.status.empty()) refuse(where, "status", "there as a text");
  if (const auto found = object.find("flags"); found != object.end()) {
    if (!found->is_array()) refuse(where, "flags", "a list of texts");
    for (const Json& flag : *found) {
      if (!flag.is_string()) refuse(where, "flags", "a list of texts");
      record.flags.push_back(flag.get<std::string>());
    }
  }
  if (const auto found = object.find("samples_us"); found != object.end()) {
    if (!found->is_array()) refuse(where, "samples_us", "a list of numbers");
    for (const Json& sample : *found) {
      if (!sample.is_number()) refuse(where, "samples_us", "a list of numbers");
      record.samples_us.push_back(sample.get<double>());
    }
  }
  return record;
}

Environment read_environment(const Json& object, std::string_view where) {
  Environment environment;
  environment.id = read_text(object, "id", where);
  const auto facts = object.find("facts");
  if (facts == object.end() || !facts->is_object()) refuse(where, "facts", "there as an object");
  for (const auto& [key, value] : facts->items()) {
    Cell cell;
    if (value.is_string()) {
      cell = value.get<std::string>();
    } else if (value.is_boolean()) {
      cell = value.get<bool>();
    } else if (value.is_number_integer()) {
      cell = read_integer(value, key, where);
    } else if (value.is_number()) {
      cell = value.get<double>();
    } else {
      refuse(where, key, "a text, a number or a truth");
    }
    environment.facts.emplace_back(key, std::move(cell));
  }
  return environment;
}

void read_line(std::string_view text, std::string_view where, RunFile& run) {
  const Json object = Json::parse(text);
  if (!object.is_object()) refuse(where, "line", "an object");
  const auto version = object.find("schema_version");
  if (version == object.end()) refuse(where, "schema_version", "there as an integer");
  if (const std::int64_t schema = read_integer(*version, "schema_version", where); schema > kRecordSchema) {
    throw Error(ErrorCode::kParse,
                fmt::format("{}: schema version {} is newer than {}, the newest this program knows", where,
                            schema, kRecordSchema),
                "read it with the program that wrote it, or a newer one");
  }
  const std::string type = read_text(object, "type", where);
  if (type == "environment") {
    run.environments.push_back(read_environment(object, where));
  } else if (type == "point") {
    run.records.push_back(read_record(object, where));
  } else {
    refuse(where, "type", fmt::format("'environment' or 'point' (it is '{}')", type));
  }
}

}  // namespace

std::string to_json_line(const Environment& environment) {
  Json object = Json::object();
  object["schema_version"] = kRecordSchema;
  object["type"] = "environment";
  object["id"] = environment.id;
  Json facts = Json::object();
  for (const auto& [key, value] : environment.facts) put(facts, key, value);
  object["facts"] = std::move(facts);
  return line_of(object);
}

std::string to_json_line(const BenchRecord& record) {
  Json object = Json::object();
  object["schema_version"] = kRecordSchema;
  object["type"] = "point";
  object["key"] = record.key;
  for (const RecordField& field : record_fields()) put(object, field.column.key, get(record, field));
  if (!record.flags.empty()) object["flags"] = record.flags;
  Json samples = Json::array();
  for (const double sample : record.samples_us) {
    if (std::isfinite(sample)) samples.push_back(sample);
  }
  if (!samples.empty()) object["samples_us"] = std::move(samples);
  return line_of(object);
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
    try {
      read_line(body, where, run);
    } catch (const nlohmann::json::exception& error) {
      // A crash in the middle of a write can only cut the last line, and then it has no line end.
      if (end < text.size())
        throw Error(ErrorCode::kParse, fmt::format("{}: not JSON ({})", where, error.what()));
      run.warnings.push_back(fmt::format("{} is cut off and was left out", where));
    }
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
