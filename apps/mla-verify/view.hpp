// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mla/model.hpp"
#include "report/table.hpp"
#include "verify/capabilities.hpp"
#include "verify/golden.hpp"
#include "verify/index_check.hpp"
#include "verify/layer_check.hpp"
#include "verify/mutation.hpp"
#include "verify/oracles.hpp"
#include "verify/repro.hpp"
#include "verify/run_suite.hpp"
#include "verify/suite.hpp"

/// Results of the verifier as documents: pure functions, no streams.
namespace mla::verify_app {

/// `details`: one row a tensor beside the one a set.
[[nodiscard]] report::Document golden_document(const verify::GoldenManifest& manifest,
                                               std::span<const verify::GoldenResult> results, bool details);

/// A reduced failure and the file that holds it.
struct WrittenRepro {
  verify::Repro repro;
  std::string path;
  int tried = 0;
  bool stopped = false;   ///< before nothing simpler was left to try
  std::string problem{};  ///< why the file could not be written, or empty
};

/// Everything that a run found.
struct RunResult {
  std::uint64_t seed = 1;
  verify::Shard shard{};
  std::size_t jobs = 1;  ///< judges that worked side by side
  struct {
    std::size_t oracles = 0, cases = 0;  ///< 0 cases: random ones until the time was over
  } asked_for;
  verify::SuiteRun cases;
  verify::OracleRun oracles;
  std::vector<WrittenRepro> repros;
  double seconds = 0;  ///< all together
};

/// `passing_shown`: rows of passing verdicts, worst first; all failures are always shown.
[[nodiscard]] report::Document run_document(const verify::Suite& suite,
                                            const verify::Participants& participants, const RunResult& result,
                                            std::size_t passing_shown);

/// The terms of the budget of the worst row of each backend, each with its formula and the numbers in it. Computes the
/// reference of those cases again.
[[nodiscard]] report::Table formulas_table(const verify::SuiteRun& run,
                                           const verify::Participants& participants);

/// The document as one page that needs no network, with the share of the budget by length and by head.
[[nodiscard]] std::string run_html(const report::Document& document, const RunResult& result);

/// What came of running a reduced failure again.
[[nodiscard]] report::Document replay_document(const verify::Repro& repro, const verify::Verdict& verdict);

[[nodiscard]] report::Document capabilities_document(const verify::CapabilityRun& run,
                                                     const verify::Participants& participants);

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
