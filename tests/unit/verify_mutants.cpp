// SPDX-License-Identifier: Apache-2.0
// The wrong kernels against the public faults: every fault has a mutant, or docs/mutants.md says why it has none.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "bug_case_ids.hpp"
#include "core/text.hpp"
#include "verify/mutants.hpp"

namespace mla::verify {
namespace {

std::set<std::string> faults_of_mutants() {
  std::set<std::string> ids;
  const auto add = [&ids](const Mutant& mutant) {
    for (const std::string& id : text::split(mutant.source, ' ')) {
      if (!id.empty()) ids.insert(id);
    }
  };
  for (const Mutant& mutant : all_mutants()) add(mutant);
  for (const Mutant& mutant : violent_mutants()) add(mutant);
  return ids;
}

/// The rows "| MLA-nnn | reason |" of docs/mutants.md.
std::set<std::string> faults_with_a_reason() {
  std::ifstream in(MLA_SOURCE_DIR "/docs/mutants.md");
  const std::regex row(R"(\| (MLA-\d+) \| .{20,} \|)");
  std::set<std::string> ids;
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_match(line, match, row)) ids.insert(match[1]);
  }
  return ids;
}

TEST(Mutants, EveryPublicFaultHasOneOrAReason) {
  const std::vector<std::string> cases = test::bug_case_ids();
  ASSERT_GE(cases.size(), 66U);
  const std::set<std::string> mutants = faults_of_mutants();
  const std::set<std::string> reasons = faults_with_a_reason();
  std::set<std::string> known;
  for (const std::string& id : cases) {
    known.insert(id);
    EXPECT_NE(mutants.contains(id), reasons.contains(id))
        << id << " must have a mutant or a row in docs/mutants.md, and not both";
  }
  for (const std::string& id : mutants) EXPECT_TRUE(known.contains(id)) << id << " is no public fault";
}

}  // namespace
}  // namespace mla::verify
