// SPDX-License-Identifier: Apache-2.0
#include "spec/capacity_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/drafter.hpp"
#include "spec/case_model.hpp"
#include "spec/text_file.hpp"

namespace mla::spec {
namespace {

using capacity::CapacityCase;
using Json = nlohmann::ordered_json;

[[noreturn]] void wrong(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kParse, fmt::format("{}: {}", where, what),
              "configs/schema/cases.schema.json describes it");
}

const Json& part(const Json& object, const char* key, Json::value_t type, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) wrong(where, fmt::format("\"{}\" is missing", key));
  if (found->type() != type)
    wrong(where, fmt::format("\"{}\" has the wrong type ({})", key, found->type_name()));
  return *found;
}

std::string text_of(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  if (!found->is_string())
    wrong(where, fmt::format("\"{}\" must be a text, not {}", key, found->type_name()));
  return found->get<std::string>();
}

/// Numbers and truths under `key`; lists in order; members of objects as "key.name" and, together, as `key`.
void flatten(const Json& value, const std::string& key, std::map<std::string, std::vector<double>>& numbers,
             std::map<std::string, std::string>* words) {
  if (value.is_number()) {
    numbers[key].push_back(value.get<double>());
  } else if (value.is_boolean()) {
    numbers[key].push_back(value.get<bool>() ? 1 : 0);
  } else if (value.is_string() && words != nullptr) {
    (*words)[key] = value.get<std::string>();
  } else if (value.is_array()) {
    for (const Json& item : value) flatten(item, key, numbers, words);
  } else if (value.is_object()) {
    for (const auto& [name, member] : value.items()) {
      flatten(member, key + '.' + name, numbers, words);
      if (member.is_number()) numbers[key].push_back(member.get<double>());
    }
  }
}

ModelConfig read_config(const Json& config, CapacityCase& one, const std::string& where) {
  if (config.contains("model_type") || config.contains("architectures")) {
    return parse_model(config.dump(), where + ".config");
  }
  ShortConfig shape;
  shape.attention = text_of(config, "attention", where + ".config");
  std::vector<std::string> used{"attention", "nested_in"};
  for (const auto& [key, value] : config.items()) flatten(value, key, shape.numbers, nullptr);
  ModelConfig model = model_of(shape, one.model_name, used);
  for (const auto& [key, value] : config.items()) {
    const bool read = std::any_of(used.begin(), used.end(), [&key = key](const std::string& name) {
      return name == key || name.starts_with(key + '.');
    });
    if (!read && !value.is_null()) one.notes.push_back(fmt::format("config: {} is not used", key));
  }
  return model;
}

/// "vllm" and "0.8.3.dev172" -> the rules of vllm@0.8.3.dev172; an engine without rules counts bytes alone.
void read_engine(const Json& engine, CapacityCase& one, const std::string& where) {
  const std::string name = text_of(engine, "name", where + ".engine");
  const std::string version = text_of(engine, "version", where + ".engine");
  one.engine = version.empty() ? name : name + ' ' + version;
  const std::string word = text::to_lower(name.substr(0, name.find(' ')));
  const auto find = [&](const std::string& what) {
    try {
      one.rules = capacity::find_engine(what);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  if (!find(word)) {
    one.rules = capacity::find_engine("none");
    one.notes.push_back(fmt::format("engine {} has no rules here: bytes alone", text::quoted(name)));
    return;
  }
  // The first thing in the version that reads like one: "log of 2025-11-06" -> 2025-11-06, "0.9/0.10
  // (2025-07)" -> 0.9.
  std::string token;
  for (const char c : version + ' ') {
    const bool digit = c >= '0' && c <= '9';
    const bool inside = digit || (token.empty() ? c == 'b' : c == '-' || c == '.');
    if (inside && !(token == "b" && !digit)) {
      token += c;
      continue;
    }
    const bool build = token.starts_with('b') && token.size() > 3;
    if (token.find('.') != std::string::npos || token.starts_with("20") || build) break;
    token.clear();
  }
  while (!token.empty() && (token.back() == '.' || token.back() == '-')) token.pop_back();
  if (!version.empty() && (token.empty() || !find(word + '@' + token))) {
    one.notes.push_back(
        fmt::format("version {} is not read: the newest rules are used", text::quoted(version)));
  }
  if (one.rules.fit != capacity::VersionFit::kCovered) {
    one.notes.push_back(
        fmt::format("version {} is {} than those checked ({} to {}): the nearest rules are used",
                    text::quoted(version), one.rules.fit == capacity::VersionFit::kOlder ? "older" : "newer",
                    one.rules.oldest, one.rules.newest));
  }
  if (name.find("hybrid manager off") != std::string::npos)
    one.rules.window = capacity::WindowRule::kFullLength;
}

capacity::Tolerance read_tolerance(const Json& object, const std::string& where) {
  capacity::Tolerance tolerance;
  for (const auto& [key, value] : object.items()) {
    if (key == "why") continue;
    if (key == "informational" && value.is_boolean()) {
      tolerance.informational = value.get<bool>();
      continue;
    }
    std::optional<double>* slot = key == "abs"   ? &tolerance.abs
                                  : key == "rel" ? &tolerance.rel
                                  : key == "min" ? &tolerance.min
                                  : key == "max" ? &tolerance.max
                                                 : nullptr;
    if (slot == nullptr)
      wrong(where, fmt::format("\"{}\" is not known; abs, rel, min, max, informational are", key));
    if (!value.is_number())
      wrong(where, fmt::format("\"{}\" must be a number, not {}", key, value.type_name()));
    *slot = value.get<double>();
  }
  return tolerance;
}

/// A quantity's own tolerance, else the one of "each" or "each_mib", else half of the last digit engines
/// print.
capacity::Tolerance tolerance_of(const Json& all, const std::string& key, const std::string& where) {
  const std::string unit = key.size() > 4 ? key.substr(key.size() - 4) : std::string();
  for (const std::string& name : {key, key.substr(0, key.find('.')), "each" + unit, std::string("each")}) {
    const auto found = all.find(name);
    if (found == all.end()) continue;
    if (!found->is_object()) wrong(where, fmt::format("tolerance \"{}\" must be an object", name));
    return read_tolerance(*found, where + ".tolerance." + name);
  }
  capacity::Tolerance tolerance;
  if (unit == "_gib" || unit == "_mib") tolerance.abs = 0.005;
  return tolerance;
}

void read_expected(const Json& expected, const Json& tolerance, CapacityCase& one, const std::string& where) {
  const auto add = [&](const std::string& key, const Json& value, std::size_t index) {
    if (!value.is_number())
      wrong(where, fmt::format("expected \"{}\" must be a number, not {}", key, value.type_name()));
    one.expected.push_back({key, index, value.get<double>(), tolerance_of(tolerance, key, where)});
  };
  for (const auto& [key, value] : expected.items()) {
    if (value.is_array()) {
      for (std::size_t i = 0; i < value.size(); ++i) add(key, value[i], i);
    } else if (value.is_object()) {
      for (const auto& [name, member] : value.items()) add(key + '.' + name, member, 0);
    } else {
      add(key, value, 0);
    }
  }
}

CapacityCase read_case(const Json& object, const std::string& where) {
  if (!object.is_object()) wrong(where, "a case must be an object");
  CapacityCase one;
  one.id = text_of(object, "id", where);
  if (one.id.empty()) wrong(where, "\"id\" is missing or empty");
  const std::string here = fmt::format("{} ({})", where, one.id);
  one.model_name = text_of(object, "model", here);
  one.source = text_of(object, "source", here);
  one.hand_calc = text_of(object, "hand_calc", here);
  one.explanation = text_of(object, "explanation", here);
  const std::string reproduced = text_of(object, "reproduced", here);
  one.not_reproduced = reproduced == "not_reproduced";
  constexpr auto kObject = Json::value_t::object;
  try {
    one.model = read_config(part(object, "config", kObject, here), one, here);
    read_engine(part(object, "engine", kObject, here), one, here);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kParse) throw;
    wrong(here, error.what());
  }
  const Json& inputs = part(object, "inputs", kObject, here);
  for (const auto& [key, value] : inputs.items()) flatten(value, key, one.numbers, &one.words);
  if (const auto drafter = one.numbers.find("draft_layers"); drafter != one.numbers.end()) {
    const double layers = drafter->second.front();
    if (!(layers >= 0 && layers <= 64)) wrong(here, fmt::format("draft_layers {} is not 0 to 64", layers));
    try {
      capacity::add_drafter(one.model, static_cast<int>(layers));
    } catch (const Error& error) {
      wrong(here, error.what());
    }
  }
  const auto tolerance = object.find("tolerance");
  const Json none = Json::object();
  if (tolerance != object.end() && !tolerance->is_object()) wrong(here, "\"tolerance\" must be an object");
  read_expected(part(object, "expected", kObject, here), tolerance == object.end() ? none : *tolerance, one,
                here);
  if (one.expected.empty()) wrong(here, "\"expected\" names no quantity");
  for (capacity::Expectation& expectation : one.expected) {
    if (reproduced == "informational") expectation.tolerance.informational = true;
  }
  return one;
}

}  // namespace

std::vector<CapacityCase> parse_cases(std::string_view json_text, std::string_view origin) {
  Json document;
  try {
    document = Json::parse(json_text, nullptr, true, true);
  } catch (const Json::exception& error) {
    const auto* broken = dynamic_cast<const Json::parse_error*>(&error);
    if (broken != nullptr && broken->byte > json_text.size()) {
      const auto lines = 1 + std::ranges::count(json_text, '\n');
      throw Error(
          ErrorCode::kParse,
          json_text.empty()
              ? fmt::format("{} is not JSON: it is empty", origin)
              : fmt::format("{} is not JSON: it ends in line {}, as if it had been cut off", origin, lines));
    }
    std::string what = error.what();
    what.erase(0, what.find("] ") == std::string::npos ? 0 : what.find("] ") + 2);
    throw Error(ErrorCode::kParse, fmt::format("{} is not JSON: {}", origin, what));
  }
  if (!document.is_array())
    throw Error(ErrorCode::kParse, fmt::format("{} must hold an array of cases", origin));
  std::vector<CapacityCase> cases;
  for (std::size_t i = 0; i < document.size(); ++i) {
    cases.push_back(read_case(document[i], fmt::format("{}[{}]", origin, i)));
  }
  if (cases.empty()) throw Error(ErrorCode::kParse, fmt::format("{} holds no case", origin));
  return cases;
}

std::vector<CapacityCase> load_cases(const std::string& what, std::string_view stdin_text) {
  if (what == "-") return parse_cases(stdin_text, "standard input");
  return parse_cases(read_text_file(what), what);
}

}  // namespace mla::spec
