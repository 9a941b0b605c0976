// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mla/backend.hpp"

namespace mla::verify {

/// A split-KV flash-decoding kernel written out on the CPU as plainly as possible: tiles, online softmax,
/// partial results, merge, and rounding exactly where its profile says. With the right steps it is the ideal
/// kernel that the verifier may never accuse; each virtual step is a place where real kernels have gone
/// wrong, and a mutant overrides one of them.
class EmulatedKernel : public Backend {
 public:
  struct Options {
    std::string name = "emulated";
    RoundingProfile profile;
    std::int32_t tile = 32;   ///< keys a step of the online softmax
    std::int32_t splits = 1;  ///< where the caller forces none
  };
  explicit EmulatedKernel(Options options);
  void rename(std::string name);

  [[nodiscard]] const BackendInfo& info() const noexcept override { return info_; }
  [[nodiscard]] RoundingProfile rounding(const AttentionShape& shape) const override;
  [[nodiscard]] Support supports(const AttentionShape& shape, const Device& device) const override;
  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions& options = {}) const override;
  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream = {}) const override;

 protected:
  /// Which row is being computed and of what.
  struct Row {
    const AttentionShape& shape;
    const AttentionArgs& args;
    const CacheLayout& layout;
    std::int32_t splits;
    std::int64_t request, requests;
    std::int64_t token;  ///< in the batch
    std::int64_t i;      ///< query of the request
    std::int64_t q_len, n;
    std::int64_t head;
  };
  /// One part of the keys: unnormalised sums, or, once finished, output and LSE.
  struct Part {
    double max = 0, sum = 0;
    std::vector<double> out;
    double lse = 0;
    bool empty = true;
  };

  // ---- the steps, in the order of a run
  // --------------------------------------------------------------------------
  /// Splits where the caller forces none.
  [[nodiscard]] virtual std::int32_t default_splits(const AttentionShape& shape) const;
  [[nodiscard]] virtual double scale(const Row& row) const;
  /// Keys that the row's request has.
  [[nodiscard]] virtual std::int64_t num_keys(const Row& row) const;
  /// Position of the row's query in its sequence.
  [[nodiscard]] virtual std::int64_t position(const Row& row) const;
  [[nodiscard]] virtual bool sees(const Row& row, std::int64_t key) const;
  /// Position that an entry of the explicit index names, or -1 to skip it.
  [[nodiscard]] virtual std::int64_t indexed_key(const Row& row, std::int32_t entry) const;
  /// What the row's tiles are made of, in order: keys, or -1 for one that is masked.
  [[nodiscard]] virtual std::vector<std::int64_t> candidates(const Row& row) const;
  [[nodiscard]] virtual std::int64_t slot(const Row& row, std::int64_t key) const;
  virtual void load(const Row& row, std::int64_t slot, std::span<double> latent) const;
  /// The query against latent rows: head space absorbs W_UK.
  [[nodiscard]] virtual std::vector<double> query(const Row& row) const;
  [[nodiscard]] virtual double dot(const Row& row, std::span<const double> query,
                                   std::span<const double> latent) const;
  /// What is subtracted from scores before exp, given the largest so far.
  [[nodiscard]] virtual double score_shift(const Row& row, double max) const;
  /// Factor of the sums so far when the maximum grows by -`change`.
  [[nodiscard]] virtual double rescale(const Row& row, double change) const;
  [[nodiscard]] virtual double round_probability(const Row& row, double p) const;
  /// [begin, end) tiles of a part.
  [[nodiscard]] virtual std::pair<std::int64_t, std::int64_t> part_tiles(const Row& row, std::int64_t part,
                                                                         std::int64_t tiles) const;
  virtual void finish_part(const Row& row, Part& part) const;
  [[nodiscard]] virtual Part merge(const Row& row, std::span<const Part> parts) const;
  /// The row as it leaves: head space pushes it through W_UV.
  [[nodiscard]] virtual std::vector<double> project(const Row& row, std::span<const double> latent_out) const;
  [[nodiscard]] virtual double final_lse(const Row& row, double lse) const;
  virtual void store(const Row& row, std::span<const double> out, double lse) const;

  /// Rounds to the arithmetic of the profile.
  [[nodiscard]] double arithmetic(double x) const;
  [[nodiscard]] const Options& options() const noexcept { return options_; }

 private:
  void compute(const Row& row) const;
  void add_tile(const Row& row, std::span<const double> query, double scale,
                std::span<const std::int64_t> keys, Part& part) const;

  Options options_;
  BackendInfo info_;
};

/// Profiles of faithful kernels, for tests and calibration: everything f32; P in bf16; P in bf16 and summed
/// rounded; P in f16; bf16 partials; bf16 absorbed query and latent output; P in f16 after a fused product.
struct NamedProfile {
  std::string_view name;
  RoundingProfile profile;
};
[[nodiscard]] std::span<const NamedProfile> ideal_profiles();

}  // namespace mla::verify
