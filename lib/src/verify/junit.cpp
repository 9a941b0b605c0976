// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "mla/error.hpp"
#include "report/html.hpp"
#include "verify/junit.hpp"

namespace mla::verify {
namespace {

/// Text of an XML attribute; control characters, which XML 1.0 cannot hold, become spaces.
std::string escaped(std::string_view text) {
  std::string out = report::html_escaped(text);
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < 0x20; }, ' ');
  return out;
}

}  // namespace

std::string to_junit(const SuiteRun& run, const OracleRun& oracles, std::string_view suite_name) {
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  auto out = std::back_inserter(xml);
  fmt::format_to(
      out,
      "<testsuites>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" time=\"{:.3f}\">\n",
      escaped(suite_name), run.verdicts.size() + oracles.verdicts.size(), run.failed + oracles.failed,
      run.unsupported + oracles.unsupported, run.seconds);
  const auto add = [&](std::string_view backend, const std::string& name, double seconds, Outcome outcome,
                       std::string_view reason) {
    fmt::format_to(out, "<testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\"", escaped(backend),
                   escaped(name), seconds);
    if (outcome == Outcome::kPassed) {
      xml += "/>\n";
      return;
    }
    fmt::format_to(out, "><{0} message=\"{1}\"/></testcase>\n",
                   outcome == Outcome::kFailed ? "failure" : "skipped", escaped(reason));
  };
  for (const Verdict& v : run.verdicts) add(v.backend, to_text(v.c), v.seconds, v.outcome, v.reason);
  for (const OracleVerdict& v : oracles.verdicts) {
    add(v.backend, fmt::format("oracle {} {}", v.oracle, to_text(v.base)), 0.0, v.outcome.outcome,
        v.outcome.reason);
  }
  xml += "</testsuite>\n</testsuites>\n";
  return xml;
}

std::string read_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw Error(ErrorCode::kIo, fmt::format("{} is a folder, not a file", path));
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in && !in.eof()) throw Error(ErrorCode::kIo, fmt::format("{} cannot be read", path));
  return text;
}

void require_writable(const std::string& path) {
  const std::string trial = path + ".part";
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  if (folder || !std::ofstream(trial, std::ios::binary | std::ios::app))
    throw Error(ErrorCode::kIo,
                fmt::format("{} cannot be written{}", path, folder ? ": it is a folder" : ""));
  std::filesystem::remove(trial, error);
}

void write_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".part";
  {
    std::ofstream out(temporary, std::ios::binary);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.close();
    if (!out) {
      std::error_code ignored;
      std::filesystem::remove(temporary, ignored);
      throw Error(ErrorCode::kIo, fmt::format("{} cannot be written", path));
    }
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) throw Error(ErrorCode::kIo, fmt::format("{} cannot be written: {}", path, error.message()));
}

}  // namespace mla::verify
