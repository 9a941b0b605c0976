// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "mla/backend.hpp"
#include "run/device_inputs.hpp"
#include "spec/sweep.hpp"

namespace mla::run {

/// Whether a backend can compute as a point's options ask; what its plan() decides by the shape is not asked here.
[[nodiscard]] Support supports_mode(const Backend& backend, const PlanOptions& options);

/// What is timed at a point, planned: the attention alone; or the whole step of a layer's attention: new rows
/// are normalised, rotated and written into the cache, the query is absorbed, attended with, projected up. A
/// backend that takes head space does its own absorbing (or expanding); around one that takes only latent
/// space the two projections are put.
class DeviceCall {
 public:
  /// Whether the backend can do it at all; if not, its sentence.
  [[nodiscard]] static Support supports(const Backend& backend, const spec::SweepPoint& point,
                                        const Device& device);
  /// Plans. Throws kUnsupported with that sentence.
  DeviceCall(const Backend& backend, const spec::SweepPoint& point, const Device& device);

  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::size_t workspace_bytes() const noexcept;
  /// Where the whole call rounds, for a shape of the point's kind.
  [[nodiscard]] RoundingProfile rounding(const AttentionShape& shape) const;
  /// Enqueues call `i`.
  void run(const DeviceInputs& inputs, std::int64_t i, std::span<std::byte> workspace, Stream stream) const;

 private:
  void run_projected(const AttentionArgs& args, std::span<std::byte> workspace, Stream stream) const;

  const Backend& backend_;
  bool step_, projected_;
  AttentionShape shape_;  ///< what the backend is asked
  DType q_dtype_;
  std::unique_ptr<Plan> plan_;
  std::size_t absorbed_bytes_ = 0, latent_bytes_ = 0;
};

/// Bytes that the cache write of a step moves at least: c_kv and k_pe read, rows written.
[[nodiscard]] double cache_write_bytes(const AttentionShape& shape);

}  // namespace mla::run
