// SPDX-License-Identifier: Apache-2.0
// A NaN or an infinity in a key that is used: it reaches the queries that see the key, all of their channels,
// and no other. Without a rotary part it stands in the first latent channel, and so in the values, too, where
// a kernel that only gives the key no weight still multiplies it by 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "attention_cases.hpp"
#include "device_array.hpp"
#include "mla/backend.hpp"
#include "verify/case.hpp"
#include "verify/run_case.hpp"

namespace {

using namespace mla;
using namespace mla::verify;

/// The key is in the middle: some of the new tokens come before it, or have it behind their window.
constexpr const char* kCases[] = {
    "decode latent h4 l128 r0 p64 v96 q8s9_q1s40_q7s7 b4",
    "decode latent h16 l512 r64 p128 v128 q8s12_q2s2 b16",
    "decode latent h3 l512 r0 p64 v96 q8s16 w4 sink1 b16",
    "decode latent h64 l256 r0 p64 v64 2q6s11 b64 q:f16 out:f16 cache:f16",
    "decode latent h4 l512 r64 p128 v128 q8s12 b16 cache:fp8_ds_mla",
    "decode head h4 l128 r0 p64 v96 q8s9_q1s40_q7s7 b4",
    "decode head h4 l128 r0 p64 v96 q8s9_q1s40 b4 q:f16 out:f16 cache:f16",
    "decode head h4 l512 r64 p128 v128 q8s12 w3 sink1 b16",
    "prefill head h2 l128 r0 p64 v96 q100_q37s40 b16",
    "prefill head h2 l128 r0 p64 v96 q300 w40 sink2 b16",
    "prefill head h2 l512 r0 p192 v256 q150 b64 q:f16 out:f16 cache:f16",
    "prefill head h2 l512 r64 p128 v128 q520s530 b64",
};

class UsedNan : public ::testing::TestWithParam<const Backend*> {};

TEST_P(UsedNan, ReachesExactlyTheQueriesThatSeeIt) {
  if (GetParam()->info().on_device) {
    MLA_NEEDS_GPU();
  }
  int passed = 0;
  for (const char* shape : kCases) {
    for (const char* values : {" values=nan", " values=inf"}) {
      const Verdict verdict = run_case(*GetParam(), parse_case(std::string(shape) + values));
      EXPECT_NE(verdict.outcome, Outcome::kFailed) << shape << values << ": " << verdict.reason << "\n  "
                                                   << to_text(verdict.report, verdict.c.shape.dims.num_heads);
      passed += verdict.outcome == Outcome::kPassed ? 1 : 0;
    }
  }
  EXPECT_GT(passed, 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, UsedNan, ::testing::ValuesIn(backends().begin(), backends().end()),
                         [](const auto& param) {
                           std::string name(param.param->info().name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
