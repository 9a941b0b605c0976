// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "core/plugin_backend.hpp"
#include "core/registry.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/plugin.h"
#include "mla/plugin_host.hpp"

namespace mla {
namespace {

[[noreturn]] void refuse(const std::string& file, std::string_view why) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("plug-in {} {}", text::quoted(file), why));
}

bool well_formed(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

/// The struct as the first release had it: nothing of it may be left out.
constexpr std::size_t kFirstSize = offsetof(mla_plugin_v1, fused_maximum);
constexpr std::int32_t kMostEdges = 64;
constexpr std::int32_t kLargestEdge = 1 << 20;

void check_head(const mla_plugin_v1& plugin, const std::string& file) {
  if (plugin.abi != MLA_PLUGIN_ABI) {
    refuse(file, fmt::format("speaks ABI {}, this program speaks {}", plugin.abi, MLA_PLUGIN_ABI));
  }
  if (plugin.struct_size < kFirstSize) {
    refuse(file, fmt::format("describes itself in {} bytes, at least {} are needed", plugin.struct_size,
                             kFirstSize));
  }
}

void check(const mla_plugin_v1& plugin, const std::string& file) {
  if (plugin.name == nullptr || plugin.version == nullptr || plugin.summary == nullptr ||
      plugin.strategy == nullptr) {
    refuse(file, "leaves out its name, version, summary or strategy");
  }
  if (!well_formed(plugin.name)) {
    refuse(file, fmt::format("calls itself {}; names are lower-case letters, digits, '-', '_', '.'",
                             text::quoted(plugin.name)));
  }
  if (const std::string_view strategy = plugin.strategy; strategy != "absorbed" && strategy != "expanded") {
    refuse(file, fmt::format("has the strategy {}; there are absorbed and expanded", text::quoted(strategy)));
  }
  if (plugin.supports == nullptr || plugin.plan == nullptr || plugin.run == nullptr ||
      plugin.plan_free == nullptr || plugin.last_error == nullptr) {
    refuse(file, "leaves out one of supports, plan, run, plan_free, last_error");
  }
  for (const std::int32_t type : {plugin.accumulate, plugin.probabilities, plugin.partials,
                                  plugin.absorbed_query, plugin.latent_output, plugin.expanded_kv}) {
    if (type < MLA_F64 || type > MLA_E4M3)
      refuse(file, fmt::format("rounds to element type {}, which is no real type", type));
  }
  if (plugin.num_edges < 0 || plugin.num_edges > kMostEdges) {
    refuse(file, fmt::format("names {} edges; there may be 0 to {}", plugin.num_edges, kMostEdges));
  }
  if (plugin.num_edges > 0 && plugin.edges == nullptr)
    refuse(file, fmt::format("names {} edges and leaves out where they are", plugin.num_edges));
  for (std::int32_t i = 0; i < plugin.num_edges; ++i) {
    if (plugin.edges[i] < 1 || plugin.edges[i] > kLargestEdge) {
      refuse(file, fmt::format("has the edge {}; tile and split sizes lie in 1..{}", plugin.edges[i],
                               kLargestEdge));
    }
  }
}

}  // namespace

const Backend& load_plugin(const std::filesystem::path& file) {
  // An absolute path: dlopen would look for a bare name in the system's folders.
  std::error_code status;
  const std::filesystem::path path = std::filesystem::absolute(file, status);
  // Local: two plug-ins must not see each other's symbols. Never unloaded: its code may be referenced until
  // the end.
  void* library = status ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = status ? nullptr : dlerror();
    throw Error(ErrorCode::kIo, fmt::format("cannot load the plug-in {}: {}", text::quoted(file.string()),
                                            reason == nullptr ? status.message() : reason));
  }
  const auto query = reinterpret_cast<mla_plugin_query_fn>(dlsym(library, "mla_plugin_query"));
  if (query == nullptr) refuse(file.string(), "has no function mla_plugin_query");
  const mla_plugin_v1* plugin = query(MLA_PLUGIN_ABI);
  if (plugin == nullptr) refuse(file.string(), fmt::format("does not serve ABI {}", MLA_PLUGIN_ABI));
  check_head(*plugin, file.string());
  const mla_plugin_v1 known = as_known(*plugin);
  check(known, file.string());
  return add_backend(std::make_unique<PluginBackend>(known, file.filename().string()));
}

std::string origin_of(const Backend& backend) {
  const auto* plugin = dynamic_cast<const PluginBackend*>(&backend);
  return plugin == nullptr ? std::string() : plugin->origin();
}

}  // namespace mla
