// SPDX-License-Identifier: Apache-2.0
// Any config that is read can be planned for, on every engine: a plan or a sentence, never a wrong number.
#include "fuzz.hpp"
#include "mla/capacity.hpp"
#include "mla/model.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return mla::fuzz::try_text(data, size, [](std::string_view text) {
    const mla::ModelConfig model = mla::parse_model(text, "input");
    constexpr const char* kEngines[] = {"vllm",         "vllm@0.6",          "sglang",
                                        "tensorrt-llm", "llama.cpp@2025-06", "lmcache"};
    constexpr const char* kFormats[] = {"bf16", "fp8", "fp8_ds_mla", "q8_0"};
    for (const char* engine : kEngines) {
      // One other layout and format an engine, chosen by the input, so that each run stays short.
      const std::size_t pick = text.size() + static_cast<std::size_t>(engine[0]);
      mla::capacity::PlanRequest request;
      request.gpu_memory_bytes = std::int64_t{80} << 30;
      request.engine = mla::capacity::find_engine(engine);
      request.cache = mla::capacity::find_kv_format(kFormats[pick % 4]);
      request.weights = mla::capacity::scheme_of(model);
      request.layout = {.tp = 1 << (pick % 3), .pp = pick % 5 == 0 ? 2 : 1};
      request.with_mtp = pick % 2 == 0;
      mla::fuzz::try_text(nullptr, 0, [&](std::string_view) {
        const mla::capacity::MemoryPlan plan = mla::capacity::plan_memory(model, request);
        mla::fuzz::require(plan.sequences >= 0 && plan.blocks >= 0 && plan.cache_bytes_per_token >= 0);
        mla::fuzz::require(!plan.stages.empty() && !plan.lines.empty());
        for (const mla::capacity::StagePlan& stage : plan.stages) {
          mla::fuzz::require(stage.weight_bytes >= 0);
          std::int64_t sum = 0;
          for (const mla::capacity::Line& line : stage.weights.lines) {
            sum += std::get<std::int64_t>(line.value);
          }
          mla::fuzz::require(sum == stage.weights.bytes);
        }
      });
    }
  });
}
