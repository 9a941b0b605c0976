// SPDX-License-Identifier: Apache-2.0
#include "verify/layer_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/random.hpp"
#include "mla/safetensors.hpp"
#include "verify/golden_limits.hpp"
#include "verify/run_case.hpp"

namespace mla::verify {
namespace {

constexpr std::uint64_t kHiddenStream = 90;
/// Tokens that are also decoded one by one: each costs a cache of its own.
constexpr std::int64_t kDecoded = 16;
constexpr std::int32_t kBlockSize = 16;

/// Largest |got - want| relative to the largest |want|, and where it stands.
struct Distance {
  double relative = 0;
  std::size_t at = 0;
};

Distance distance(std::span<const double> got, std::span<const double> want) {
  Distance d;
  double largest = 0, worst = 0;
  for (const double x : want) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double off = std::abs(got[i] - want[i]);
    if (off > worst || std::isnan(off)) {
      worst = std::isnan(off) ? INFINITY : off;
      d.at = i;
    }
  }
  d.relative = largest > 0 ? worst / largest : worst;
  return d;
}

LayerCheck compared(const char* what, std::span<const double> got, std::span<const double> want, double limit,
                    std::size_t width) {
  const Distance d = distance(got, want);
  LayerCheck check{what, "reference", {}, d.relative / limit, d.relative <= limit, false, {}};
  check.finding = fmt::format("{:.1e} of the largest value, limit {:.1e}", d.relative, limit);
  if (!check.passed) {
    check.finding += fmt::format("; token {} channel {}: got {:.9g}, want {:.9g}", d.at / width, d.at % width,
                                 got[d.at], want[d.at]);
  }
  return check;
}

RopeTable table_for(const ModelConfig& model, const LoadedLayer& layer, const LayerOptions& options,
                    std::span<const std::int64_t> positions) {
  RopeParameters parameters = model.rope;
  parameters.dim = layer.config.dims.qk_rope_head_dim;
  RopeTable table = make_rope_table(parameters, options.rule, positions, options.f32_angles);
  if (model.mla_use_nope) {  // the part is there but does not rotate
    std::ranges::fill(table.cos, 1.0);
    std::ranges::fill(table.sin, 0.0);
    table.amplitude = table.softmax_scale_factor = 1.0;
  }
  return table;
}

RopeTable rows_of(const RopeTable& table, std::int64_t first, std::int64_t count) {
  RopeTable part = table;
  const auto begin = first * table.half, end = (first + count) * table.half;
  part.cos.assign(table.cos.begin() + begin, table.cos.begin() + end);
  part.sin.assign(table.sin.begin() + begin, table.sin.begin() + end);
  return part;
}

/// Everything a check needs, computed once.
struct Run {
  const LoadedLayer& layer;
  const LayerInput& input;
  RopeTable rope;
  UpProjections up;
  double scale;
  std::int64_t tokens;
};

/// The last tokens one by one, each from the rows before it.
std::vector<double> decoded(const Run& run, const LayerStep& all, LayerForm form, std::int64_t count) {
  const auto width = static_cast<std::size_t>(run.layer.config.hidden_size);
  const auto row = static_cast<std::size_t>(run.layer.config.dims.latent_width());
  std::vector<double> out;
  for (std::int64_t t = run.tokens - count; t < run.tokens; ++t) {
    const auto at = static_cast<std::size_t>(t);
    const LayerStep step = layer_forward(
        run.layer.config, run.layer.weights, std::span(run.input.hidden).subspan(at * width, width),
        std::span(all.rows).first(at * row), rows_of(run.rope, t, 1), run.scale, form);
    out.insert(out.end(), step.out.begin(), step.out.end());
  }
  return out;
}

/// A backend's part of the layer as a case of its own: all tokens at once, or the last ones each from a cache
/// of its own.
Problem problem_of(const Run& run, const LayerStep& all, CacheFormat format, bool one_by_one) {
  const MlaDims& d = run.layer.config.dims;
  Case c;
  // Rows of one layer share their inputs: nothing may be averaged over them as over rows of independent ones.
  c.values = ValueKind::kHeavyTail;
  c.shape.space = QuerySpace::kHead;
  c.shape.dims = d;
  c.shape.cache = format;
  const DType type = format == CacheFormat::kF64                                       ? DType::kF64
                     : format == CacheFormat::kF32                                     ? DType::kF32
                     : format == CacheFormat::kF16 || format == CacheFormat::kF16Split ? DType::kF16
                                                                                       : DType::kBF16;
  c.shape.q_dtype = c.shape.out_dtype = type;
  c.shape.block_size = kBlockSize;
  c.shape.phase = one_by_one ? Phase::kDecode : Phase::kPrefill;
  Values values;
  values.softmax_scale = run.scale;
  values.w_uk = run.up.w_uk;
  values.w_uv = run.up.w_uv;
  const auto row = static_cast<std::size_t>(d.latent_width());
  const auto q = static_cast<std::size_t>(d.num_heads * d.head_width());
  const auto tokens = static_cast<std::int32_t>(run.tokens);
  if (!one_by_one) {
    c.shape.batch = {{tokens, tokens}};
    values.q = all.q;
    values.latent = all.rows;
    return Problem(c, std::move(values));
  }
  for (auto t = static_cast<std::int32_t>(std::max<std::int64_t>(0, run.tokens - kDecoded)); t < tokens;
       ++t) {
    c.shape.batch.push_back({1, t + 1});
    const std::size_t at = static_cast<std::size_t>(t);
    values.q.insert(values.q.end(), all.q.begin() + static_cast<std::ptrdiff_t>(at * q),
                    all.q.begin() + static_cast<std::ptrdiff_t>((at + 1) * q));
    values.latent.insert(values.latent.end(), all.rows.begin(),
                         all.rows.begin() + static_cast<std::ptrdiff_t>((at + 1) * row));
  }
  return Problem(c, std::move(values));
}

void check_backends(const Run& run, const LayerStep& all, const LayerOptions& options,
                    std::span<const Participant> participants, std::vector<LayerCheck>& checks) {
  for (const CacheFormat format : options.formats) {
    for (const bool one_by_one : {false, true}) {
      LayerCheck check;
      check.what = one_by_one ? "decode, one token a request" : "prefill, all tokens at once";
      check.cache = name_of(format);
      std::optional<CaseRun> one;
      try {
        one.emplace(problem_of(run, all, format, one_by_one));
      } catch (const Error& e) {
        if (e.code() != ErrorCode::kUnsupported) throw;
        check.backend = "all";
        check.refused = true;
        check.finding = e.what();
        checks.push_back(check);
        continue;
      }
      for (const Participant& p : participants) {
        const Verdict verdict = one->judge(*p.backend, p.machine);
        check.backend = verdict.backend;
        check.refused = verdict.outcome == Outcome::kUnsupported;
        check.passed = verdict.outcome != Outcome::kFailed;
        check.share = check.refused ? 0 : verdict.share();
        check.finding = verdict.outcome == Outcome::kPassed
                            ? to_text(verdict.report, run.layer.config.dims.num_heads)
                            : verdict.reason;
        checks.push_back(check);
      }
    }
  }
}

double largest_score(const Run& run, const LayerStep& all) {
  const Request request{static_cast<std::int32_t>(run.tokens), static_cast<std::int32_t>(run.tokens)};
  reference::Options options;
  options.row_stats = true;
  const reference::MlaProblem problem{run.layer.config.dims, {&request, 1}, all.q, all.rows,
                                      run.up.w_uk,           run.up.w_uv,   {},    run.scale};
  double max = 0;
  for (const reference::RowStats& s : reference::mla_expanded(problem, options).stats) {
    max = std::max(max, s.max_abs_score);
  }
  return max;
}

std::vector<double> hidden_like(const SafeTensor& tensor, int hidden_size, const std::string& origin) {
  std::vector<std::int64_t> shape = tensor.shape;
  if (shape.size() == 3 && shape.front() == 1) shape.erase(shape.begin());
  if (shape.size() != 2 || shape[1] != hidden_size || shape[0] < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: {} has the shape [{}], but [tokens, {}] is wanted, hidden_size being {}", origin,
                    text::quoted(tensor.name), fmt::join(tensor.shape, ", "), hidden_size, hidden_size));
  }
  std::vector<double> values = tensor.to_double();
  const auto bad = std::ranges::find_if(values, [](double x) { return !std::isfinite(x); });
  if (bad != values.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} holds {}", origin, text::quoted(tensor.name), *bad));
  }
  return values;
}

}  // namespace

LayerInput random_input(int hidden_size, std::int64_t tokens, std::int64_t start, std::uint64_t seed) {
  const CounterRng rng(seed, kHiddenStream);
  LayerInput input;
  const auto n = static_cast<std::uint64_t>(tokens) * static_cast<std::uint64_t>(hidden_size);
  for (std::uint64_t i = 0; i < n; ++i) input.hidden.push_back(round_to(DType::kBF16, rng.normal(i)));
  for (std::int64_t t = 0; t < tokens; ++t) input.positions.push_back(start + t);
  return input;
}

LayerInput read_input(const std::filesystem::path& path, int hidden_size, std::int64_t start) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  LayerInput input;
  const std::string origin = path.string();
  input.hidden = hidden_like(file.at("hidden"), hidden_size, origin);
  const auto tokens = static_cast<std::int64_t>(input.hidden.size()) / hidden_size;
  if (const SafeTensor* positions = file.find("positions")) {
    if (positions->numel() != tokens ||
        (positions->dtype != DType::kI64 && positions->dtype != DType::kI32)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: 'positions' is {} [{}], but {} whole numbers (I64 or I32) are wanted",
                              origin, positions->stored_dtype, fmt::join(positions->shape, ", "), tokens));
    }
    for (const double p : positions->to_double()) input.positions.push_back(static_cast<std::int64_t>(p));
  } else {
    for (std::int64_t t = 0; t < tokens; ++t) input.positions.push_back(start + t);
  }
  if (const SafeTensor* out = file.find("out")) {
    input.out = hidden_like(*out, hidden_size, origin);
    input.out_dtype = out->dtype;
    if (input.out.size() != input.hidden.size()) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: 'out' has [{}], but 'hidden' {} tokens",
                                                           origin, fmt::join(out->shape, ", "), tokens));
    }
  }
  return input;
}

bool LayerResult::passed() const noexcept {
  return std::ranges::all_of(checks, [](const LayerCheck& c) { return c.passed; });
}

LayerResult check_layer(const LoadedLayer& layer, const ModelConfig& model, const LayerInput& input,
                        const LayerOptions& options, std::span<const Participant> participants) {
  Run run{layer,
          input,
          table_for(model, layer, options, input.positions),
          split_kv_b(layer.config.dims, layer.weights.kv_b_proj),
          0,
          static_cast<std::int64_t>(input.positions.size())};
  run.scale = plain_softmax_scale(layer.config.dims) * run.rope.softmax_scale_factor;

  LayerResult result;
  result.softmax_scale = run.scale;
  result.rope_amplitude = run.rope.amplitude;
  const auto width = static_cast<std::size_t>(layer.config.hidden_size);
  const auto forward = [&](LayerForm form) {
    return layer_forward(layer.config, layer.weights, input.hidden, {}, run.rope, run.scale, form);
  };
  result.step = forward(LayerForm::kExpanded);
  result.max_score = largest_score(run, result.step);
  const std::vector<double>& out = result.step.out;

  result.checks.push_back(
      compared("absorbed against expanded form", forward(LayerForm::kAbsorbed).out, out, kF64Limit, width));
  const std::int64_t last = std::min(run.tokens, kDecoded);
  const std::span<const double> tail = std::span(out).last(static_cast<std::size_t>(last) * width);
  result.checks.push_back(compared("decode one by one against prefill, expanded",
                                   decoded(run, result.step, LayerForm::kExpanded, last), tail, kF64Limit,
                                   width));
  result.checks.push_back(compared("decode one by one against prefill, absorbed",
                                   decoded(run, result.step, LayerForm::kAbsorbed, last), tail, kF64Limit,
                                   width));
  if (!input.out.empty()) {
    const GoldenLimits limits = golden_limits(layer.config, run.tokens, result.max_score);
    const double limit = input.out_dtype == DType::kF64   ? kF64Limit
                         : input.out_dtype == DType::kF32 ? limits.out_f32
                                                          : limits.out_bf16;
    result.checks.push_back(compared("the given output", out, input.out, limit, width));
  }
  check_backends(run, result.step, options, participants, result.checks);
  return result;
}

void save_step(const std::filesystem::path& path, const LoadedLayer& layer, const LayerStep& step) {
  const MlaDims& d = layer.config.dims;
  const auto tokens = static_cast<std::int64_t>(step.out.size()) / layer.config.hidden_size;
  const auto bytes = [](const std::vector<double>& v) { return std::as_bytes(std::span(v)); };
  const TensorToWrite tensors[] = {
      {"attention", DType::kF64, {tokens, d.num_heads, d.v_head_dim}, bytes(step.attention)},
      {"lse", DType::kF64, {tokens, d.num_heads}, bytes(step.lse)},
      {"out", DType::kF64, {tokens, layer.config.hidden_size}, bytes(step.out)},
      {"q", DType::kF64, {tokens, d.num_heads, d.head_width()}, bytes(step.q)},
      {"rows", DType::kF64, {tokens, d.latent_width()}, bytes(step.rows)}};
  write_safetensors(path, tensors, {{"layer", layer.prefix}});
}

}  // namespace mla::verify
