// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "core/text.hpp"
#include "device/config_files.hpp"
#include "mla/error.hpp"
#include "mla/model.hpp"
#include "model/read_file.hpp"
#include "model/reading.hpp"

namespace mla {
namespace {

namespace fs = std::filesystem;

ModelConfig read_model_file(const fs::path& path) {
  ModelConfig model = parse_model(read_text_file(path), path.string());
  model.path = path.string();
  // A bare config.json says what kind of model it is, its folder usually which one.
  if (model.source.empty()) {
    const fs::path stem = path.stem();
    const bool plain = stem == "config" || stem == "params";
    const fs::path named = plain ? fs::absolute(path).parent_path().filename() : stem;
    if (!named.empty()) model.name = model.title = named.string();
    const fs::path beside = path.parent_path() / "hf_quant_config.json";
    std::error_code ignored;
    if (plain && !model.quantization_config && fs::exists(beside, ignored)) {
      read_quantization_file(read_text_file(beside), beside.string(), model);
    }
  }
  return model;
}

ModelConfig read_model_folder(const fs::path& folder) {
  for (const char* name : {"config.json", "params.json"}) {
    std::error_code ignored;
    if (fs::exists(folder / name, ignored)) return read_model_file(folder / name);
  }
  throw Error(ErrorCode::kIo,
              fmt::format("{} holds neither config.json nor params.json", text::quoted(folder.string())));
}

ModelConfig read_model_path(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? read_model_folder(path) : read_model_file(path);
}

// "deepseek-ai/DeepSeek-V3" -> "deepseek-v3".
std::string tail_of(std::string_view what) {
  const std::size_t slash = what.rfind('/');
  return text::to_lower(slash == std::string_view::npos ? what : what.substr(slash + 1));
}

bool answers_to(const ModelConfig& model, const std::string& lower) {
  if (text::to_lower(model.name) == lower) return true;
  return std::any_of(model.aliases.begin(), model.aliases.end(),
                     [&](const std::string& alias) { return text::to_lower(alias) == lower; });
}

}  // namespace

ModelConfig load_model(std::string_view what, std::string_view stdin_text) {
  if (what == "-") return parse_model(stdin_text, "standard input");
  std::error_code ignored;
  const bool is_there = fs::exists(fs::path(what), ignored);
  // A file beats a name, but organisation/model is both a path that may not be there and a name we may know.
  if (is_there) return read_model_path(fs::path(what));
  const std::string lower = tail_of(what);
  const std::vector<fs::path> files = config_files("models");
  for (const fs::path& path : files) {
    if (path.stem() == lower) return read_model_file(path);
  }
  std::vector<std::string> names;
  for (const fs::path& path : files) {
    ModelConfig model = read_model_file(path);
    if (answers_to(model, lower)) return model;
    names.push_back(model.name);
    names.insert(names.end(), model.aliases.begin(), model.aliases.end());
  }
  if (looks_like_path(what) && text::nearest(lower, names).empty()) {
    throw Error(ErrorCode::kIo,
                fmt::format("there is no file or folder {}, and no model of that name", text::quoted(what)));
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no model is named {}", text::quoted(what)),
              text::nearest(lower, names).empty()
                  ? fmt::format("{} are known; a path to a config.json, or to a folder with one, works too",
                                files.size())
                  : text::suggestion(lower, names));
}

std::vector<ModelConfig> list_models() {
  std::vector<ModelConfig> models;
  for (const fs::path& path : config_files("models")) models.push_back(read_model_file(path));
  return models;
}

}  // namespace mla
