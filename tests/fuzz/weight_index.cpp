// SPDX-License-Identifier: Apache-2.0
// Index files of checkpoints, and what they make of a model's weights.
#include "spec/weight_index.hpp"
#include "memory_file.hpp"
#include "mla/model.hpp"
#include "plan/checkpoint.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const mla::fuzz::MemoryFile input(data, size);
  return mla::fuzz::try_text(data, size, [&](std::string_view) {
    const mla::capacity::Checkpoint checkpoint = mla::spec::read_checkpoint(input.path());
    mla::fuzz::require(checkpoint.total >= 1 && !checkpoint.tensors.empty());
    mla::fuzz::require(!checkpoint.sizes_known);  // no shard lies beside a file in memory
    static const mla::ModelConfig model = mla::load_model("deepseek-v2-lite");
    const auto scales = mla::capacity::weight_scales(model, mla::capacity::scheme_of(model), checkpoint);
    mla::fuzz::require(!scales.empty());
  });
}
