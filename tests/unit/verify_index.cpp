// SPDX-License-Identifier: Apache-2.0
// The judge of index builders: it passes ours and finds planted faults.
#include <gtest/gtest.h>

#include <array>

#include "verify/index_check.hpp"

namespace mla::verify {
namespace {

constexpr std::int64_t kCases = 120;

/// The host's arrays, spoiled.
class Spoiled final : public Indexer {
 public:
  enum class Fault {
    kSlotOff,
    kPaddingNotSkipped,
    kSinkTwice,
    kNewestLost,
    kLastPageZero,
    kPageLost,
    kLensOff
  };
  explicit Spoiled(Fault fault) : fault_(fault) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "spoiled"; }

  [[nodiscard]] PrefillIndex prefill(const IndexCase& c) const override {
    PrefillIndex index = host_->prefill(c);
    if (fault_ == Fault::kSlotOff && index.slot_mapping.size() > 1)
      std::swap(index.slot_mapping[0], index.slot_mapping[1]);
    if (fault_ == Fault::kPaddingNotSkipped) {
      for (std::int64_t& slot : index.slot_mapping) slot = std::max<std::int64_t>(slot, 0);
    }
    return index;
  }
  [[nodiscard]] DecodeIndex decode(const IndexCase& c, std::span<const std::int32_t> lens,
                                   SeqLens convention) const override {
    // Whoever takes lengths without the new tokens for lengths with them.
    return host_->decode(c, lens, fault_ == Fault::kLensOff ? SeqLens::kIncludeNewTokens : convention);
  }
  [[nodiscard]] SparseIndex sparse(const IndexCase& c) const override {
    SparseIndex index = host_->sparse(c);
    if (fault_ == Fault::kNewestLost && !index.kv_indices.empty()) {
      index.kv_indices.pop_back();
      index.kv_slots.pop_back();
      --index.kv_indptr.back();
    }
    if (fault_ == Fault::kSinkTwice && !index.kv_indices.empty() && c.sink > 0) {
      index.kv_indices.push_back(index.kv_indices.front());
      index.kv_slots.push_back(index.kv_slots.front());
      ++index.kv_indptr.back();
    }
    return index;
  }
  [[nodiscard]] PageIndex pages(const IndexCase& c) const override {
    PageIndex index = host_->pages(c);
    if (fault_ == Fault::kLastPageZero) {
      for (std::int32_t& n : index.paged_kv_last_page_len) n %= c.block_size;
    }
    if (fault_ == Fault::kPageLost && index.paged_kv_indices.size() > 1) {
      index.paged_kv_indices.back() = index.paged_kv_indices.front();
    }
    return index;
  }

 private:
  Fault fault_;
  std::unique_ptr<Indexer> host_ = host_indexer();
};

TEST(IndexCheck, TheHostsIndexersPass) {
  const std::unique_ptr<Indexer> host = host_indexer();
  const std::array<const Indexer*, 1> indexers{host.get()};
  const std::vector<IndexOutcome> outcomes = check_indexers(indexers, 0, kCases);
  ASSERT_EQ(outcomes.size(), index_checks().size() - 1);  // the host is not compared with itself
  for (const IndexOutcome& o : outcomes) {
    EXPECT_EQ(o.finding, "") << o.check << " seed " << o.seed;
    EXPECT_EQ(o.cases, kCases) << o.check;
  }
}

TEST(IndexCheck, PlantedFaultsAreFound) {
  using Fault = Spoiled::Fault;
  for (const auto& [fault, check] : {std::pair{Fault::kSlotOff, "prefill"},
                                     {Fault::kPaddingNotSkipped, "prefill"},
                                     {Fault::kLensOff, "decode"},
                                     {Fault::kNewestLost, "tokens"},
                                     {Fault::kSinkTwice, "tokens"},
                                     {Fault::kLastPageZero, "pages"},
                                     {Fault::kPageLost, "pages-tokens"}}) {
    const Spoiled spoiled(fault);
    const std::array<const Indexer*, 1> indexers{&spoiled};
    bool found = false;
    for (const IndexOutcome& o : check_indexers(indexers, 0, kCases)) {
      if (o.check == check) found = !o.finding.empty();
    }
    EXPECT_TRUE(found) << "fault " << static_cast<int>(fault) << " passes the check " << check;
  }
}

TEST(IndexCheck, CasesReachWhatMatters) {
  int empty = 0, far = 0, edges = 0, padding = 0;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    const IndexCase c = make_index_case(seed);
    empty += c.batch.empty() ? 1 : 0;
    far += c.first_block * c.block_size > (std::int64_t{1} << 31) ? 1 : 0;
    for (const Request& r : c.batch) {
      edges += r.kv_len > 0 && r.kv_len % c.block_size == 0 ? 1 : 0;
      padding += r.kv_len == 0 && r.q_len > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(empty, 0);
  EXPECT_GT(far, 10);
  EXPECT_GT(edges, 10);
  EXPECT_GT(padding, 10);
}

}  // namespace
}  // namespace mla::verify
