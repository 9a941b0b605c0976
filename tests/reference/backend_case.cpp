// SPDX-License-Identifier: Apache-2.0
#include "backend_case.hpp"

#include <algorithm>
#include <numeric>

#include "mla/random.hpp"

namespace backend_case {
namespace {

using namespace mla;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Writes values to a tensor and rounds them to what it now holds.
void encode(std::vector<double>& values, const TensorRef& tensor, std::int64_t rows) {
  std::size_t next = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < tensor.extent[1]; ++j) {
      for (std::int64_t k = 0; k < tensor.extent[2]; ++k, ++next) {
        store_element(tensor.data, tensor.dtype, tensor.offset(i, j, k), values[next]);
        values[next] = load_element(tensor.data, tensor.dtype, tensor.offset(i, j, k));
      }
    }
  }
}

std::vector<double> decode(const TensorRef& tensor, std::int64_t rows) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < tensor.extent[1]; ++j) {
      for (std::int64_t k = 0; k < tensor.extent[2]; ++k) {
        values.push_back(load_element(tensor.data, tensor.dtype, tensor.offset(i, j, k)));
      }
    }
  }
  return values;
}

}  // namespace

TensorRef Call::tensor(std::vector<std::byte>& bytes, DType dtype, std::vector<std::int64_t> extents,
                       const Layout& layout, std::int64_t spare_rows) const {
  TensorRef ref;
  ref.dtype = dtype;
  ref.rank = static_cast<int>(extents.size());
  extents[0] += spare_rows;
  std::int64_t step = layout.gap > 0 ? 2 : 1;  // not even the innermost elements need be neighbours
  for (std::size_t d = extents.size(); d-- > 0;) {
    ref.extent[d] = extents[d];
    ref.stride[d] = step;
    step = step * extents[d] + layout.gap;
  }
  bytes.assign(at(step) * size_of(dtype), kPoison);
  ref.data = bytes.data();
  return ref;
}

Call::Call(const textbook::MlaData& data, QuerySpace space, CacheFormat format, DType q_dtype,
           DType out_dtype, const Layout& layout)
    : data_(data) {
  const auto& [H, L, R, P, V] = data.dims;
  const bool latent = space == QuerySpace::kLatent;
  shape.space = space;
  shape.dims = data.dims;
  shape.batch = data.batch;
  shape.mask = data.visible.mask;
  shape.topk = data.visible.topk;
  shape.block_size = layout.block_size;
  shape.q_dtype = q_dtype;
  shape.out_dtype = out_dtype;
  shape.cache = format;
  const std::int64_t tokens = data.tokens();
  const TensorRef q = tensor(q_, q_dtype, {tokens, H, latent ? L + R : P + R}, layout, layout.spare_rows);
  encode(data_.q, q, tokens);
  args.q = q;
  if (!latent) {
    const TensorRef w_uk = tensor(w_uk_, q_dtype, {H, P, L}, layout, 0),
                    w_uv = tensor(w_uv_, q_dtype, {H, V, L}, layout, 0);
    encode(data_.w_uk, w_uk, H);
    encode(data_.w_uv, w_uv, H);
    args.w_uk = w_uk;
    args.w_uv = w_uv;
  }
  args.out = tensor(out_, out_dtype, {tokens, H, latent ? L : V}, layout, layout.spare_rows);
  args.lse = tensor(lse_, q_dtype == DType::kF64 ? DType::kF64 : DType::kF32, {tokens, H}, layout,
                    layout.spare_rows);
  args.softmax_scale = data.scale;
  for (const Request& request : data.batch) {
    cu_seqlens_.push_back(cu_seqlens_.back() + request.q_len);
    seq_lens_.push_back(request.kv_len);
  }
  args.cu_seqlens_q = {cu_seqlens_.data(), {static_cast<std::int64_t>(cu_seqlens_.size())}};
  args.seq_lens = {seq_lens_.data(), {static_cast<std::int64_t>(seq_lens_.size())}};
  index_ = data.index;
  if (data.visible.topk > 0) args.token_index = {index_.data(), {tokens, data.visible.topk}};
  lay_out_cache(layout);
}

void Call::lay_out_cache(const Layout& layout) {
  const CacheLayout rows = cache_layout(shape.cache, shape.dims);
  const std::int64_t bs = layout.block_size;
  std::int64_t columns = 1;
  for (const Request& r : shape.batch) columns = std::max(columns, (r.kv_len + bs - 1) / bs);
  columns += layout.gap;
  const auto requests = static_cast<std::int64_t>(shape.batch.size());
  const std::int64_t blocks = 2 * requests * columns;
  std::vector<std::int32_t> ids(at(blocks));
  std::iota(ids.begin(), ids.end(), 0);
  if (layout.shuffled) {
    const CounterRng rng(7);
    for (std::size_t i = ids.size(); i-- > 1;) {
      std::swap(ids[i], ids[at(rng.between(i, 0, static_cast<std::int64_t>(i)))]);
    }
  }
  PagedLatentCache& cache = args.cache;
  cache.format = shape.cache;
  cache.block_size = layout.block_size;
  cache.num_blocks = blocks;
  cache.scale = shape.cache == CacheFormat::kFp8 ? 0.03125F : 1.0F;
  cache.row_stride_bytes = rows.row_bytes + layout.gap;
  cache.block_stride_bytes = bs * cache.row_stride_bytes + layout.gap;
  pool_.assign(at(blocks * cache.block_stride_bytes), kPoison);
  cache.data = pool_.data();
  if (rows.split()) {
    cache.k_pe_row_stride_bytes = rows.rope_row_bytes + layout.gap;
    cache.k_pe_block_stride_bytes = bs * cache.k_pe_row_stride_bytes + layout.gap;
    k_pe_.assign(at(blocks * cache.k_pe_block_stride_bytes), kPoison);
    cache.k_pe = k_pe_.data();
  }
  // Columns beyond a request's last page hold nonsense, as tables in engines do.
  table_.assign(at(requests * columns), -77);
  cache.block_table = {table_.data(), {requests, columns}};
  const auto L = static_cast<std::size_t>(shape.dims.kv_lora_rank),
             R = static_cast<std::size_t>(shape.dims.qk_rope_head_dim);
  std::size_t next_block = 0, key = 0;
  for (std::int64_t b = 0; b < requests; ++b) {
    const std::int64_t length = shape.batch[at(b)].kv_len;
    for (std::int64_t page = 0; page * bs < length; ++page)
      table_[at(b * columns + page)] = ids[next_block++];
    for (std::int64_t p = 0; p < length; ++p, ++key) {
      const std::int64_t slot = cache.slot(b, p);
      const std::span<double> row(data_.latent.data() + key * (L + R), L + R);
      std::byte* k_pe = rows.split() ? cache.k_pe_row(slot) : nullptr;
      encode_row(rows, shape.dims, row.first(L), row.last(R), cache.row(slot), k_pe, cache.scale);
      decode_row(rows, shape.dims, cache.row(slot), k_pe, cache.scale, row);
    }
  }
}

void Call::run(const Backend& backend) {
  const auto plan = backend.plan(shape, cpu(), options);
  std::vector<std::byte> workspace(plan->workspace_bytes());
  backend.run(*plan, args, workspace);
}

std::vector<double> Call::out() const {
  return decode(args.out, cu_seqlens_.back());
}
std::vector<double> Call::lse() const {
  return decode(args.lse, cu_seqlens_.back());
}

bool Call::only_results_written() const {
  for (const TensorRef* t : {&args.out, &args.lse}) {
    std::vector<std::byte> left = t == &args.out ? out_ : lse_;
    const auto size = static_cast<std::int64_t>(size_of(t->dtype));
    for (std::int64_t i = 0; i < cu_seqlens_.back(); ++i) {
      for (std::int64_t j = 0; j < t->extent[1]; ++j) {
        for (std::int64_t k = 0; k < t->extent[2]; ++k) {
          std::fill_n(left.begin() + t->offset(i, j, k) * size, size, kPoison);
        }
      }
    }
    if (std::any_of(left.begin(), left.end(), [](std::byte b) { return b != kPoison; })) return false;
  }
  return true;
}

reference::AttentionOutput Call::reference(bool expanded, reference::Arithmetic arithmetic) const {
  const reference::Options how{.arithmetic = arithmetic};
  if (shape.space == QuerySpace::kLatent) return reference::mla_latent(data_.problem(), how);
  return expanded ? reference::mla_expanded(data_.problem(), how)
                  : reference::mla_absorbed(data_.problem(), how);
}

reference::AttentionOutput Call::textbook_result() const {
  if (shape.space == QuerySpace::kHead) return textbook::mla(data_.problem());
  return textbook::mha({data_.batch,
                        shape.dims.num_heads,
                        1,
                        shape.dims.latent_width(),
                        shape.dims.kv_lora_rank,
                        data_.q,
                        data_.latent,
                        {},
                        data_.problem().visible,
                        data_.scale});
}

Device cpu() {
  Device device;
  device.name = "host";
  device.vendor = "cpu";
  return device;
}

}  // namespace backend_case
