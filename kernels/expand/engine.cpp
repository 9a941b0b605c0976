// SPDX-License-Identifier: Apache-2.0
#include "expand/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cache_ops/host.hpp"
#include "common/arguments.hpp"
#include "common/cache_params.hpp"
#include "common/check.hpp"
#include "common/require.hpp"
#include "expand/segments.hpp"
#include "expand_images.inc"
#include "gemm/lt.hpp"
#include "mla/device_ops.hpp"
#include "mla/error.hpp"

namespace mla::kernels::expand {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr std::int64_t kAlignment = 256;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

/// Upper bound of the keys of one pass over a request whose lengths are themselves upper bounds. The context
/// of a request may turn out to be all of its keys.
std::int64_t rows_bound(Part part, const MaskParams& mask, const Request& request) {
  if (part == Part::kNew) return std::min(request.q_len, request.kv_len);
  return visible_keys(Part::kAll, mask, request.q_len, request.kv_len).count();
}

/// Sizes of a pass, as far as the host knows them.
struct Pass {
  Part part = Part::kAll;
  std::int64_t rows = 0;     ///< of all segments
  std::int64_t longest = 0;  ///< of one segment
  std::int64_t chunk = 0;    ///< rows at a time
};

class ExpandedPlan final : public Plan {
 public:
  ExpandedPlan(const Strategy& strategy_of, const AttentionShape& shape, const Device& device,
               const PlanOptions& options);
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override {
    return static_cast<std::size_t>(total_);
  }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("{} rows at a time of {}, tiles of {} queries and {} keys, {} splits{}", chunk, rows,
                       tile.queries, tile.keys, splits, direct ? "" : ", merged in f32");
  }

  const Strategy* strategy;  // whose it is
  AttentionShape shape;
  int ordinal;
  const Table* table;
  Variant variant;
  MaskParams mask;
  std::vector<Pass> passes;
  Tile tile;
  std::int64_t tokens = 0, longest_q = 0;
  std::int64_t rows = 0, chunk = 0;
  std::int64_t splits = 1, split_keys = 0;
  bool direct = false;  // one pass, one chunk, one split: the kernel writes the result itself

  /// Tiles of queries that a segment may have, and blocks of the attention kernel.
  [[nodiscard]] std::int64_t query_tiles() const {
    return shape.topk > 0 ? 1 : ceil_div(std::max<std::int64_t>(longest_q, 1), tile.queries);
  }
  [[nodiscard]] std::int64_t blocks() const {
    const std::int64_t segments = shape.topk > 0 ? tokens : static_cast<std::int64_t>(shape.batch.size());
    return segments * shape.dims.num_heads * splits * query_tiles();
  }

  // offsets into the workspace
  std::int64_t offsets_at = 0, rows_at = 0, valid_at = 0, k_at = 0, v_at = 0, partial_at = 0,
               partial_lse_at = 0, product_at = 0;

 private:
  std::int64_t total_ = 0;
  std::int64_t place(std::int64_t bytes) {
    const std::int64_t at = total_;
    total_ = round_up(total_ + bytes, kAlignment);
    return at;
  }
};

ExpandedPlan::ExpandedPlan(const Strategy& strategy_of, const AttentionShape& s, const Device& device,
                           const PlanOptions& options)
    : strategy(&strategy_of),
      shape(s),
      ordinal(device.ordinal),
      table(choose_image(images(), device.compute_capability)),
      variant{*widths_for(s.dims), s.q_dtype, strategy_of.phase == Phase::kDecode},
      mask(mask_of(s.mask)),
      tile(table->tile(variant)),
      tokens(s.num_tokens()) {
  const MlaDims& d = shape.dims;
  const auto element = static_cast<std::int64_t>(size_of(shape.q_dtype));
  const std::int64_t row_bytes = std::int64_t{d.num_heads} * (d.qk_nope_head_dim + d.v_head_dim) * element;
  std::int64_t calls = 0;
  for (const Part part : strategy_of.passes) {
    Pass pass{.part = part};
    for (const Request& request : shape.batch) {
      const std::int64_t bound = rows_bound(part, mask, request);
      pass.rows += bound;
      pass.longest = std::max(pass.longest, bound);
    }
    if (shape.topk > 0) {
      pass.rows = tokens * shape.topk;
      pass.longest = shape.topk;
    }
    const std::int64_t most = strategy_of.chunk_bytes == 0
                                  ? pass.rows
                                  : std::max(strategy_of.chunk_bytes / row_bytes, std::int64_t{1});
    pass.chunk = std::min(pass.rows, round_up(most, tile.keys));
    calls += pass.rows == 0 ? 0 : ceil_div(pass.rows, pass.chunk);
    rows += pass.rows;
    chunk = std::max(chunk, pass.chunk);
    passes.push_back(pass);
  }
  for (const Request& request : shape.batch) longest_q = std::max<std::int64_t>(longest_q, request.q_len);

  // Blocks to keep a GPU busy with one warp each: four an SM fit. A segment's keys in a chunk are cut until
  // there are as many.
  std::int64_t longest = 0;
  for (const Pass& pass : passes) longest = std::max(longest, std::min(pass.longest, pass.chunk));
  if (variant.few_queries && longest > 0) {
    const std::int64_t segments = std::max<std::int64_t>(1, chunk / longest);
    const std::int64_t wanted = ceil_div(4 * std::max(device.num_sms, 1), segments * d.num_heads);
    constexpr std::int64_t kShortest = 256;  // keys a split should have at least
    splits = options.num_splits > 0 ? options.num_splits
                                    : std::clamp(wanted, std::int64_t{1}, ceil_div(longest, kShortest));
  }
  split_keys = std::max<std::int64_t>(round_up(ceil_div(longest, splits), tile.keys), tile.keys);
  direct = calls <= 1 && splits == 1;

  offsets_at = place((static_cast<std::int64_t>(shape.batch.size()) + 1) * 4);
  rows_at = place(chunk * d.latent_width() * element);
  valid_at = place(shape.topk > 0 ? chunk : 0);
  k_at = place(chunk * d.num_heads * d.qk_nope_head_dim * element);
  v_at = place(chunk * d.num_heads * d.v_head_dim * element);
  const std::int64_t slots = direct ? 0 : splits + 1;
  partial_at = place(slots * tokens * d.num_heads * d.v_head_dim * 4);
  partial_lse_at = place(slots * tokens * d.num_heads * 4);
  product_at = place(static_cast<std::int64_t>(lt::kWorkspaceBytes));
}

/// One call of run(): arguments, plan and stream together.
class Run {
 public:
  Run(const ExpandedPlan& plan, const AttentionArgs& args, std::byte* workspace, Stream stream)
      : plan_(plan), args_(args), p_(make_params(plan.shape, args)), base_(workspace), stream_(stream) {
    check_arguments(plan.shape, p_);
    if (p_.num_tokens > plan_.tokens) {
      refuse(fmt::format("q has {} tokens, but the plan was made for {}", p_.num_tokens, plan_.tokens));
    }
  }

  void enqueue() {
    const bool direct = plan_.direct;
    if (direct) plan_.table->tail(tail(), stream_.handle);
    if (!direct)
      plan_.table->fill(partial_lse(), (plan_.splits + 1) * rows_of_result(),
                        -std::numeric_limits<float>::infinity(), stream_.handle);
    bool pending = !direct;
    for (const Pass& pass : plan_.passes) {
      SegmentTable segments = table_of(pass.part);
      if (plan_.shape.topk == 0)
        plan_.table->offsets({segments, at<std::int32_t>(plan_.offsets_at)}, stream_.handle);
      for (std::int64_t begin = 0; begin < pass.rows; begin += pass.chunk) {
        const std::int64_t rows = std::min(pass.chunk, pass.rows - begin);
        expand(segments, begin, rows);
        plan_.table->attend(attention(segments, begin, rows), plan_.variant, stream_.handle);
        if (direct) continue;
        pending = &pass != &plan_.passes.back() || begin + rows < pass.rows;
        plan_.table->merge(merge(plan_.splits + 1, !pending), stream_.handle);
      }
    }
    if (pending) plan_.table->merge(merge(1, true), stream_.handle);
    if (direct && plan_.rows == 0) plan_.table->tail(tail(true), stream_.handle);
  }

 private:
  template <class T>
  T* at(std::int64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  float* partial_lse() const { return at<float>(plan_.partial_lse_at); }
  std::int64_t rows_of_result() const { return p_.num_tokens * p_.num_heads; }

  SegmentTable table_of(Part part) const {
    SegmentTable s;
    s.cu_seqlens_q = args_.cu_seqlens_q;
    s.seq_lens = args_.seq_lens;
    s.cu_rows = at<std::int32_t>(plan_.offsets_at);
    s.requests = p_.num_requests;
    s.topk = plan_.shape.topk;
    s.count = s.topk > 0 ? static_cast<std::int32_t>(p_.num_tokens) : p_.num_requests;
    s.part = part;
    s.mask = plan_.mask;
    return s;
  }

  /// Rows [begin, begin + rows) of the packed list, then their K and V.
  void expand(const SegmentTable& segments, std::int64_t begin, std::int64_t rows) const {
    const MlaDims& d = plan_.shape.dims;
    RowsParams r;
    r.segments = segments;
    r.cache = p_.cache;
    r.cache.scale = 1.0F;  // a tensor's scale is applied to scores and outputs instead: the codes are exact
    r.table_columns = args_.cache.block_table.extent[1];
    r.token_index = p_.token_index;
    r.index_row = p_.index_stride_token;
    r.index_column = p_.index_stride_entry;
    r.rows = at<void>(plan_.rows_at);
    r.dtype = plan_.shape.q_dtype;
    r.valid = segments.topk > 0 ? at<std::uint8_t>(plan_.valid_at) : nullptr;
    r.chunk_begin = begin;
    r.chunk_rows = static_cast<std::int32_t>(rows);
    r.latent = d.kv_lora_rank;
    r.rope = d.qk_rope_head_dim;
    r.vector_io = cache_ops::vector_pool(cache_layout(plan_.shape.cache, d), p_.cache, d);
    plan_.table->rows(r, stream_.handle);

    const DType type = plan_.shape.q_dtype;
    const ConstTensorRef dense(r.rows, type, {rows, d.latent_width()});
    device_ops::decompress(d, dense, args_.w_uk, args_.w_uv,
                           TensorRef(at<void>(plan_.k_at), type, {rows, d.num_heads, d.qk_nope_head_dim}),
                           TensorRef(at<void>(plan_.v_at), type, {rows, d.num_heads, d.v_head_dim}),
                           {at<std::byte>(plan_.product_at), lt::kWorkspaceBytes}, stream_);
  }

  AttendParams attention(const SegmentTable& segments, std::int64_t begin, std::int64_t rows) const {
    const MlaDims& d = plan_.shape.dims;
    AttendParams a;
    a.segments = segments;
    a.q = p_.q.data;
    a.q_token = p_.q.stride_token;
    a.q_head = p_.q.stride_head;
    a.k_nope = at<void>(plan_.k_at);
    a.k_pe = at<std::byte>(plan_.rows_at) +
             d.kv_lora_rank * static_cast<std::int64_t>(size_of(plan_.shape.q_dtype));
    a.k_pe_row = d.latent_width();
    a.v = at<void>(plan_.v_at);
    a.valid = segments.topk > 0 ? at<std::uint8_t>(plan_.valid_at) : nullptr;
    a.heads = d.num_heads;
    a.nope = d.qk_nope_head_dim;
    a.rope = d.qk_rope_head_dim;
    a.v_dim = d.v_head_dim;
    a.chunk_begin = begin;
    a.chunk_rows = static_cast<std::int32_t>(rows);
    a.tokens = static_cast<std::int32_t>(p_.num_tokens);
    a.tiles = static_cast<std::int32_t>(plan_.query_tiles());
    a.splits = static_cast<std::int32_t>(plan_.splits);
    a.split_keys = static_cast<std::int32_t>(plan_.split_keys);
    a.score_scale = static_cast<float>(args_.softmax_scale * p_.cache.scale * kLog2E);
    a.value_scale = p_.cache.scale;
    if (plan_.direct) {
      a.out = p_.out.data;
      a.out_token = p_.out.stride_token;
      a.out_head = p_.out.stride_head;
      a.out_f32 = p_.out.dtype == DType::kF32 ? 1 : 0;
      a.lse = p_.lse;
      a.lse_token = p_.lse_stride_token;
      a.lse_head = p_.lse_stride_head;
    } else {  // slot 0 holds what earlier chunks gave
      a.partial = at<float>(plan_.partial_at) + rows_of_result() * d.v_head_dim;
      a.partial_lse = partial_lse() + rows_of_result();
    }
    return a;
  }

  MergeParams merge(std::int64_t count, bool last) const {
    const std::int32_t width = plan_.shape.dims.v_head_dim;
    MergeParams m;
    m.parts = at<float>(plan_.partial_at);
    m.part_stride = rows_of_result() * width;
    m.part_row = width;
    m.part_lse = partial_lse();
    m.lse_part = rows_of_result();
    m.count = static_cast<std::int32_t>(count);
    m.tokens = p_.num_tokens;
    m.heads = p_.num_heads;
    m.width = width;
    if (last) {
      m.out = p_.out.data;
      m.out_dtype = p_.out.dtype;
      m.out_token = p_.out.stride_token;
      m.out_head = p_.out.stride_head;
      m.lse = p_.lse;
      m.lse_token = p_.lse_stride_token;
      m.lse_head = p_.lse_stride_head;
    } else {
      m.out = at<float>(plan_.partial_at);
      m.out_token = std::int64_t{p_.num_heads} * width;
      m.out_head = width;
      m.lse = partial_lse();
      m.lse_token = p_.num_heads;
      m.lse_head = 1;
    }
    return m;
  }

  /// Tokens past the last request, or all of them.
  TailParams tail(bool all = false) const {
    TailParams t = tail_of(args_, p_, plan_.shape.dims.v_head_dim);
    if (all) t.requests = 0;
    return t;
  }

  const ExpandedPlan& plan_;
  const AttentionArgs& args_;
  AttentionParams p_;
  std::byte* base_;
  Stream stream_;
};

}  // namespace

std::span<const ArchImage<Table>> images() {
  return kImages;
}

RoundingProfile ExpandedBackend::rounding(const AttentionShape& shape) const {
  return expand::rounding(shape);
}

Support ExpandedBackend::supports(const AttentionShape& shape, const Device& device) const {
  if (Support fits = check_shape(shape, strategy_.phase); !fits) return fits;
  if (Support image = has_image(images(), device); !image) return image;
  if (device.origin == DeviceOrigin::kReal) {
    if (Support products = lt::available(); !products) return products;
  }
  const ExpandedPlan plan(strategy_, shape, device, {});
  const auto shared = static_cast<std::int64_t>(plan.tile.shared_bytes);
  if (device.shared_memory_per_block > 0 && shared > device.shared_memory_per_block) {
    return Support::no(fmt::format("a tile takes {} bytes of shared memory, but a block of '{}' has {}",
                                   shared, device.name, device.shared_memory_per_block));
  }
  const auto workspace = static_cast<std::int64_t>(plan.workspace_bytes());
  if (device.memory_bytes > 0 && workspace > device.memory_bytes) {
    return Support::no(fmt::format("its workspace takes {} bytes, but '{}' has {}", workspace, device.name,
                                   device.memory_bytes));
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (plan.rows > kMost)
    return Support::no(fmt::format("{} rows to expand are more than {}", plan.rows, kMost));
  if (plan.blocks() > kMost)
    return Support::no(fmt::format("the grid would have {} blocks, but holds {}", plan.blocks(), kMost));
  return Support::yes();
}

std::unique_ptr<Plan> ExpandedBackend::plan(const AttentionShape& shape, const Device& device,
                                            const PlanOptions& options) const {
  require(*this, shape, device);
  return std::make_unique<ExpandedPlan>(strategy_, shape, device, options);
}

void ExpandedBackend::run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
                          Stream stream) const {
  const auto& own = own_plan<ExpandedPlan>(plan, workspace.size(), info_.name.data());
  if (own.strategy != &strategy_) throw_foreign_plan(info_.name.data());
  const DeviceGuard guard(own.ordinal);
  Run call(own, args, workspace.data(), stream);
  if (args.q.extent[0] > 0) call.enqueue();
}

}  // namespace mla::kernels::expand
