// SPDX-License-Identifier: Apache-2.0
#include "verify/emulated_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mla/error.hpp"

namespace mla::verify {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

class EmulatedPlan final : public Plan {
 public:
  EmulatedPlan(AttentionShape s, std::int32_t n) : shape(std::move(s)), splits(n) {}
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override { return 0; }
  [[nodiscard]] std::string describe() const override { return fmt::format("{} splits", splits); }
  AttentionShape shape;
  std::int32_t splits;
};

RoundingProfile profile_with(void (*change)(RoundingProfile&)) {
  RoundingProfile profile;
  change(profile);
  return profile;
}

}  // namespace

std::span<const NamedProfile> ideal_profiles() {
  static const NamedProfile kProfiles[] = {
      {"f32", {}},
      {"bf16 P", profile_with([](RoundingProfile& r) { r.probabilities = DType::kBF16; })},
      {"bf16 P, summed rounded", profile_with([](RoundingProfile& r) {
         r.probabilities = DType::kBF16;
         r.lse_from_rounded_p = true;
       })},
      {"f16 P", profile_with([](RoundingProfile& r) { r.probabilities = DType::kF16; })},
      {"bf16 P and partials",
       profile_with([](RoundingProfile& r) { r.probabilities = r.partials = DType::kBF16; })},
      {"bf16 P, query and latent output", profile_with([](RoundingProfile& r) {
         r.probabilities = r.absorbed_query = r.latent_output = DType::kBF16;
       })},
      {"f16 P, fused scale", profile_with([](RoundingProfile& r) {
         r.probabilities = DType::kF16;
         r.unit_weight = false;
       })}};
  return kProfiles;
}

EmulatedKernel::EmulatedKernel(Options options) : options_(std::move(options)) {
  info_.name = options_.name;
  info_.summary = "flash-decoding on the CPU, step by step";
  info_.strategy = "absorbed";
  info_.edges = {options_.tile};
  info_.batch_invariant = true;
}

void EmulatedKernel::rename(std::string name) {
  options_.name = std::move(name);
  info_.name = options_.name;
}

RoundingProfile EmulatedKernel::rounding(const AttentionShape&) const {
  return options_.profile;
}

Support EmulatedKernel::supports(const AttentionShape& shape, const Device&) const {
  if (shape.out_dtype == DType::kF64) {
    return Support::no(fmt::format("out_dtype f64 is more than the {} arithmetic of this kernel holds",
                                   name_of(options_.profile.accumulate)));
  }
  return Support::yes();
}

std::unique_ptr<Plan> EmulatedKernel::plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions& options) const {
  const Support support = supports(shape, device);
  if (!support) throw Error(ErrorCode::kUnsupported, support.why);
  return std::make_unique<EmulatedPlan>(shape,
                                        options.num_splits > 0 ? options.num_splits : default_splits(shape));
}

void EmulatedKernel::run(const Plan& plan, const AttentionArgs& args, std::span<std::byte>, Stream) const {
  const auto& p = dynamic_cast<const EmulatedPlan&>(plan);
  const CacheLayout layout = cache_layout(args.cache.format, p.shape.dims);
  const std::int64_t requests = args.seq_lens.extent[0];
  for (std::int64_t b = 0; b < requests; ++b) {
    const std::int64_t first = args.cu_seqlens_q(b);
    const std::int64_t q_len = args.cu_seqlens_q(b + 1) - first;
    for (std::int64_t i = 0; i < q_len; ++i) {
      for (std::int64_t h = 0; h < p.shape.dims.num_heads; ++h) {
        compute({p.shape, args, layout, p.splits, b, requests, first + i, i, q_len, args.seq_lens(b), h});
      }
    }
  }
}

double EmulatedKernel::arithmetic(double x) const {
  return options_.profile.accumulate == DType::kF64 ? x : static_cast<double>(static_cast<float>(x));
}

std::vector<std::int64_t> EmulatedKernel::candidates(const Row& row) const {
  std::vector<std::int64_t> keys;
  if (row.shape.topk > 0) {
    for (std::int64_t i = 0; i < row.shape.topk; ++i) {
      keys.push_back(indexed_key(row, row.args.token_index(row.token, i)));
    }
    return keys;
  }
  const std::int64_t n = num_keys(row);
  for (std::int64_t j = 0; j < n; ++j) keys.push_back(sees(row, j) ? j : -1);
  return keys;
}

void EmulatedKernel::compute(const Row& row) const {
  const std::vector<double> q = query(row);
  const double s = arithmetic(scale(row));
  const std::vector<std::int64_t> keys = candidates(row);
  const std::int64_t tile = options_.tile;
  const auto size = static_cast<std::int64_t>(keys.size());
  const std::int64_t tiles = (size + tile - 1) / tile;
  std::vector<Part> parts(static_cast<std::size_t>(row.splits));
  for (std::int64_t k = 0; k < row.splits; ++k) {
    Part& part = parts[static_cast<std::size_t>(k)];
    part.out.assign(static_cast<std::size_t>(row.shape.dims.kv_lora_rank), 0.0);
    const auto [begin, end] = part_tiles(row, k, tiles);
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t first = t * tile;
      add_tile(row, q, s,
               std::span(keys).subspan(static_cast<std::size_t>(first),
                                       static_cast<std::size_t>(std::min(tile, size - first))),
               part);
    }
    finish_part(row, part);
  }
  const Part result = row.splits == 1 ? parts.front() : merge(row, parts);
  store(row, project(row, result.out), final_lse(row, result.lse));
}

void EmulatedKernel::add_tile(const Row& row, std::span<const double> q, double s,
                              std::span<const std::int64_t> keys, Part& part) const {
  const auto width = static_cast<std::size_t>(row.shape.dims.latent_width());
  std::vector<double> rows(keys.size() * width);
  std::vector<double> scores(keys.size(), -kInf);
  double max = part.empty ? -kInf : part.max;
  const bool fused = !options_.profile.unit_weight;  // score * scale - maximum, rounded once
  for (std::size_t j = 0; j < keys.size(); ++j) {
    if (keys[j] < 0) continue;
    const std::span<double> latent = std::span(rows).subspan(j * width, width);
    load(row, slot(row, keys[j]), latent);
    const double score = s * dot(row, q, latent);
    scores[j] = fused ? score : arithmetic(score);
    max = std::max(max, arithmetic(score));
    part.empty = false;
  }
  if (part.empty) return;
  max = score_shift(row, max);
  const double factor = part.sum == 0 ? 0.0 : arithmetic(rescale(row, part.max - max));
  part.max = max;
  part.sum = arithmetic(part.sum * factor);
  for (double& x : part.out) x = arithmetic(x * factor);
  for (std::size_t j = 0; j < keys.size(); ++j) {
    if (keys[j] < 0) continue;
    const double below = fused ? arithmetic(scores[j] - max) : scores[j] - max;
    const double p = arithmetic(std::exp(below));
    const double rounded = round_probability(row, p);
    part.sum = arithmetic(part.sum + (options_.profile.lse_from_rounded_p ? rounded : p));
    const double* v = rows.data() + j * width;
    for (std::size_t c = 0; c < part.out.size(); ++c) part.out[c] = arithmetic(part.out[c] + rounded * v[c]);
  }
}

std::int32_t EmulatedKernel::default_splits(const AttentionShape&) const {
  return options_.splits;
}

double EmulatedKernel::scale(const Row& row) const {
  return row.args.softmax_scale;
}

std::int64_t EmulatedKernel::num_keys(const Row& row) const {
  return row.n;
}

std::int64_t EmulatedKernel::position(const Row& row) const {
  return row.n - row.q_len + row.i;
}

bool EmulatedKernel::sees(const Row& row, std::int64_t key) const {
  return row.shape.mask.sees(position(row), row.n, key);
}

std::int64_t EmulatedKernel::indexed_key(const Row& row, std::int32_t entry) const {
  return entry >= 0 && entry < row.n ? entry : -1;
}

std::int64_t EmulatedKernel::slot(const Row& row, std::int64_t key) const {
  return row.args.cache.slot(row.request, key);
}

void EmulatedKernel::load(const Row& row, std::int64_t slot, std::span<double> latent) const {
  const PagedLatentCache& cache = row.args.cache;
  decode_row(row.layout, row.shape.dims, cache.row(slot), row.layout.split() ? cache.k_pe_row(slot) : nullptr,
             cache.scale, latent);
}

std::vector<double> EmulatedKernel::query(const Row& row) const {
  const MlaDims& d = row.shape.dims;
  const ConstTensorRef& q = row.args.q;
  const auto element = [&](std::int64_t c) {
    return load_element(q.data, q.dtype, q.offset(row.token, row.head, c));
  };
  std::vector<double> latent(static_cast<std::size_t>(d.latent_width()));
  if (row.shape.space == QuerySpace::kLatent) {
    for (std::size_t c = 0; c < latent.size(); ++c) latent[c] = element(static_cast<std::int64_t>(c));
    return latent;
  }
  const ConstTensorRef& w = row.args.w_uk;
  for (std::int64_t p = 0; p < d.qk_nope_head_dim; ++p) {
    const double x = element(p);
    for (std::int64_t l = 0; l < d.kv_lora_rank; ++l) {
      double& sum = latent[static_cast<std::size_t>(l)];
      sum = arithmetic(sum + x * load_element(w.data, w.dtype, w.offset(row.head, p, l)));
    }
  }
  for (std::int64_t l = 0; l < d.kv_lora_rank; ++l) {
    double& x = latent[static_cast<std::size_t>(l)];
    x = round_to(options_.profile.absorbed_query, x);
  }
  for (std::int64_t r = 0; r < d.qk_rope_head_dim; ++r) {
    latent[static_cast<std::size_t>(d.kv_lora_rank + r)] = element(d.qk_nope_head_dim + r);
  }
  return latent;
}

double EmulatedKernel::dot(const Row&, std::span<const double> q, std::span<const double> latent) const {
  // Sixteen products a step in full precision, then one rounding: how a matrix unit adds.
  double sum = 0;
  for (std::size_t c = 0; c < q.size();) {
    double step = 0;
    for (const std::size_t end = std::min(c + 16, q.size()); c < end; ++c) step += q[c] * latent[c];
    sum = arithmetic(sum + step);
  }
  return sum;
}

double EmulatedKernel::score_shift(const Row&, double max) const {
  return max;
}

double EmulatedKernel::rescale(const Row&, double change) const {
  return std::exp(change);
}

double EmulatedKernel::round_probability(const Row&, double p) const {
  return round_to(options_.profile.probabilities, p);
}

std::pair<std::int64_t, std::int64_t> EmulatedKernel::part_tiles(const Row& row, std::int64_t part,
                                                                 std::int64_t tiles) const {
  return {part * tiles / row.splits, (part + 1) * tiles / row.splits};
}

void EmulatedKernel::finish_part(const Row& row, Part& part) const {
  part.lse = part.empty ? -kInf : arithmetic(part.max + std::log(part.sum));
  for (double& x : part.out) x = part.empty ? 0.0 : arithmetic(x / part.sum);
  if (row.splits > 1) {
    for (double& x : part.out) x = round_to(options_.profile.partials, x);
  }
}

EmulatedKernel::Part EmulatedKernel::merge(const Row& row, std::span<const Part> parts) const {
  Part all;
  all.out.assign(static_cast<std::size_t>(row.shape.dims.kv_lora_rank), 0.0);
  all.lse = all.max = -kInf;
  for (const Part& part : parts) {
    if (part.empty) continue;
    all.empty = false;
    all.max = std::max(all.max, part.lse);  // a NaN is no maximum, but reaches the sums by its weight
  }
  if (all.empty) return all;
  for (const Part& part : parts) {
    if (part.empty) continue;
    const double weight = arithmetic(std::exp(part.lse - all.max));
    all.sum = arithmetic(all.sum + weight);
    for (std::size_t c = 0; c < all.out.size(); ++c)
      all.out[c] = arithmetic(all.out[c] + weight * part.out[c]);
  }
  for (double& x : all.out) x = arithmetic(x / all.sum);
  all.lse = arithmetic(all.max + std::log(all.sum));
  return all;
}

std::vector<double> EmulatedKernel::project(const Row& row, std::span<const double> latent_out) const {
  if (row.shape.space == QuerySpace::kLatent) return {latent_out.begin(), latent_out.end()};
  const MlaDims& d = row.shape.dims;
  const ConstTensorRef& w = row.args.w_uv;
  std::vector<double> out(static_cast<std::size_t>(d.v_head_dim));
  for (std::int64_t v = 0; v < d.v_head_dim; ++v) {
    double sum = 0;
    for (std::int64_t l = 0; l < d.kv_lora_rank; ++l) {
      const double o = round_to(options_.profile.latent_output, latent_out[static_cast<std::size_t>(l)]);
      sum = arithmetic(sum + o * load_element(w.data, w.dtype, w.offset(row.head, v, l)));
    }
    out[static_cast<std::size_t>(v)] = sum;
  }
  return out;
}

double EmulatedKernel::final_lse(const Row&, double lse) const {
  return lse;
}

void EmulatedKernel::store(const Row& row, std::span<const double> out, double lse) const {
  const TensorRef& o = row.args.out;
  for (std::size_t c = 0; c < out.size(); ++c) {
    store_element(o.data, o.dtype, o.offset(row.token, row.head, static_cast<std::int64_t>(c)), out[c]);
  }
  const TensorRef& l = row.args.lse;
  if (l) store_element(l.data, l.dtype, l.offset(row.token, row.head), lse);
}

}  // namespace mla::verify
