// SPDX-License-Identifier: Apache-2.0
#include "plan/case_asked.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "mla/error.hpp"

namespace mla::capacity {

void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

Computed exactly(double value, std::string formula) {
  return {value, value, std::move(formula)};
}

PlanRequest request_of(const Asked& asked) {
  PlanRequest request;
  request.gpu_name = "of the log";
  request.gpu_memory_bytes = std::int64_t{1} << 40;
  request.layout = asked.in.layout();
  request.engine = asked.in.rules();
  request.engine
      .cache_formats = {};  // a log that shows a format shows that its engine, maybe a fork, took it
  request.cache = asked.in.cache_format();
  request.block = asked.in.block();
  request.with_mtp = asked.in.mtp();
  request.max_batched_tokens = asked.in.count({"max_num_batched_tokens"}, 8192);
  request.speculative_tokens =
      static_cast<int>(std::min<std::int64_t>(asked.in.count({"num_speculative_tokens"}, 0), 1024));
  request.state_blocks = asked.in.state_blocks();
  request.micro_batch = asked.in.count({"n_ubatch"}, 512);
  request.window_sequences = asked.in.window_sequences();
  const std::optional<double> length = asked.in.number({"max_model_len", "runs.max_model_len"}, asked.index);
  constexpr double kMostTokens = 1e12;
  if (length && !(*length >= 0 && *length <= kMostTokens))
    refuse(fmt::format("max_model_len {} is no length", *length));
  request.context = length ? static_cast<std::int64_t>(*length) : 0;
  // A short config of a case about the cache may leave the experts out, and they do not matter to it.
  if (!asked.one.model.moe) request.layout.ep = 0;
  validate(request.layout, asked.one.model);
  if (!length) request.engine.token_count = TokenCount::kBlocks;  // the other count needs a length
  return request;
}

std::string cost_formula(const Asked& asked, const PlanRequest& request) {
  const CacheCost cost =
      cache_cost(asked.one.model, request.cache, request.engine, request.layout.tp, request.with_mtp);
  std::string text;
  for (const Line& line : cost.lines) text += (text.empty() ? "" : " + ") + line.formula;
  return text;
}

}  // namespace mla::capacity
