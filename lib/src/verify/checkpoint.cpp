// SPDX-License-Identifier: Apache-2.0
#include "verify/checkpoint.hpp"

#include <fmt/format.h>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "model/json_node.hpp"
#include "model/read_file.hpp"

namespace mla::verify {
namespace {

namespace fs = std::filesystem;

/// The file that a folder is about.
fs::path file_in(const fs::path& path) {
  if (!fs::is_directory(path)) return path;
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
    if (fs::exists(path / name)) return path / name;
  }
  throw Error(ErrorCode::kIo,
              fmt::format("{} holds neither model.safetensors.index.json nor model.safetensors",
                          text::quoted(path.string())));
}

}  // namespace

Checkpoint::Checkpoint(const fs::path& path) : path_(file_in(path)), folder_(path_.parent_path()) {
  if (path_.extension() == ".json") {
    read_index(path_);
  } else {
    const std::string name = path_.filename().string();
    for (const auto& [tensor, unused] : shard(name).tensors()) file_of_[tensor] = name;
  }
  for (const auto& [tensor, file] : file_of_) names_.push_back(tensor);
}

void Checkpoint::read_index(const fs::path& index) {
  const json::Value value = json::parse(read_text_file(index), index.string());
  const json::Node map = json::Node(value, index.string()).at("weight_map");
  for (const auto& [tensor, file] : map.members()) {
    const std::string& name = file.text();
    // An index may not send its reader elsewhere.
    if (name.empty() || fs::path(name).filename() != fs::path(name)) {
      file.refuse(fmt::format("is {}, but a shard lies beside its index", text::quoted(name)));
    }
    file_of_[tensor] = name;
  }
  if (file_of_.empty()) map.refuse("is empty");
}

const SafetensorsFile& Checkpoint::shard(const std::string& file) const {
  std::unique_ptr<SafetensorsFile>& open = open_[file];
  if (!open) open = std::make_unique<SafetensorsFile>(SafetensorsFile::open(folder_ / file));
  return *open;
}

bool Checkpoint::has(std::string_view name) const {
  return file_of_.contains(name);
}

const SafeTensor& Checkpoint::at(std::string_view name) const {
  const auto it = file_of_.find(name);
  if (it == file_of_.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has no tensor {}", text::quoted(path_.string()), text::quoted(name)),
                text::suggestion(name, names_));
  }
  const SafeTensor* tensor = shard(it->second).find(name);
  if (tensor == nullptr) {
    throw Error(ErrorCode::kParse, fmt::format("the index says that {} holds {}, but it does not", it->second,
                                               text::quoted(name)));
  }
  return *tensor;
}

}  // namespace mla::verify
