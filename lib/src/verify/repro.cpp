// SPDX-License-Identifier: Apache-2.0
#include "verify/repro.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mla/error.hpp"

namespace mla::verify {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json, const char* key, std::string_view origin) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_string()) {
    throw Error(ErrorCode::kParse, fmt::format("{}: '{}' must be a text", origin, key));
  }
  return it->get<std::string>();
}

Case case_of(const Json& json, const char* key, std::string_view origin) {
  try {
    Case c = parse_case(text_of(json, key, origin));
    validate(c);
    return c;
  } catch (const Error& e) {
    throw Error(ErrorCode::kParse, fmt::format("{}: {}: {}", origin, key, e.what()), e.hint());
  }
}

std::vector<std::string> plugins_of(const Json& json, std::string_view origin) {
  const auto it = json.find("plugins");
  if (it == json.end()) return {};
  try {
    return it->get<std::vector<std::string>>();
  } catch (const Json::exception&) {
    throw Error(ErrorCode::kParse, fmt::format("{}: 'plugins' must be a list of texts", origin));
  }
}

}  // namespace

std::string to_json(const Repro& repro, std::string_view file) {
  Json json{{"schema_version", 1},
            {"kind", "verify.repro"},
            {"backend", repro.backend},
            {"oracle", repro.oracle},
            {"case", to_text(repro.c)},
            {"found_as", to_text(repro.found_as)},
            {"failure", name_of(repro.failure)},
            {"finding", repro.finding},
            {"version", repro.version},
            {"command", fmt::format("mla-verify run --replay {}", file)}};
  if (!repro.plugins.empty()) json["plugins"] = repro.plugins;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Repro parse_repro(std::string_view text, std::string_view origin) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::kParse, fmt::format("{}: not valid JSON: {}", origin, e.what()));
  }
  if (!json.is_object()) throw Error(ErrorCode::kParse, fmt::format("{}: must be one JSON object", origin));
  if (text_of(json, "kind", origin) != "verify.repro") {
    throw Error(ErrorCode::kParse, fmt::format("{}: kind is not verify.repro", origin));
  }
  Failure failure = Failure::kNone;
  try {
    failure = parse_failure(text_of(json, "failure", origin));
  } catch (const Error& e) {
    throw Error(ErrorCode::kParse, fmt::format("{}: {}", origin, e.what()));
  }
  return {text_of(json, "backend", origin),
          text_of(json, "oracle", origin),
          case_of(json, "case", origin),
          case_of(json, "found_as", origin),
          failure,
          text_of(json, "finding", origin),
          text_of(json, "version", origin),
          plugins_of(json, origin)};
}

}  // namespace mla::verify
