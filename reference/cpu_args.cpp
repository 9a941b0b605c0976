// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <initializer_list>
#include <string_view>

#include "check.hpp"
#include "cpu_backend.hpp"
#include "mla/error.hpp"

namespace mla::reference::detail {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

/// A first extent that counts tokens may be larger than this call needs: buffers are made for the planned
/// lengths.
enum class Spare : bool { kNone, kTokens };

template <class Tensor>
void require_tensor(std::string_view what, const Tensor& tensor, std::string_view shape,
                    std::initializer_list<std::int64_t> extents, Spare spare = Spare::kTokens) {
  std::size_t i = 0;
  bool right = tensor.rank == static_cast<int>(extents.size());
  for (const std::int64_t extent : extents) {
    right = right &&
            (tensor.extent[i] == extent || (i == 0 && spare == Spare::kTokens && tensor.extent[i] > extent));
    ++i;
  }
  if (!right) {
    std::string got, want;
    for (int d = 0; d < tensor.rank && d < 4; ++d) {
      got += fmt::format("{}{}", d > 0 ? ", " : "", tensor.extent[static_cast<std::size_t>(d)]);
    }
    for (const std::int64_t extent : extents) want += fmt::format("{}{}", want.empty() ? "" : ", ", extent);
    refuse(fmt::format("{} is [{}], but this call needs {} = [{}]", what, got, shape, want));
  }
  if (*extents.begin() > 0 && tensor.data == nullptr) refuse(fmt::format("{} is null", what));
}

void require_dtype(std::string_view what, DType got, DType planned) {
  if (got == planned) return;
  refuse(fmt::format("{} is {}, but the plan was made for {}", what, name_of(got), name_of(planned)));
}

void require_array(std::string_view what, const View<const std::int32_t, 1>& array, std::int64_t extent) {
  if (array.extent[0] != extent) {
    refuse(fmt::format("{} has {} elements, but the plan's {} requests need {}", what, array.extent[0],
                       what == "seq_lens" ? extent : extent - 1, extent));
  }
  if (!array) refuse(fmt::format("{} is null", what));
}

/// True lengths, which the planned ones bound.
std::vector<Request> read_requests(const AttentionShape& shape, const AttentionArgs& args) {
  const auto count = static_cast<std::int64_t>(shape.batch.size());
  require_array("cu_seqlens_q", args.cu_seqlens_q, count + 1);
  require_array("seq_lens", args.seq_lens, count);
  if (args.cu_seqlens_q(0) != 0)
    refuse(fmt::format("cu_seqlens_q[0] is {}, but must be 0", args.cu_seqlens_q(0)));
  std::vector<Request> requests;
  for (std::int64_t b = 0; b < count; ++b) {
    const Request& planned = shape.batch[static_cast<std::size_t>(b)];
    const std::int64_t q_len = std::int64_t{args.cu_seqlens_q(b + 1)} - args.cu_seqlens_q(b);
    require_between(fmt::format("q_len of request {} (cu_seqlens_q[{}] - cu_seqlens_q[{}])", b, b + 1, b),
                    q_len, 0, planned.q_len);
    require_between(fmt::format("seq_lens[{}]", b), args.seq_lens(b), 0, planned.kv_len);
    requests.push_back({static_cast<std::int32_t>(q_len), args.seq_lens(b)});
  }
  return requests;
}

std::vector<std::int32_t> read_index(const AttentionShape& shape, const AttentionArgs& args,
                                     std::int64_t tokens) {
  std::vector<std::int32_t> index;
  if (shape.topk == 0) return index;
  const View<const std::int32_t, 2>& view = args.token_index;
  if (tokens > 0 && !view) refuse(fmt::format("token_index is null, but the shape has topk {}", shape.topk));
  if (view.extent[0] < tokens || view.extent[1] != shape.topk) {
    refuse(fmt::format("token_index is [{}, {}], but this call needs [tokens, topk] = [{}, {}]",
                       view.extent[0], view.extent[1], tokens, shape.topk));
  }
  index.reserve(static_cast<std::size_t>(tokens * shape.topk));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t j = 0; j < shape.topk; ++j) index.push_back(view(t, j));
  }
  return index;
}

}  // namespace

bool is_cpu_dtype(DType dtype) noexcept {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

CallBatch check_args(const AttentionShape& shape, const AttentionArgs& args) {
  const auto& [H, L, R, P, V] = shape.dims;
  const bool latent = shape.space == QuerySpace::kLatent;
  require_softmax_scale(args.softmax_scale);
  CallBatch batch;
  batch.requests = read_requests(shape, args);
  const std::int64_t tokens = args.cu_seqlens_q(static_cast<std::int64_t>(shape.batch.size()));
  batch.token_index = read_index(shape, args, tokens);

  require_tensor("q", args.q, latent ? "[tokens, H, L+R]" : "[tokens, H, P+R]",
                 {tokens, H, latent ? L + R : P + R});
  require_dtype("q", args.q.dtype, shape.q_dtype);
  require_tensor("out", args.out, latent ? "[tokens, H, L]" : "[tokens, H, V]", {tokens, H, latent ? L : V});
  require_dtype("out", args.out.dtype, shape.out_dtype);
  if (args.lse) {
    require_tensor("lse", args.lse, "[tokens, H]", {tokens, H});
    if (args.lse.dtype != DType::kF32 && args.lse.dtype != DType::kF64) {
      refuse(fmt::format("lse is {}, but must be f32 or f64", name_of(args.lse.dtype)));
    }
  }
  if (!latent) {
    require_tensor("w_uk", args.w_uk, "[H, P, L]", {H, P, L}, Spare::kNone);
    require_tensor("w_uv", args.w_uv, "[H, V, L]", {H, V, L}, Spare::kNone);
    for (const ConstTensorRef& weight : {args.w_uk, args.w_uv}) {
      if (!is_cpu_dtype(weight.dtype)) {
        refuse(fmt::format("the weights are {}, but must be {}", name_of(weight.dtype), kCpuDtypes));
      }
    }
  }
  if (args.cache.format != shape.cache) {
    refuse(fmt::format("the cache's format is {}, but the plan was made for {}", name_of(args.cache.format),
                       name_of(shape.cache)));
  }
  if (args.cache.block_size != shape.block_size) {
    refuse(fmt::format("the cache's block_size is {}, but the plan was made for {}", args.cache.block_size,
                       shape.block_size));
  }
  return batch;
}

}  // namespace mla::reference::detail
