// SPDX-License-Identifier: Apache-2.0
// Who may include whom (docs/design.md), read off the include lines so that the rule cannot rot.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Include {
  std::string file;    // relative to the source tree
  std::string header;  // as written
};

std::vector<Include> all_includes() {
  const fs::path root = MLA_SOURCE_DIR;
  const std::regex line_form(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  const std::set<std::string> suffixes = {".cpp", ".hpp", ".h", ".cu", ".cuh"};
  std::vector<Include> found;
  for (const char* top : {"lib", "reference", "kernels", "apps"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (!entry.is_regular_file() || suffixes.count(entry.path().extension().string()) == 0) continue;
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        std::smatch match;
        if (std::regex_search(line, match, line_form)) {
          found.push_back({fs::relative(entry.path(), root).generic_string(), match[1]});
        }
      }
    }
  }
  return found;
}

bool starts_with_any(const std::string& text, const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes) {
    if (text.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

struct Rule {
  const char* what;
  std::regex header;                 // include lines it is about
  std::vector<std::string> allowed;  // only these places may have them
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"Eigen", std::regex("^(Eigen|unsupported)/"), {"reference/"}},
      {"nlohmann/json", std::regex("^nlohmann/"), {"lib/src/model/", "lib/src/spec/"}},
      {"CLI11",
       std::regex("^CLI/"),
       {"apps/common/", "apps/mla-memcalc/options.cpp", "apps/mla-verify/options.cpp",
        "apps/mla-bench/options.cpp"}},
      {"Google Benchmark", std::regex("^benchmark/"), {"lib/src/run/"}},
      {"CUDA", std::regex("^(cuda|cublas|mma|cooperative_groups|nvtx3|nv/)"), {"kernels/"}},
      {"mla_tools headers (spec, run, report, verify, peer)",
       std::regex("^(spec|run|report|verify|peer)/"),
       {"lib/src/spec/", "lib/src/run/", "lib/src/report/", "lib/src/verify/", "lib/src/peer/", "apps/"}},
      {"kernels' own headers", std::regex("^(common|ptx)/"), {"kernels/"}},
  };
  return all;
}

TEST(Layering, SeesTheTree) {
  // A test that reads nothing would pass for ever.
  EXPECT_GT(all_includes().size(), 100U);
}

TEST(Layering, HeavyHeadersStayInTheirRooms) {
  for (const Include& include : all_includes()) {
    for (const Rule& rule : rules()) {
      if (!std::regex_search(include.header, rule.header)) continue;
      EXPECT_TRUE(starts_with_any(include.file, rule.allowed))
          << include.file << " includes " << include.header << ": " << rule.what << " belongs elsewhere";
    }
  }
}

TEST(Layering, JsonAndEigenNeverInHeaders) {
  const std::regex heavy("^(Eigen|nlohmann)/");
  for (const Include& include : all_includes()) {
    const bool header = include.file.find(".hpp") != std::string::npos;
    if (header && include.file.rfind("reference/", 0) != 0) {
      EXPECT_FALSE(std::regex_search(include.header, heavy))
          << include.file << " includes " << include.header;
    }
  }
}

TEST(Layering, PublicHeadersIncludeOnlyThemselvesAndTheStandardLibrary) {
  for (const Include& include : all_includes()) {
    if (include.file.rfind("lib/include/mla/", 0) != 0) continue;
    const bool own = include.header.rfind("mla/", 0) == 0;
    const bool standard =
        include.header.find('/') == std::string::npos && include.header.find(".hpp") == std::string::npos;
    EXPECT_TRUE(own || standard) << include.file << " includes " << include.header;
  }
}

TEST(Layering, GoogleBenchmarkIsInOneFile) {
  std::set<std::string> files;
  for (const Include& include : all_includes()) {
    if (include.header.rfind("benchmark/", 0) == 0) files.insert(include.file);
  }
  EXPECT_EQ(files.size(), 1U);
}

TEST(Layering, JoinComesWithItsHeader) {
  // Up to fmt 10 <fmt/format.h> has it too; from 11 on such a file does not compile.
  const fs::path root = MLA_SOURCE_DIR;
  for (const char* top : {"lib", "reference", "kernels", "apps", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string suffix = entry.path().extension().string();
      if (suffix != ".cpp" && suffix != ".hpp" && suffix != ".cu") continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
      if (text.find(std::string("fmt::") + "join(") == std::string::npos) continue;
      EXPECT_NE(text.find("#include <fmt/ranges.h>"), std::string::npos)
          << fs::relative(entry.path(), root).generic_string() << " joins without <fmt/ranges.h>";
    }
  }
}

TEST(Layering, InlineAssemblyOnlyInPtx) {
  const fs::path root = MLA_SOURCE_DIR;
  const std::regex inline_asm(R"(\basm\s*(volatile)?\s*\()");
  for (const char* top : {"lib", "reference", "kernels", "apps"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (!entry.is_regular_file()) continue;
      const std::string file = fs::relative(entry.path(), root).generic_string();
      if (file.rfind("kernels/ptx/", 0) == 0) continue;
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        EXPECT_FALSE(std::regex_search(line, inline_asm)) << file << ": " << line;
      }
    }
  }
}

}  // namespace
