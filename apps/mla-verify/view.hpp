// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/table.hpp"
#include "verify/golden.hpp"
#include "verify/mutation.hpp"
#include "verify/oracles.hpp"
#include "verify/run_suite.hpp"
#include "verify/suite.hpp"

/// Results of the verifier as documents: pure functions, no streams.
namespace mla::verify_app {

/// `details`: one row a tensor beside the one a set.
[[nodiscard]] report::Document golden_document(const verify::GoldenManifest& manifest,
                                               std::span<const verify::GoldenResult> results, bool details);

/// `passing_shown`: rows of passing verdicts, worst first; all failures are always shown.
[[nodiscard]] report::Document run_document(const verify::Suite& suite,
                                            const verify::Participants& participants,
                                            const verify::SuiteRun& run, const verify::OracleRun& oracles,
                                            std::uint64_t seed, std::size_t passing_shown);

[[nodiscard]] report::Document oracles_document();

[[nodiscard]] report::Document mutants_document(const verify::MutationRun& run,
                                                const verify::IdealRun& ideal);

}  // namespace mla::verify_app
