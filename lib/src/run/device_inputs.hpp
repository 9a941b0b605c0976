// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mla/backend.hpp"
#include "mla/cache.hpp"
#include "mla/device_ops.hpp"
#include "mla/memory.hpp"
#include "run/sampled_check.hpp"
#include "verify/stage.hpp"

namespace mla::run {

/// How many sets of inputs a measurement rotates through.
struct Rotation {
  int sets = 1;
  bool cold = false;  ///< between two calls on one set at least twice the L2 passes through it
};
/// Device bytes of one set: cache rows and weights.
[[nodiscard]] double set_bytes(const AttentionShape& shape);
/// Enough sets that what the calls of one round read is four times the L2, two at least, as far as `budget`
/// bytes reach.
[[nodiscard]] Rotation cold_rotation(const AttentionShape& shape, std::int64_t l2_bytes, double budget);

/// Inputs of a call in a GPU's memory, made there: random numbers (mla/device_bench.hpp) in a paged pool
/// whose blocks are handed out in random order. Sets differ in their blocks and weights; queries, lengths and
/// outputs are shared, as a model's previous kernel has just written the query. Everything is a function of
/// shape, seed and number of sets.
class DeviceInputs final : public SampleInputs {
 public:
  /// `step`: with what the cache write of a whole step needs, too.
  DeviceInputs(const AttentionShape& shape, std::uint64_t seed, int sets, bool step, DeviceMemory& memory);
  /// Of call `i`: set i % sets.
  [[nodiscard]] AttentionArgs args(std::int64_t i) const;
  /// The rows of the new tokens for call `i`: normalised, rotated, to their slots.
  [[nodiscard]] device_ops::CacheWrite cache_write(std::int64_t i) const;
  [[nodiscard]] int sets() const noexcept { return sets_; }
  [[nodiscard]] double bytes() const noexcept { return bytes_; }

  /// Every byte of the outputs becomes NaN.
  void poison_outputs();
  /// "no element was left alone" is empty; else a sentence.
  [[nodiscard]] std::string unwritten_outputs() const;
  /// Of the last call.
  [[nodiscard]] SampleOutputs outputs() const;

  // Of set 0.
  const AttentionShape& shape() const override { return shape_; }
  std::uint64_t seed() const override { return seed_; }
  double softmax_scale() const override { return softmax_scale_; }
  std::vector<double> query(std::int64_t row) const override;
  std::vector<double> latent(std::size_t request, std::int64_t keys) const override;
  std::vector<double> w_uk(int head) const override;
  std::vector<double> w_uv(int head) const override;
  std::vector<std::int32_t> token_index(std::int64_t token) const override;

 private:
  std::byte* reserve(std::size_t bytes);
  template <class T>
  T* put(const std::vector<T>& host);
  void make_lengths();
  [[nodiscard]] std::vector<std::int32_t> make_pool();  ///< block tables of all sets
  void make_queries_and_weights();
  void make_outputs();
  void make_new_rows(const std::vector<std::int32_t>& tables);
  [[nodiscard]] std::vector<double> read(const std::byte* device, DType dtype, std::int64_t count) const;

  AttentionShape shape_;
  std::uint64_t seed_;
  int sets_;
  DeviceMemory* memory_;
  CacheLayout layout_;
  double softmax_scale_;
  double bytes_ = 0;
  AttentionArgs args_;               ///< of set 0
  device_ops::CacheWrite write_;     ///< of set 0, if this is a step
  std::int64_t table_elements_ = 0;  ///< of one set
  std::int64_t weight_bytes_ = 0;    ///< of one set, W_UK and W_UV
  std::vector<std::int32_t> table_;  ///< of set 0, on the host
  std::vector<std::int32_t> index_;  ///< token index, on the host
  std::size_t out_bytes_ = 0, lse_bytes_ = 0;
  std::vector<verify::Buffer> buffers_;
};

}  // namespace mla::run
