// SPDX-License-Identifier: Apache-2.0
// Oracles whose right answer needs no reference: it was built into the inputs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "verify/oracle_list.hpp"
#include "verify/oracle_tools.hpp"
#include "verify/suite.hpp"

namespace mla::verify {
namespace {

/// Makes output channel 0 show latent channel 0: latent space does, head space needs W_UV = e0 in its first
/// row.
void show_first_channel(const AttentionShape& shape, Values& values) {
  if (shape.space == QuerySpace::kLatent) return;
  const auto rank = static_cast<std::size_t>(shape.dims.kv_lora_rank);
  const std::size_t head = static_cast<std::size_t>(shape.dims.v_head_dim) * rank;
  for (std::size_t h = 0; h < static_cast<std::size_t>(shape.dims.num_heads); ++h) {
    std::fill_n(values.w_uv.begin() + static_cast<std::ptrdiff_t>(h * head), rank, 0.0);
    values.w_uv[h * head] = 1.0;
  }
}

/// Keys that a row sees, by the definition alone: nothing of the reference is used.
std::vector<std::int64_t> keys_of(const Problem& problem, std::size_t request, std::int64_t i) {
  const AttentionShape& shape = problem.shape();
  const Request& r = shape.batch[request];
  std::vector<std::int64_t> keys;
  if (shape.topk > 0) {
    const auto topk = static_cast<std::size_t>(shape.topk);
    const auto token = static_cast<std::size_t>(problem.cu_seqlens_q()[request] + i);
    for (std::size_t k = 0; k < topk; ++k) {
      const std::int32_t entry = problem.values().token_index[token * topk + k];
      if (entry >= 0 && entry < r.kv_len) keys.push_back(entry);
    }
    return keys;
  }
  const std::int64_t p = r.kv_len - r.q_len + i;
  for (std::int64_t j = 0; j < r.kv_len; ++j) {
    const bool inside = !shape.mask.window || j > p - *shape.mask.window || j < shape.mask.sink;
    if (!shape.mask.causal || (j <= p && inside)) keys.push_back(j);
  }
  return keys;
}

constexpr std::int64_t kLargestCount = 256;  // the last whole number that bf16 counts to

OracleOutcome count_keys(const OracleSubject& subject, const Case& c) {
  Values values = make_values(c);
  std::fill(values.q.begin(), values.q.end(), 0.0);
  const auto width = static_cast<std::size_t>(c.shape.dims.latent_width());
  std::size_t row = 0;
  for (const Request& r : c.shape.batch) {
    for (std::int64_t j = 0; j < r.kv_len; ++j) values.latent[row++ * width] = static_cast<double>(j);
  }
  show_first_channel(c.shape, values);
  const Problem problem(c, std::move(values));
  const Execution run = run_problem(subject, problem);

  const RoundingProfile profile = subject.backend->rounding(c.shape);
  const double stored = unit_roundoff(profile.partials) + unit_roundoff(profile.latent_output) + 1e-5;
  const auto heads = static_cast<std::size_t>(c.shape.dims.num_heads);
  const auto out_width = static_cast<std::size_t>(output_width(c.shape));
  std::size_t first_key = 0, token = 0;
  for (std::size_t b = 0; b < c.shape.batch.size(); ++b) {
    for (std::int64_t i = 0; i < c.shape.batch[b].q_len; ++i, ++token) {
      const std::vector<std::int64_t> keys = keys_of(problem, b, i);
      double mean = 0;  // of the stored numbers: fp8 formats round them
      for (const std::int64_t j : keys)
        mean += problem.values().latent[(first_key + static_cast<std::size_t>(j)) * width];
      const double n = static_cast<double>(keys.size());
      mean = keys.empty() ? 0.0 : mean / n;
      const double lse = keys.empty() ? -std::numeric_limits<double>::infinity() : std::log(n);
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t r = token * heads + h;
        const double got = run.out[r * out_width];
        // The weights are exactly 1: only sums and what is stored on the way can be off.
        const double slack = 0.5 * ulp_of(c.shape.out_dtype, mean) + stored * mean + (1 + n) * 0x1p-22;
        const double got_lse = run.lse.empty() ? lse : run.lse[r];
        const bool lse_right = keys.empty() ? got_lse == lse : std::abs(got_lse - lse) <= 0.2 / n;
        if (std::abs(got - mean) <= slack && lse_right) continue;
        return OracleOutcome::failed(fmt::format(
            "{}: the mean key number is {:.6g} and the LSE says {:.5g} keys; seen should be {} keys with "
            "mean {:.6g}",
            name_row(problem, static_cast<std::int64_t>(r)), got, std::exp(got_lse), keys.size(), mean));
      }
    }
    first_key += static_cast<std::size_t>(c.shape.batch[b].kv_len);
  }
  return OracleOutcome::passed();
}

/// Masks to count with; those a backend refuses are left out.
std::vector<Case> counting_cases(const OracleSubject& subject) {
  std::vector<Case> cases;
  const auto add = [&](auto change) {
    Case c = subject.base;
    c.lse = true;
    for (Request& r : c.shape.batch) {
      r.kv_len = std::min<std::int32_t>(r.kv_len, kLargestCount);
      r.q_len = std::min(r.q_len, std::max(r.kv_len, 1));
    }
    change(c);
    if (subject.backend->supports(c.shape, subject.machine.device)) cases.push_back(c);
  };
  add([](Case&) {});
  add([](Case& c) { c.shape.mask.causal = false; });
  for (const std::int32_t window : {1, 2, subject.base.shape.block_size, 1000}) {
    for (const std::int32_t sink : {0, 4}) {
      add([=](Case& c) {
        c.shape.mask.window = window;
        c.shape.mask.sink = sink;
      });
    }
  }
  for (const IndexKind kind : {IndexKind::kPlain, IndexKind::kFront, IndexKind::kMiddle, IndexKind::kEnd,
                               IndexKind::kNone, IndexKind::kOutside, IndexKind::kDuplicates}) {
    add([=](Case& c) {
      c.shape.topk = 64;
      c.index = kind;
    });
  }
  return cases;
}

}  // namespace

OracleOutcome oracle_one_key(const OracleSubject& subject) {
  const Problem problem(single_request(subject.base, 1, 1));
  const std::string wrong = against_reference(subject, run_problem(subject, problem), problem);
  return wrong.empty() ? OracleOutcome::passed() : OracleOutcome::failed(wrong);
}

OracleOutcome oracle_constant_value(const OracleSubject& subject) {
  Case c = single_request(subject.base, 1, 150);
  c.values = ValueKind::kConstant;
  const Problem problem(c);
  const Execution run = run_problem(subject, problem);
  if (c.shape.space == QuerySpace::kHead) {  // V = W_UV c is constant, too, but its own sums come on top
    const std::string wrong = against_reference(subject, run, problem);
    return wrong.empty() ? OracleOutcome::passed() : OracleOutcome::failed(wrong);
  }
  const RoundingProfile profile = subject.backend->rounding(c.shape);
  const double u_p = profile.lse_from_rounded_p ? 0.0 : unit_roundoff(profile.probabilities);
  const double u = u_p + unit_roundoff(profile.partials) + 200 * unit_roundoff(profile.accumulate);
  const auto width = static_cast<std::size_t>(output_width(c.shape));
  for (std::size_t i = 0; i < run.out.size(); ++i) {
    const double want = problem.values().latent[i % width];
    if (std::abs(run.out[i] - want) <= u * std::abs(want) + 0.5 * ulp_of(c.shape.out_dtype, want)) continue;
    return OracleOutcome::failed(fmt::format("{}, column {}: {:.9g}, but every value is {:.9g}",
                                             name_row(problem, static_cast<std::int64_t>(i / width)),
                                             i % width, run.out[i], want));
  }
  return OracleOutcome::passed();
}

OracleOutcome oracle_count(const OracleSubject& subject) {
  for (const Case& c : counting_cases(subject)) {
    OracleOutcome outcome = count_keys(subject, c);
    if (outcome.outcome == Outcome::kPassed) continue;
    outcome.reason += fmt::format(" [{}]", to_text(c.shape));
    return outcome;
  }
  return OracleOutcome::passed();
}

OracleOutcome oracle_spike(const OracleSubject& subject) {
  if (subject.base.shape.dims.qk_rope_head_dim == 0)
    return OracleOutcome::not_for("there is no rotary channel to aim with");
  constexpr std::int32_t kKeys = 300, kEveryKey = 130;
  constexpr double kEveryWork = 2e8;
  std::set<std::int32_t> places{0, 1, kKeys / 2, kKeys - 1};
  std::vector<std::int32_t> edges = subject.backend->info().edges;
  edges.push_back(subject.base.shape.block_size);
  for (const std::int32_t edge : edges) {
    for (std::int32_t at = edge; at < kKeys && at <= 4 * edge; at += edge) places.insert({at - 1, at});
  }
  // Every position where that costs little.
  Case all = subject.base;
  all.shape.batch.assign(kEveryKey, {1, kKeys});
  if (work_of(all) <= kEveryWork) {
    for (std::int32_t at = 0; at < kEveryKey; ++at) places.insert(at);
  }
  // One request for each place: all boundaries in one run.
  Case c = subject.base;
  c.shape.batch.assign(places.size(), {1, kKeys});
  Values values = make_values(c);
  const MlaDims& d = c.shape.dims;
  const bool head = c.shape.space == QuerySpace::kHead;
  const auto query = static_cast<std::size_t>(query_width(c.shape));
  const auto carrier = static_cast<std::size_t>(head ? d.qk_nope_head_dim : d.kv_lora_rank);
  const auto width = static_cast<std::size_t>(d.latent_width());
  const auto rank = static_cast<std::size_t>(d.kv_lora_rank);
  // Only the carrier channel counts: one key stands 64 above the rest, which then weigh less than 1e-25.
  std::fill(values.q.begin(), values.q.end(), 0.0);
  for (std::size_t i = carrier; i < values.q.size(); i += query) values.q[i] = 8.0;
  std::size_t row = 0;
  for (const std::int32_t place : places) {
    for (std::int32_t j = 0; j < kKeys; ++j, ++row) {
      values.latent[row * width + rank] = j == place ? 64.0 / (values.softmax_scale * 8.0) : 0.0;
    }
  }
  const Problem problem(c, std::move(values));
  const std::string wrong = against_reference(subject, run_problem(subject, problem), problem);
  return wrong.empty() ? OracleOutcome::passed() : OracleOutcome::failed(wrong);
}

}  // namespace mla::verify
