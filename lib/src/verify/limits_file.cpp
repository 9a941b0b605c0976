// SPDX-License-Identifier: Apache-2.0
#include "verify/limits_file.hpp"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "core/text.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"

namespace mla::verify {
namespace {

using Json = nlohmann::json;

struct Key {
  const char* name;
  double Limits::*value;
};
constexpr Key kKeys[] = {{"sigmas", &Limits::sigmas},         {"score_units", &Limits::score_units},
                         {"sum_base", &Limits::sum_base},     {"sum_per_key", &Limits::sum_per_key},
                         {"bias_floor", &Limits::bias_floor}, {"bias_sigmas", &Limits::bias_sigmas}};
constexpr const char* kSamples = "bias_samples";

[[noreturn]] void refuse(std::string_view origin, const std::string& sentence) {
  throw Error(ErrorCode::kParse, fmt::format("{}: {}", origin, sentence));
}

double number(const Json& json, const char* key, std::string_view origin) {
  const auto it = json.find(key);
  if (it == json.end()) refuse(origin, fmt::format("'{}' is missing", key));
  if (!it->is_number()) refuse(origin, fmt::format("'{}' is no number", key));
  const auto value = it->get<double>();
  if (!(value > 0 && value < 1e6))
    refuse(origin, fmt::format("'{}' is {}, but must lie in 0..1e6", key, value));
  return value;
}

void refuse_unknown(const Json& json, std::string_view origin) {
  std::vector<std::string> known{"$schema", "schema_version", kSamples};
  for (const Key& key : kKeys) known.emplace_back(key.name);
  for (const auto& [name, value] : json.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(ErrorCode::kParse, fmt::format("{}: '{}' is unknown", origin, name),
                  text::suggestion(name, known));
  }
}

Limits read_limits() {
  for (const std::filesystem::path& dir : config_dirs()) {
    const std::filesystem::path path = dir / "verify" / "limits.json";
    std::ifstream in(path, std::ios::binary);
    if (!in) continue;
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    return parse_limits(text, path.string());
  }
  throw Error(ErrorCode::kIo, "no config folder has verify/limits.json, the constants of judgement",
              "--config-dir or MLA_CONFIG_DIR names the folder");
}

}  // namespace

Limits parse_limits(std::string_view text, std::string_view origin) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& e) {
    refuse(origin, fmt::format("not valid JSON: {}", e.what()));
  }
  if (!json.is_object()) refuse(origin, "must be one JSON object");
  refuse_unknown(json, origin);
  if (number(json, "schema_version", origin) != 1) refuse(origin, "schema_version must be 1");
  Limits limits;
  for (const Key& key : kKeys) limits.*key.value = number(json, key.name, origin);
  const double samples = number(json, kSamples, origin);
  if (samples < 2 || samples != std::floor(samples))
    refuse(origin, fmt::format("'{}' must be a whole number >= 2", kSamples));
  limits.bias_samples = static_cast<int>(samples);
  return limits;
}

const Limits& active_limits() {
  static const Limits limits = read_limits();
  return limits;
}

}  // namespace mla::verify
