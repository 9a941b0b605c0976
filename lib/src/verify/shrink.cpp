// SPDX-License-Identifier: Apache-2.0
#include "verify/shrink.hpp"

#include <algorithm>
#include <set>

#include "core/shared_prefix.hpp"
#include "mla/error.hpp"

namespace mla::verify {
namespace {

/// Smaller numbers to try in place of n, boldest first: the least one, half, one less.
std::vector<std::int32_t> smaller(std::int32_t n, std::int32_t least) {
  std::vector<std::int32_t> list;
  for (const std::int32_t candidate : {least, least + 1, n / 4, n / 2, n - 1}) {
    if (candidate >= least && candidate < n && std::ranges::find(list, candidate) == list.end())
      list.push_back(candidate);
  }
  return list;
}

class Simplifier {
 public:
  explicit Simplifier(const Case& c) : case_(c) {}

  std::vector<Case> all() {
    requests();
    shared();
    lengths();
    heads_and_widths();
    mask();
    layout();
    types();
    values();
    return std::move(found_);
  }

 private:
  template <class Change>
  void add(Change change) {
    Case c = case_;
    change(c);
    if (c == case_) return;
    try {
      validate(c);
      (void)cache_layout(c.shape.cache, c.shape.dims);
    } catch (const Error&) {
      return;
    }
    found_.push_back(std::move(c));
  }

  void requests() {
    const std::size_t n = case_.shape.batch.size();
    const auto keep = [this, n](std::size_t first, std::size_t count) {
      add([=](Case& c) {
        drop_requests(c.shape, first + count, n - first - count);
        drop_requests(c.shape, 0, first);
      });
    };
    if (n > 1) {
      for (std::size_t i = 0; i < std::min<std::size_t>(n, 8); ++i) keep(i, 1);
      keep(0, n / 2);
      keep(n / 2, n - n / 2);
    }
    for (std::size_t i = 0; n > 1 && i < n; ++i) {
      add([i](Case& c) { drop_requests(c.shape, i, 1); });
    }
  }

  void shared() {
    if (!case_.shape.shared.empty()) {
      add([](Case& c) {
        c.shape.shared.clear();
        c.prefix_reads = PrefixReads::kAuto;
      });
    }
    for (std::size_t i = 0; i < case_.shape.shared.size(); ++i) {
      add([i](Case& c) { c.shape.shared.erase(c.shape.shared.begin() + static_cast<std::ptrdiff_t>(i)); });
      for (const std::int32_t blocks : smaller(case_.shape.shared[i].tokens / case_.shape.block_size, 1)) {
        add([=](Case& c) { c.shape.shared[i].tokens = blocks * c.shape.block_size; });
      }
    }
  }

  void lengths() {
    for (std::size_t i = 0; i < case_.shape.batch.size(); ++i) {
      const Request& r = case_.shape.batch[i];
      for (const std::int32_t q_len : smaller(r.q_len, 1)) {
        add([=](Case& c) { c.shape.batch[i].q_len = q_len; });
        // A prefill stays one: as many keys go as queries.
        add([=](Case& c) {
          c.shape.batch[i].kv_len = std::max(0, r.kv_len - (r.q_len - q_len));
          c.shape.batch[i].q_len = q_len;
        });
      }
      for (const std::int32_t kv_len : smaller(r.kv_len, 0))
        add([=](Case& c) { c.shape.batch[i].kv_len = kv_len; });
      // Blocks at a time: what fails at an edge still fails at an earlier one.
      if (r.kv_len > case_.shape.block_size) {
        add([=](Case& c) { c.shape.batch[i].kv_len -= c.shape.block_size; });
      }
    }
  }

  void heads_and_widths() {
    const MlaDims& d = case_.shape.dims;
    for (const int h : smaller(d.num_heads, 1)) add([=](Case& c) { c.shape.dims.num_heads = h; });
    const auto widths = [this](int MlaDims::*width, int least) {
      const int now = case_.shape.dims.*width;
      std::set<int> candidates;
      for (const int w : {least, 8, 16, 32, 64, 128, 256, now / 2}) {
        if (w >= least && w < now) candidates.insert(w);
      }
      for (const int w : candidates) add([=](Case& c) { c.shape.dims.*width = w; });
    };
    widths(&MlaDims::kv_lora_rank, 1);
    widths(&MlaDims::qk_rope_head_dim, 0);
    widths(&MlaDims::qk_nope_head_dim, 1);
    widths(&MlaDims::v_head_dim, 1);
  }

  void mask() {
    const Mask& mask = case_.shape.mask;
    if (mask.window) {
      add([](Case& c) { c.shape.mask = {}; });
      add([](Case& c) { c.shape.mask.sink = 0; });
      for (const std::int32_t w : smaller(*mask.window, 1)) add([=](Case& c) { c.shape.mask.window = w; });
      for (const std::int32_t s : smaller(mask.sink, 0)) add([=](Case& c) { c.shape.mask.sink = s; });
    }
    if (!mask.causal) add([](Case& c) { c.shape.mask.causal = true; });
    if (case_.shape.topk > 0) {
      add([](Case& c) {
        c.shape.topk = 0;
        c.index = IndexKind::kPlain;
      });
      for (const std::int32_t k : smaller(case_.shape.topk, 1)) add([=](Case& c) { c.shape.topk = k; });
      add([](Case& c) { c.index = IndexKind::kPlain; });
    }
  }

  void layout() {
    for (const std::int32_t b : smaller(case_.shape.block_size, 1)) {
      if (b == 1 || b % 16 == 0 || case_.shape.block_size % 16 != 0)
        add([=](Case& c) { c.shape.block_size = b; });
    }
    for (const std::int32_t s : smaller(case_.num_splits, 0)) add([=](Case& c) { c.num_splits = s; });
    add([](Case& c) { c.permuted = false; });
    add([](Case& c) { c.strided = false; });
    add([](Case& c) { c.first_block = 0; });
    add([](Case& c) { c.far_rows = false; });
    for (const std::int32_t s : smaller(case_.spare_columns, 0)) add([=](Case& c) { c.spare_columns = s; });
    add([](Case& c) { c.poison = Poison::kZero; });
  }

  /// Plainer tensors: latent space, decode, single precision.
  void types() {
    add([](Case& c) { c.shape.space = QuerySpace::kLatent; });
    add([](Case& c) { c.shape.phase = Phase::kDecode; });
    add([](Case& c) {
      c.shape.q_dtype = c.shape.out_dtype = DType::kF32;
      c.shape.cache = CacheFormat::kF32;
    });
    if (case_.shape.cache == CacheFormat::kBF16Split)
      add([](Case& c) { c.shape.cache = CacheFormat::kBF16; });
    if (case_.shape.cache == CacheFormat::kF16Split) add([](Case& c) { c.shape.cache = CacheFormat::kF16; });
    if (case_.shape.out_dtype != DType::kF32) add([](Case& c) { c.shape.out_dtype = DType::kF32; });
  }

  void values() {
    if (case_.values != ValueKind::kNormal) add([](Case& c) { c.values = ValueKind::kNormal; });
    if (case_.score_std != 1.0) add([](Case& c) { c.score_std = 1.0; });
    if (case_.seed != 1) add([](Case& c) { c.seed = 1; });
    add([](Case& c) { c.lse = true; });
  }

  const Case& case_;
  std::vector<Case> found_;
};

}  // namespace

std::vector<Case> simpler_cases(const Case& c) {
  return Simplifier(c).all();
}

Failing failing_on(Judge& judge, const Participant& participant, const Oracle* oracle, int repeats) {
  return [=, &judge, &participant](const Case& c) -> std::optional<Finding> {
    if (oracle == nullptr) {
      const Verdict verdict = judge.judge(c, participant);
      if (verdict.outcome != Outcome::kFailed) return std::nullopt;
      return Finding{verdict.failure, verdict.reason};
    }
    const OracleOutcome outcome = judge.ask(*oracle, {participant.backend, participant.machine, c, repeats});
    if (outcome.outcome != Outcome::kFailed) return std::nullopt;
    return Finding{outcome.failure, outcome.reason};
  };
}

Shrunk shrink(const Case& c, const Finding& first, const Failing& failing, const ShrinkOptions& options) {
  Shrunk result{c, first, 0, false};
  std::set<std::string> seen{to_text(c)};  // what was tried once is not tried again
  for (bool smaller_found = true; smaller_found;) {
    smaller_found = false;
    for (const Case& candidate : simpler_cases(result.c)) {
      if (!seen.insert(to_text(candidate)).second) continue;
      if (result.tried >= options.most_tries || (options.stop && options.stop())) {
        result.stopped = true;
        return result;
      }
      ++result.tried;
      const std::optional<Finding> finding = failing(candidate);
      if (!finding || finding->failure != first.failure) continue;
      result.c = candidate;
      result.finding = *finding;
      if (options.progress) options.progress(candidate, result.tried);
      smaller_found = true;
      break;
    }
  }
  return result;
}

}  // namespace mla::verify
