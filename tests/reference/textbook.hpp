// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mla/reference.hpp"

/// Attention once more, in long double, one number at a time and in the order a textbook writes it: shares no
/// line with the library. And the inputs that the tests feed to both.
namespace textbook {

using mla::reference::AttentionOutput;
using mla::reference::MhaProblem;
using mla::reference::MlaProblem;
using mla::reference::RowStats;
using mla::reference::Visibility;

/// Positions that query `i` of a request sees, with duplicates. `token` is its row in the index.
std::vector<std::int64_t> keys_of(const mla::Request& request, std::int64_t i, const Visibility& visible,
                                  std::int64_t token);

/// softmax(scale q k^T) v with its statistics.
AttentionOutput mha(const MhaProblem& problem);

/// The same of K and V expanded from the latent rows. Statistics as of the expanded form.
AttentionOutput mla(const MlaProblem& problem);

/// Largest |got - want| over the largest |want|; infinite where one is NaN or infinite and the other is not
/// the same.
double relative_error(std::span<const double> got, std::span<const double> want);

/// Standard normal numbers.
std::vector<double> normals(std::int64_t count, std::uint64_t stream, double sigma = 1.0);

/// An MLA problem that owns its arrays.
struct MlaData {
  mla::MlaDims dims;
  std::vector<mla::Request> batch;
  std::vector<double> q, latent, w_uk, w_uv;
  std::vector<std::int32_t> index;
  Visibility visible;
  double scale = 0;

  [[nodiscard]] MlaProblem problem() const {
    return {dims, batch, q, latent, w_uk, w_uv, {visible.mask, index, visible.topk}, scale};
  }
  [[nodiscard]] std::int64_t tokens() const;
  [[nodiscard]] std::int64_t keys() const;
};
MlaData make_mla(const mla::MlaDims& dims, std::vector<mla::Request> batch, const Visibility& visible,
                 std::uint64_t seed = 1);

/// H, P, R, V and L all different and no multiples of one another: equal widths hide a swap.
inline constexpr mla::MlaDims kOddDims{
    .num_heads = 5, .kv_lora_rank = 14, .qk_rope_head_dim = 6, .qk_nope_head_dim = 9, .v_head_dim = 11};

/// A batch with every awkward length: no keys, no queries, one key, more queries than keys, more than one
/// block of rows.
std::vector<mla::Request> awkward_batch();

/// Causal, full, windows narrower and wider than the requests, sinks beside and inside the window, an
/// explicit index with -1, out-of-range entries and duplicates.
struct NamedVisibility {
  std::string name;
  Visibility visible;
};
std::vector<NamedVisibility> visibilities();

/// topk random positions a token with -1, too large values and duplicates among them; every seventh row is
/// all -1.
std::vector<std::int32_t> random_index(std::span<const mla::Request> batch, std::int32_t topk,
                                       std::uint64_t seed);

}  // namespace textbook
