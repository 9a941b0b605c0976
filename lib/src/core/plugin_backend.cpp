// SPDX-License-Identifier: Apache-2.0
#include "core/plugin_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "mla/error.hpp"

namespace mla {
namespace {

// The numbers of the C header are those of our enumerations; the header promises them, so they are checked
// here.
static_assert(static_cast<int>(DType::kF64) == MLA_F64 && static_cast<int>(DType::kF32) == MLA_F32 &&
              static_cast<int>(DType::kF16) == MLA_F16 && static_cast<int>(DType::kBF16) == MLA_BF16 &&
              static_cast<int>(DType::kE4M3) == MLA_E4M3 && static_cast<int>(DType::kE8M0) == MLA_E8M0 &&
              static_cast<int>(DType::kI64) == MLA_I64 && static_cast<int>(DType::kI32) == MLA_I32 &&
              static_cast<int>(DType::kU8) == MLA_U8);
static_assert(static_cast<int>(CacheFormat::kF64) == MLA_CACHE_F64 &&
              static_cast<int>(CacheFormat::kF32) == MLA_CACHE_F32 &&
              static_cast<int>(CacheFormat::kBF16) == MLA_CACHE_BF16 &&
              static_cast<int>(CacheFormat::kF16) == MLA_CACHE_F16 &&
              static_cast<int>(CacheFormat::kBF16Split) == MLA_CACHE_BF16_SPLIT &&
              static_cast<int>(CacheFormat::kF16Split) == MLA_CACHE_F16_SPLIT &&
              static_cast<int>(CacheFormat::kFp8) == MLA_CACHE_FP8 &&
              static_cast<int>(CacheFormat::kFp8DsMla) == MLA_CACHE_FP8_DS_MLA);
static_assert(static_cast<int>(Phase::kDecode) == MLA_DECODE &&
              static_cast<int>(Phase::kPrefill) == MLA_PREFILL);
static_assert(static_cast<int>(QuerySpace::kLatent) == MLA_LATENT &&
              static_cast<int>(QuerySpace::kHead) == MLA_HEAD);

/// A shape in C, with the arrays it points to.
struct CShape {
  explicit CShape(const AttentionShape& shape) {
    for (const Request& request : shape.batch) {
      q_len.push_back(request.q_len);
      kv_len.push_back(request.kv_len);
    }
    c.struct_size = sizeof c;
    c.phase = static_cast<std::int32_t>(shape.phase);
    c.space = static_cast<std::int32_t>(shape.space);
    c.num_heads = shape.dims.num_heads;
    c.kv_lora_rank = shape.dims.kv_lora_rank;
    c.qk_rope_head_dim = shape.dims.qk_rope_head_dim;
    c.qk_nope_head_dim = shape.dims.qk_nope_head_dim;
    c.v_head_dim = shape.dims.v_head_dim;
    c.causal = shape.mask.causal ? 1 : 0;
    c.window = shape.mask.window.value_or(0);
    c.sink = shape.mask.sink;
    c.topk = shape.topk;
    c.block_size = shape.block_size;
    c.q_dtype = static_cast<std::int32_t>(shape.q_dtype);
    c.out_dtype = static_cast<std::int32_t>(shape.out_dtype);
    c.cache_format = static_cast<std::int32_t>(shape.cache);
    c.num_requests = static_cast<std::int32_t>(shape.batch.size());
    c.q_len = q_len.data();
    c.kv_len = kv_len.data();
  }
  CShape(const CShape&) = delete;  // c points into this object
  CShape& operator=(const CShape&) = delete;
  mla_shape_v1 c{};
  std::vector<std::int32_t> q_len, kv_len;
};

mla_device_v1 c_device(const Device& device) {
  mla_device_v1 c{};
  c.struct_size = sizeof c;
  c.name = device.name.c_str();
  c.vendor = device.vendor.c_str();
  c.ordinal = device.ordinal;
  c.compute_capability = device.compute_capability;
  c.num_sms = device.num_sms;
  c.memory_bytes = device.memory_bytes;
  return c;
}

template <class Pointer>
mla_tensor_v1 c_tensor(const BasicTensorRef<Pointer>& tensor) {
  mla_tensor_v1 c{};
  c.data = const_cast<void*>(
      static_cast<const void*>(tensor.data));  // inputs too: C has no second struct for them
  c.dtype = static_cast<std::int32_t>(tensor.dtype);
  c.rank = tensor.rank;
  std::copy(tensor.extent.begin(), tensor.extent.end(), c.extent);
  std::copy(tensor.stride.begin(), tensor.stride.end(), c.stride);
  return c;
}

mla_cache_v1 c_cache(const PagedLatentCache& cache) {
  mla_cache_v1 c{};
  c.format = static_cast<std::int32_t>(cache.format);
  c.block_size = cache.block_size;
  c.num_blocks = cache.num_blocks;
  c.data = reinterpret_cast<unsigned char*>(cache.data);
  c.block_stride_bytes = cache.block_stride_bytes;
  c.row_stride_bytes = cache.row_stride_bytes;
  c.k_pe = reinterpret_cast<unsigned char*>(cache.k_pe);
  c.k_pe_block_stride_bytes = cache.k_pe_block_stride_bytes;
  c.k_pe_row_stride_bytes = cache.k_pe_row_stride_bytes;
  c.scale = cache.scale;
  c.block_table = cache.block_table.data;
  c.block_table_columns = cache.block_table.extent[1];
  c.block_table_stride = cache.block_table.stride[0];
  return c;
}

class PluginPlan final : public Plan {
 public:
  PluginPlan(const mla_plugin_v1& plugin, void* handle, std::size_t bytes)
      : plugin_(plugin), handle_(handle), bytes_(bytes) {}
  ~PluginPlan() override { plugin_.plan_free(handle_); }
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override { return bytes_; }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("plug-in {} {}", plugin_.name, plugin_.version);
  }
  [[nodiscard]] void* handle() const noexcept { return handle_; }

 private:
  const mla_plugin_v1& plugin_;
  void* handle_;
  std::size_t bytes_;
};

}  // namespace

mla_plugin_v1 as_known(const mla_plugin_v1& plugin) {
  mla_plugin_v1 known{};
  std::memcpy(&known, &plugin, std::min<std::size_t>(sizeof known, plugin.struct_size));
  return known;
}

PluginBackend::PluginBackend(const mla_plugin_v1& plugin, const std::string& file)
    : plugin_(plugin),
      name_(plugin.name),
      summary_(plugin.summary),
      strategy_(plugin.strategy),
      origin_(fmt::format("plug-in {} ({})", plugin.version, file)) {
  info_.name = name_;
  info_.summary = summary_;
  info_.strategy = strategy_;
  info_.on_device = plugin.on_device != 0;
  info_.batch_invariant = plugin.batch_invariant != 0;
  info_.edges.assign(plugin.edges, plugin.edges + plugin.num_edges);
}

void PluginBackend::fail(const char* what) const {
  throw Error(ErrorCode::kDevice,
              fmt::format("plug-in {}: {} failed: {}", name_, what, plugin_.last_error()));
}

RoundingProfile PluginBackend::rounding(const AttentionShape&) const {
  RoundingProfile profile;
  profile.accumulate = static_cast<DType>(plugin_.accumulate);
  profile.probabilities = static_cast<DType>(plugin_.probabilities);
  profile.partials = static_cast<DType>(plugin_.partials);
  profile.absorbed_query = static_cast<DType>(plugin_.absorbed_query);
  profile.latent_output = static_cast<DType>(plugin_.latent_output);
  profile.expanded_kv = static_cast<DType>(plugin_.expanded_kv);
  profile.lse_from_rounded_p = plugin_.lse_from_rounded_p != 0;
  profile.unit_weight = plugin_.fused_maximum == 0;
  return profile;
}

Support PluginBackend::supports(const AttentionShape& shape, const Device& device) const {
  if (Support separate = without_shared_prefix(shape); !separate) return separate;  // nor has mla_shape_v1
  const CShape c(shape);
  const mla_device_v1 where = c_device(device);
  std::array<char, 512> why{};
  if (plugin_.supports(&c.c, &where, why.data(), why.size()) != 0) return Support::yes();
  why.back() = '\0';
  return Support::no(why.front() == '\0' ? fmt::format("plug-in {} refuses it and does not say why", name_)
                                         : std::string(why.data()));
}

std::unique_ptr<Plan> PluginBackend::plan(const AttentionShape& shape, const Device& device,
                                          const PlanOptions& options) const {
  if (const Support support = supports(shape, device); !support)
    throw Error(ErrorCode::kUnsupported, support.why);
  const CShape c(shape);
  const mla_device_v1 where = c_device(device);
  void* handle = nullptr;
  std::size_t bytes = 0;
  if (plugin_.plan(&c.c, &where, options.num_splits, &handle, &bytes) != 0) fail("plan");
  return std::make_unique<PluginPlan>(plugin_, handle, bytes);
}

void PluginBackend::run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
                        Stream stream) const {
  const auto* mine = dynamic_cast<const PluginPlan*>(&plan);
  if (mine == nullptr)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("the plan was not made by {}", name_));
  if (workspace.size() < mine->workspace_bytes()) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} needs {} bytes of workspace, not {}", name_,
                                                         mine->workspace_bytes(), workspace.size()));
  }
  const bool packed = args.cu_seqlens_q.stride[0] == 1 && args.seq_lens.stride[0] == 1 &&
                      (!args.token_index || args.token_index.stride[1] == 1) &&
                      args.cache.block_table.stride[1] == 1;
  if (!packed)
    throw Error(ErrorCode::kUnsupported, "plug-ins take index arrays whose elements lie side by side");
  mla_args_v1 c{};
  c.struct_size = sizeof c;
  c.q = c_tensor(args.q);
  c.w_uk = c_tensor(args.w_uk);
  c.w_uv = c_tensor(args.w_uv);
  c.out = c_tensor(args.out);
  c.lse = c_tensor(args.lse);
  c.cache = c_cache(args.cache);
  c.cu_seqlens_q = args.cu_seqlens_q.data;
  c.seq_lens = args.seq_lens.data;
  c.token_index = args.token_index.data;
  c.token_index_stride = args.token_index.stride[0];
  c.softmax_scale = args.softmax_scale;
  c.workspace = workspace.data();
  c.workspace_bytes = workspace.size();
  c.stream = stream.handle;
  if (plugin_.run(mine->handle(), &c) != 0) fail("run");
}

}  // namespace mla
