// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"
#include "program.hpp"
#include "view.hpp"

namespace {

int run(const mla::memcalc::Options& options) {
  const mla::memcalc::Answer answer = mla::memcalc::answer_to(options);
  if (answer.plain_text.empty()) {
    mla::cli::print(answer.document, options.output);
  } else {
    mla::cli::write_stdout(answer.plain_text);
  }
  return answer.fits ? mla::cli::kOk : mla::cli::kCheckFailed;
}

}  // namespace

int main(int argc, char** argv) {
  return mla::cli::guard("mla-memcalc", [&] {
    mla::memcalc::Options options;
    const std::optional<int> ended = mla::memcalc::parse_options(argc, argv, options);
    return ended ? *ended : run(options);
  });
}
