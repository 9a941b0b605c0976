// SPDX-License-Identifier: Apache-2.0
#include "core/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.hpp"
#include "mla/backend.hpp"
#include "mla/error.hpp"
#include "mla_backends.inc"

namespace mla {

namespace {

constexpr std::size_t kMostAdded = 64;

/// Reserved once and never moved, so that spans handed out stay valid.
std::vector<const Backend*>& registry() {
  static std::vector<const Backend*> list = [] {
    const std::span<const Backend* const> built = built_backends();
    std::vector<const Backend*> all;
    all.reserve(built.size() + kMostAdded);
    all.assign(built.begin(), built.end());
    return all;
  }();
  return list;
}

}  // namespace

std::span<const Backend* const> backends() {
  return registry();
}

const Backend& add_backend(std::unique_ptr<const Backend> backend) {
  static std::vector<std::unique_ptr<const Backend>> owned;
  const std::string_view name = backend->info().name;
  if (find_backend(name) != nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("there is a backend called {} already", text::quoted(name)));
  }
  if (owned.size() == kMostAdded) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("more than {} backends were added", kMostAdded));
  }
  owned.push_back(std::move(backend));
  registry().push_back(owned.back().get());
  return *owned.back();
}

const Backend* find_backend(std::string_view name) {
  const auto all = backends();
  const auto it =
      std::find_if(all.begin(), all.end(), [&](const Backend* b) { return b->info().name == name; });
  return it == all.end() ? nullptr : *it;
}

const Backend& get_backend(std::string_view name) {
  if (const Backend* found = find_backend(name)) return *found;
  std::vector<std::string> names;
  for (const Backend* backend : backends()) names.emplace_back(backend->info().name);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("there is no backend {} in this build", text::quoted(name)),
              text::suggestion(name, names));
}

}  // namespace mla
