// SPDX-License-Identifier: Apache-2.0
#include "verify/limits_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "core/text.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "model/json_node.hpp"

namespace mla::verify {
namespace {

struct Key {
  const char* name;
  double Limits::*value;
};
constexpr Key kKeys[] = {{"sigmas", &Limits::sigmas},         {"score_units", &Limits::score_units},
                         {"sum_base", &Limits::sum_base},     {"sum_per_key", &Limits::sum_per_key},
                         {"bias_floor", &Limits::bias_floor}, {"bias_sigmas", &Limits::bias_sigmas}};
constexpr const char* kSamples = "bias_samples";

double number(const json::Node& root, const char* key) {
  const json::Node node = root.at(key);
  const double value = node.number();
  if (!(value > 0 && value < 1e6)) node.refuse(fmt::format("is {}, but must lie in 0..1e6", value));
  return value;
}

void refuse_unknown(const json::Node& root) {
  std::vector<std::string> known{"$schema", "schema_version", kSamples};
  for (const Key& key : kKeys) known.emplace_back(key.name);
  for (const auto& [name, value] : root.members()) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(ErrorCode::kParse, fmt::format("{}: '{}' is unknown", root.where(), name),
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
  const json::Value value = json::parse(text, origin);
  const json::Node root(value, origin);
  refuse_unknown(root);
  if (root.at("schema_version").count(0, 1 << 20) != 1) root.at("schema_version").refuse("must be 1");
  Limits limits;
  for (const Key& key : kKeys) limits.*key.value = number(root, key.name);
  limits.bias_samples = static_cast<int>(root.at(kSamples).count(2, 1'000'000));
  return limits;
}

const Limits& active_limits() {
  static const Limits limits = read_limits();
  return limits;
}

}  // namespace mla::verify
