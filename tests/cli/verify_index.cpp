// SPDX-License-Identifier: Apache-2.0
// mla-verify index: the library's builders hold, and builders with one fault each do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "run_program.hpp"
#include "verify/index_check.hpp"

namespace {

using namespace mla;
using namespace mla::verify;

/// The host's arrays with something done to them.
class Spoiled final : public Indexer {
 public:
  std::function<void(PrefillIndex&, const IndexCase&)> on_prefill;
  std::function<void(DecodeIndex&, const IndexCase&)> on_decode;
  std::function<void(SparseIndex&, const IndexCase&)> on_sparse;
  std::function<void(PageIndex&, const IndexCase&)> on_pages;

  [[nodiscard]] std::string_view name() const noexcept override { return "spoiled"; }
  [[nodiscard]] PrefillIndex prefill(const IndexCase& c) const override {
    return changed(host_->prefill(c), on_prefill, c);
  }
  [[nodiscard]] DecodeIndex decode(const IndexCase& c, std::span<const std::int32_t> lens,
                                   SeqLens convention) const override {
    return changed(host_->decode(c, lens, convention), on_decode, c);
  }
  [[nodiscard]] SparseIndex sparse(const IndexCase& c) const override {
    return changed(host_->sparse(c), on_sparse, c);
  }
  [[nodiscard]] PageIndex pages(const IndexCase& c) const override {
    return changed(host_->pages(c), on_pages, c);
  }

 private:
  template <class Index>
  static Index changed(Index index, const std::function<void(Index&, const IndexCase&)>& change,
                       const IndexCase& c) {
    if (change) change(index, c);
    return index;
  }
  std::unique_ptr<Indexer> host_ = host_indexer();
};

/// Names of the checks that the indexer fails.
std::vector<std::string> failing(const Indexer& indexer) {
  const Indexer* const list[] = {&indexer};
  std::vector<std::string> names;
  for (const IndexOutcome& o : check_indexers(list, 0, 200)) {
    if (!o.finding.empty()) names.emplace_back(o.check);
  }
  return names;
}

TEST(VerifyIndex, TheHostHolds) {
  const mla::test::RunResult r = mla::test::run_program(MLA_VERIFY, {"index", "--cases", "200"});
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("round-trip"), std::string::npos);
  EXPECT_EQ(failing(Spoiled()), std::vector<std::string>{});
}

TEST(VerifyIndex, CasesHoldWhatTheyPromise) {
  bool empty = false, padded = false, beyond = false, edge = false;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const IndexCase c = make_index_case(seed);
    empty = empty || c.batch.empty();
    beyond = beyond || c.first_block * c.block_size > INT32_MAX;
    for (const Request& r : c.batch) {
      padded = padded || (r.kv_len == 0 && r.q_len > 0);
      edge = edge || (r.kv_len > 0 && c.block_size > 1 && r.kv_len % c.block_size == 0);
      ASSERT_TRUE(r.kv_len == 0 || (r.q_len <= r.kv_len && r.kv_len >= c.q_len)) << to_text(c);
    }
  }
  EXPECT_TRUE(empty && padded && beyond && edge);
}

TEST(VerifyIndex, AWindowOneTooShort) {
  Spoiled s;
  s.on_sparse = [](SparseIndex& index, const IndexCase&) {
    if (index.kv_indices.empty()) return;
    index.kv_indices.pop_back();
    index.kv_slots.pop_back();
    --index.kv_indptr.back();
    --index.num_kv.back();
  };
  EXPECT_EQ(failing(s), (std::vector<std::string>{"tokens", "pages-tokens", "round-trip", "host"}));
}

TEST(VerifyIndex, PaddingWrittenToSlotZero) {
  Spoiled s;
  s.on_prefill = [](PrefillIndex& index, const IndexCase&) {
    for (std::int64_t& slot : index.slot_mapping) slot = slot == kSkipSlot ? 0 : slot;
  };
  EXPECT_EQ(failing(s), (std::vector<std::string>{"prefill", "host"}));
}

TEST(VerifyIndex, SlotsCutTo32Bits) {
  Spoiled s;
  s.on_prefill = [](PrefillIndex& index, const IndexCase&) {
    for (std::int64_t& slot : index.slot_mapping) slot = static_cast<std::int32_t>(slot);
  };
  const std::vector<std::string> names = failing(s);
  EXPECT_TRUE(std::ranges::find(names, "prefill") != names.end());
  EXPECT_TRUE(std::ranges::find(names, "phases") != names.end());
}

TEST(VerifyIndex, TheNewTokenOnePlaceFurther) {
  Spoiled s;
  s.on_decode = [](DecodeIndex& index, const IndexCase&) {
    for (std::int64_t& slot : index.slot_mapping) slot += slot == kSkipSlot ? 0 : 1;
  };
  EXPECT_EQ(failing(s), (std::vector<std::string>{"decode", "phases", "host"}));
}

TEST(VerifyIndex, APageWithoutVisibleKeys) {
  Spoiled s;
  s.on_pages = [](PageIndex& index, const IndexCase&) {
    if (index.paged_kv_indptr.back() == 0) return;
    index.paged_kv_indices.push_back(12345);
    index.logical_blocks.push_back(99);
    ++index.paged_kv_indptr.back();
  };
  EXPECT_EQ(failing(s), (std::vector<std::string>{"pages", "pages-tokens", "host"}));
}

TEST(VerifyIndex, LastPageLengthZeroForFullPages) {
  Spoiled s;
  s.on_pages = [](PageIndex& index, const IndexCase& c) {
    for (std::int32_t& n : index.paged_kv_last_page_len) n %= c.block_size;
  };
  EXPECT_EQ(failing(s), (std::vector<std::string>{"pages", "host"}));
}

TEST(VerifyIndex, AThrowIsAFinding) {
  Spoiled s;
  s.on_sparse = [](SparseIndex&, const IndexCase&) { throw std::runtime_error("no table"); };
  const Indexer* const list[] = {&s};
  for (const IndexOutcome& o : check_indexers(list, 0, 3)) {
    if (o.check == "tokens") {
      EXPECT_NE(o.finding.find("it threw: no table"), std::string::npos);
    }
  }
}

}  // namespace
