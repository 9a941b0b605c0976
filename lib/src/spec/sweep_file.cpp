// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "core/text.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "spec/sweep.hpp"

namespace mla::spec {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// JSON with comments; a key that stands twice in an object is refused (the parser alone would keep the last in silence).
Json parse_json(std::string_view text, std::string_view origin) {
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second) {
      throw Error(ErrorCode::kParse,
                  fmt::format("{}: key {} stands twice", origin, text::quoted(value.get<std::string>())));
    }
    return true;
  };
  try {
    return Json::parse(text, watch, true, true);
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kParse, fmt::format("{} is not valid JSON: {}", origin, error.what()));
  }
}

[[noreturn]] void refuse_key(std::string_view origin, std::string_view where, std::string_view key,
                             std::span<const std::string> known) {
  throw Error(ErrorCode::kParse, fmt::format("{}: unknown key {}{}", origin, text::quoted(key), where),
              text::suggestion(key, known));
}

/// A number or a text, as text in the grammar of the flags.
std::string scalar(const Json& value, std::string_view origin, std::string_view key) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_unsigned()) return fmt::format("{}", value.get<std::uint64_t>());
  throw Error(ErrorCode::kParse, fmt::format("{}: '{}' is {}", origin, key, text::quoted(value.dump())),
              "allowed are whole numbers, texts as flags take them, and lists of both");
}

void read_section(SweepSpec& spec, const Json& object, Section section, std::string_view section_name,
                  std::string_view origin) {
  if (!object.is_object()) {
    throw Error(ErrorCode::kParse, fmt::format("{}: '{}' is not an object", origin, section_name));
  }
  std::vector<std::string> known;
  for (const SweepKey& key : sweep_keys()) {
    if (key.section == section) known.emplace_back(key.name);
  }
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      refuse_key(origin, fmt::format(" in '{}'", section_name), key, known);
    }
    std::vector<std::string> items;
    if (value.is_array()) {
      for (const Json& item : value) items.push_back(scalar(item, origin, key));
      if (items.empty())
        throw Error(ErrorCode::kParse, fmt::format("{}: '{}' is an empty list", origin, key));
    } else {
      items.push_back(scalar(value, origin, key));
    }
    override_setting(spec, key, fmt::format("{}", fmt::join(items, ",")), Level::kFile, origin);
  }
}

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream.is_open() || stream.bad() || fs::is_directory(path)) {
    throw Error(ErrorCode::kIo, fmt::format("cannot read the sweep {}", text::quoted(path.string())));
  }
  return text;
}

/// Name -> file over all config folders, the first folder winning.
std::map<std::string, fs::path> spec_files() {
  std::map<std::string, fs::path> files;
  for (const fs::path& dir : config_dirs()) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(dir / "sweeps", none)) {
      if (entry.path().extension() == ".json") files.emplace(entry.path().stem().string(), entry.path());
    }
  }
  return files;
}

std::string text_member(const Json& root, const char* key, std::string_view origin) {
  const auto found = root.find(key);
  if (found == root.end()) return {};
  if (!found->is_string()) throw Error(ErrorCode::kParse, fmt::format("{}: '{}' is not a text", origin, key));
  return found->get<std::string>();
}

}  // namespace

SweepSpec parse_spec(std::string_view json_text, std::string_view origin) {
  const Json root = parse_json(json_text, origin);
  if (!root.is_object()) throw Error(ErrorCode::kParse, fmt::format("{} is not a JSON object", origin));
  const std::vector<std::string> known{"$schema", "name", "question", "axes", "measure"};
  for (const auto& [key, value] : root.items()) {
    if (std::ranges::find(known, key) == known.end()) refuse_key(origin, "", key, known);
  }
  SweepSpec spec = default_spec();
  if (std::string name = text_member(root, "name", origin); !name.empty()) spec.name = std::move(name);
  spec.question = text_member(root, "question", origin);
  if (const auto axes = root.find("axes"); axes != root.end()) {
    read_section(spec, *axes, Section::kAxes, "axes", origin);
  }
  if (const auto measure = root.find("measure"); measure != root.end()) {
    read_section(spec, *measure, Section::kMeasure, "measure", origin);
  }
  return spec;
}

SweepSpec load_spec(std::string_view what, std::string_view stdin_text) {
  if (what == "-") return parse_spec(stdin_text, "standard input");
  const std::map<std::string, fs::path> files = spec_files();
  fs::path path{std::string(what)};
  if (const auto found = files.find(std::string(what)); found != files.end()) {
    path = found->second;
  } else if (!fs::exists(path)) {
    std::vector<std::string> names;
    for (const auto& [name, file] : files) names.push_back(name);
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is neither a sweep in configs/sweeps nor a file", text::quoted(what)),
                text::suggestion(what, names));
  }
  SweepSpec spec = parse_spec(read_file(path), path.filename().string());
  if (spec.name == "custom") spec.name = path.stem().string();
  return spec;
}

std::vector<SpecEntry> list_specs() {
  std::vector<SpecEntry> entries;
  for (const auto& [name, path] : spec_files()) {
    entries.push_back({name, parse_spec(read_file(path), path.string()).question, path});
  }
  return entries;
}

std::string print_spec(const SweepSpec& spec) {
  const auto quote = [](const std::string& text) {
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string out =
      fmt::format("{{\n  \"name\": {},\n  \"question\": {}", quote(spec.name), quote(spec.question));
  for (const Section section : {Section::kAxes, Section::kMeasure}) {
    out += fmt::format(",\n  \"{}\": {{", section == Section::kAxes ? "axes" : "measure");
    std::string comment;
    for (const SweepKey& key : sweep_keys()) {
      if (key.section != section || !is_active(spec, key.name)) continue;
      const Setting& setting = spec.settings.find(key.name)->second;
      out += fmt::format("{}{}\n    \"{}\": {}", comment.empty() ? "" : ",", comment, key.name,
                         quote(setting.text));
      comment = fmt::format("  // {}", setting.origin);
    }
    out += comment + "\n  }";
  }
  return out + "\n}\n";
}

}  // namespace mla::spec
