// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mla/model.hpp"
#include "report/table.hpp"
#include "verify/golden.hpp"
#include "verify/index_check.hpp"
#include "verify/layer_check.hpp"
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

/// `no_device`: why no device's indexers took part, or empty.
[[nodiscard]] report::Document index_document(std::span<const verify::IndexOutcome> outcomes,
                                              const std::string& no_device);

/// What `mla-verify layer` found, block by block; the layers' weights are not read.
struct LayerReport {
  std::int64_t layer = 0;
  ModelConfig model;
  std::string hidden;  ///< "random" or a file
  std::vector<verify::LoadedLayer> layers;
  std::vector<verify::LayerResult> results;
};
[[nodiscard]] report::Document layer_document(const LayerReport& layer);

[[nodiscard]] report::Document mutants_document(const verify::MutationRun& run,
                                                const verify::IdealRun& ideal);

}  // namespace mla::verify_app
