// SPDX-License-Identifier: Apache-2.0
// Logs: reading them, and explaining what was read for models of each kind of cache.
#include <array>

#include "fuzz.hpp"
#include "mla/model.hpp"
#include "plan/explain.hpp"
#include "plan/log_reader.hpp"

namespace {

const mla::ModelConfig& model_for(std::size_t number) {
  static const std::array models{mla::load_model("deepseek-v3.2"), mla::load_model("gemma-3-270m"),
                                 mla::load_model("kimi-linear-48b-a3b"), mla::load_model("deepseek-v4-flash"),
                                 mla::load_model("llama-3.1-8b")};
  return models[number % models.size()];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return mla::fuzz::try_text(data, size, [](std::string_view text) {
    const mla::capacity::LogReading log = mla::capacity::read_log(text);
    for (const mla::capacity::LogNumber& number : log.numbers) {
      mla::fuzz::require(number.value >= 0 && number.half_digit >= 0 && number.unit >= 1 && number.line >= 1);
    }
    // Every number costs a trial of each hypothesis: most inputs are read only, or a search would see few.
    constexpr std::size_t kMostNumbers = 8;
    if (log.empty() || log.numbers.size() > kMostNumbers || text.size() % 32 != 0) return;
    const mla::capacity::Explanation answer =
        mla::capacity::explain(log, model_for(text.size() + log.numbers.size()));
    mla::fuzz::require(!answer.sentences.empty());
    mla::fuzz::require(answer.numbers.empty() || answer.numbers.size() == log.numbers.size());
    for (const mla::capacity::Explained& one : answer.numbers) {
      mla::fuzz::require(!one.matches || one.planned);
      mla::fuzz::require(!one.planned || one.low <= one.high);
    }
  });
}
