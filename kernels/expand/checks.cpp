// SPDX-License-Identifier: Apache-2.0
#include "expand/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cache_ops/table.hpp"
#include "common/require.hpp"

namespace mla::kernels::expand {
namespace {

struct WidthsEntry {
  Widths widths;
  int d_qk, d_v;
};
constexpr std::array<WidthsEntry, 4> kWidths = {{{Widths::k96x64, 96, 64},
                                                 {Widths::k128x128, 128, 128},
                                                 {Widths::k192x128, 192, 128},
                                                 {Widths::k256x256, 256, 256}}};

void check_rows(const TensorParams& t, const char* name, std::int64_t alignment) {
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  if (t.stride_channel == 1 && aligned(t.data, {t.stride_token * size, t.stride_head * size}, alignment))
    return;
  refuse(fmt::format(
      "{} must have stride 1 in its last dimension, and its rows must start at multiples of {} bytes", name,
      alignment));
}

}  // namespace

const Widths* widths_for(const MlaDims& dims) {
  const auto it = std::find_if(kWidths.begin(), kWidths.end(), [&](const WidthsEntry& w) {
    return dims.head_width() <= w.d_qk && dims.v_head_dim <= w.d_v;
  });
  return it == kWidths.end() ? nullptr : &it->widths;
}

MaskParams mask_of(const Mask& mask) {
  return {mask.causal ? 1 : 0, std::min(mask.window.value_or(kNoWindow), kNoWindow), mask.sink};
}

RoundingProfile rounding(const AttentionShape& shape) {
  RoundingProfile profile;
  profile.probabilities = shape.q_dtype;
  profile.expanded_kv = shape.q_dtype;
  profile.unit_weight = false;  // weigh() fuses scale and pivot
  return profile;
}

Support check_types(const AttentionShape& shape) {
  if (Support separate = without_shared_prefix(shape); !separate) return separate;
  if (shape.q_dtype != DType::kBF16 && shape.q_dtype != DType::kF16) {
    return Support::no(fmt::format("queries are bf16 or f16, not {}", name_of(shape.q_dtype)));
  }
  if (shape.out_dtype != shape.q_dtype && shape.out_dtype != DType::kF32) {
    return Support::no(fmt::format("outputs are of the query's type, {}, or f32, not {}",
                                   name_of(shape.q_dtype), name_of(shape.out_dtype)));
  }
  // The cache's rows become operands of the query's type; that must not round them.
  const DType latent = cache_ops::latent_dtype(shape.cache);
  const bool fits = latent == shape.q_dtype || (latent == DType::kE4M3 && shape.q_dtype == DType::kBF16);
  if (!fits || shape.cache == CacheFormat::kF64) {
    return Support::no(fmt::format("rows of a {} cache would be rounded to be operands with {} queries",
                                   name_of(shape.cache), name_of(shape.q_dtype)));
  }
  return Support::yes();
}

Support check_multiples(const MlaDims& d) {
  for (const auto& [width, name] : {std::pair{d.qk_nope_head_dim, "qk_nope_head_dim"},
                                    {d.qk_rope_head_dim, "qk_rope_head_dim"},
                                    {d.v_head_dim, "v_head_dim"},
                                    {d.kv_lora_rank, "kv_lora_rank"}}) {
    if (width % 8 != 0)
      return Support::no(fmt::format("{} is {}, but 16-byte loads need a multiple of 8", name, width));
  }
  return Support::yes();
}

Support check_shape(const AttentionShape& shape, Phase phase) {
  if (Support types = check_types(shape); !types) return types;
  if (shape.space != QuerySpace::kHead) {
    return Support::no(
        "the query is absorbed already (latent space), but K is expanded for a query per head");
  }
  if (shape.phase != phase) {
    return Support::no(shape.phase == Phase::kPrefill ? "it is a decode kernel; the phase is prefill"
                                                      : "it is a prefill kernel; the phase is decode");
  }
  if (shape.topk > 0 && phase == Phase::kPrefill) {
    return Support::no(
        fmt::format("topk is {}, but each token's own keys are expanded in decode only", shape.topk));
  }
  if (widths_for(shape.dims) == nullptr) {
    return Support::no(
        fmt::format("heads of P + R = {} and V = {} are wider than the widest kernel, 256 and 256",
                    shape.dims.head_width(), shape.dims.v_head_dim));
  }
  return check_multiples(shape.dims);
}

void check_weights(const AttentionShape& shape, const AttentionParams& params) {
  for (const auto& [weight, name] : {std::pair{&params.w_uk, "w_uk"}, {&params.w_uv, "w_uv"}}) {
    check_rows(*weight, name, 16);
    if (weight->dtype != shape.q_dtype) {
      refuse(fmt::format("{} is {}, but must be of the query's type, {}", name, name_of(weight->dtype),
                         name_of(shape.q_dtype)));
    }
  }
}

void check_arguments(const AttentionShape& shape, const AttentionParams& params) {
  check_rows(params.q, "q", 16);
  check_rows(params.out, "out", 2 * static_cast<std::int64_t>(size_of(params.out.dtype)));
  check_weights(shape, params);
}

TailParams tail_of(const AttentionArgs& args, const AttentionParams& params, std::int32_t width) {
  TailParams t;
  t.cu_seqlens_q = args.cu_seqlens_q;
  t.requests = params.num_requests;
  t.tokens = params.num_tokens;
  t.heads = params.num_heads;
  t.width = width;
  t.out = params.out.data;
  t.out_dtype = params.out.dtype;
  t.out_token = params.out.stride_token;
  t.out_head = params.out.stride_head;
  t.lse = params.lse;
  t.lse_token = params.lse_stride_token;
  t.lse_head = params.lse_stride_head;
  return t;
}

}  // namespace mla::kernels::expand
