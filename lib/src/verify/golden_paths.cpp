// SPDX-License-Identifier: Apache-2.0
#include "verify/golden_paths.hpp"

#include <algorithm>

#include "mla/error.hpp"

namespace mla::verify {
namespace {

constexpr std::int32_t kBlockSize = 4;

/// A paged cache of doubles whose blocks lie in reverse order.
struct PagedRows {
  PagedRows(const MlaDims& dims, std::int64_t tokens) {
    const CacheLayout layout = cache_layout(CacheFormat::kF64, dims);
    const std::int64_t blocks = (tokens + kBlockSize - 1) / kBlockSize;
    bytes.resize(static_cast<std::size_t>(blocks * kBlockSize * layout.row_bytes));
    for (std::int64_t i = 0; i < blocks; ++i) table.push_back(static_cast<std::int32_t>(blocks - 1 - i));
    cache.format = CacheFormat::kF64;
    cache.block_size = kBlockSize;
    cache.num_blocks = blocks;
    cache.data = bytes.data();
    cache.row_stride_bytes = layout.row_bytes;
    cache.block_stride_bytes = kBlockSize * layout.row_bytes;
    cache.block_table = {table.data(), {1, blocks}};
  }
  PagedRows(const PagedRows&) = delete;
  PagedRows& operator=(const PagedRows&) = delete;

  [[nodiscard]] std::vector<std::int64_t> slots(std::int64_t first, std::int64_t count) const {
    std::vector<std::int64_t> slots;
    for (std::int64_t p = first; p < first + count; ++p) slots.push_back(cache.slot(0, p));
    return slots;
  }

  std::vector<std::byte> bytes;
  std::vector<std::int32_t> table;
  PagedLatentCache cache;
};

}  // namespace

GoldenPaths::GoldenPaths(const GoldenData& data, std::size_t sequence)
    : data_(data), variant_(data.variant()), tokens_(variant_.sequences[sequence]) {
  const std::string pre = sequence_prefix(sequence);
  hidden_ = data.values(pre + "hidden");
  rope_ = data.saved_rope(sequence);
  // The scale is ours, from the configuration: that it is the source's is a check of its own.
  const RopeTable table =
      make_rope_table(variant_.rope, YarnRule::kTransformers, data.positions(sequence), true);
  scale_ = plain_softmax_scale(variant_.layer.dims) * table.softmax_scale_factor;
  if (variant_.topk && sequence == 0) {
    for (const double x : data.values(pre + "topk.indices")) topk_.push_back(static_cast<std::int32_t>(x));
  }
}

RopeTable GoldenPaths::rope_rows(std::int64_t first, std::int64_t count) const {
  const auto begin = first * rope_.half;
  const auto end = (first + count) * rope_.half;
  RopeTable part = rope_;
  part.cos.assign(rope_.cos.begin() + begin, rope_.cos.begin() + end);
  part.sin.assign(rope_.sin.begin() + begin, rope_.sin.begin() + end);
  return part;
}

reference::Visibility GoldenPaths::visible(GoldenMask mask) const {
  reference::Visibility v;
  if (mask == GoldenMask::kWindowSink) {
    v.mask.window = *variant_.window;
    v.mask.sink = *variant_.sink;
  } else if (mask == GoldenMask::kTopk) {
    v.token_index = topk_;
    v.topk = *variant_.topk;
  }
  return v;
}

LayerStep GoldenPaths::full(LayerForm form, GoldenMask mask) const {
  return layer_forward(variant_.layer, data_.weights(), hidden_, {}, rope_, scale_, form, visible(mask));
}

std::vector<double> GoldenPaths::from_cache(LayerForm form, std::int64_t tail, std::int64_t step) const {
  const LayerConfig& layer = variant_.layer;
  const auto width = static_cast<std::size_t>(layer.hidden_size);
  const auto hidden = [&](std::int64_t first, std::int64_t count) {
    return std::span(hidden_).subspan(static_cast<std::size_t>(first) * width,
                                      static_cast<std::size_t>(count) * width);
  };
  const PagedRows paged(layer.dims, tokens_);
  std::int64_t done = tokens_ - tail;
  compress_and_cache(layer, data_.weights(), hidden(0, done), rope_rows(0, done), paged.slots(0, done),
                     paged.cache);
  std::vector<double> out;
  for (; done < tokens_; done += step) {
    const RopeTable rope = rope_rows(done, step);
    const std::int32_t past_len = static_cast<std::int32_t>(done);
    const std::vector<double> past = reference::gather_latent(paged.cache, layer.dims, {&past_len, 1});
    const LayerStep result =
        layer_forward(layer, data_.weights(), hidden(done, step), past, rope, scale_, form);
    out.insert(out.end(), result.out.begin(), result.out.end());
    compress_and_cache(layer, data_.weights(), hidden(done, step), rope, paged.slots(done, step),
                       paged.cache);
  }
  return out;
}

double GoldenPaths::max_score(const LayerStep& step) const {
  const Request request{static_cast<std::int32_t>(tokens_), static_cast<std::int32_t>(tokens_)};
  reference::Options options;
  options.row_stats = true;
  const reference::MlaProblem problem{variant_.layer.dims, {&request, 1},   step.q, step.rows,
                                      data_.up().w_uk,     data_.up().w_uv, {},     scale_};
  double max = 0;
  for (const reference::RowStats& s : reference::mla_expanded(problem, options).stats) {
    max = std::max(max, s.max_abs_score);
  }
  return max;
}

std::optional<Execution> GoldenPaths::run_backend(const Backend& backend, const LayerStep& step,
                                                  GoldenMask mask) const {
  Case c;
  c.shape.space = QuerySpace::kHead;
  c.shape.dims = variant_.layer.dims;
  c.shape.batch = {{static_cast<std::int32_t>(tokens_), static_cast<std::int32_t>(tokens_)}};
  c.shape.block_size = kBlockSize;
  c.shape.q_dtype = c.shape.out_dtype = DType::kF64;
  c.shape.cache = CacheFormat::kF64;
  const reference::Visibility v = visible(mask);
  c.shape.mask = v.mask;
  c.shape.topk = v.topk;
  const Machine machine = machine_for(backend);
  if (!backend.supports(c.shape, machine.device)) return std::nullopt;
  Values values;
  values.softmax_scale = scale_;
  values.q = step.q;
  values.latent = step.rows;
  values.w_uk = data_.up().w_uk;
  values.w_uv = data_.up().w_uv;
  values.token_index.assign(v.token_index.begin(), v.token_index.end());
  const Problem problem(c, std::move(values));
  Stage stage(problem, *machine.memory);
  return execute(backend, stage, problem, machine.device, {});
}

std::vector<double> heads_first(std::span<const double> x, int heads) {
  const auto h = static_cast<std::size_t>(heads);
  const std::size_t tokens = x.size() / h;
  std::vector<double> result(x.size());
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t i = 0; i < h; ++i) result[i * tokens + t] = x[t * h + i];
  }
  return result;
}

std::pair<std::vector<double>, std::vector<double>> split_columns(std::span<const double> x, int a, int b) {
  std::pair<std::vector<double>, std::vector<double>> parts;
  const auto width = static_cast<std::size_t>(a + b);
  for (std::size_t i = 0; i < x.size(); ++i) {
    (i % width < static_cast<std::size_t>(a) ? parts.first : parts.second).push_back(x[i]);
  }
  return parts;
}

}  // namespace mla::verify
