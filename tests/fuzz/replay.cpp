// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz entry point without a fuzzer: every file of a folder, then mutations of them. The mutations depend on the
// folder and the count alone, so that a failure here is a failure everywhere. Usage: fuzz_NAME CORPUS_FOLDER MUTATIONS
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz.hpp"
#include "mla/random.hpp"

namespace {

using Input = std::string;

// The input at work, for the crash handler.
const char* current_data = nullptr;
std::size_t current_size = 0;
char saved_path[256];

extern "C" void save_input(int signal_number) {
  // Not all of this is safe in a signal handler; a crash report that may fail beats none.
  if (std::FILE* file = std::fopen(saved_path, "wb")) {
    std::fwrite(current_data, 1, current_size, file);
    std::fclose(file);
    std::fprintf(stderr, "signal %d; the input is in %s\n", signal_number, saved_path);
  }
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

/// noexcept: what an entry point lets escape ends the program while its input can still be saved.
void run(const Input& input) noexcept {
  // A copy of exactly this size, so that a read past its end is seen by AddressSanitizer.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  current_data = input.data();
  current_size = input.size();
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

/// Deterministic draws one after another.
class Draws {
 public:
  explicit Draws(std::uint64_t mutation) : rng_(mutation, 1) {}
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>(rng_.between(index_++, 0, static_cast<std::int64_t>(count) - 1));
  }

 private:
  mla::CounterRng rng_;
  std::uint64_t index_ = 0;
};

/// Pieces that break number and structure parsers more often than random bytes do.
const Input kPieces[] = {"-",
                         "..",
                         ",",
                         "_",
                         ":",
                         "0",
                         "9223372036854775807",
                         "18446744073709551616",
                         "2147483648",
                         "nan",
                         "inf",
                         "1e9",
                         "0x1",
                         "\xFF",
                         "\"",
                         "{",
                         "}",
                         "[",
                         "]",
                         " ",
                         "\n",
                         "k",
                         "m",
                         "%s",
                         std::string(1, '\0'),
                         std::string(300, '9')};

Input mutate(const std::vector<Input>& corpus, std::uint64_t number) {
  Draws draws(number);
  Input text = corpus[draws.below(corpus.size())];
  for (std::size_t edits = 1 + draws.below(4); edits > 0; --edits) {
    const std::size_t at = draws.below(text.size() + 1);
    const std::size_t length = 1 + draws.below(8);
    const Input& other = corpus[draws.below(corpus.size())];
    switch (draws.below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << draws.below(8)));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, 1, static_cast<char>(draws.below(256)));
        break;
      case 3:
        text.insert(at, kPieces[draws.below(std::size(kPieces))]);
        break;
      case 4:
        text.insert(at, text.substr(at, length));
        break;
      case 5:
        text = text.substr(0, at) + other.substr(std::min(other.size(), draws.below(other.size() + 1)));
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

std::vector<Input> read_corpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());  // the folder's order differs between machines
  std::vector<Input> corpus;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

int replay(const char* program, const char* folder, const char* count) {
  std::uint64_t mutations = 0;
  if (std::from_chars(count, count + std::strlen(count), mutations).ec != std::errc{}) {
    fmt::print(stderr, "'{}' is not a number of mutations\n", count);
    return 2;
  }
  const auto name = std::filesystem::path(program).filename().string();
  const auto end = fmt::format_to_n(saved_path, sizeof(saved_path) - 1, "crash-{}.bin", name).out;
  *end = '\0';
  for (const int signal_number : {SIGABRT, SIGILL, SIGFPE, SIGSEGV}) {
#ifdef __SANITIZE_ADDRESS__
    if (signal_number == SIGSEGV) continue;  // the sanitizer's own report says more
#endif
    std::signal(signal_number, save_input);
  }
  const std::vector<Input> corpus = read_corpus(folder);
  if (corpus.empty()) {
    fmt::print(stderr, "no files in {}\n", folder);
    return 2;
  }
  run({});
  for (const Input& input : corpus) run(input);
  for (std::uint64_t i = 0; i < mutations; ++i) run(mutate(corpus, i));
  fmt::print("{} inputs and {} mutations: no crash\n", corpus.size(), mutations);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} CORPUS_FOLDER MUTATIONS\n", argv[0]);
    return 2;
  }
  try {
    return replay(argv[0], argv[1], argv[2]);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
}
