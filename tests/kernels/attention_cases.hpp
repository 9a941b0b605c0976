// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "device_array.hpp"
#include "mla/backend.hpp"
#include "verify/case.hpp"
#include "verify/run_case.hpp"

namespace mla::testing {

/// Runs each case (mla-verify's one-line form) on the backend and expects it to be supported and within its
/// budgets.
inline void expect_cases(std::string_view backend_name, std::initializer_list<const char*> cases) {
  const Backend& backend = get_backend(backend_name);
  for (const char* text : cases) {
    const verify::Verdict verdict = verify::run_case(backend, verify::parse_case(text));
    EXPECT_EQ(name_of(verdict.outcome), name_of(verify::Outcome::kPassed))
        << backend_name << " on \"" << text << "\": " << verdict.reason << "\n  "
        << (verdict.report.rows > 0 ? to_text(verdict.report, verdict.c.shape.dims.num_heads) : "")
        << "\n  plan: " << verdict.plan;
  }
}

/// The sentence with which a backend refuses a shape on a described GPU; empty if it does not.
inline std::string refusal(std::string_view backend_name, std::string_view shape,
                           std::string_view gpu = "h200") {
  return get_backend(backend_name).supports(parse_shape(shape), load_device(gpu)).why;
}

}  // namespace mla::testing
