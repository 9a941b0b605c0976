// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <system_error>

#include "core/text.hpp"
#include "device/config_files.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"

namespace mla {
namespace {

namespace fs = std::filesystem;

struct ChosenDir {
  std::mutex mutex;
  fs::path dir;
};

ChosenDir& chosen() {
  static ChosenDir state;
  return state;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// A folder a user named must be there: falling through to the next one would answer from other facts in
// silence.
void require_folder(const fs::path& dir, std::string_view named_by) {
  if (is_folder(dir)) return;
  throw Error(ErrorCode::kIo,
              fmt::format("{} names {}, which is no folder", named_by, text::quoted(dir.string())),
              "it should hold models/ and gpus/ with .json files");
}

// An environment variable, or nothing when unset or empty.
fs::path from_environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here calls setenv
  return value == nullptr ? fs::path() : fs::path(value);
}

}  // namespace

std::vector<fs::path> config_dirs() {
  std::vector<fs::path> dirs;
  const auto add = [&](const fs::path& dir) {
    if (is_folder(dir) && std::find(dirs.begin(), dirs.end(), dir) == dirs.end()) dirs.push_back(dir);
  };
  {
    const std::lock_guard lock(chosen().mutex);
    if (!chosen().dir.empty()) add(chosen().dir);
  }
  if (const fs::path dir = from_environment("MLA_CONFIG_DIR"); !dir.empty()) {
    require_folder(dir, "MLA_CONFIG_DIR");
    add(dir);
  }
  if (const fs::path home = from_environment("XDG_CONFIG_HOME"); !home.empty()) add(home / "mla");
  std::error_code failure;
  const fs::path program = fs::read_symlink("/proc/self/exe", failure);
  if (!failure) add((program.parent_path().parent_path() / "share" / "mla"));
  add(MLA_SOURCE_CONFIG_DIR);
  return dirs;
}

void set_config_dir(fs::path dir) {
  if (!dir.empty()) require_folder(dir, "the config folder setting");
  const std::lock_guard lock(chosen().mutex);
  chosen().dir = std::move(dir);
}

std::vector<fs::path> config_files(std::string_view kind) {
  std::map<std::string, fs::path> by_name;
  for (const fs::path& dir : config_dirs()) {
    std::error_code failure;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir / kind, failure)) {
      if (entry.path().extension() == ".json")
        by_name.try_emplace(entry.path().stem().string(), entry.path());
    }
  }
  std::vector<fs::path> files;
  files.reserve(by_name.size());
  for (auto& [name, path] : by_name) files.push_back(std::move(path));
  return files;
}

bool looks_like_path(std::string_view what) {
  if (what.find('/') != std::string_view::npos || what.ends_with(".json")) return true;
  std::error_code ignored;
  return fs::exists(fs::path(what), ignored);
}

}  // namespace mla
