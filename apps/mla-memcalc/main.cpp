// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "figures.hpp"
#include "options.hpp"
#include "program.hpp"
#include "view.hpp"

namespace {

int run(const mla::memcalc::Options& options) {
  mla::memcalc::Answer answer = mla::memcalc::answer_to(options);
  if (!answer.complaint.empty()) {
    mla::cli::print_error("mla-memcalc", answer.complaint, "");
    return mla::cli::kCheckFailed;
  }
  if (!options.plot.empty()) mla::memcalc::draw(answer.document.figure, options.plot);
  answer.document.command = options.command_line;
  if (answer.plain_text.empty()) {
    mla::cli::Output output = options.output;
    output.repeat_answer = true;
    // Rows of plans are wide, and often one setting is common to all of them.
    using mla::memcalc::Command;
    output.fold_constant_columns = options.command == Command::kCompare || options.command == Command::kSweep;
    mla::cli::print(answer.document, output);
    // Rows have no place for sentences.
    if (options.output.format == mla::report::Format::kCsv) {
      for (const std::string& note : answer.document.notes) {
        if (note.starts_with("warning: ")) std::fputs(("mla-memcalc: " + note + "\n").c_str(), stderr);
      }
    }
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
    for (int i = 0; i < argc; ++i)
      options.command_line += (i == 0 ? std::string("mla-memcalc") : " " + std::string(argv[i]));
    return ended ? *ended : run(options);
  });
}
