// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "mla/backend.hpp"
#include "textbook.hpp"

/// A backend call that owns its memory, laid out as awkwardly as the interface allows.
namespace backend_case {

/// How the arrays lie in memory; none of it may change a bit of the result.
struct Layout {
  std::int32_t block_size = 4;
  bool shuffled = false;  ///< pages in random order, among unused ones
  std::int64_t gap = 0;  ///< spare elements after every row of q, out, lse and table, spare bytes in the pool
  std::int64_t spare_rows = 0;  ///< tokens that q, out, lse and token_index hold beyond the call's
};

/// L is a multiple of 128, so that every cache format can hold a row.
inline constexpr mla::MlaDims kDims{
    .num_heads = 3, .kv_lora_rank = 128, .qk_rope_head_dim = 8, .qk_nope_head_dim = 10, .v_head_dim = 12};

/// Every byte not written by the test is this; as any float type it is a NaN.
inline constexpr std::byte kPoison{0xFF};

class Call {
 public:
  /// The inputs are `data`'s, encoded; data's q is [tokens, H, L+R] in latent space.
  Call(const textbook::MlaData& data, mla::QuerySpace space, mla::CacheFormat format, mla::DType q_dtype,
       mla::DType out_dtype, const Layout& layout = {});

  mla::AttentionShape shape;
  mla::AttentionArgs args;
  mla::PlanOptions options;

  /// Plans and runs.
  void run(const mla::Backend& backend);
  [[nodiscard]] std::vector<double> out() const;
  [[nodiscard]] std::vector<double> lse() const;
  /// True if no byte outside the call's own elements of out and lse was written.
  [[nodiscard]] bool only_results_written() const;

  /// The reference on the same, already rounded, inputs.
  [[nodiscard]] mla::reference::AttentionOutput reference(bool expanded,
                                                          mla::reference::Arithmetic arithmetic) const;
  /// The textbook on the same inputs.
  [[nodiscard]] mla::reference::AttentionOutput textbook_result() const;
  [[nodiscard]] std::vector<std::byte>& pool() { return pool_; }
  [[nodiscard]] std::vector<std::int32_t>& table() { return table_; }
  [[nodiscard]] std::vector<std::int32_t>& seq_lens() { return seq_lens_; }
  [[nodiscard]] std::vector<std::int32_t>& cu_seqlens() { return cu_seqlens_; }

 private:
  void lay_out_cache(const Layout& layout);
  mla::TensorRef tensor(std::vector<std::byte>& bytes, mla::DType dtype, std::vector<std::int64_t> extents,
                        const Layout& layout, std::int64_t spare_rows) const;

  textbook::MlaData data_;  // rounded to what the call sees
  std::vector<std::byte> q_, w_uk_, w_uv_, out_, lse_, pool_, k_pe_;
  std::vector<std::int32_t> table_, index_, cu_seqlens_{0}, seq_lens_;
};

/// The host as a device, without asking the machine.
mla::Device cpu();

}  // namespace backend_case
