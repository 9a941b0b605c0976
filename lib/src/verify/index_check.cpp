// SPDX-License-Identifier: Apache-2.0
#include "verify/index_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <set>

namespace mla::verify {
namespace {

/// The definition of a slot; the library's own slot_of is one of the accused.
std::int64_t slot_at(const IndexCase& c, std::size_t b, std::int64_t p) {
  const auto entry = static_cast<std::size_t>(static_cast<std::int64_t>(b) * c.row_stride +
                                              p / c.block_size * IndexCase::kColumnStride);
  return std::int64_t{c.table[entry]} * c.block_size + p % c.block_size;
}

template <class Got, class Want>
std::string differ(const char* what, const std::vector<Got>& got, const std::vector<Want>& want) {
  if (got.size() != want.size()) {
    return fmt::format("{} has {} entries, but should have {}", what, got.size(), want.size());
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (static_cast<std::int64_t>(got[i]) != static_cast<std::int64_t>(want[i])) {
      return fmt::format("{}[{}] is {}, but should be {}", what, i, got[i], want[i]);
    }
  }
  return {};
}

std::string differ(const char* what, std::int64_t got, std::int64_t want) {
  return got == want ? std::string() : fmt::format("{} is {}, but should be {}", what, got, want);
}

/// The first difference of several comparisons.
std::string first_of(std::initializer_list<std::string> findings) {
  for (const std::string& finding : findings) {
    if (!finding.empty()) return finding;
  }
  return {};
}

/// Slots of the last q_len tokens, or skips where there are no keys.
void append_slots(const IndexCase& c, std::size_t b, std::int64_t q_len, std::vector<std::int64_t>& slots) {
  const std::int64_t n = c.batch[b].kv_len;
  for (std::int64_t i = 0; i < q_len; ++i) slots.push_back(n == 0 ? kSkipSlot : slot_at(c, b, n - q_len + i));
}

/// Keys that the newest token sees, one after the other through the mask.
std::vector<std::int32_t> visible_keys(const IndexCase& c, std::size_t b) {
  const Mask mask{true, c.window, c.sink};
  std::vector<std::int32_t> keys;
  const std::int32_t n = c.batch[b].kv_len;
  for (std::int32_t j = 0; j < n; ++j) {
    if (mask.sees(n - 1, n, j)) keys.push_back(j);
  }
  return keys;
}

std::string prefill_definition(const Indexer& indexer, const IndexCase& c) {
  const PrefillIndex got = indexer.prefill(c);
  std::vector<std::int64_t> slots;
  std::vector<std::int32_t> cu_q{0}, cu_k{0};
  std::int32_t most_q = 0, most_k = 0;
  for (std::size_t b = 0; b < c.batch.size(); ++b) {
    append_slots(c, b, c.batch[b].q_len, slots);
    cu_q.push_back(cu_q.back() + c.batch[b].q_len);
    cu_k.push_back(cu_k.back() + c.batch[b].kv_len);
    most_q = std::max(most_q, c.batch[b].q_len);
    most_k = std::max(most_k, c.batch[b].kv_len);
  }
  return first_of(
      {differ("slot_mapping", got.slot_mapping, slots), differ("cu_seqlens_q", got.cu_seqlens_q, cu_q),
       differ("cu_seqlens_k", got.cu_seqlens_k, cu_k), differ("max_seq_len_q", got.max_seq_len_q, most_q),
       differ("max_seq_len_k", got.max_seq_len_k, most_k)});
}

std::string decode_definition(const Indexer& indexer, const IndexCase& c) {
  std::vector<std::int64_t> slots;
  std::vector<std::int32_t> lens = c.kv_lens(), before = lens;
  std::int32_t most = 0;
  for (std::size_t b = 0; b < c.batch.size(); ++b) {
    append_slots(c, b, c.q_len, slots);
    before[b] -= c.q_len;
    most = std::max(most, lens[b]);
  }
  const auto blocks = static_cast<std::size_t>((most + c.block_size - 1) / c.block_size);
  std::vector<std::int32_t> tables(c.batch.size() * blocks, 0);
  for (std::size_t b = 0; b < c.batch.size(); ++b) {
    for (std::int64_t p = 0; p < lens[b]; p += c.block_size) {
      tables[b * blocks + static_cast<std::size_t>(p / c.block_size)] =
          static_cast<std::int32_t>(slot_at(c, b, p) / c.block_size);
    }
  }
  for (const bool excluded : {false, true}) {
    const DecodeIndex got = indexer.decode(
        c, excluded ? before : lens, excluded ? SeqLens::kExcludeNewTokens : SeqLens::kIncludeNewTokens);
    const std::string finding = first_of(
        {differ("slot_mapping", got.slot_mapping, slots), differ("seq_lens", got.seq_lens, lens),
         differ("max_blocks", got.max_blocks, static_cast<std::int64_t>(blocks)),
         differ("max_seq_len", got.max_seq_len, most), differ("block_tables", got.block_tables, tables)});
    if (!finding.empty()) {
      return fmt::format("{} (lengths {} the new tokens)", finding, excluded ? "without" : "with");
    }
  }
  return {};
}

std::string sparse_definition(const Indexer& indexer, const IndexCase& c) {
  const SparseIndex got = indexer.sparse(c);
  std::vector<std::int32_t> indptr{0}, indices, counts;
  std::vector<std::int64_t> slots;
  for (std::size_t b = 0; b < c.batch.size(); ++b) {
    const std::vector<std::int32_t> keys = visible_keys(c, b);
    for (const std::int32_t j : keys) {
      indices.push_back(j);
      slots.push_back(slot_at(c, b, j));
    }
    counts.push_back(static_cast<std::int32_t>(keys.size()));
    indptr.push_back(static_cast<std::int32_t>(indices.size()));
  }
  return first_of({differ("kv_indptr", got.kv_indptr, indptr), differ("kv_indices", got.kv_indices, indices),
                   differ("kv_slots", got.kv_slots, slots), differ("num_kv", got.num_kv, counts)});
}

std::string page_definition(const Indexer& indexer, const IndexCase& c) {
  const PageIndex got = indexer.pages(c);
  std::vector<std::int32_t> indptr{0}, ids, logical, last;
  for (std::size_t b = 0; b < c.batch.size(); ++b) {
    std::set<std::int32_t> touched;
    for (const std::int32_t j : visible_keys(c, b)) touched.insert(j / c.block_size);
    for (const std::int32_t block : touched) {
      logical.push_back(block);
      ids.push_back(
          static_cast<std::int32_t>(slot_at(c, b, std::int64_t{block} * c.block_size) / c.block_size));
    }
    indptr.push_back(static_cast<std::int32_t>(ids.size()));
    const std::int32_t n = c.batch[b].kv_len;
    last.push_back(n == 0 ? 0 : n % c.block_size == 0 ? c.block_size : n % c.block_size);
  }
  return first_of({differ("paged_kv_indptr", got.paged_kv_indptr, indptr),
                   differ("paged_kv_indices", got.paged_kv_indices, ids),
                   differ("logical_blocks", got.logical_blocks, logical),
                   differ("paged_kv_last_page_len", got.paged_kv_last_page_len, last)});
}

/// Every visible token lies in a listed page, at its place; every listed page holds a visible token.
std::string pages_cover_tokens(const Indexer& indexer, const IndexCase& c) {
  const SparseIndex tokens = indexer.sparse(c);
  const PageIndex pages = indexer.pages(c);
  for (std::size_t b = 0; b < c.batch.size(); ++b) {
    std::map<std::int64_t, bool> used;  // physical block, whether a token lies in it
    std::map<std::int64_t, std::int64_t> logical;
    for (auto i = static_cast<std::size_t>(pages.paged_kv_indptr[b]);
         i < static_cast<std::size_t>(pages.paged_kv_indptr[b + 1]); ++i) {
      used[pages.paged_kv_indices[i]] = false;
      logical[pages.paged_kv_indices[i]] = pages.logical_blocks[i];
    }
    for (auto i = static_cast<std::size_t>(tokens.kv_indptr[b]);
         i < static_cast<std::size_t>(tokens.kv_indptr[b + 1]); ++i) {
      const std::int64_t block = tokens.kv_slots[i] / c.block_size,
                         offset = tokens.kv_slots[i] % c.block_size;
      const auto page = used.find(block);
      if (page == used.end()) {
        return fmt::format("request {}: key {} lies in block {}, which no page lists", b,
                           tokens.kv_indices[i], block);
      }
      page->second = true;
      if (logical[block] * c.block_size + offset != tokens.kv_indices[i]) {
        return fmt::format("request {}: key {} is place {} of logical block {}", b, tokens.kv_indices[i],
                           offset, logical[block]);
      }
    }
    for (const auto& [block, any] : used) {
      if (!any) return fmt::format("request {}: page {} holds no visible key", b, block);
    }
  }
  return {};
}

/// Every token of a batch written once through prefill slots is found again, by a window that sees all, where
/// it was put.
std::string slots_round_trip(const Indexer& indexer, const IndexCase& c) {
  IndexCase whole = c;
  for (Request& r : whole.batch) {
    r.q_len = r.kv_len;
    whole.window = std::max(whole.window, std::max(r.kv_len, 1));
  }
  const PrefillIndex written = indexer.prefill(whole);
  std::map<std::int64_t, std::int64_t> pool;  // slot to the token written there
  for (std::size_t t = 0; t < written.slot_mapping.size(); ++t) {
    const auto [at, fresh] = pool.emplace(written.slot_mapping[t], static_cast<std::int64_t>(t));
    if (!fresh) return fmt::format("tokens {} and {} share slot {}", at->second, t, at->first);
    if (at->first < 0) return fmt::format("token {} of a request with keys has slot {}", t, at->first);
  }
  const SparseIndex read = indexer.sparse(whole);
  for (std::size_t i = 0; i < read.kv_slots.size(); ++i) {
    const auto at = pool.find(read.kv_slots[i]);
    if (at == pool.end())
      return fmt::format("slot {} is read, but nothing was written there", read.kv_slots[i]);
    if (at->second != static_cast<std::int64_t>(i)) {
      return fmt::format("slot {} gives token {} where token {} belongs", read.kv_slots[i], at->second, i);
    }
  }
  return differ("the number of tokens found again", static_cast<std::int64_t>(read.kv_slots.size()),
                static_cast<std::int64_t>(pool.size()));
}

/// Slots of new tokens are the same from a prefill of all, a prefill of the new ones, and a decode step.
std::string phases_agree(const Indexer& indexer, const IndexCase& c) {
  IndexCase all = c, some = c;
  for (std::size_t b = 0; b < c.batch.size(); ++b) {
    all.batch[b].q_len = c.batch[b].kv_len;
    some.batch[b].q_len = c.batch[b].kv_len == 0 ? 0 : c.q_len;
  }
  const PrefillIndex full = indexer.prefill(all), part = indexer.prefill(some);
  const DecodeIndex step = indexer.decode(c, c.kv_lens(), SeqLens::kIncludeNewTokens);
  std::size_t end = 0, at = 0;
  for (std::size_t b = 0; b < c.batch.size(); ++b) {
    end += static_cast<std::size_t>(c.batch[b].kv_len);
    if (c.batch[b].kv_len == 0) continue;
    for (std::size_t i = 0; i < static_cast<std::size_t>(c.q_len); ++i) {
      const std::int64_t want = full.slot_mapping[end - static_cast<std::size_t>(c.q_len) + i];
      const std::int64_t chunk = part.slot_mapping[at++];
      const std::int64_t decoded = step.slot_mapping[b * static_cast<std::size_t>(c.q_len) + i];
      if (chunk != want || decoded != want) {
        return fmt::format(
            "request {} new token {}: slot {} in a whole prefill, {} in a chunk, {} in a decode step", b, i,
            want, chunk, decoded);
      }
    }
  }
  return {};
}

/// Bit for bit the host's arrays.
std::string equals_host(const Indexer& indexer, const IndexCase& c) {
  const std::unique_ptr<Indexer> host = host_indexer();
  const PrefillIndex p = indexer.prefill(c), hp = host->prefill(c);
  const DecodeIndex d = indexer.decode(c, c.kv_lens(), SeqLens::kIncludeNewTokens),
                    hd = host->decode(c, c.kv_lens(), SeqLens::kIncludeNewTokens);
  const SparseIndex s = indexer.sparse(c), hs = host->sparse(c);
  const PageIndex g = indexer.pages(c), hg = host->pages(c);
  return first_of({differ("slot_mapping", p.slot_mapping, hp.slot_mapping),
                   differ("cu_seqlens_q", p.cu_seqlens_q, hp.cu_seqlens_q),
                   differ("cu_seqlens_k", p.cu_seqlens_k, hp.cu_seqlens_k),
                   differ("decode slot_mapping", d.slot_mapping, hd.slot_mapping),
                   differ("block_tables", d.block_tables, hd.block_tables),
                   differ("kv_indptr", s.kv_indptr, hs.kv_indptr),
                   differ("kv_indices", s.kv_indices, hs.kv_indices),
                   differ("kv_slots", s.kv_slots, hs.kv_slots),
                   differ("paged_kv_indptr", g.paged_kv_indptr, hg.paged_kv_indptr),
                   differ("paged_kv_indices", g.paged_kv_indices, hg.paged_kv_indices),
                   differ("paged_kv_last_page_len", g.paged_kv_last_page_len, hg.paged_kv_last_page_len)});
}

constexpr std::array kChecks{
    IndexCheck{"prefill", "slots and offsets are those of the block table, token by token",
               prefill_definition},
    IndexCheck{"decode", "the same for q_len new tokens, with either way of counting lengths",
               decode_definition},
    IndexCheck{"tokens", "window + sink keys are those that the mask shows, one by one", sparse_definition},
    IndexCheck{"pages", "listed pages are those that hold such a key; last page length", page_definition},
    IndexCheck{"pages-tokens", "every key lies in a listed page, every listed page holds a key",
               pages_cover_tokens},
    IndexCheck{"round-trip", "what is written through slot_mapping is found again, once each",
               slots_round_trip},
    IndexCheck{"phases", "whole prefill, chunked prefill and decode give a token one slot", phases_agree},
    IndexCheck{"host", "bit for bit what the host builds", equals_host}};

IndexOutcome ask(const IndexCheck& check, const Indexer& indexer, std::uint64_t seed, std::int64_t cases) {
  IndexOutcome outcome{check.name, indexer.name(), 0, {}, 0};
  for (std::int64_t i = 0; i < cases && outcome.finding.empty(); ++i) {
    outcome.seed = seed + static_cast<std::uint64_t>(i);
    const IndexCase c = make_index_case(outcome.seed);
    try {
      outcome.finding = check.run(indexer, c);
    } catch (const std::exception& e) {
      outcome.finding = fmt::format("it threw: {}", e.what());
    }
    ++outcome.cases;
    if (!outcome.finding.empty()) outcome.finding += "; " + to_text(c);
  }
  return outcome;
}

}  // namespace

std::span<const IndexCheck> index_checks() {
  return kChecks;
}

std::vector<IndexOutcome> check_indexers(std::span<const Indexer* const> indexers, std::uint64_t seed,
                                         std::int64_t cases) {
  std::vector<IndexOutcome> outcomes;
  for (const IndexCheck& check : kChecks) {
    for (const Indexer* indexer : indexers) {
      if (check.run == equals_host && indexer->name() == "host") continue;
      outcomes.push_back(ask(check, *indexer, seed, cases));
    }
  }
  return outcomes;
}

}  // namespace mla::verify
