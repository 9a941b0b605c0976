// SPDX-License-Identifier: Apache-2.0
#include "gemm/around.hpp"

#include <fmt/format.h>

#include "common/require.hpp"
#include "gemm/lt.hpp"
#include "mla/device_ops.hpp"

namespace mla::kernels {
namespace {

TensorParams packed(const TensorRef& t) {
  return {t.data, t.dtype, t.stride[0], t.stride[1], 1};
}

}  // namespace

Projections::Projections(const AttentionShape& shape, std::int64_t& used) {
  const auto place = [&used](std::int64_t bytes) {
    const std::int64_t at = used;
    used += (bytes + 255) / 256 * 256;
    return at;
  };
  const std::int64_t rows = shape.num_tokens() * shape.dims.num_heads;
  query_at_ = place(rows * shape.dims.latent_width() * 2);
  latent_at_ = place(rows * shape.dims.kv_lora_rank * 2);
  product_at_ = place(static_cast<std::int64_t>(lt::kWorkspaceBytes));
}

void Projections::run(const AttentionShape& shape, const AttentionArgs& args, AttentionParams params,
                      std::span<std::byte> workspace, Stream stream,
                      const std::function<void(const AttentionParams&)>& attend) const {
  if (params.num_tokens > shape.num_tokens()) {
    refuse(
        fmt::format("q has {} tokens, but the plan was made for {}", params.num_tokens, shape.num_tokens()));
  }
  const MlaDims& d = shape.dims;
  const TensorRef query(workspace.data() + query_at_, shape.q_dtype,
                        {params.num_tokens, d.num_heads, d.latent_width()});
  const TensorRef latent(workspace.data() + latent_at_, shape.q_dtype,
                         {params.num_tokens, d.num_heads, d.kv_lora_rank});
  const std::span<std::byte> product_space(workspace.data() + product_at_, lt::kWorkspaceBytes);
  device_ops::absorb_query(d, args.q, args.w_uk, query, product_space, stream);
  params.head_space = false;
  params.q = packed(query);
  params.out = packed(latent);
  attend(params);
  device_ops::up_project_value(d, latent, args.w_uv, args.out, product_space, stream);
}

}  // namespace mla::kernels
