// SPDX-License-Identifier: Apache-2.0
#include "common/arguments.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "common/require.hpp"
#include "mla/error.hpp"

namespace mla::kernels {
namespace {

void check_tensor(const ConstTensorRef& tensor, const char* name, DType dtype, std::int64_t heads,
                  std::int64_t width) {
  if (!tensor) refuse(fmt::format("{} is missing", name));
  if (tensor.rank != 3 || tensor.extent[1] != heads || tensor.extent[2] != width) {
    refuse(fmt::format("{} has shape [{}, {}, {}] (rank {}); wanted [.., {}, {}]", name, tensor.extent[0],
                       tensor.extent[1], tensor.extent[2], tensor.rank, heads, width));
  }
  if (tensor.dtype != dtype) {
    refuse(fmt::format("{} is {}; the shape says {}", name, name_of(tensor.dtype), name_of(dtype)));
  }
}

void check_weight(const ConstTensorRef& weight, const char* name, std::int64_t heads, std::int64_t rows,
                  std::int64_t latent) {
  check_tensor(weight, name, weight.dtype, rows, latent);
  if (weight.extent[0] != heads) {
    refuse(fmt::format("{} has {} heads; the shape has {}", name, weight.extent[0], heads));
  }
}

TensorParams pack(const ConstTensorRef& tensor) {
  return {const_cast<void*>(tensor.data), tensor.dtype, tensor.stride[0], tensor.stride[1], tensor.stride[2]};
}

CacheParams pack_cache(const AttentionShape& shape, const PagedLatentCache& cache) {
  if (cache.format != shape.cache) {
    refuse(fmt::format("the cache is {}; the shape says {}", name_of(cache.format), name_of(shape.cache)));
  }
  if (cache.block_size != shape.block_size) {
    refuse(fmt::format("the cache has blocks of {}; the shape says {}", cache.block_size, shape.block_size));
  }
  if (cache.data == nullptr) refuse("the cache has no data");
  if (!cache.block_table) refuse("the cache has no block table");
  const CacheLayout layout = cache_layout(shape.cache, shape.dims);
  CacheParams out;
  out.format = cache.format;
  out.block_size = cache.block_size;
  out.by_block_size = FastDivide(cache.block_size);
  out.num_blocks = cache.num_blocks;
  out.latent = cache.data;
  out.latent_block_stride = cache.block_stride_bytes;
  out.latent_row_stride = cache.row_stride_bytes;
  if (layout.split()) {
    if (cache.k_pe == nullptr) refuse("the cache has no k_pe pool");
    out.rope = cache.k_pe;
    out.rope_block_stride = cache.k_pe_block_stride_bytes;
    out.rope_row_stride = cache.k_pe_row_stride_bytes;
  } else {
    out.rope = cache.data + layout.rope_offset;
    out.rope_block_stride = cache.block_stride_bytes;
    out.rope_row_stride = cache.row_stride_bytes;
  }
  out.scale_offset = static_cast<std::int32_t>(layout.scale_offset);
  out.scale = cache.format == CacheFormat::kFp8 ? cache.scale : 1.0F;
  out.block_table = cache.block_table.data;
  out.table_stride_request = cache.block_table.stride[0];
  out.table_stride_column = cache.block_table.stride[1];
  return out;
}

}  // namespace

AttentionParams make_params(const AttentionShape& shape, const AttentionArgs& args) {
  const MlaDims& d = shape.dims;
  const bool head_space = shape.space == QuerySpace::kHead;
  const auto requests = static_cast<std::int64_t>(shape.batch.size());
  check_tensor(args.q, "q", shape.q_dtype, d.num_heads, head_space ? d.head_width() : d.latent_width());
  check_tensor(args.out, "out", shape.out_dtype, d.num_heads, head_space ? d.v_head_dim : d.kv_lora_rank);
  if (args.out.extent[0] != args.q.extent[0]) {
    refuse(fmt::format("out has {} tokens, q has {}", args.out.extent[0], args.q.extent[0]));
  }
  if (!args.cu_seqlens_q || args.cu_seqlens_q.extent[0] != requests + 1) {
    refuse(fmt::format("cu_seqlens_q has {} entries; {} requests want {}", args.cu_seqlens_q.extent[0],
                       requests, requests + 1));
  }
  if (!args.seq_lens || args.seq_lens.extent[0] != requests) {
    refuse(
        fmt::format("seq_lens has {} entries; the shape has {} requests", args.seq_lens.extent[0], requests));
  }
  if (!(args.softmax_scale > 0) || !std::isfinite(args.softmax_scale)) {
    refuse(fmt::format("softmax_scale is {}; it must be positive and finite", args.softmax_scale));
  }

  AttentionParams p;
  p.num_heads = d.num_heads;
  p.latent = d.kv_lora_rank;
  p.rope = d.qk_rope_head_dim;
  p.nope = d.qk_nope_head_dim;
  p.value = d.v_head_dim;
  p.num_tokens = args.q.extent[0];
  p.num_requests = static_cast<std::int32_t>(requests);
  p.head_space = head_space;
  p.q = pack(args.q);
  p.out = pack(args.out);
  if (head_space) {
    check_weight(args.w_uk, "w_uk", d.num_heads, d.qk_nope_head_dim, d.kv_lora_rank);
    check_weight(args.w_uv, "w_uv", d.num_heads, d.v_head_dim, d.kv_lora_rank);
    p.w_uk = pack(args.w_uk);
    p.w_uv = pack(args.w_uv);
  }
  if (args.lse) {
    if (args.lse.dtype != DType::kF32 || args.lse.rank != 2 || args.lse.extent[0] != p.num_tokens ||
        args.lse.extent[1] != d.num_heads) {
      refuse(fmt::format("lse is {} [{}, {}]; wanted f32 [{}, {}]", name_of(args.lse.dtype),
                         args.lse.extent[0], args.lse.extent[1], p.num_tokens, d.num_heads));
    }
    p.lse = static_cast<float*>(args.lse.data);
    p.lse_stride_token = args.lse.stride[0];
    p.lse_stride_head = args.lse.stride[1];
  }
  p.cache = pack_cache(shape, args.cache);
  if (args.cache.block_table.extent[0] < requests) {
    refuse(fmt::format("the block table has {} rows; the shape has {} requests",
                       args.cache.block_table.extent[0], requests));
  }
  p.cu_seqlens_q = args.cu_seqlens_q.data;
  p.cu_seqlens_stride = args.cu_seqlens_q.stride[0];
  p.seq_lens = args.seq_lens.data;
  p.seq_lens_stride = args.seq_lens.stride[0];
  if (shape.topk > 0) {
    if (!args.token_index || args.token_index.extent[0] < p.num_tokens ||
        args.token_index.extent[1] != shape.topk) {
      refuse(fmt::format("token_index is [{}, {}]; wanted [{}, {}]", args.token_index.extent[0],
                         args.token_index.extent[1], p.num_tokens, shape.topk));
    }
    p.token_index = args.token_index.data;
    p.index_stride_token = args.token_index.stride[0];
    p.index_stride_entry = args.token_index.stride[1];
    p.topk = shape.topk;
  }
  p.causal = shape.mask.causal;
  p.window = shape.mask.window.value_or(0);
  p.sink = shape.mask.sink;
  p.scale = static_cast<float>(args.softmax_scale);
  return p;
}

void require(const Backend& backend, const AttentionShape& shape, const Device& device) {
  validate(shape);
  if (const Support answer = backend.supports(shape, device); !answer) {
    throw Error(ErrorCode::kUnsupported, fmt::format("{}: {}", backend.info().name, answer.why));
  }
  if (device.origin != DeviceOrigin::kReal) {
    throw Error(ErrorCode::kDevice, fmt::format("'{}' is a description; {} needs a GPU of this machine",
                                                device.name, backend.info().name));
  }
}

void throw_foreign_plan(const char* backend) {
  refuse(fmt::format("the plan given to {} was made by another backend", backend));
}

void check_workspace(std::size_t have, std::size_t need, const char* backend) {
  if (have < need) {
    refuse(fmt::format("the workspace given to {} has {} bytes; its plan wants {}", backend, have, need));
  }
}

void check_alignment(const AttentionParams& params, const char* backend) {
  const CacheParams& c = params.cache;
  const auto refuse_unless = [backend](bool fine, const char* what) {
    if (!fine) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("{}: address and strides of {} must be multiples of 16 bytes, and its last stride 1",
                      backend, what));
    }
  };
  const auto tensor = [](const TensorParams& t) {
    const auto size = static_cast<std::int64_t>(size_of(t.dtype));
    return t.stride_channel == 1 && aligned(t.data, {t.stride_token * size, t.stride_head * size}, 16);
  };
  refuse_unless(tensor(params.q), "q");
  refuse_unless(tensor(params.out), "out");
  refuse_unless(aligned(c.latent, {c.latent_block_stride, c.latent_row_stride}, 16), "the cache");
  refuse_unless(params.rope == 0 || aligned(c.rope, {c.rope_block_stride, c.rope_row_stride}, 16),
                "the cache's rotary part");
}

std::uint32_t narrow_stride(const char* backend, std::int64_t stride, const char* what) {
  if (stride < 0 || stride > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: {} are {} bytes apart, but may be at most 4 GiB", backend, what, stride));
  }
  return static_cast<std::uint32_t>(stride);
}

}  // namespace mla::kernels
