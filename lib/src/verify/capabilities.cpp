// SPDX-License-Identifier: Apache-2.0
#include "verify/capabilities.hpp"

#include <fmt/format.h>

#include <functional>

#include "mla/error.hpp"
#include "verify/oracles.hpp"

namespace mla::verify {
namespace {

struct Question {
  std::string aspect, level;
  std::function<void(Case&)> change;
};

template <class Set>
void ask_numbers(std::vector<Question>& all, const char* aspect, std::initializer_list<std::int32_t> values,
                 Set set) {
  for (const std::int32_t v : values)
    all.push_back({aspect, std::to_string(v), [set, v](Case& c) { set(c, v); }});
}

void ask_dims(std::vector<Question>& all) {
  struct Named {
    const char* name;
    int l, r, p, v;
  };
  constexpr Named kDims[] = {{"DeepSeek-V3 512+64", 512, 64, 128, 128},
                             {"GLM-4.7-Flash 512+64, 192/256", 512, 64, 192, 256},
                             {"MiniCPM3 256+32", 256, 32, 64, 64},
                             {"Mistral-Small-4 256+64", 256, 64, 64, 128},
                             {"128+64", 128, 64, 128, 128},
                             {"512+0", 512, 0, 128, 128},
                             {"40+8, odd", 40, 8, 24, 56}};
  for (const Named& d : kDims) {
    all.push_back({"widths", d.name, [d](Case& c) {
                     c.shape.dims = {c.shape.dims.num_heads, d.l, d.r, d.p, d.v};
                   }});
  }
}

void ask_types(std::vector<Question>& all) {
  for (const DType type : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    all.push_back({"query type", std::string(name_of(type)), [type](Case& c) { c.shape.q_dtype = type; }});
    all.push_back({"output type", std::string(name_of(type)), [type](Case& c) { c.shape.out_dtype = type; }});
  }
  for (const CacheFormat cache : all_cache_formats())
    all.push_back({"cache", std::string(name_of(cache)), [cache](Case& c) { c.shape.cache = cache; }});
}

void ask_masks(std::vector<Question>& all) {
  all.push_back({"mask", "none", [](Case& c) { c.shape.mask.causal = false; }});
  all.push_back({"mask", "window", [](Case& c) { c.shape.mask.window = 9; }});
  all.push_back({"mask", "window and sink", [](Case& c) {
                   c.shape.mask.window = 9;
                   c.shape.mask.sink = 4;
                 }});
  for (const std::int32_t k : {1, 64, 192, 2048})
    all.push_back({"top-k", std::to_string(k), [k](Case& c) { c.shape.topk = k; }});
}

void ask_lengths(std::vector<Question>& all) {
  ask_numbers(all, "new tokens", {1, 2, 3, 4, 8}, [](Case& c, std::int32_t n) {
    c.shape.batch = {{n, 70}, {n, n}};
  });
  all.push_back({"new tokens", "ragged", [](Case& c) { c.shape.batch = {{1, 70}, {3, 33}, {2, 2}}; }});
  all.push_back({"requests", "empty among others", [](Case& c) {
                   c.shape.batch = {{1, 70}, {1, 0}, {1, 1}};
                 }});
  all.push_back({"requests", "with a shared prefix", [](Case& c) {
                   const std::int32_t block = c.shape.block_size;
                   c.shape.batch = {{1, 2 * block}, {1, 2 * block + 7}, {1, 3}};
                   c.shape.shared = {{2 * block, 0, 2}};
                 }});
  all.push_back({"phase", "decode", [](Case& c) { c.shape.phase = Phase::kDecode; }});
  all.push_back({"phase", "prefill", [](Case& c) {
                   c.shape.phase = Phase::kPrefill;
                   c.shape.batch = {{70, 70}, {1, 1}};
                 }});
  all.push_back({"phase", "prefill with a prefix", [](Case& c) {
                   c.shape.phase = Phase::kPrefill;
                   c.shape.batch = {{20, 70}, {5, 200}};
                 }});
}

std::vector<Question> questions() {
  std::vector<Question> all;
  all.push_back({"space", "latent", [](Case& c) { c.shape.space = QuerySpace::kLatent; }});
  all.push_back({"space", "head", [](Case& c) { c.shape.space = QuerySpace::kHead; }});
  ask_numbers(all, "heads", {1, 2, 3, 5, 8, 16, 20, 40, 48, 63, 64, 65, 96, 128},
              [](Case& c, std::int32_t n) { c.shape.dims.num_heads = n; });
  ask_dims(all);
  ask_types(all);
  ask_numbers(all, "block size", {1, 16, 32, 48, 64, 128, 480},
              [](Case& c, std::int32_t n) { c.shape.block_size = n; });
  ask_lengths(all);
  ask_masks(all);
  ask_numbers(all, "forced splits", {1, 7, 32}, [](Case& c, std::int32_t n) { c.num_splits = n; });
  all.push_back({"memory", "strides", [](Case& c) { c.strided = true; }});
  all.push_back({"memory", "without LSE", [](Case& c) { c.lse = false; }});
  return all;
}

/// Shapes to ask from: the oracles' own, and the published ones in the types in use.
std::vector<Case> bases_of(const Participant& participant, std::uint64_t seed) {
  std::vector<Case> bases = oracle_shapes(participant, {seed, 1, true});
  for (const auto& [type, cache] :
       {std::pair(DType::kBF16, CacheFormat::kBF16), std::pair(DType::kF32, CacheFormat::kF32)}) {
    for (const QuerySpace space : {QuerySpace::kLatent, QuerySpace::kHead}) {
      Case c;
      c.seed = seed;
      c.shape.dims = {16, 512, 64, 128, 128};
      c.shape.q_dtype = c.shape.out_dtype = type;
      c.shape.cache = cache;
      c.shape.space = space;
      bases.push_back(c);
    }
  }
  for (Case& c : bases) c.shape.batch = {{1, 70}, {1, 33}};
  return bases;
}

bool possible(const Case& c) {
  try {
    validate(c);
    (void)cache_layout(c.shape.cache, c.shape.dims);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// A backend that says no must not plan, either.
std::string plan_refuses(const Participant& p, const Case& c) {
  try {
    (void)p.backend->plan(c.shape, p.machine.device);
  } catch (const Error& e) {
    return e.code() == ErrorCode::kUnsupported ? std::string()
                                               : fmt::format("plan() throws otherwise: {}", e.what());
  }
  return "supports() says no, but plan() makes a plan";
}

Capability try_question(const Participant& p, const Question& question, std::span<const Case> bases,
                        Judge& judge) {
  Capability found{
      std::string(p.backend->info().name), question.aspect, question.level, false, false, {}, {}};
  bool any = false;
  for (const Case& base : bases) {
    Case c = base;
    question.change(c);
    if (!possible(c)) continue;
    const Support support = p.backend->supports(c.shape, p.machine.device);
    if (!any || support) {
      found.c = c;
      found.claimed = support.ok;
      found.detail = support.why;
    }
    any = true;
    if (support) break;
  }
  if (found.claimed) {
    const Verdict verdict = judge.judge(found.c, p);
    found.true_claim = verdict.outcome == Outcome::kPassed;
    found.detail = verdict.reason;
    return found;
  }
  const std::string refusal = plan_refuses(p, found.c);
  found.true_claim = refusal.empty() && !found.detail.empty();
  if (!refusal.empty()) found.detail = refusal;
  if (found.detail.empty()) found.detail = "it refuses without a sentence";
  return found;
}

/// Facts that are claimed once for all shapes.
Capability try_fact(const Participant& p, const char* level, bool claimed, std::string_view oracle,
                    const Case& base, Judge& judge) {
  const OracleOutcome outcome =
      judge.ask(get_oracle(oracle), {p.backend, p.machine, base, repeats_for(*p.backend, 0)});
  Capability found{std::string(p.backend->info().name), "bits", level, claimed, true, outcome.reason, base};
  if (claimed) found.true_claim = outcome.outcome == Outcome::kPassed;
  if (!claimed && found.detail.empty()) found.detail = "not claimed, but seen in this case";
  return found;
}

}  // namespace

CapabilityRun run_capabilities(std::span<const Participant> participants, std::uint64_t seed,
                               const RunHooks& hooks, Judge& judge) {
  CapabilityRun run;
  const auto add = [&](Capability capability) {
    run.untrue += capability.true_claim ? 0 : 1;
    run.list.push_back(std::move(capability));
  };
  for (const Participant& p : participants) {
    const std::vector<Case> bases = bases_of(p, seed);
    for (const Question& question : questions()) {
      if (hooks.stop && hooks.stop()) {
        run.stopped = true;
        return run;
      }
      if (hooks.step)
        hooks.step(fmt::format("{} {} {}", p.backend->info().name, question.aspect, question.level));
      add(try_question(p, question, bases, judge));
    }
    const std::vector<Case> own = oracle_shapes(p, {seed, 1, false});
    if (own.empty()) continue;
    add(try_fact(p, "the same in any batch", p.backend->info().batch_invariant, "batch", own.front(), judge));
    add(try_fact(p, "the same in every run", true, "repeats", own.front(), judge));
  }
  return run;
}

}  // namespace mla::verify
