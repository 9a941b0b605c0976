// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "mla/error.hpp"
#include "mla/layer.hpp"
#include "verify/run_suite.hpp"
#include "verify/stage.hpp"

/// The public faults of tests/data/bug-cases.json, one test BugCases.MLA_nnn each, on every backend of this
/// machine.
namespace mla::test {

inline const std::vector<verify::Participant>& all_backends() {
  static const std::vector<verify::Participant> ready = verify::choose_participants("all").ready;
  return ready;
}

/// Small widths, all different, that most cases of the file name.
inline const std::string kSmall = "h4 l32 r8 p16 v16 ";
inline const std::string kFull = "h16 l512 r64 p128 v128 ";
inline const std::string kF32 = " q:f32 out:f32 cache:f32";
inline const std::string kBf16 = " q:bf16 out:bf16 cache:bf16";

struct Given {
  std::vector<double> out, lse;
};

/// Runs a problem on one backend; a refusal gives an empty result, anything else that goes wrong fails the
/// test.
inline Given run(const verify::Participant& p, const verify::Problem& problem,
                 const AttentionShape* planned = nullptr) {
  verify::Stage stage(problem, *p.machine.memory);
  if (!p.backend->supports(problem.shape(), p.machine.device)) return {};
  PlanOptions options;
  options.num_splits = problem.get_case().num_splits;
  const verify::Execution e = verify::execute(*p.backend, stage, problem, p.machine.device, options, planned);
  EXPECT_EQ(e.failure, "") << p.backend->info().name;
  return {e.out, e.lse};
}

/// Calls f(participant, result) for every backend that supports the problem; at least one does.
template <class Function>
void on_all(const verify::Problem& problem, Function f) {
  int ran = 0;
  for (const verify::Participant& p : all_backends()) {
    SCOPED_TRACE(std::string(p.backend->info().name) + ": " + to_text(problem.get_case()));
    const Given given = run(p, problem);
    if (given.out.empty()) continue;
    ++ran;
    f(p, given);
  }
  EXPECT_GE(ran, 1);
}

/// Judged against double precision, row by row, on every backend that supports the case.
inline void judge(const std::string& text) {
  verify::CaseRun one(verify::parse_case(text));
  int ran = 0;
  for (const verify::Participant& p : all_backends()) {
    const verify::Verdict verdict = one.judge(*p.backend, p.machine);
    EXPECT_NE(verdict.outcome, verify::Outcome::kFailed) << p.backend->info().name << ": " << verdict.reason;
    ran += verdict.outcome == verify::Outcome::kPassed ? 1 : 0;
  }
  EXPECT_GE(ran, 1) << text;
}

/// The same bits under every poison of unused memory.
inline void poisons_agree(const std::string& text, const std::vector<std::string>& poisons) {
  for (const verify::Participant& p : all_backends()) {
    Given first;
    for (const std::string& poison : poisons) {
      const Given given = run(p, verify::Problem(verify::parse_case(text + " poison=" + poison)));
      if (given.out.empty()) break;
      if (first.out.empty()) first = given;
      EXPECT_EQ(given.out, first.out) << p.backend->info().name << " " << poison;
      EXPECT_EQ(given.lse, first.lse) << p.backend->info().name << " " << poison;
      for (const double x : given.out) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

/// A latent-space problem whose q is 0 and whose cache rows `row(request, position, channel)` gives.
template <class Row>
verify::Problem crafted(const std::string& text, Row row, double query = 0) {
  const verify::Case c = verify::parse_case(text);
  verify::Values values = verify::make_values(c);
  for (double& x : values.q) x = query;
  const auto width = static_cast<std::size_t>(c.shape.dims.latent_width());
  std::size_t at = 0;
  for (std::size_t b = 0; b < c.shape.batch.size(); ++b) {
    for (std::int32_t j = 0; j < c.shape.batch[b].kv_len; ++j) {
      for (std::size_t channel = 0; channel < width; ++channel) {
        values.latent[at++] = row(b, j, static_cast<int>(channel));
      }
    }
  }
  return verify::Problem(c, std::move(values));
}

/// Query 0, latent channel 0 of key j is j: channel 0 of the output is the mean of the keys seen, LSE the log
/// of their number. `want`: (mean, number) of each token.
inline void count(const std::string& text, const std::vector<std::pair<double, int>>& want) {
  const verify::Problem problem =
      crafted(text, [](std::size_t, std::int32_t j, int channel) { return channel == 0 ? double(j) : 0.0; });
  const auto heads = static_cast<std::size_t>(problem.shape().dims.num_heads);
  const auto width = static_cast<std::size_t>(problem.shape().dims.kv_lora_rank);
  on_all(problem, [&](const verify::Participant&, const Given& given) {
    for (std::size_t t = 0; t < want.size(); ++t) {
      for (std::size_t h = 0; h < heads; ++h) {
        EXPECT_NEAR(given.out[(t * heads + h) * width], want[t].first, 1e-5) << "token " << t;
        EXPECT_NEAR(given.lse[t * heads + h], std::log(want[t].second), 1e-6) << "token " << t;
      }
    }
  });
}

/// Every element of the output is `want`, exactly.
inline void all_equal(const verify::Problem& problem, double want) {
  on_all(problem, [&](const verify::Participant&, const Given& given) {
    for (const double x : given.out) ASSERT_EQ(x, want);
  });
}

/// The sentence of a call that must throw.
template <class Function>
std::string sentence(Function f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace mla::test
