// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/device.hpp"
#include "mla/index.hpp"

/// Index builders on trial: each array against its definition (a loop over keys and the mask), against each
/// other, and, for the device's, against the host's.
namespace mla::verify {

/// A batch for an index builder: lengths around block edges, padding, and a strided table of shuffled ids
/// with garbage wherever no block is in use.
struct IndexCase {
  std::vector<Request> batch;
  int block_size = 1, window = 1, sink = 0;
  int q_len = 1;  ///< new tokens a request of the decode index; no request is shorter but empty ones
  std::int64_t first_block = 0;  ///< lowest block id
  std::int64_t columns = 1, row_stride = 1;
  std::vector<std::int32_t> table;

  static constexpr std::int64_t kColumnStride = 2;
  [[nodiscard]] View<const std::int32_t, 2> view(const std::int32_t* data) const {
    return {data, {static_cast<std::int64_t>(batch.size()), columns}, {row_stride, kColumnStride}};
  }
  [[nodiscard]] View<const std::int32_t, 2> view() const { return view(table.data()); }
  [[nodiscard]] std::vector<std::int32_t> kv_lens() const;
};
/// The case of a seed; seeds 0, 1, 2 are hand-made: no request, one token, nothing but padding.
[[nodiscard]] IndexCase make_index_case(std::uint64_t seed);
/// "3 requests (4/17 0/0 1/64), block size 16, window 5, sink 2".
[[nodiscard]] std::string to_text(const IndexCase& c);

/// Somebody who builds the arrays of <mla/index.hpp>.
class Indexer {
 public:
  Indexer() = default;
  Indexer(const Indexer&) = delete;
  Indexer& operator=(const Indexer&) = delete;
  virtual ~Indexer() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual PrefillIndex prefill(const IndexCase& c) const = 0;
  /// `lens` by `convention`.
  [[nodiscard]] virtual DecodeIndex decode(const IndexCase& c, std::span<const std::int32_t> lens,
                                           SeqLens convention) const = 0;
  [[nodiscard]] virtual SparseIndex sparse(const IndexCase& c) const = 0;
  [[nodiscard]] virtual PageIndex pages(const IndexCase& c) const = 0;
};
/// The library's functions.
[[nodiscard]] std::unique_ptr<Indexer> host_indexer();
/// mla::device_ops on `device`.
[[nodiscard]] std::unique_ptr<Indexer> device_indexer(const Device& device);

/// A check and what it expects. `run` gives a sentence with the first difference, or an empty text.
struct IndexCheck {
  std::string_view name, expects;
  std::string (*run)(const Indexer& indexer, const IndexCase& c);
};
[[nodiscard]] std::span<const IndexCheck> index_checks();

/// How an indexer fared in a check over many cases.
struct IndexOutcome {
  std::string_view check, indexer;
  std::int64_t cases = 0;
  std::string finding;     ///< of the first case that failed, or empty
  std::uint64_t seed = 0;  ///< of that case
};
/// Cases of the seeds seed, seed + 1, ... Whatever an indexer throws is a finding.
[[nodiscard]] std::vector<IndexOutcome> check_indexers(std::span<const Indexer* const> indexers,
                                                       std::uint64_t seed, std::int64_t cases);

}  // namespace mla::verify
