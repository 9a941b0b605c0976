// SPDX-License-Identifier: Apache-2.0
#include "run/gbench_driver.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <ostream>
#include <regex>
#include <streambuf>

#include "mla/error.hpp"

namespace mla::run {
namespace {

/// Everything it would print is said better by our own report.
class SilentReporter : public benchmark::BenchmarkReporter {
 public:
  SilentReporter() : null_(nullptr) {
    SetOutputStream(&null_);
    SetErrorStream(&null_);
  }
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}

 private:
  std::ostream null_;
};

void check_filter(const std::string& filter) {
  const std::string pattern = filter.starts_with('-') ? filter.substr(1) : filter;
  try {
    const std::regex compiled(pattern, std::regex::extended);
  } catch (const std::regex_error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the filter '{}' is no regular expression: {}", filter, error.what()));
  }
}

/// The library does not look at what became of its file.
void check_whole(const std::filesystem::path& file) {
  std::ifstream stream(file);
  char last = 0;
  for (char c = 0; stream >> c;) last = c;
  if (last != '}')
    throw Error(ErrorCode::kIo, fmt::format("'{}' was not written whole: is the disk full?", file.string()));
}

/// Sets the library's flags; it keeps them in globals and knows no other way.
void initialize(std::vector<std::string> words) {
  static char program[] = "mla-bench";  // the library keeps this pointer for the context of its reports
  std::vector<char*> argv{program};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(words.size()) + 1;
  benchmark::Initialize(&argc, argv.data());
}

/// Registers the points, runs the library once and forgets them again, also when something throws.
std::size_t run_once(std::span<const DriverPoint> points, const DriverOptions& options,
                     std::vector<std::string> flags, std::exception_ptr& failure) {
  for (const DriverPoint& point : points) {
    benchmark::RegisterBenchmark(point.name.c_str(),
                                 [&point, &failure](benchmark::State& state) {
                                   if (failure) return state.SkipWithError("an earlier point failed");
                                   DriverOutcome outcome;
                                   try {
                                     outcome = point.measure();
                                   } catch (...) {  // must not unwind through the library
                                     failure = std::current_exception();
                                     return state.SkipWithError("failed");
                                   }
                                   if (!outcome.skipped.empty())
                                     return state.SkipWithError(outcome.skipped.c_str());
                                   for (auto _ : state) state.SetIterationTime(outcome.seconds);
                                   for (const auto& [name, value] : outcome.counters)
                                     state.counters[name] = value;
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  SilentReporter reporter;
  initialize(std::move(flags));
  const std::size_t matched =
      benchmark::RunSpecifiedBenchmarks(&reporter, options.filter.empty() ? "." : options.filter);
  benchmark::ClearRegisteredBenchmarks();
  return matched;
}

}  // namespace

std::size_t count_matching(std::span<const DriverPoint> points, const DriverOptions& options) {
  check_filter(options.filter);
  std::exception_ptr none;
  return run_once(points, options, {"--benchmark_list_tests=true", "--benchmark_out="}, none);
}

void drive(std::span<const DriverPoint> points, const DriverOptions& options) {
  check_filter(options.filter);
  std::vector<std::string> flags{"--benchmark_list_tests=false"};
  if (!options.json_out.empty()) {
    // The library would end the process if it could not open the file.
    if (!std::ofstream(options.json_out)) {
      throw Error(ErrorCode::kIo,
                  fmt::format("cannot write '{}': {}", options.json_out.string(), std::strerror(errno)));
    }
    flags.push_back("--benchmark_out_format=json");
  }
  flags.push_back(fmt::format("--benchmark_out={}", options.json_out.string()));
  std::exception_ptr failure;
  static_cast<void>(run_once(points, options, std::move(flags), failure));
  if (failure) std::rethrow_exception(failure);
  if (!options.json_out.empty()) check_whole(options.json_out);
}

}  // namespace mla::run
