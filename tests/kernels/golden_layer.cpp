// SPDX-License-Identifier: Apache-2.0
// The whole layer on the device, hidden states in and hidden states out, against the golden sets:
// projections, norms, RoPE and cache write by the device operations, the attention by every backend that runs
// on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include "device_array.hpp"
#include "mla/backend.hpp"
#include "mla/device_ops.hpp"
#include "verify/golden_data.hpp"
#include "verify/golden_limits.hpp"
#include "verify/golden_paths.hpp"

namespace {

using namespace mla;
using namespace mla::verify;
using mla::testing::DeviceArray;

constexpr DType kType = DType::kBF16;  // weights and hidden states of the sets lie on its grid
constexpr std::int32_t kBlockSize = 4;

/// Doubles on the device as elements of a type.
struct Tensor {
  DeviceArray<std::byte> memory;
  ConstTensorRef ref;
  Tensor(const std::vector<double>& values, std::vector<std::int64_t> shape, DType dtype = kType)
      : memory(encoded(values, dtype)), ref(memory.data(), dtype, {}) {
    ref.rank = static_cast<int>(shape.size());
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
      ref.extent[i] = shape[i];
      ref.stride[i] = stride;
    }
  }
  Tensor(std::vector<std::int64_t> shape, DType dtype)
      : Tensor(std::vector<double>(count(shape), std::nan("")), shape, dtype) {}

  [[nodiscard]] TensorRef out() const {
    TensorRef t(memory.data(), ref.dtype, {});
    t.rank = ref.rank;
    t.extent = ref.extent;
    t.stride = ref.stride;
    return t;
  }
  /// The same memory as [.., heads, width].
  [[nodiscard]] TensorRef per_head(std::int64_t heads) const {
    return {memory.data(), ref.dtype, {ref.extent[0], heads, ref.extent[1] / heads}};
  }
  [[nodiscard]] std::vector<double> read() const {
    const std::vector<std::byte> bytes = memory.read();
    std::vector<double> values(bytes.size() / size_of(ref.dtype));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = load_element(bytes.data(), ref.dtype, static_cast<std::int64_t>(i));
    return values;
  }

 private:
  static std::size_t count(const std::vector<std::int64_t>& shape) {
    std::int64_t n = 1;
    for (const std::int64_t e : shape) n *= e;
    return static_cast<std::size_t>(n);
  }
  static std::vector<std::byte> encoded(const std::vector<double>& values, DType dtype) {
    std::vector<std::byte> bytes(std::max<std::size_t>(values.size(), 1) * size_of(dtype));
    for (std::size_t i = 0; i < values.size(); ++i)
      store_element(bytes.data(), dtype, static_cast<std::int64_t>(i), values[i]);
    return bytes;
  }
};

/// tests/golden, wherever this machine has it (docs/device.md).
std::string golden_folder() {
  const char* named = std::getenv("MLA_GOLDEN");
  return named != nullptr ? named : MLA_TEST_DATA "/golden";
}

std::vector<float> floats(const std::vector<double>& x) {
  return {x.begin(), x.end()};
}

/// A layer's weights on the device, and one sequence of a set in its cache.
class DeviceLayer {
 public:
  DeviceLayer(const GoldenData& data, std::size_t sequence)
      : layer_(data.variant().layer),
        weights_(data.weights()),
        tokens_(data.variant().sequences[sequence]),
        hidden_(data.values(sequence_prefix(sequence) + "hidden"), {tokens_, layer_.hidden_size}),
        rope_(data.saved_rope(sequence)),
        cos_(floats(rope_.cos)),
        sin_(floats(rope_.sin)),
        positions_(counting(tokens_)),
        pool_(blocks() * kBlockSize *
              static_cast<std::size_t>(cache_layout(CacheFormat::kBF16, dims()).row_bytes)),
        table_(reversed(blocks())),
        w_uk_(data.up().w_uk, {dims().num_heads, dims().qk_nope_head_dim, dims().kv_lora_rank}),
        w_uv_(data.up().w_uv, {dims().num_heads, dims().v_head_dim, dims().kv_lora_rank}) {}

  [[nodiscard]] const MlaDims& dims() const { return layer_.dims; }

  /// Hidden states of tokens first .. first + count - 1 to cache rows.
  void fill(std::int64_t first, std::int64_t count) {
    if (count == 0) return;
    const MlaDims& d = dims();
    device_ops::CompressAndCache args;
    args.dims = d;
    args.hidden = rows(hidden_, first, count);
    const Tensor w(weights_.kv_a_proj, {d.latent_width(), layer_.hidden_size});
    const Tensor bias(weights_.kv_a_proj_bias, {static_cast<std::int64_t>(weights_.kv_a_proj_bias.size())});
    const Tensor norm(weights_.kv_a_layernorm, {d.kv_lora_rank});
    args.kv_a_proj = w.ref;
    if (!weights_.kv_a_proj_bias.empty()) args.kv_a_bias = bias.ref;
    args.norm_weight = norm.ref;
    args.norm_eps = static_cast<float>(layer_.kv_norm_eps);
    args.rotation = rotation(first, count);
    std::vector<std::int64_t> slots;
    for (std::int64_t p = first; p < first + count; ++p)
      slots.push_back((static_cast<std::int64_t>(blocks()) - 1 - p / kBlockSize) * kBlockSize +
                      p % kBlockSize);
    const DeviceArray<std::int64_t> device_slots(slots);
    args.slot_mapping = {device_slots.data(), {count}};
    args.cache = cache();
    const DeviceArray<std::byte> workspace(device_ops::compress_workspace_bytes(d, count));
    device_ops::compress_and_cache(args, {workspace.data(), workspace.size()});
    (void)workspace.read(1);  // before it is released
  }

  /// The step of tokens first .. first + count - 1, whose rows are in the cache: hidden states out.
  [[nodiscard]] std::vector<double> step(const Backend& backend, const AttentionShape& shape,
                                         double softmax_scale, std::int64_t first, std::int64_t count) {
    const MlaDims& d = dims();
    const Tensor q({count, std::int64_t{d.num_heads} * d.head_width()}, kType);
    project_query(first, count, q);
    const Tensor attended({count, std::int64_t{d.num_heads} * d.v_head_dim}, kType);
    const DeviceArray<std::int32_t> cu(std::vector<std::int32_t>{0, static_cast<std::int32_t>(count)});
    const DeviceArray<std::int32_t> lens(std::vector<std::int32_t>{static_cast<std::int32_t>(first + count)});
    AttentionArgs args;
    args.q = q.per_head(d.num_heads);
    args.out = attended.per_head(d.num_heads);
    args.cache = cache();
    args.cu_seqlens_q = {cu.data(), {2}};
    args.seq_lens = {lens.data(), {1}};
    args.w_uk = w_uk_.ref;
    args.w_uv = w_uv_.ref;
    args.softmax_scale = softmax_scale;
    const auto plan = backend.plan(shape, *mla::testing::test_gpu().device);
    const DeviceArray<std::byte> workspace(plan->workspace_bytes() + 1);
    backend.run(*plan, args, {workspace.data(), plan->workspace_bytes()});
    const Tensor out({count, layer_.hidden_size}, DType::kF32);
    linear(attended.ref, weights_.o_proj, weights_.o_proj_bias, out);
    return out.read();
  }

 private:
  [[nodiscard]] std::size_t blocks() const {
    return static_cast<std::size_t>((tokens_ + kBlockSize - 1) / kBlockSize);
  }
  static std::vector<std::int64_t> counting(std::int64_t n) {
    std::vector<std::int64_t> x;
    for (std::int64_t i = 0; i < n; ++i) x.push_back(i);
    return x;
  }
  static std::vector<std::int32_t> reversed(std::size_t n) {
    std::vector<std::int32_t> x;
    for (std::size_t i = n; i-- > 0;) x.push_back(static_cast<std::int32_t>(i));
    return x;
  }
  static ConstTensorRef rows(const Tensor& t, std::int64_t first, std::int64_t count) {
    ConstTensorRef part = t.ref;
    part.data = t.memory.data() + first * part.stride[0] * static_cast<std::int64_t>(size_of(part.dtype));
    part.extent[0] = count;
    return part;
  }
  [[nodiscard]] device_ops::Rotation rotation(std::int64_t first, std::int64_t count) const {
    device_ops::Rotation r;
    if (dims().qk_rope_head_dim == 0) return r;
    r.cos = {cos_.data(), {tokens_, rope_.half}};
    r.sin = {sin_.data(), {tokens_, rope_.half}};
    r.positions = {positions_.data() + first, {count}};
    r.input = layer_.rope_input;
    r.output = layer_.rope_output;
    return r;
  }
  [[nodiscard]] PagedLatentCache cache() const {
    const CacheLayout layout = cache_layout(CacheFormat::kBF16, dims());
    PagedLatentCache c;
    c.format = CacheFormat::kBF16;
    c.block_size = kBlockSize;
    c.num_blocks = static_cast<std::int64_t>(blocks());
    c.data = pool_.data();
    c.row_stride_bytes = layout.row_bytes;
    c.block_stride_bytes = kBlockSize * layout.row_bytes;
    c.block_table = {table_.data(), {1, static_cast<std::int64_t>(blocks())}};
    return c;
  }
  static void linear(const ConstTensorRef& x, const std::vector<double>& w, const std::vector<double>& bias,
                     const Tensor& out) {
    const std::int64_t outputs = out.ref.extent[1];
    const Tensor weight(w, {outputs, static_cast<std::int64_t>(w.size()) / outputs});
    const Tensor added(bias, {static_cast<std::int64_t>(bias.size())}, out.ref.dtype);
    const DeviceArray<std::byte> workspace(device_ops::kProjectionWorkspaceBytes);
    device_ops::linear(x, weight.ref, bias.empty() ? ConstTensorRef{} : added.ref, out.out(),
                       {workspace.data(), workspace.size()});
    (void)workspace.read(1);
  }
  /// q [count, H (P+R)], rotated.
  void project_query(std::int64_t first, std::int64_t count, const Tensor& q) const {
    const MlaDims& d = dims();
    const ConstTensorRef hidden = rows(hidden_, first, count);
    if (layer_.q_lora_rank) {
      const Tensor compressed({count, *layer_.q_lora_rank}, DType::kF32),
          normed({count, *layer_.q_lora_rank}, kType);
      linear(hidden, weights_.q_a_proj, weights_.q_a_proj_bias, compressed);
      const Tensor norm(weights_.q_a_layernorm, {*layer_.q_lora_rank});
      device_ops::rms_norm(compressed.ref, norm.ref, static_cast<float>(layer_.q_norm_eps), normed.out());
      linear(normed.ref, weights_.q_b_proj, {}, q);
    } else {
      linear(hidden, weights_.q_proj, {}, q);
    }
    if (d.qk_rope_head_dim > 0)
      device_ops::rotate(q.per_head(d.num_heads), d.qk_rope_head_dim, rotation(first, count));
    (void)q.memory.read(1);
  }

  const LayerConfig& layer_;
  const LayerWeights& weights_;
  std::int64_t tokens_;
  Tensor hidden_;
  RopeTable rope_;
  DeviceArray<float> cos_, sin_;
  DeviceArray<std::int64_t> positions_;
  DeviceArray<std::byte> pool_;
  DeviceArray<std::int32_t> table_;
  Tensor w_uk_, w_uv_;
};

/// Largest difference of rows first .. of the saved output, relative to its largest value.
double error_of(const std::vector<double>& got, const std::vector<double>& all) {
  double largest = 0, error = 0;
  for (const double x : all) largest = std::max(largest, std::abs(x));
  const std::size_t begin = all.size() - got.size();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(got[i] - all[begin + i]);
    error = std::isnan(difference) ? INFINITY : std::max(error, difference);
  }
  return error / largest;
}

/// The layer once as a prefill of everything, once as decode steps of one and of three tokens behind a filled
/// cache.
TEST(GoldenLayer, HiddenInHiddenOutOnTheDevice) {
  MLA_NEEDS_GPU();
  if (const Support s = device_ops::projections_available(); !s) GTEST_SKIP() << s.why;
  const GoldenManifest manifest = load_golden_manifest(golden_folder());
  std::map<std::string, int> steps;
  for (const GoldenVariant& variant : manifest.variants) {
    const GoldenData data(manifest, variant);
    for (std::size_t s = 0; s < variant.sequences.size(); ++s) {
      const GoldenPaths paths(data, s);
      const std::int64_t tokens = variant.sequences[s];
      const double max_score = paths.max_score(paths.full(LayerForm::kExpanded, GoldenMask::kCausal));
      const double limit = golden_limits(variant.layer, tokens, max_score).out_bf16;
      const std::vector<double> want = data.values(sequence_prefix(s) + "out_f64");
      for (const std::int64_t fresh : {tokens, std::int64_t{1}, std::int64_t{3}}) {
        if (fresh > tokens) continue;
        DeviceLayer layer(data, s);
        layer.fill(0, tokens - fresh);
        layer.fill(tokens - fresh, fresh);
        for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
          AttentionShape shape;
          shape.phase = phase;
          shape.space = QuerySpace::kHead;
          shape.dims = variant.layer.dims;
          shape.batch = {{static_cast<std::int32_t>(fresh), static_cast<std::int32_t>(tokens)}};
          shape.block_size = kBlockSize;
          for (const Backend* backend : backends()) {
            if (!backend->info().on_device || !backend->supports(shape, *mla::testing::test_gpu().device))
              continue;
            const std::vector<double> got =
                layer.step(*backend, shape, variant.softmax_scale, tokens - fresh, fresh);
            EXPECT_LE(error_of(got, want), limit) << variant.name << " sequence " << s << ", " << fresh
                                                  << " of " << tokens << " tokens, " << backend->info().name;
            ++steps[std::string(backend->info().name)];
          }
        }
      }
    }
  }
  for (const Backend* backend : backends()) {
    if (!backend->info().on_device) continue;
    const std::string name(backend->info().name);
    EXPECT_GT(steps[name], 0) << name << " took part in no set";
    RecordProperty(name, steps[name]);
  }
}

}  // namespace
