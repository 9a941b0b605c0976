// SPDX-License-Identifier: Apache-2.0
// Mutants that compute the wrong thing of the right keys.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "mla/numerics.hpp"
#include "verify/mutant_tools.hpp"
#include "verify/mutants.hpp"

namespace mla::verify {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct ScaleOff : MutantKernel {
  double scale(const Row& row) const override { return 1.01 * row.args.softmax_scale; }
};

/// (L+R)^-1/2 in place of (P+R)^-1/2, the factor kept.
struct ScaleLatentWidth : MutantKernel {
  double scale(const Row& row) const override {
    const MlaDims& d = row.shape.dims;
    return row.args.softmax_scale * std::sqrt(static_cast<double>(d.head_width()) / d.latent_width());
  }
};

/// The plain scale: the factor (YaRN's, say) is lost.
struct ScalePlain : MutantKernel {
  double scale(const Row& row) const override { return plain_softmax_scale(row.shape.dims); }
};

/// The factor of mscale where that of mscale_all_dim belongs, for factor 40 and mscales 1 and 1/2.
struct ScaleMscale : MutantKernel {
  double scale(const Row& row) const override {
    constexpr double kOfMscale = 1.8738542071, kOfAllDim = 1.4029075245;
    return row.args.softmax_scale * kOfMscale / kOfAllDim;
  }
};

/// Generic YaRN's amplitude on the rotary part of query and key, for factor 16.
struct RopeAmplitude : MutantKernel {
  std::vector<double> query(const Row& row) const override {
    constexpr double kAmplitude = 1.2772588722;
    std::vector<double> q = MutantKernel::query(row);
    const auto rank = static_cast<std::size_t>(row.shape.dims.kv_lora_rank);
    for (double& x : std::span(q).subspan(rank)) x *= kAmplitude * kAmplitude;
    return q;
  }
};

struct ScaleInverted : MutantKernel {
  double scale(const Row& row) const override { return 1 / row.args.softmax_scale; }
};

struct NoRotary : MutantKernel {
  double dot(const Row& row, std::span<const double> q, std::span<const double> latent) const override {
    const auto rank = static_cast<std::size_t>(row.shape.dims.kv_lora_rank);
    return MutantKernel::dot(row, q.first(rank), latent.first(rank));
  }
};

struct NoRotaryOfOne : NoRotary {
  double dot(const Row& row, std::span<const double> q, std::span<const double> latent) const override {
    return row.request == row.requests - 1 ? NoRotary::dot(row, q, latent)
                                           : MutantKernel::dot(row, q, latent);
  }
};

/// Pairs (i, i + R/2) against pairs (2i, 2i+1): the query's rotary part is laid out otherwise than the key's.
struct HalfSplit : MutantKernel {
  std::vector<double> query(const Row& row) const override {
    std::vector<double> q = MutantKernel::query(row);
    const auto rank = static_cast<std::size_t>(row.shape.dims.kv_lora_rank);
    const auto half = static_cast<std::size_t>(row.shape.dims.qk_rope_head_dim) / 2;
    std::vector<double> turned(q.begin() + static_cast<std::ptrdiff_t>(rank), q.end());
    for (std::size_t i = 0; i < half; ++i) {
      q[rank + i] = turned[2 * i];
      q[rank + half + i] = turned[2 * i + 1];
    }
    return q;
  }
};

/// The rows of kv_b taken in the other order.
struct SwappedUp : MutantKernel {
  std::vector<double> query(const Row& row) const override {
    return MutantKernel::query(swapped(row, args_));
  }
  std::vector<double> project(const Row& row, std::span<const double> latent_out) const override {
    return MutantKernel::project(swapped(row, args_), latent_out);
  }

 private:
  /// Both weights exchanged where they have the same shape; else V's rows in reverse.
  static Row swapped(const Row& row, AttentionArgs& args) {
    args = row.args;
    if (row.shape.space == QuerySpace::kHead) {
      if (row.shape.dims.qk_nope_head_dim == row.shape.dims.v_head_dim) {
        std::swap(args.w_uk, args.w_uv);
      } else {
        const std::int64_t last = args.w_uv.extent[1] - 1;
        args.w_uv.data = static_cast<const std::byte*>(args.w_uv.data) +
                         last * args.w_uv.stride[1] * static_cast<std::int64_t>(size_of(args.w_uv.dtype));
        args.w_uv.stride[1] = -args.w_uv.stride[1];
      }
    }
    return {row.shape, args,  row.layout, row.splits, row.request, row.requests,
            row.token, row.i, row.q_len,  row.n,      row.head};
  }
  mutable AttentionArgs args_;
};

/// The absorbed copy of kv_b_proj was quantised with the rest.
struct QuantisedUp : MutantKernel {
  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override {
    AttentionArgs changed = args;
    const std::vector<double> uk = quantise(changed.w_uk), uv = quantise(changed.w_uv);
    MutantKernel::run(plan, changed, workspace, stream);
  }

 private:
  /// Points `w` to a packed copy in e4m3.
  static std::vector<double> quantise(ConstTensorRef& w) {
    std::vector<double> values;
    if (!w) return values;
    for (std::int64_t h = 0; h < w.extent[0]; ++h) {
      for (std::int64_t r = 0; r < w.extent[1]; ++r) {
        for (std::int64_t c = 0; c < w.extent[2]; ++c)
          values.push_back(round_to(DType::kE4M3, load_element(w.data, w.dtype, w.offset(h, r, c))));
      }
    }
    w.data = values.data();
    w.dtype = DType::kF64;
    w.stride[2] = 1;
    w.stride[1] = w.extent[2];
    w.stride[0] = w.extent[1] * w.extent[2];
    return values;
  }
};

struct LseBase2 : MutantKernel {
  double final_lse(const Row&, double lse) const override { return lse / std::log(2.0); }
};

struct LsePlusInf : MutantKernel {
  double final_lse(const Row&, double lse) const override { return lse == -kInf ? kInf : lse; }
};

struct LseSentinel : MutantKernel {
  double final_lse(const Row&, double lse) const override { return lse == -kInf ? -1e30 : lse; }
};

struct LseUnscaled : MutantKernel {
  double final_lse(const Row& row, double lse) const override { return lse / row.args.softmax_scale; }
};

struct EmptyIsNan : MutantKernel {
  void store(const Row& row, std::span<const double> out, double lse) const override {
    if (row.n > 0) return MutantKernel::store(row, out, lse);
    const std::vector<double> nan(out.size(), std::numeric_limits<double>::quiet_NaN());
    MutantKernel::store(row, nan, lse);
  }
};

/// Rounds more than it says.
struct HiddenBf16Partials : MutantKernel {
  void finish_part(const Row& row, Part& part) const override {
    MutantKernel::finish_part(row, part);
    if (row.splits > 1) {
      for (double& x : part.out) x = round_to(DType::kBF16, x);
    }
  }
};

struct HiddenBf16Scores : MutantKernel {
  double dot(const Row& row, std::span<const double> q, std::span<const double> latent) const override {
    return round_to(DType::kBF16, MutantKernel::dot(row, q, latent));
  }
};

struct HiddenFp8Probabilities : MutantKernel {
  double round_probability(const Row&, double p) const override { return round_to(DType::kE4M3, p); }
};

struct HiddenRoundedSum : EmulatedKernel {
  HiddenRoundedSum() : EmulatedKernel(summing_rounded()) {}
  RoundingProfile rounding(const AttentionShape& shape) const override {
    RoundingProfile claimed = EmulatedKernel::rounding(shape);
    claimed.lse_from_rounded_p = false;
    return claimed;
  }
  static Options summing_rounded() {
    Options options = mutant_options();
    options.profile.lse_from_rounded_p = true;
    return options;
  }
};

/// The scale and the maximum in one fused product, so that even an only key weighs not quite 1.
struct HiddenFusedScale : EmulatedKernel {
  HiddenFusedScale() : EmulatedKernel(fused()) {}
  RoundingProfile rounding(const AttentionShape& shape) const override {
    RoundingProfile claimed = EmulatedKernel::rounding(shape);
    claimed.unit_weight = true;
    return claimed;
  }
  static Options fused() {
    Options options = mutant_options();
    options.profile.unit_weight = false;
    return options;
  }
};

double truncated(DType dtype, double x) {
  const double rounded = round_to(dtype, x);
  return std::abs(rounded) > std::abs(x) ? rounded - std::copysign(ulp_of(dtype, x), x) : rounded;
}

struct TruncatesOutput : MutantKernel {
  void store(const Row& row, std::span<const double> out, double lse) const override {
    std::vector<double> cut(out.begin(), out.end());
    for (double& x : cut) x = truncated(row.shape.out_dtype, x);
    MutantKernel::store(row, cut, lse);
  }
};

struct TruncatesProbabilities : MutantKernel {
  double round_probability(const Row&, double p) const override { return truncated(DType::kBF16, p); }
};

/// A part without keys weighs as much as exp(0).
struct EmptyPartCounted : MutantKernel {
  void finish_part(const Row& row, Part& part) const override {
    MutantKernel::finish_part(row, part);
    if (row.splits > 1 && part.empty && row.n > 0) {
      part.lse = 0;
      part.empty = false;
    }
  }
};

/// -inf minus -inf in the merge.
struct EmptyPartNan : MutantKernel {
  Part merge(const Row& row, std::span<const Part> parts) const override {
    Part all = MutantKernel::merge(row, parts);
    for (const Part& part : parts) {
      if (!part.empty) continue;
      for (double& x : all.out) x += part.lse - part.lse;
    }
    return all;
  }
};

/// Partial sums of natural LSE merged as if they were base 2.
struct MergeBase2 : MutantKernel {
  Part merge(const Row& row, std::span<const Part> parts) const override {
    std::vector<Part> wrong(parts.begin(), parts.end());
    for (Part& part : wrong) part.lse *= std::log(2.0);
    Part all = MutantKernel::merge(row, wrong);
    all.lse = MutantKernel::merge(row, parts).lse;
    return all;
  }
};

/// exp without the maximum: overflows.
struct NoMaximum : MutantKernel {
  double score_shift(const Row&, double) const override { return 0.0; }
};

/// Sums are not rescaled when the maximum grows.
struct NoRescale : MutantKernel {
  double rescale(const Row&, double) const override { return 1.0; }
};

/// The output depends on which run it is: a race, emulated.
struct Race : MutantKernel {
  double round_probability(const Row& row, double p) const override {
    const double rounded = MutantKernel::round_probability(row, p);
    return (turn_.fetch_add(1, std::memory_order_relaxed) * 2654435761U) % 97 == 0 ? p : rounded;
  }
  mutable std::atomic<std::uint32_t> turn_{0};
};

/// Splits depend on the batch, though invariance is claimed.
struct BatchDependent : MutantKernel {
  std::int32_t default_splits(const AttentionShape& shape) const override {
    return shape.batch.size() == 1 ? 4 : 1;
  }
};

/// Values as wide as keys: channel c comes from channel c + 1.
struct ShiftedValue : MutantKernel {
  std::vector<double> project(const Row& row, std::span<const double> latent_out) const override {
    std::vector<double> out = MutantKernel::project(row, latent_out);
    std::rotate(out.begin(), out.begin() + 1, out.end());
    return out;
  }
};

constexpr Mutant kMutants[] = {
    {"scale-1.01", "the softmax scale is 1 % too large", "", make_mutant<ScaleOff>},
    {"scale-latent-width", "the scale is (L+R)^-1/2", "", make_mutant<ScaleLatentWidth>},
    {"scale-plain", "the scale's factor (YaRN) is lost", "MLA-077 MLA-078 MLA-080", make_mutant<ScalePlain>},
    {"scale-mscale", "the scale's factor is that of mscale, not of mscale_all_dim", "MLA-077",
     make_mutant<ScaleMscale>},
    {"rope-amplitude", "the rotary part carries YaRN's amplitude as well", "MLA-080 MLA-082",
     make_mutant<RopeAmplitude>},
    {"scale-inverted", "scores are divided by the scale", "MLA-084", make_mutant<ScaleInverted>},
    {"no-rotary", "k_pe is ignored", "MLA-075", make_mutant<NoRotary>},
    {"no-rotary-of-one", "k_pe is ignored in the last request", "", make_mutant<NoRotaryOfOne>},
    {"half-split", "q_pe and k_pe are paired differently", "MLA-072", make_mutant<HalfSplit>},
    {"swapped-up", "W_UK and W_UV are exchanged", "MLA-089", make_mutant<SwappedUp>},
    {"quantised-up", "W_UK and W_UV are e4m3, which nobody said", "MLA-093", make_mutant<QuantisedUp>},
    {"lse-base-2", "the LSE is in base 2", "MLA-035 MLA-037", make_mutant<LseBase2>},
    {"lse-plus-inf", "the LSE of an empty row is +inf", "MLA-041", make_mutant<LsePlusInf>},
    {"lse-sentinel", "the LSE of an empty row is -1e30", "", make_mutant<LseSentinel>},
    {"lse-unscaled", "the LSE is of unscaled scores", "", make_mutant<LseUnscaled>},
    {"empty-is-nan", "rows of empty requests are 0/0", "MLA-009", make_mutant<EmptyIsNan>},
    {"hidden-bf16-partials", "partial results are bf16, which the profile does not say", "",
     make_mutant<HiddenBf16Partials>},
    {"hidden-bf16-scores", "scores are bf16, which the profile does not say", "",
     make_mutant<HiddenBf16Scores>},
    {"hidden-fp8-p", "P is e4m3, which the profile does not say", "MLA-071",
     make_mutant<HiddenFp8Probabilities>},
    {"hidden-rounded-sum", "the LSE is of rounded P, which the profile does not say", "",
     make_mutant<HiddenRoundedSum>},
    {"hidden-fused-scale", "an only key weighs not quite 1, which the profile does not say", "",
     make_mutant<HiddenFusedScale>},
    {"truncates-output", "the output is cut, not rounded", "", make_mutant<TruncatesOutput>},
    {"truncates-p", "P is cut, not rounded", "", make_mutant<TruncatesProbabilities>},
    {"empty-part-counted", "a split without keys counts in the merge", "MLA-012",
     make_mutant<EmptyPartCounted>},
    {"empty-part-nan", "a split without keys makes the merge NaN", "MLA-006 MLA-039",
     make_mutant<EmptyPartNan>},
    {"merge-base-2", "natural LSEs are merged as base 2", "MLA-035", make_mutant<MergeBase2>},
    {"no-maximum", "exp without subtracting the maximum", "", make_mutant<NoMaximum>},
    {"no-rescale", "sums are not rescaled when the maximum grows", "", make_mutant<NoRescale>},
    {"race", "results differ from run to run", "MLA-097", make_mutant<Race>},
    {"batch-dependent", "claims batch invariance, but splits by the batch", "MLA-108",
     make_mutant<BatchDependent>},
    {"shifted-value", "output channels are shifted by one", "MLA-089", make_mutant<ShiftedValue>}};

}  // namespace

std::span<const Mutant> arithmetic_mutants() {
  return kMutants;
}

}  // namespace mla::verify
