// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "attention.hpp"
#include "matrix.hpp"

/// What attend() and collect_stats() share.
namespace mla::reference::detail {

/// A block of query rows with the keys it may see. An indexed block gets the rows its index names, copied in
/// the index's order, so that from here on a duplicate is just another key.
template <class Scalar>
struct BlockInputs {
  BlockInputs(const VisibleKeys& visible, const Keys<Scalar>& all_keys, const Heads<Scalar>& heads,
              RowBlock block);
  BlockInputs(const BlockInputs&) = delete;
  BlockInputs& operator=(const BlockInputs&) = delete;

  [[nodiscard]] std::int64_t rows() const noexcept { return static_cast<std::int64_t>(sees.size()); }

  std::vector<Scalar> q;      // [rows, d_qk]
  std::vector<Columns> sees;  // [rows]
  Keys<Scalar> keys;
  std::int64_t columns = 0;  // keys in `keys`
  std::vector<std::int32_t>
      copies;  // [columns] how often the index names the column's key; empty without one

 private:
  std::vector<Scalar> picked_k_, picked_v_;
};

/// out += weights v, where weights is 0 at keys a row does not see: row i sees key j of v if
/// sees[i].has(first_column + j). 0 times a NaN is a NaN, so keys that hold one are left out of the product
/// and added to the rows that do see them. The bits of the other rows do not change by that.
template <class Scalar>
void add_weighted_values(const Matrix<const Scalar>& weights, const Matrix<const Scalar>& v,
                         const std::vector<Columns>& sees, std::int64_t first_column,
                         const Matrix<Scalar>& out);

}  // namespace mla::reference::detail
