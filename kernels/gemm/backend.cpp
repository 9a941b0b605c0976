// SPDX-License-Identifier: Apache-2.0
#include "mla/backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cache_ops/host.hpp"
#include "common/arch_table.hpp"
#include "common/arguments.hpp"
#include "common/check.hpp"
#include "common/require.hpp"
#include "expand/engine.hpp"
#include "gemm/groups.hpp"
#include "gemm/lt.hpp"
#include "gemm/table.hpp"
#include "gemm_images.inc"
#include "mla/device_ops.hpp"

namespace mla {
namespace {

using namespace kernels;
using kernels::gemm::GroupSizes;

constexpr const char* kName = "cuda-gemm";
constexpr double kLog2E = 1.4426950408889634;
constexpr std::int64_t kMostScoreBytes = std::int64_t{2} << 30;  // scores of a group, f32

class GemmPlan final : public Plan {
 public:
  GemmPlan(const AttentionShape& s, const Device& device)
      : shape(s),
        ordinal(device.ordinal),
        table(choose_image<gemm::Table>(kImages, device.compute_capability)),
        shared(choose_image(expand::images(), device.compute_capability)),
        mask(expand::mask_of(s.mask)),
        tokens(s.num_tokens()) {
    const MlaDims& d = shape.dims;
    const std::int64_t heads = d.num_heads;
    groups = gemm::group_segments(segments(), kMostScoreBytes / 4 / heads);
    std::int64_t rows = 0, keys = 0, scores = 0;
    for (const GroupSizes& g : groups) {
      const std::int64_t queries = std::int64_t{g.count} * g.queries * heads;
      rows = std::max(rows, queries);
      keys = std::max(keys, std::int64_t{g.count} * g.keys);
      scores = std::max(scores, queries * g.keys);
    }
    const auto element = static_cast<std::int64_t>(size_of(shape.q_dtype));
    const bool head_space = shape.space == QuerySpace::kHead;
    nope_at = place(head_space ? rows * d.qk_nope_head_dim * element : 0);
    query_at = place(rows * d.latent_width() * element);
    keys_at = place(keys * d.latent_width() * element);
    valid_at = place(shape.topk > 0 ? keys : 0);
    scores_at = place(scores * 4);
    weights_at = place(scores * element);
    sums_at = place(rows * 4);
    latent_at = place(rows * d.kv_lora_rank * 4);
    rounded_at = place(head_space ? rows * d.kv_lora_rank * element : 0);
    value_at = place(head_space ? rows * d.v_head_dim * 4 : 0);
    product_at = place(static_cast<std::int64_t>(lt::kWorkspaceBytes));
    rows_bound = std::max(rows, keys);
  }
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override {
    return static_cast<std::size_t>(total_);
  }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("{} groups of equal sizes; the largest {} x {} queries x {} keys", groups.size(),
                       largest().count, largest().queries, largest().keys);
  }

  AttentionShape shape;
  int ordinal;
  const gemm::Table* table;
  const expand::Table* shared;
  expand::MaskParams mask;
  std::int64_t tokens;
  std::vector<GroupSizes> groups;
  std::int64_t rows_bound = 0;
  std::int64_t nope_at = 0, query_at = 0, keys_at = 0, valid_at = 0, scores_at = 0, weights_at = 0,
               sums_at = 0, latent_at = 0, rounded_at = 0, value_at = 0, product_at = 0;

 private:
  [[nodiscard]] std::vector<gemm::SegmentSizes> segments() const {
    std::vector<gemm::SegmentSizes> sizes;
    if (shape.topk > 0) {
      sizes.assign(static_cast<std::size_t>(tokens), {1, shape.topk});
      return sizes;
    }
    for (const Request& r : shape.batch)
      sizes.push_back({r.q_len, expand::visible_keys(expand::Part::kAll, mask, r.q_len, r.kv_len).count()});
    return sizes;
  }
  [[nodiscard]] GroupSizes largest() const {
    const auto scores = [](const GroupSizes& g) { return std::int64_t{g.count} * g.queries * g.keys; };
    const auto it =
        std::max_element(groups.begin(), groups.end(),
                         [&](const GroupSizes& a, const GroupSizes& b) { return scores(a) < scores(b); });
    return it == groups.end() ? GroupSizes{} : *it;
  }
  std::int64_t place(std::int64_t bytes) {
    const std::int64_t at = total_;
    total_ += (bytes + 255) / 256 * 256;
    return at;
  }
  std::int64_t total_ = 0;
};

/// One call of run(): arguments, plan and stream together.
class Run {
 public:
  Run(const GemmPlan& plan, const AttentionArgs& args, std::byte* workspace, Stream stream)
      : plan_(plan), args_(args), p_(make_params(plan.shape, args)), base_(workspace), stream_(stream) {
    if (p_.num_tokens > plan.tokens) {
      refuse(fmt::format("q has {} tokens, but the plan was made for {}", p_.num_tokens, plan.tokens));
    }
    for (const auto& [t, name] :
         {std::pair{&p_.q, "q"}, {&p_.out, "out"}, {&p_.w_uk, "w_uk"}, {&p_.w_uv, "w_uv"}}) {
      if (t->data != nullptr && t->stride_channel != 1) {
        refuse(fmt::format("{} has a stride of {} in its last dimension, but must have 1", name,
                           t->stride_channel));
      }
    }
    if (head_space()) expand::check_weights(plan.shape, p_);
  }

  void enqueue() {
    plan_.shared->tail(tail(), stream_.handle);
    for (const GroupSizes& sizes : plan_.groups) {
      gemm::Group g;
      g.segments.cu_seqlens_q = args_.cu_seqlens_q;
      g.segments.seq_lens = args_.seq_lens;
      g.segments.requests = p_.num_requests;
      g.segments.topk = plan_.shape.topk;
      g.segments.count = plan_.shape.topk > 0 ? static_cast<std::int32_t>(p_.num_tokens) : p_.num_requests;
      g.segments.mask = plan_.mask;
      g.first = sizes.first;
      g.count = std::min(sizes.count, g.segments.count - sizes.first);
      g.queries = sizes.queries;
      g.keys = sizes.keys;
      g.heads = p_.num_heads;
      g.dtype = plan_.shape.q_dtype;
      if (g.count > 0) enqueue(g);
    }
  }

 private:
  template <class T>
  T* at(std::int64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  bool head_space() const { return plan_.shape.space == QuerySpace::kHead; }
  std::span<std::byte> product_space() const {
    return {at<std::byte>(plan_.product_at), lt::kWorkspaceBytes};
  }

  void enqueue(const gemm::Group& g) const {
    const MlaDims& d = plan_.shape.dims;
    const std::int64_t rows = std::int64_t{g.queries} * g.heads;  // of one segment
    prepare_queries(g);
    gather_keys(g);

    lt::Product scores{.in = g.dtype, .out = DType::kF32};
    scores.m = rows, scores.n = g.keys, scores.k = d.latent_width(), scores.batch = g.count;
    scores.a_row = scores.w_row = d.latent_width(), scores.out_row = g.keys;
    scores.a_batch = rows * d.latent_width();
    scores.w_batch = std::int64_t{g.keys} * d.latent_width();
    scores.out_batch = rows * g.keys;
    lt::multiply(scores, at<void>(plan_.query_at), at<void>(plan_.keys_at), at<void>(plan_.scores_at),
                 product_space(), stream_.handle);

    gemm::SoftmaxParams s;
    s.group = g;
    s.scores = at<float>(plan_.scores_at);
    s.valid = plan_.shape.topk > 0 ? at<std::uint8_t>(plan_.valid_at) : nullptr;
    s.scale = static_cast<float>(args_.softmax_scale * p_.cache.scale * kLog2E);
    s.weights = at<void>(plan_.weights_at);
    s.sums = at<float>(plan_.sums_at);
    s.lse = p_.lse;
    s.lse_token = p_.lse_stride_token;
    s.lse_head = p_.lse_stride_head;
    plan_.table->softmax(s, stream_.handle);
    if (g.queries > 1 && g.segments.topk == 0 && g.segments.mask.causal) {
      plan_.table->clear({g, at<void>(plan_.keys_at), d.kv_lora_rank, d.latent_width()}, stream_.handle);
    }

    lt::Product values{.in = g.dtype, .out = DType::kF32, .w_by_columns = true};
    values.m = rows, values.n = d.kv_lora_rank, values.k = g.keys, values.batch = g.count;
    values.a_row = g.keys, values.w_row = d.latent_width(), values.out_row = d.kv_lora_rank;
    values.a_batch = rows * g.keys;
    values.w_batch = std::int64_t{g.keys} * d.latent_width();
    values.out_batch = rows * d.kv_lora_rank;
    lt::multiply(values, at<void>(plan_.weights_at), at<void>(plan_.keys_at), at<void>(plan_.latent_at),
                 product_space(), stream_.handle);
    finish(g);
  }

  void prepare_queries(const gemm::Group& g) const {
    const MlaDims& d = plan_.shape.dims;
    gemm::QueryParams q;
    q.group = g;
    q.q = p_.q.data;
    q.q_token = p_.q.stride_token;
    q.q_head = p_.q.stride_head;
    q.nope = head_space() ? d.qk_nope_head_dim : 0;
    q.width = head_space() ? d.head_width() : d.latent_width();
    q.nope_out = at<void>(plan_.nope_at);
    q.out = at<void>(plan_.query_at);
    q.out_width = d.latent_width();
    q.out_first = head_space() ? d.kv_lora_rank : 0;
    plan_.table->queries(q, stream_.handle);
    if (!head_space()) return;
    lt::Product absorb{.in = g.dtype, .out = g.dtype, .w_by_columns = true};
    absorb.m = std::int64_t{g.count} * g.queries, absorb.n = d.kv_lora_rank, absorb.k = d.qk_nope_head_dim,
    absorb.batch = g.heads;
    absorb.a_row = std::int64_t{g.heads} * d.qk_nope_head_dim, absorb.a_batch = d.qk_nope_head_dim;
    absorb.w_row = p_.w_uk.stride_head, absorb.w_batch = p_.w_uk.stride_token;
    absorb.out_row = std::int64_t{g.heads} * d.latent_width(), absorb.out_batch = d.latent_width();
    lt::multiply(absorb, q.nope_out, p_.w_uk.data, q.out, product_space(), stream_.handle);
  }

  void gather_keys(const gemm::Group& g) const {
    const MlaDims& d = plan_.shape.dims;
    gemm::KeyParams k;
    k.group = g;
    k.cache = p_.cache;
    k.cache.scale = 1.0F;  // a tensor's scale is applied to scores and outputs instead: the codes are exact
    k.table_columns = args_.cache.block_table.extent[1];
    k.token_index = p_.token_index;
    k.index_row = p_.index_stride_token;
    k.index_column = p_.index_stride_entry;
    k.rows = at<void>(plan_.keys_at);
    k.valid = plan_.shape.topk > 0 ? at<std::uint8_t>(plan_.valid_at) : nullptr;
    k.latent = d.kv_lora_rank;
    k.rope = d.qk_rope_head_dim;
    k.vector_io = cache_ops::vector_pool(cache_layout(plan_.shape.cache, d), p_.cache, d);
    plan_.table->keys(k, stream_.handle);
  }

  void finish(const gemm::Group& g) const {
    const MlaDims& d = plan_.shape.dims;
    gemm::FinishParams f;
    f.group = g;
    f.in = at<void>(plan_.latent_at);
    f.sums = at<float>(plan_.sums_at);
    f.scale = p_.cache.scale;
    f.width = d.kv_lora_rank;
    if (!head_space()) {
      to_result(f);
      plan_.table->finish(f, stream_.handle);
      return;
    }
    f.padded = true;
    f.out = at<void>(plan_.rounded_at);
    f.out_dtype = g.dtype;
    plan_.table->finish(f, stream_.handle);
    lt::Product project{.in = g.dtype, .out = DType::kF32};
    project.m = std::int64_t{g.count} * g.queries, project.n = d.v_head_dim, project.k = d.kv_lora_rank,
    project.batch = g.heads;
    project.a_row = std::int64_t{g.heads} * d.kv_lora_rank, project.a_batch = d.kv_lora_rank;
    project.w_row = p_.w_uv.stride_head, project.w_batch = p_.w_uv.stride_token;
    project.out_row = std::int64_t{g.heads} * d.v_head_dim, project.out_batch = d.v_head_dim;
    lt::multiply(project, f.out, p_.w_uv.data, at<void>(plan_.value_at), product_space(), stream_.handle);
    gemm::FinishParams scatter;
    scatter.group = g;
    scatter.in = at<void>(plan_.value_at);
    scatter.width = d.v_head_dim;
    to_result(scatter);
    plan_.table->finish(scatter, stream_.handle);
  }

  void to_result(gemm::FinishParams& f) const {
    f.out = p_.out.data;
    f.out_dtype = p_.out.dtype;
    f.out_token = p_.out.stride_token;
    f.out_head = p_.out.stride_head;
  }

  expand::TailParams tail() const {
    return expand::tail_of(args_, p_,
                           head_space() ? plan_.shape.dims.v_head_dim : plan_.shape.dims.kv_lora_rank);
  }

  const GemmPlan& plan_;
  const AttentionArgs& args_;
  AttentionParams p_;
  std::byte* base_;
  Stream stream_;
};

class GemmBackend final : public Backend {
 public:
  [[nodiscard]] const BackendInfo& info() const noexcept override {
    static const BackendInfo kInfo{
        .name = kName,
        .summary = "absorbed: batched matrix products of cuBLASLt around a softmax",
        .strategy = "absorbed",
        .on_device = true,
        .edges = {16, 256},
        .batch_invariant = false};
    return kInfo;
  }

  [[nodiscard]] RoundingProfile rounding(const AttentionShape& shape) const override {
    RoundingProfile profile;
    profile.probabilities = shape.q_dtype;
    if (shape.space == QuerySpace::kHead) profile.absorbed_query = profile.latent_output = shape.q_dtype;
    return profile;
  }

  [[nodiscard]] Support supports(const AttentionShape& shape, const Device& device) const override {
    if (Support types = expand::check_types(shape); !types) return types;
    if (shape.phase != Phase::kDecode) return Support::no("it is a decode kernel; the phase is prefill");
    if (Support widths = expand::check_multiples(shape.dims); !widths) return widths;
    if (Support image = has_image<gemm::Table>(kImages, device); !image) return image;
    if (device.origin == DeviceOrigin::kReal) {
      if (Support products = lt::available(); !products) return products;
    }
    const GemmPlan plan(shape, device);
    const auto workspace = static_cast<std::int64_t>(plan.workspace_bytes());
    if (device.memory_bytes > 0 && workspace > device.memory_bytes) {
      return Support::no(fmt::format("its workspace takes {} bytes, but '{}' has {}", workspace, device.name,
                                     device.memory_bytes));
    }
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (plan.rows_bound > kMost) {
      return Support::no(
          fmt::format("{} rows in one batched product are more than {}", plan.rows_bound, kMost));
    }
    return Support::yes();
  }

  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions&) const override {
    require(*this, shape, device);
    return std::make_unique<GemmPlan>(shape, device);
  }

  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override {
    const auto& own = own_plan<GemmPlan>(plan, workspace.size(), kName);
    const DeviceGuard guard(own.ordinal);
    Run call(own, args, workspace.data(), stream);
    if (args.q.extent[0] > 0) call.enqueue();
  }
};

}  // namespace

const Backend& gemm_backend() {
  static const GemmBackend backend;
  return backend;
}

}  // namespace mla
