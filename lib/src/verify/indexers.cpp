// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "mla/device_ops.hpp"
#include "mla/memory.hpp"
#include "verify/index_check.hpp"
#include "verify/stage.hpp"

namespace mla::verify {
namespace {

class HostIndexer final : public Indexer {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "host"; }
  [[nodiscard]] PrefillIndex prefill(const IndexCase& c) const override {
    return build_prefill_index(c.batch, c.view(), c.block_size);
  }
  [[nodiscard]] DecodeIndex decode(const IndexCase& c, std::span<const std::int32_t> lens,
                                   SeqLens convention) const override {
    return build_decode_index(lens, convention, c.view(), c.block_size, c.q_len);
  }
  [[nodiscard]] SparseIndex sparse(const IndexCase& c) const override {
    return build_sparse_index(c.kv_lens(), c.window, c.sink, c.view(), c.block_size);
  }
  [[nodiscard]] PageIndex pages(const IndexCase& c) const override {
    return build_page_index(c.kv_lens(), c.window, c.sink, c.view(), c.block_size);
  }
};

/// An array on the device that starts as garbage, so that an entry left out shows.
template <class T>
class DeviceVector {
 public:
  DeviceVector(DeviceMemory& memory, std::vector<T> host)
      : memory_(memory),
        size_(static_cast<std::int64_t>(host.size())),
        buffer_(memory, host.size() * sizeof(T)) {
    memory.to_device(buffer_.data(), host.data(), host.size() * sizeof(T));
  }
  DeviceVector(DeviceMemory& memory, std::int64_t size)
      : DeviceVector(memory, std::vector<T>(static_cast<std::size_t>(size), T{-99999})) {}
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
  [[nodiscard]] View<T, 1> view() const { return {data(), {size_}}; }
  [[nodiscard]] View<const T, 1> input() const { return {data(), {size_}}; }
  [[nodiscard]] std::vector<T> read(std::int64_t count) const {
    std::vector<T> host(static_cast<std::size_t>(count));
    memory_.to_host(host.data(), data(), host.size() * sizeof(T));
    return host;
  }

 private:
  DeviceMemory& memory_;
  std::int64_t size_;
  Buffer buffer_;
};

/// Where the rows of a ragged index end, as the device says, and how many entries are in use: at most the
/// room there is, whatever a wrong builder says.
struct RowEnds {
  RowEnds(const DeviceVector<std::int32_t>& ends, std::int64_t requests, std::int64_t room)
      : indptr(ends.read(requests + 1)), used(std::clamp<std::int64_t>(indptr.back(), 0, room)) {}
  std::vector<std::int32_t> indptr;
  std::int64_t used;
};

class DeviceIndexer final : public Indexer {
 public:
  explicit DeviceIndexer(const Device& device) : memory_(device_memory(device)), name_(device.name) {}
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

  [[nodiscard]] PrefillIndex prefill(const IndexCase& c) const override {
    std::vector<std::int32_t> q_lens;
    std::int64_t tokens = 0;
    for (const Request& r : c.batch) {
      q_lens.push_back(r.q_len);
      tokens += r.q_len;
    }
    const DeviceVector<std::int32_t> table(memory_, c.table), q(memory_, q_lens), lens(memory_, c.kv_lens());
    const auto requests = static_cast<std::int64_t>(c.batch.size());
    const DeviceVector<std::int64_t> slots(memory_, tokens);
    const DeviceVector<std::int32_t> cu_q(memory_, requests + 1), cu_k(memory_, requests + 1),
        longest(memory_, 2);
    device_ops::build_prefill_index(q.input(), lens.input(), c.view(table.data()), c.block_size,
                                    {slots.view(), cu_q.view(), cu_k.view(), longest.view()});
    memory_.synchronize();
    const std::vector<std::int32_t> most = longest.read(2);
    return {slots.read(tokens), cu_q.read(requests + 1), cu_k.read(requests + 1), most[0], most[1]};
  }

  [[nodiscard]] DecodeIndex decode(const IndexCase& c, std::span<const std::int32_t> given,
                                   SeqLens convention) const override {
    const auto requests = static_cast<std::int64_t>(c.batch.size());
    std::int32_t longest_len = 0;
    for (const Request& r : c.batch) longest_len = std::max(longest_len, r.kv_len);
    const std::int64_t blocks = (longest_len + c.block_size - 1) / c.block_size;
    const DeviceVector<std::int32_t> table(memory_, c.table),
        lens(memory_, std::vector<std::int32_t>(given.begin(), given.end())),
        tables(memory_, requests * blocks), seq(memory_, requests), longest(memory_, 1);
    const DeviceVector<std::int64_t> slots(memory_, requests * c.q_len);
    device_ops::build_decode_index(
        lens.input(), convention, c.view(table.data()), c.block_size, c.q_len,
        {slots.view(), View<std::int32_t, 2>(tables.data(), {requests, blocks}), seq.view(), longest.view()});
    memory_.synchronize();
    return {slots.read(requests * c.q_len), tables.read(requests * blocks), seq.read(requests),
            static_cast<std::int32_t>(blocks), longest.read(1)[0]};
  }

  [[nodiscard]] SparseIndex sparse(const IndexCase& c) const override {
    const auto requests = static_cast<std::int64_t>(c.batch.size());
    const std::int64_t room =
        device_ops::sparse_index_capacity(requests, c.window, c.sink, c.columns, c.block_size);
    const DeviceVector<std::int32_t> table(memory_, c.table), lens(memory_, c.kv_lens()),
        indptr(memory_, requests + 1), indices(memory_, room), num(memory_, requests);
    const DeviceVector<std::int64_t> slots(memory_, room);
    device_ops::build_sparse_index(lens.input(), c.window, c.sink, c.view(table.data()), c.block_size,
                                   {indptr.view(), indices.view(), slots.view(), num.view()});
    memory_.synchronize();
    const RowEnds rows(indptr, requests, room);
    return {rows.indptr, indices.read(rows.used), slots.read(rows.used), num.read(requests)};
  }

  [[nodiscard]] PageIndex pages(const IndexCase& c) const override {
    const auto requests = static_cast<std::int64_t>(c.batch.size());
    const std::int64_t room =
        device_ops::page_index_capacity(requests, c.window, c.sink, c.columns, c.block_size);
    const DeviceVector<std::int32_t> table(memory_, c.table), lens(memory_, c.kv_lens()),
        indptr(memory_, requests + 1), ids(memory_, room), logical(memory_, room), last(memory_, requests);
    device_ops::build_page_index(lens.input(), c.window, c.sink, c.view(table.data()), c.block_size,
                                 {indptr.view(), ids.view(), logical.view(), last.view()});
    memory_.synchronize();
    const RowEnds rows(indptr, requests, room);
    return {rows.indptr, ids.read(rows.used), logical.read(rows.used), last.read(requests)};
  }

 private:
  DeviceMemory& memory_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Indexer> host_indexer() {
  return std::make_unique<HostIndexer>();
}

std::unique_ptr<Indexer> device_indexer(const Device& device) {
  return std::make_unique<DeviceIndexer>(device);
}

}  // namespace mla::verify
