// SPDX-License-Identifier: Apache-2.0
#include "verify/oracles.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <optional>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "verify/judge.hpp"
#include "verify/oracle_list.hpp"
#include "verify/oracle_tools.hpp"
#include "verify/task_queue.hpp"

namespace mla::verify {
namespace {

constexpr Oracle kOracles[] = {
    {"one-key", "one visible key gives its value exactly and its score as LSE", oracle_one_key},
    {"constant-value", "equal values come back whatever the scores", oracle_constant_value},
    {"count", "equal scores and values 0, 1, 2, ... name the keys that were seen", oracle_count},
    {"spike", "a key far above the rest gives its value, at every position around an edge", oracle_spike},
    {"permuted-pages", "where blocks lie in memory does not matter", oracle_permuted_pages},
    {"wide-table", "columns of the block table beyond need are not read", oracle_wide_table},
    {"poison", "NaN, Inf, 0 or the largest number in unused memory: the same bits", oracle_poison},
    {"no-nan-left", "every element of output and LSE is written, empty rows too", oracle_no_nan_left},
    {"repeats", "the same call gives the same bits", oracle_repeats},
    {"scaled-query", "four times the query and a quarter of the scale: the same bits", oracle_scaled_query},
    {"batch", "a request alone or in a batch: the same bits if invariance is claimed", oracle_batch},
    {"permuted-keys", "the order of keys matters only to rounding", oracle_permuted_keys},
    {"duplicates", "every key twice: the same output, LSE + ln 2", oracle_duplicates},
    {"shifted-scores", "a constant added to all scores: the same output, LSE + constant",
     oracle_shifted_scores},
    {"one-by-one", "several queries at once or one by one", oracle_one_by_one},
    {"shorter", "a plan for longer requests serves shorter and empty ones", oracle_shorter},
    {"splits", "1 to 32 splits", oracle_splits},
    {"chunks", "one prefix in chunks, an empty one among them, merged by LSE", oracle_chunks},
    {"shared-prefix", "keys that requests share, told or not, or told and not so: the same as by itself",
     oracle_shared_prefix}};

/// The first of some dims that the backend serves.
std::optional<Case> smallest_shape(const Participant& participant, QuerySpace space, Phase phase,
                                   CacheFormat cache, DType type, std::uint64_t seed) {
  constexpr MlaDims kDims[] = {
      {3, 40, 8, 24, 56}, {4, 128, 16, 32, 48}, {16, 512, 64, 128, 128}, {64, 512, 64, 128, 128}};
  for (const MlaDims& dims : kDims) {
    Case c;
    c.seed = seed;
    c.shape.space = space;
    c.shape.phase = phase;
    c.shape.dims = dims;
    c.shape.block_size = dims.kv_lora_rank < 512 ? 16 : 64;
    c.shape.q_dtype = c.shape.out_dtype = type;
    c.shape.cache = cache;
    try {
      (void)cache_layout(cache, dims);
    } catch (const Error&) {
      continue;  // a format that cannot hold the dims
    }
    // Ragged, with an empty request; some kernels take as many queries of each request, or one.
    const std::vector<Request> batches[] = {{{2, 70}, {1, 0}, {1, 1}, {3, 33}, {1, 129}},
                                            {{1, 70}, {1, 0}, {1, 1}, {1, 33}, {1, 129}}};
    for (const std::vector<Request>& batch : batches) {
      c.shape.batch = batch;
      if (participant.backend->supports(c.shape, participant.machine.device)) return c;
    }
  }
  return std::nullopt;
}

}  // namespace

std::span<const Oracle> all_oracles() {
  return kOracles;
}

const Oracle& get_oracle(std::string_view name) {
  std::vector<std::string> names;
  for (const Oracle& oracle : kOracles) {
    if (oracle.name == name) return oracle;
    names.emplace_back(oracle.name);
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no oracle '{}'", name),
              text::suggestion(name, names));
}

OracleOutcome ask_oracle(const Oracle& oracle, const OracleSubject& subject) {
  try {
    return oracle.check(subject);
  } catch (const RunFailure& e) {
    return {Outcome::kFailed, e.what(), e.failure()};
  } catch (const Error& e) {
    // An invalid argument is the oracle's own: it cannot be asked of such a case.
    if (e.code() == ErrorCode::kUnsupported || e.code() == ErrorCode::kInvalidArgument)
      return OracleOutcome::not_for(e.what());
    return {Outcome::kFailed, e.what(), Failure::kThrew};
  }
}

std::vector<Case> oracle_shapes(const Participant& participant, const OracleOptions& options) {
  std::vector<Case> shapes;
  for (const QuerySpace space : {QuerySpace::kLatent, QuerySpace::kHead}) {
    const std::size_t before = shapes.size();
    for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
      for (const CacheFormat cache : all_cache_formats()) {
        for (const DType type : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
          // Double and nothing else for the cache of doubles: a proof, not a practice.
          if ((cache == CacheFormat::kF64) != (type == DType::kF64)) continue;
          if (!options.every_format && shapes.size() > before) continue;
          if (const auto c = smallest_shape(participant, space, phase, cache, type, options.seed))
            shapes.push_back(*c);
        }
      }
    }
  }
  return shapes;
}

int repeats_for(const Backend& backend, int asked) noexcept {
  if (asked > 0) return asked;
  return backend.info().on_device ? 50 : 20;
}

std::vector<OracleQuestion> oracle_questions(std::span<const Participant> participants,
                                             const OracleOptions& options) {
  std::vector<OracleQuestion> questions;
  std::size_t all = 0;
  for (const Participant& participant : participants) {
    for (const Case& shape : oracle_shapes(participant, options)) {
      for (const Oracle& oracle : kOracles) {
        if (options.shard.has(all++)) questions.push_back({&participant, &oracle, shape});
      }
    }
  }
  return questions;
}

namespace {

OracleRun ask_team(std::span<const OracleQuestion> questions, int repeats, const RunHooks& hooks,
                   std::span<Judge* const> judges) {
  OracleRun run;
  std::mutex mutex;
  std::map<std::size_t, OracleOutcome> answers;
  TaskQueue queue(std::vector<bool>(questions.size(), false), [&] {
    const std::lock_guard lock(mutex);
    if (hooks.stop && hooks.stop()) run.stopped = true;
    return !run.stopped && !(hooks.fail_fast && run.failed > 0);
  });
  share_out(queue, judges.size(), [&](std::size_t worker, std::size_t i) {
    const OracleQuestion& q = questions[i];
    if (hooks.step) {
      const std::lock_guard lock(mutex);
      hooks.step(fmt::format("{} {}", q.oracle->name, to_text(q.base)));
    }
    const Backend& backend = *q.participant->backend;
    OracleOutcome outcome = judges[worker]->ask(
        *q.oracle, {&backend, q.participant->machine, q.base, repeats_for(backend, repeats)});
    const std::lock_guard lock(mutex);
    run.passed += outcome.outcome == Outcome::kPassed ? 1 : 0;
    run.failed += outcome.outcome == Outcome::kFailed ? 1 : 0;
    run.unsupported += outcome.outcome == Outcome::kUnsupported ? 1 : 0;
    answers.emplace(i, std::move(outcome));
  });
  for (auto& [i, outcome] : answers) {
    const OracleQuestion& q = questions[i];
    run.verdicts.push_back({q.oracle->name, q.oracle->expectation,
                            std::string(q.participant->backend->info().name), q.base, std::move(outcome)});
  }
  return run;
}

}  // namespace

OracleRun run_oracles(std::span<const OracleQuestion> questions, int repeats, const RunHooks& hooks,
                      JudgeTeam judges) {
  std::vector<Judge*> list;
  for (const std::unique_ptr<Judge>& judge : judges) list.push_back(judge.get());
  return ask_team(questions, repeats, hooks, list);
}

OracleRun run_oracles(std::span<const Participant> participants, const OracleOptions& options,
                      const RunHooks& hooks, Judge& judge) {
  Judge* one = &judge;
  return ask_team(oracle_questions(participants, options), options.repeats, hooks, {&one, 1});
}

}  // namespace mla::verify
