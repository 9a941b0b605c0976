// SPDX-License-Identifier: Apache-2.0
// Indexes of sharded checkpoints, and what the planner makes of them.
#include "spec/weight_index.hpp"
#include "fuzz.hpp"
#include "mla/model.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return mla::fuzz::try_text(data, size, [](std::string_view text) {
    const mla::capacity::Checkpoint checkpoint =
        mla::spec::parse_weight_index(text, "/nonexistent/model.safetensors.index.json");
    mla::fuzz::require(!checkpoint.sizes_known && checkpoint.total > 0 && !checkpoint.tensors.empty());
    static const mla::ModelConfig model = mla::load_model("deepseek-v2-lite");
    const mla::capacity::WeightScheme scheme = mla::capacity::scheme_of(model);
    const auto scales = mla::capacity::weight_scales(model, scheme, checkpoint);
    mla::capacity::WeightPlan plan =
        mla::capacity::weights_on_rank(model, scheme, {}, 0, mla::capacity::find_engine("vllm"));
    mla::capacity::apply_scales(plan, scales);
    mla::fuzz::require(plan.bytes > 0);
  });
}
