// SPDX-License-Identifier: Apache-2.0
// Which backend for a shape, and why: the decision tree over device, dims, types, cache format, sparsity and
// phase.
#include <fmt/format.h>

#include <algorithm>

#include "core/selection.hpp"
#include "mla/error.hpp"

namespace mla {
namespace {

/// The form in which a phase has least to do.
std::string_view wanted_form(Phase phase) {
  return phase == Phase::kDecode ? "absorbed" : "expanded";
}

/// Smaller is better; equal ones stay in the order of the build.
int rank(const AttentionShape& shape, const BackendInfo& info) {
  if (info.oracle) return 2;
  return info.strategy == wanted_form(shape.phase) ? 0 : 1;
}

/// Why a backend that can do the shape stands where it does.
std::string place(const AttentionShape& shape, const BackendInfo& info) {
  if (info.oracle) return "it is there to check the others and makes no attempt at speed";
  const MlaDims& d = shape.dims;
  const bool absorbed = info.strategy == "absorbed";
  if (shape.phase == Phase::kDecode) {
    const std::string_view rows = shape.topk > 0 ? "row of the index" : "cached row";
    if (absorbed) return fmt::format("decode: it reads each {} once for all {} heads", rows, d.num_heads);
    return fmt::format("decode: it makes {} values of K and V from each {} of {} first",
                       d.num_heads * (d.qk_nope_head_dim + d.v_head_dim), rows, d.latent_width());
  }
  const int expanded_work = 2 * (d.head_width() + d.v_head_dim);
  const int absorbed_work = 2 * (d.latent_width() + d.kv_lora_rank);
  return fmt::format("prefill: {} operations a (query, key) pair and head, where the {} form has {}",
                     absorbed ? absorbed_work : expanded_work, absorbed ? "expanded" : "absorbed",
                     absorbed ? expanded_work : absorbed_work);
}

}  // namespace

std::vector<Candidate> candidates(const AttentionShape& shape, const Device& device) {
  validate(shape);
  std::vector<Candidate> answers;
  for (const Backend* backend : backends()) {
    Candidate c{backend, backend->supports(shape, device), {}};
    c.reason = c.support ? place(shape, backend->info()) : c.support.why;
    answers.push_back(std::move(c));
  }
  std::stable_sort(answers.begin(), answers.end(), [&](const Candidate& a, const Candidate& b) {
    return rank(shape, a.backend->info()) < rank(shape, b.backend->info());
  });
  return answers;
}

void throw_no_backend(const AttentionShape& shape, const Device& device, std::span<const Candidate> answers) {
  // The reason worth telling is that of a backend made for such a device.
  const bool gpu = device.vendor != "cpu";
  auto told =
      std::ranges::find_if(answers, [gpu](const Candidate& c) { return c.backend->info().on_device == gpu; });
  if (told == answers.end()) told = answers.begin();
  if (told == answers.end()) throw Error(ErrorCode::kUnsupported, "this build has no backends");
  throw Error(ErrorCode::kUnsupported,
              fmt::format("no backend can run '{}' on {}; {} would be first, but {}", to_text(shape),
                          device.name, told->backend->info().name, told->reason),
              answers.size() > 1
                  ? fmt::format("candidates() has the reasons of the {} others", answers.size() - 1)
                  : std::string());
}

}  // namespace mla
