// SPDX-License-Identifier: Apache-2.0
#include "mla/dims.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "mla/error.hpp"

namespace mla {
namespace {

// Far above any model (DeepSeek-V3: 128 heads, 512 wide), low enough that products of two widths fit an int.
constexpr int kWidest = 1 << 15;

void require(std::string_view field, int value, int least) {
  if (value < least || value > kWidest) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is {}, but must be in {}..{}", field, value, least, kWidest));
  }
}

}  // namespace

double plain_softmax_scale(const MlaDims& dims) {
  validate(dims);
  return 1.0 / std::sqrt(static_cast<double>(dims.head_width()));
}

void validate(const MlaDims& dims) {
  require("num_heads", dims.num_heads, 1);
  require("kv_lora_rank", dims.kv_lora_rank, 1);
  require("qk_rope_head_dim", dims.qk_rope_head_dim, 0);
  require("qk_nope_head_dim", dims.qk_nope_head_dim, 1);
  require("v_head_dim", dims.v_head_dim, 1);
  if (dims.qk_rope_head_dim % 2 != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("qk_rope_head_dim is {}, but must be even (RoPE turns pairs of channels)",
                            dims.qk_rope_head_dim));
  }
}

}  // namespace mla
