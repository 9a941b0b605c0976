// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/text.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "model/json_value.hpp"
#include "model/read_file.hpp"
#include "spec/sweep.hpp"

namespace mla::spec {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_key(std::string_view origin, std::string_view where, std::string_view key,
                             std::span<const std::string> known) {
  throw Error(ErrorCode::kParse, fmt::format("{}: unknown key {}{}", origin, text::quoted(key), where),
              text::suggestion(key, known));
}

/// A number or a text, as text in the grammar of the flags.
std::string scalar(const json::Value& value, std::string_view origin, std::string_view key) {
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* number = value.get_if<std::int64_t>(); number != nullptr && *number >= 0) {
    return fmt::format("{}", *number);
  }
  throw Error(ErrorCode::kParse, fmt::format("{}: '{}' is {}", origin, key, json::describe(value)),
              "allowed are whole numbers, texts as flags take them, and lists of both");
}

void read_section(SweepSpec& spec, const json::Value& value, Section section, std::string_view section_name,
                  std::string_view origin) {
  const auto* object = value.get_if<json::Object>();
  if (object == nullptr) {
    throw Error(ErrorCode::kParse,
                fmt::format("{}: '{}' is {}, not an object", origin, section_name, json::describe(value)));
  }
  std::vector<std::string> known;
  for (const SweepKey& key : sweep_keys()) {
    if (key.section == section) known.emplace_back(key.name);
  }
  for (const auto& [key, entry] : *object) {
    if (std::ranges::find(known, key) == known.end()) {
      refuse_key(origin, fmt::format(" in '{}'", section_name), key, known);
    }
    std::vector<std::string> items;
    if (const auto* list = entry.get_if<json::Array>()) {
      for (const json::Value& item : *list) items.push_back(scalar(item, origin, key));
    } else {
      items.push_back(scalar(entry, origin, key));
    }
    override_setting(spec, key, fmt::format("{}", fmt::join(items, ",")), Level::kFile, origin);
  }
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

std::string text_member(const json::Value& root, const char* key, std::string_view origin) {
  const json::Value* found = root.find(key);
  if (found == nullptr) return {};
  if (const auto* text = found->get_if<std::string>()) return *text;
  throw Error(ErrorCode::kParse,
              fmt::format("{}: '{}' is {}, not a text", origin, key, json::describe(*found)));
}

}  // namespace

SweepSpec parse_spec(std::string_view json_text, std::string_view origin) {
  const json::Value root = json::parse(json_text, origin, {.comments = true});
  const auto* object = root.get_if<json::Object>();
  if (object == nullptr) {
    throw Error(ErrorCode::kParse, fmt::format("{} is {}, not an object", origin, json::describe(root)));
  }
  const std::vector<std::string> known{"$schema", "name", "question", "axes", "measure"};
  SweepSpec spec = default_spec();
  for (const auto& [key, value] : *object) {
    if (std::ranges::find(known, key) == known.end()) refuse_key(origin, "", key, known);
    if (key == "axes") read_section(spec, value, Section::kAxes, key, origin);
    if (key == "measure") read_section(spec, value, Section::kMeasure, key, origin);
  }
  if (std::string name = text_member(root, "name", origin); !name.empty()) spec.name = std::move(name);
  spec.question = text_member(root, "question", origin);
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
  SweepSpec spec = parse_spec(read_text_file(path), path.filename().string());
  if (spec.name == "custom") spec.name = path.stem().string();
  return spec;
}

std::vector<SpecEntry> list_specs() {
  std::vector<SpecEntry> entries;
  for (const auto& [name, path] : spec_files()) {
    entries.push_back({name, parse_spec(read_text_file(path), path.string()).question, path});
  }
  return entries;
}

std::string print_spec(const SweepSpec& spec) {
  std::string out = fmt::format("{{\n  \"name\": {},\n  \"question\": {}", json::quote_lossy(spec.name),
                                json::quote_lossy(spec.question));
  for (const Section section : {Section::kAxes, Section::kMeasure}) {
    out += fmt::format(",\n  \"{}\": {{", section == Section::kAxes ? "axes" : "measure");
    std::string comment;
    for (const SweepKey& key : sweep_keys()) {
      if (key.section != section || !is_active(spec, key.name)) continue;
      const Setting& setting = spec.settings.find(key.name)->second;
      out += fmt::format("{}{}\n    \"{}\": {}", comment.empty() ? "" : ",", comment, key.name,
                         json::quote_lossy(setting.text));
      comment = fmt::format("  // {}", setting.origin);
    }
    out += comment + "\n  }";
  }
  return out + "\n}\n";
}

}  // namespace mla::spec
