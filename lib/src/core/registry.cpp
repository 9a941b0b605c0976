// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/text.hpp"
#include "mla/backend.hpp"
#include "mla/error.hpp"
#include "mla_backends.inc"

namespace mla {

std::span<const Backend* const> backends() {
  return built_backends();
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

std::vector<Candidate> candidates(const AttentionShape& shape, const Device& device) {
  validate(shape);
  std::vector<Candidate> answers;
  for (const Backend* backend : backends()) answers.push_back({backend, backend->supports(shape, device)});
  return answers;
}

const Backend& choose_backend(const AttentionShape& shape, const Device& device) {
  const std::vector<Candidate> answers = candidates(shape, device);
  const auto first =
      std::find_if(answers.begin(), answers.end(), [](const Candidate& c) { return c.support.ok; });
  if (first != answers.end()) return *first->backend;
  std::string message =
      fmt::format("no backend of this build can run '{}' on {}", to_text(shape), device.name);
  for (const Candidate& c : answers)
    message += fmt::format("\n  {}: {}", c.backend->info().name, c.support.why);
  throw Error(ErrorCode::kUnsupported, message);
}

}  // namespace mla
