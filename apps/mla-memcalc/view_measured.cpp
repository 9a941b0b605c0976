// SPDX-License-Identifier: Apache-2.0
// Capacity and speed in one answer: the decode batches that fit, at the times that mla-bench measured.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/selector.hpp"
#include "plan/bench_shapes.hpp"
#include "report/record.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using report::BenchRecord;

/// What a decode step would meet: measured, cold, nothing forced. `step`: with all that is around the attention.
bool counts(const BenchRecord& r, bool step) {
  return r.status == "ok" && r.time_us && r.timer != "modelled" && r.cache_state == "cold" &&
         (r.work == "step") == step && r.num_splits == 0 && r.threads == 0 && r.mode.empty() &&
         parse_shape(r.key).shared.empty();
}

std::vector<BenchRecord> read_records(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  if (!fs::is_directory(path)) {
    files.emplace_back(path);
  } else {
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.path().filename() == "run.jsonl") files.push_back(entry.path());
    }
    if (files.empty())
      throw Error(ErrorCode::kIo, fmt::format("there is no run.jsonl in or below {}", text::quoted(path)));
    std::ranges::sort(files);
  }
  std::vector<BenchRecord> records;
  for (const fs::path& file : files)
    std::ranges::move(report::read_run(file).records, std::back_inserter(records));
  return records;
}

/// The fastest of each measured shape.
Selector times_of(const std::vector<BenchRecord>& records, bool step) {
  std::map<std::string, std::map<std::string, double>> times;
  std::string device;
  for (const BenchRecord& r : records) {
    if (!counts(r, step) || !r.key.starts_with("decode")) continue;
    const auto [at, fresh] = times[r.key].emplace(r.backend, *r.time_us);
    if (!fresh) at->second = std::min(at->second, *r.time_us);
    device = r.device;
  }
  std::vector<Selector::Point> points;
  for (const auto& [key, by_backend] : times)
    points.push_back({parse_shape(key), {by_backend.begin(), by_backend.end()}});
  return {device, std::move(points)};
}

double keys_of(const AttentionShape& shape) {
  double keys = 0;
  for (const Request& request : shape.batch) keys += request.kv_len;
  return keys;
}

}  // namespace

void add_measured(report::Document& document, const Question& question, const std::string& path) {
  const std::vector<BenchRecord> records = read_records(path);
  const bool steps = std::ranges::any_of(records, [](const BenchRecord& r) { return counts(r, true); });
  const Selector times = times_of(records, steps);
  const capacity::BenchShapes fits = capacity::bench_shapes(question.model, question.request);
  const int layers = question.model.count(AttentionKind::kMla);
  report::Table table{
      .name = "measured",
      .title = fmt::format(
          "Decode at the times of {} ({}), {} layers; the time of another number of keys is in proportion",
          path, steps ? "whole steps of the attention" : "attention alone", layers),
      .columns = {},
      .rows = {}};
  table.columns = {{.key = "kv_len", .title = "keys", .thousands = true},
                   {.key = "sequences", .title = "sequences", .thousands = true},
                   {.key = "backend", .title = "backend"},
                   {.key = "layer_us", .title = "us a layer", .precision = 1},
                   {.key = "step_ms", .title = "ms a step", .precision = 2},
                   {.key = "tokens_per_s", .title = "tokens/s at most", .thousands = true},
                   {.key = "measured_at", .title = "measured at"}};
  for (const capacity::BenchShape& fit : fits.shapes) {
    AttentionShape shape;
    shape.dims = fits.dims;
    shape.topk = static_cast<std::int32_t>(fits.topk);
    shape.block_size = fits.block;
    shape.cache = parse_cache_format(fits.cache);
    shape.batch.assign(static_cast<std::size_t>(fit.requests),
                       {.q_len = 1, .kv_len = static_cast<std::int32_t>(fit.kv_len)});
    shape.space = QuerySpace::kHead;
    const Selector::Point* nearest = times.nearest(shape);
    if (nearest == nullptr && !steps) {
      shape.space = QuerySpace::kLatent;
      nearest = times.nearest(shape);
    }
    if (nearest == nullptr) continue;
    const auto& [backend, measured_us] = nearest->times_us.front();
    const double layer_us = measured_us * keys_of(shape) / keys_of(nearest->shape);  // in proportion
    const double step_s = layer_us * 1e-6 * layers;
    table.rows.push_back({fit.kv_len, fit.requests, backend, layer_us, step_s * 1e3,
                          static_cast<std::int64_t>(static_cast<double>(fit.requests) / step_s),
                          to_text(nearest->shape)});
  }
  if (table.rows.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} holds no decode time for the cache format {} of this plan",
                            text::quoted(path), fits.cache),
                "measure its shapes: --emit-sweep | mla-bench run --spec -");
  }
  document.tables.push_back(std::move(table));
}

}  // namespace mla::memcalc
