// SPDX-License-Identifier: Apache-2.0
#include "verify/golden.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/golden_data.hpp"
#include "verify/golden_limits.hpp"
#include "verify/golden_paths.hpp"

namespace mla::verify {
namespace {

/// Coordinates of a flat index: "[3, 12]".
std::string coordinates(std::size_t index, std::span<const std::int64_t> shape) {
  std::string text;
  for (std::size_t i = shape.size(); i-- > 0;) {
    const auto extent = static_cast<std::size_t>(shape[i]);
    text = fmt::format("{}{}{}", index % extent, text.empty() ? "" : ", ", text);
    index /= extent;
  }
  return "[" + text + "]";
}

/// Compares recomputed values with saved ones and collects the checks of a set.
class Checker {
 public:
  Checker(const GoldenData& data, GoldenResult& result) : data_(data), result_(result) {}

  /// Limit relative to the tensor's largest value. `first_row`: the values start at this row of the saved
  /// tensor.
  void tensor(const std::string& name, const std::string& path, std::span<const double> got, double limit,
              std::int64_t first_row = 0) {
    const std::vector<double> all = data_.values(name);
    const std::vector<std::int64_t>& shape = data_.tensor(name).shape;
    const std::size_t row = shape.front() == 0 ? 0 : all.size() / static_cast<std::size_t>(shape.front());
    const std::size_t begin = static_cast<std::size_t>(first_row) * row;
    double largest = 0;
    for (const double x : all) largest = std::max(largest, std::abs(x));
    compare(
        name, path, got, std::span(all).subspan(begin), shape, begin,
        [largest](std::size_t) { return largest > 0 ? largest : 1.0; }, limit);
  }

  /// Limit of its own for each element; the error shown is relative to it.
  template <class Limit>
  void elements(const std::string& name, const std::string& path, std::span<const double> got, Limit limit) {
    const std::vector<double> all = data_.values(name);
    compare(name, path, got, all, data_.tensor(name).shape, 0, limit, 1.0);
  }

  void number(const std::string& name, const std::string& path, double got, double want, double limit) {
    GoldenCheck check{name, path, std::abs(got - want) / std::abs(want), limit, true, false, {}};
    check.passed = check.error <= limit;
    if (!check.passed) check.detail = fmt::format("got {:.17g}, want {:.17g}", got, want);
    result_.checks.push_back(std::move(check));
  }

  void note(GoldenCheck check) { result_.checks.push_back(std::move(check)); }

 private:
  template <class Unit>
  void compare(const std::string& name, const std::string& path, std::span<const double> got,
               std::span<const double> want, std::span<const std::int64_t> shape, std::size_t begin,
               Unit unit, double limit) {
    GoldenCheck check{name, path, 0.0, limit, true, false, {}};
    std::size_t worst = 0;
    if (got.size() != want.size()) {
      check.error = std::numeric_limits<double>::infinity();
      check.detail = fmt::format("{} values were computed, {} are saved", got.size(), want.size());
      check.passed = false;
      note(std::move(check));
      return;
    }
    for (std::size_t i = 0; i < want.size(); ++i) {
      double error = std::abs(got[i] - want[i]) / unit(i);
      if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
      if (error > check.error) {
        check.error = error;
        worst = i;
      }
    }
    check.passed = check.error <= limit;
    if (!check.passed) {
      check.detail = fmt::format("element {}: got {:.9g}, want {:.9g}", coordinates(begin + worst, shape),
                                 got[worst], want[worst]);
    }
    note(std::move(check));
  }

  const GoldenData& data_;
  GoldenResult& result_;
};

void check_file(const GoldenManifest& manifest, const GoldenVariant& variant, Checker& checker) {
  const std::string digest = sha256_of_file(manifest.dir / variant.file);
  GoldenCheck check{"file", "sha256", 0.0, 0.0, true, false, {}};
  if (digest.empty()) {
    check.skipped = true;
    check.detail = "this build has no OpenSSL to compute a SHA-256 with";
  } else if (digest != variant.sha256) {
    check.passed = false;
    check.error = std::numeric_limits<double>::infinity();
    check.detail =
        fmt::format("{} has SHA-256 {}, the manifest says {}", variant.file, digest, variant.sha256);
  }
  checker.note(std::move(check));
}

/// cos, sin, amplitude and softmax scale from the configuration alone.
void check_rope(const GoldenData& data, Checker& checker) {
  const GoldenVariant& v = data.variant();
  const MlaDims& d = v.layer.dims;
  for (std::size_t s = 0; s < v.sequences.size(); ++s) {
    const std::vector<std::int64_t> positions = data.positions(s);
    const RopeTable table = make_rope_table(v.rope, YarnRule::kTransformers, positions, true);
    const auto half = static_cast<std::size_t>(table.half);
    const auto limit = [&](std::size_t i) {
      // The first pair turns fastest, at one radian a token; the others by less.
      const double speed = std::pow(v.rope.theta, -2.0 * static_cast<double>(i % half) / v.rope.dim);
      return rope_limit(static_cast<double>(positions[i / half]) * speed, table.amplitude);
    };
    checker.elements(sequence_prefix(s) + "cos", "rope table", table.cos, limit);
    checker.elements(sequence_prefix(s) + "sin", "rope table", table.sin, limit);
    if (s > 0) continue;
    checker.number("rope_attention_scaling", "rope table", table.amplitude, v.rope_amplitude, 1e-12);
    checker.number("softmax_scale", "rope table", plain_softmax_scale(d) * table.softmax_scale_factor,
                   v.softmax_scale, 1e-12);
  }
}

/// Everything of one run of the layer: f64 tensors, and those that single precision or bf16 limits.
void check_step(const std::string& pre, const std::string& path, const GoldenData& data,
                const LayerStep& step, const GoldenLimits& limits, Checker& checker) {
  const MlaDims& d = data.variant().layer.dims;
  checker.tensor(pre + "attn_f64", path, step.attention, kF64Limit);
  checker.tensor(pre + "lse_f64", path, heads_first(step.lse, d.num_heads), kF64Limit);
  checker.tensor(pre + "out_f64", path, step.out, kF64Limit);
  checker.tensor(pre + "out_f32", path, step.out, limits.out_f32);
  checker.tensor(pre + "out_bf16", path, step.out, limits.out_bf16);
}

void check_projections(const std::string& pre, const GoldenData& data, const LayerStep& step,
                       const GoldenLimits& limits, Checker& checker) {
  const MlaDims& d = data.variant().layer.dims;
  const auto [c_kv, k_pe] = split_columns(step.rows, d.kv_lora_rank, d.qk_rope_head_dim);
  const auto [q_nope, q_pe] = split_columns(step.q, d.qk_nope_head_dim, d.qk_rope_head_dim);
  checker.tensor(pre + "c_kv_f32", "layer", c_kv, limits.rows_f32);
  checker.tensor(pre + "k_pe_f32", "layer", k_pe, limits.rows_f32);
  checker.tensor(pre + "c_kv_bf16", "layer", c_kv, limits.rows_bf16);
  checker.tensor(pre + "k_pe_bf16", "layer", k_pe, limits.rows_bf16);
  checker.tensor(pre + "q_nope_f32", "layer", q_nope, limits.query_f32);
  checker.tensor(pre + "q_pe_f32", "layer", q_pe, limits.query_f32);
}

void check_masks(const std::string& pre, const GoldenData& data, const GoldenPaths& paths, Checker& checker) {
  const MlaDims& d = data.variant().layer.dims;
  for (const GoldenMask mask : {GoldenMask::kWindowSink, GoldenMask::kTopk}) {
    const std::string name = pre + (mask == GoldenMask::kWindowSink ? "window_sink." : "topk.");
    for (const LayerForm form : {LayerForm::kExpanded, LayerForm::kAbsorbed}) {
      const LayerStep step = paths.full(form, mask);
      const std::string path = form == LayerForm::kExpanded ? "expanded" : "absorbed";
      checker.tensor(name + "attn_f64", path, step.attention, kF64Limit);
      checker.tensor(name + "lse_f64", path, heads_first(step.lse, d.num_heads), kF64Limit);
      checker.tensor(name + "out_f64", path, step.out, kF64Limit);
    }
  }
}

void check_backends(const std::string& pre, const GoldenData& data, const GoldenPaths& paths,
                    const LayerStep& step, std::span<const Backend* const> backends, bool masks,
                    Checker& checker) {
  const int heads = data.variant().layer.dims.num_heads;
  const auto check = [&](const std::string& name, GoldenMask mask, const Backend& backend) {
    const std::optional<Execution> run = paths.run_backend(backend, step, mask);
    if (!run) return;  // it does not serve double precision in head space
    const std::string path{backend.info().name};
    if (!run->failure.empty()) {
      checker.note({name + "attn_f64", path, std::numeric_limits<double>::infinity(), kF64Limit, false, false,
                    run->failure});
      return;
    }
    checker.tensor(name + "attn_f64", path, run->out, kF64Limit);
    checker.tensor(name + "lse_f64", path, heads_first(run->lse, heads), kF64Limit);
  };
  for (const Backend* backend : backends) {
    check(pre, GoldenMask::kCausal, *backend);
    if (!masks) continue;
    check(pre + "window_sink.", GoldenMask::kWindowSink, *backend);
    check(pre + "topk.", GoldenMask::kTopk, *backend);
  }
}

}  // namespace

bool GoldenResult::passed() const noexcept {
  return std::all_of(checks.begin(), checks.end(), [](const GoldenCheck& c) { return c.passed; });
}

const GoldenCheck* GoldenResult::worst() const noexcept {
  const GoldenCheck* worst = nullptr;
  const auto share = [](const GoldenCheck& c) { return c.limit > 0 ? c.error / c.limit : c.error; };
  for (const GoldenCheck& check : checks) {
    if (!check.skipped && (worst == nullptr || share(check) > share(*worst))) worst = &check;
  }
  return worst;
}

GoldenResult check_golden(const GoldenManifest& manifest, const GoldenVariant& variant,
                          std::span<const Backend* const> backends) {
  const GoldenData data(manifest, variant);
  GoldenResult result{variant.name, {}};
  Checker checker(data, result);
  check_file(manifest, variant, checker);
  check_rope(data, checker);
  for (std::size_t s = 0; s < variant.sequences.size(); ++s) {
    const std::string pre = sequence_prefix(s);
    const GoldenPaths paths(data, s);
    const LayerStep expanded = paths.full(LayerForm::kExpanded, GoldenMask::kCausal);
    const LayerStep absorbed = paths.full(LayerForm::kAbsorbed, GoldenMask::kCausal);
    const GoldenLimits limits = golden_limits(variant.layer, variant.sequences[s], paths.max_score(expanded));
    check_step(pre, "expanded", data, expanded, limits, checker);
    check_step(pre, "absorbed", data, absorbed, limits, checker);
    check_projections(pre, data, expanded, limits, checker);
    const bool masks = variant.window && s == 0;
    if (masks) check_masks(pre, data, paths, checker);
    check_backends(pre, data, paths, expanded, backends, masks, checker);

    const std::int64_t tail = std::min<std::int64_t>(3, variant.sequences[s] - 1);
    if (tail == 0) continue;
    for (const LayerForm form : {LayerForm::kExpanded, LayerForm::kAbsorbed}) {
      for (const auto& [label, step] : {std::pair{"decode", std::int64_t{1}}, std::pair{"multi", tail}}) {
        const std::vector<double> out = paths.from_cache(form, tail, step);
        const std::string path =
            fmt::format("{} {}", label, form == LayerForm::kExpanded ? "expanded" : "absorbed");
        checker.tensor(pre + label + ".out_f32", path, out, limits.out_f32);
        checker.tensor(pre + "out_f64", path, out, kF64Limit, variant.sequences[s] - tail);
      }
    }
  }
  return result;
}

}  // namespace mla::verify
