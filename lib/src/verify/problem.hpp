// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "mla/backend.hpp"
#include "mla/reference.hpp"
#include "verify/case.hpp"
#include "verify/host_tensor.hpp"
#include "verify/values.hpp"

namespace mla::verify {

/// The pools of a paged cache in host memory. Blocks below first_block exist in the address space only: a
/// pool of 2^32 bytes need not be filled to have a row at its end.
struct HostPool {
  std::int64_t first_block = 0;  ///< block id of the first byte held
  std::int64_t num_blocks = 0;   ///< of the whole pool, first_block included
  std::int64_t row_stride = 0, block_stride = 0;
  std::vector<std::byte> bytes;
};

/// A case with its inputs encoded as a backend takes them, and read back as the reference takes them: what a
/// type cannot hold exactly is rounded once, here, and the reference sees the rounded value.
class Problem {
 public:
  /// Throws kInvalidArgument / kUnsupported for a case that cannot be (validate, cache_layout).
  explicit Problem(const Case& c);
  /// The same with the caller's numbers; sizes must be those of make_values.
  Problem(const Case& c, Values values);

  [[nodiscard]] const Case& get_case() const noexcept { return case_; }
  [[nodiscard]] const AttentionShape& shape() const noexcept { return case_.shape; }
  /// As rounded: what backend and reference both see.
  [[nodiscard]] const Values& values() const noexcept { return values_; }
  [[nodiscard]] const CacheLayout& layout() const noexcept { return layout_; }

  [[nodiscard]] const HostTensor& q() const noexcept { return q_; }
  [[nodiscard]] const HostTensor& w_uk() const noexcept { return w_uk_; }
  [[nodiscard]] const HostTensor& w_uv() const noexcept { return w_uv_; }
  [[nodiscard]] const HostPool& pool() const noexcept { return pool_; }
  [[nodiscard]] const HostPool& k_pe_pool() const noexcept { return k_pe_pool_; }
  [[nodiscard]] const HostTensor& block_table() const noexcept { return block_table_; }
  [[nodiscard]] const HostTensor& token_index() const noexcept { return token_index_; }
  [[nodiscard]] const std::vector<std::int32_t>& cu_seqlens_q() const noexcept { return cu_seqlens_q_; }
  [[nodiscard]] const std::vector<std::int32_t>& seq_lens() const noexcept { return seq_lens_; }
  /// Outputs as they stand before a run: every byte kNanByte.
  [[nodiscard]] HostTensor make_out() const;
  [[nodiscard]] HostTensor make_lse() const;

  /// The reference's view of the same problem (spans into this object).
  [[nodiscard]] reference::MlaProblem reference_problem() const;

 private:
  void share_prefixes();
  void encode_query();
  void encode_cache();
  void lay_out_pool(HostPool& pool, std::int64_t row_bytes, std::int64_t blocks) const;
  void poison_pools();
  std::vector<std::int64_t> assign_blocks();

  Case case_;
  Values values_;
  CacheLayout layout_;
  HostTensor q_, w_uk_, w_uv_, block_table_, token_index_;
  HostPool pool_, k_pe_pool_;
  std::vector<std::int32_t> cu_seqlens_q_, seq_lens_;
};

}  // namespace mla::verify
