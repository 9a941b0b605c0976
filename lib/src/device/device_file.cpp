// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "device/config_files.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "model/fields.hpp"
#include "model/read_file.hpp"

namespace mla {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;

const std::vector<std::string>& device_keys() {
  static const std::vector<std::string> keys = {"name",         "aliases",          "title",
                                                "vendor",       "architecture",     "compute_capability",
                                                "memory_bytes", "memory_bandwidth", "dense_flops",
                                                "l2_bytes",     "num_sms",          "shared_memory_per_block",
                                                "source",       "checked",          "note"};
  return keys;
}

// Element types whose rates a description may give: ours, and those only GPUs multiply in.
const std::vector<std::string>& rate_names() {
  static const std::vector<std::string> names = {"f64", "f32", "tf32", "bf16", "f16", "e4m3", "e2m1", "i8"};
  return names;
}

// yyyy-mm-dd
bool is_date(std::string_view text) {
  if (text.size() != 10) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 4 || i == 7;
    if (dash ? text[i] != '-' : (text[i] < '0' || text[i] > '9')) return false;
  }
  return true;
}

std::map<std::string, double> read_rates(const Fields& fields) {
  std::map<std::string, double> rates;
  const std::optional<Fields> table = fields.nested("dense_flops");
  if (!table) return rates;
  table->refuse_unknown(rate_names());
  for (const std::string& name : rate_names()) {
    if (const auto rate = table->real(name, {name}, 1e9, 1e18)) rates[name] = *rate;
  }
  return rates;
}

bool answers_to(const Device& device, const std::string& lower) {
  if (text::to_lower(device.name) == lower) return true;
  return std::any_of(device.aliases.begin(), device.aliases.end(),
                     [&](const std::string& alias) { return text::to_lower(alias) == lower; });
}

Device read_device_file(const std::filesystem::path& path) {
  Device device = parse_device(read_text_file(path), path.string());
  device.path = path.string();
  return device;
}

}  // namespace

Device parse_device(std::string_view json_text, std::string_view origin) {
  const json::Value root = json::parse(json_text, origin, {.comments = true});
  const Fields fields(root, std::string(origin));
  fields.refuse_unknown(device_keys());
  Device device;
  device.origin = DeviceOrigin::kDescribed;
  device.name = fields.required_string("name", {"name"});
  device.aliases = fields.strings("aliases");
  device.title = fields.string("title", {"title"}).value_or(device.name);
  device.vendor = fields.required_string("vendor", {"vendor"});
  device.architecture = fields.string("architecture", {"architecture"}).value_or("");
  device.compute_capability =
      static_cast<int>(fields.integer("compute_capability", {"compute_capability"}, {0, 1000}).value_or(0));
  const auto memory = fields.integer("memory_bytes", {"memory_bytes"}, {1, kMaxBytes});
  if (!memory) fields.missing({"memory_bytes"}, "nothing can be planned without it");
  device.memory_bytes = *memory;
  const auto bandwidth = fields.real("memory_bandwidth", {"memory_bandwidth"}, 1e6, 1e15);
  if (!bandwidth) fields.missing({"memory_bandwidth"}, "bytes a second, from the data sheet");
  device.memory_bandwidth = *bandwidth;
  device.dense_flops = read_rates(fields);
  device.l2_bytes = fields.integer("l2_bytes", {"l2_bytes"}, {0, kMaxBytes}).value_or(0);
  device.num_sms = static_cast<int>(fields.integer("num_sms", {"num_sms"}, {0, 1 << 16}).value_or(0));
  device.shared_memory_per_block =
      fields.integer("shared_memory_per_block", {"shared_memory_per_block"}, {0, 1 << 24}).value_or(0);
  device.source = fields.required_string("source", {"source"});
  device.checked = fields.required_string("checked", {"checked"});
  if (!is_date(device.checked)) fields.wrong("checked", "a date yyyy-mm-dd");
  device.note = fields.string("note", {"note"}).value_or("");
  return device;
}

Device load_device(std::string_view what) {
  if (looks_like_path(what)) return read_device_file(std::filesystem::path(what));
  const std::string lower = text::to_lower(what);
  const std::vector<std::filesystem::path> files = config_files("gpus");
  // The file of that name first: one broken file elsewhere must not stop a GPU that is named plainly.
  for (const std::filesystem::path& path : files) {
    if (path.stem() == lower) return read_device_file(path);
  }
  std::vector<std::string> names;
  for (const std::filesystem::path& path : files) {
    Device device = read_device_file(path);
    if (answers_to(device, lower)) return device;
    names.push_back(device.name);
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no GPU is named {}", text::quoted(what)),
              text::suggestion(what, names));
}

std::vector<Device> list_devices() {
  std::vector<Device> devices;
  for (const std::filesystem::path& path : config_files("gpus")) devices.push_back(read_device_file(path));
  return devices;
}

}  // namespace mla
