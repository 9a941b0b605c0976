// SPDX-License-Identifier: Apache-2.0
// Traces of request lengths, and what a pool holds of them.
#include "plan/lengths.hpp"
#include "fuzz.hpp"
#include "mla/model.hpp"
#include "spec/length_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return mla::fuzz::try_text(data, size, [](std::string_view text) {
    const auto trace = mla::spec::parse_lengths(text, "the trace");
    mla::fuzz::require(!trace.empty());
    for (const mla::capacity::RequestLengths& one : trace) {
      mla::fuzz::require(one.prompt >= 0 && one.output >= 0);
    }
    static const mla::ModelConfig model = mla::load_model("deepseek-v2-lite");
    mla::capacity::PlanRequest request;
    request.gpu_memory_bytes = std::int64_t{80} << 30;
    request.engine = mla::capacity::find_engine("vllm");
    request.cache = mla::capacity::find_kv_format("bf16");
    request.cache_bytes = {std::int64_t{40} << 30};
    request.context = 32768;
    const mla::capacity::LengthReport report = mla::capacity::plan_lengths(model, request, trace);
    mla::fuzz::require(report.requests == static_cast<std::int64_t>(trace.size()));
    mla::fuzz::require(report.too_long >= 0 && report.too_long <= report.requests);
    mla::fuzz::require(report.p50 <= report.p90 && report.p90 <= report.p99 && report.p99 <= report.longest);
    mla::fuzz::require(report.paging_waste >= 0 && report.paging_waste < 1);
  });
}
