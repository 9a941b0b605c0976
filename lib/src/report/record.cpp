// SPDX-License-Identifier: Apache-2.0
#include "report/record.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "mla/shape.hpp"
#include "report/record_fields.hpp"

namespace mla::report {
namespace {

/// Columns read out of the key, so that a table can be sorted and read by axis.
struct ShapeColumn {
  Column column;
  Cell (*get)(const AttentionShape&);
};

Cell longest(const AttentionShape& shape) {
  std::int64_t kv = 0;
  for (const Request& request : shape.batch) kv = std::max<std::int64_t>(kv, request.kv_len);
  return kv;
}

Cell longest_query(const AttentionShape& shape) {
  std::int64_t q_len = 0;
  for (const Request& request : shape.batch) q_len = std::max<std::int64_t>(q_len, request.q_len);
  return q_len;
}

const std::vector<ShapeColumn>& shape_columns() {
  static const std::vector<ShapeColumn> columns{
      {{"phase", "phase"},
       [](const AttentionShape& s) -> Cell { return s.phase == Phase::kDecode ? "decode" : "prefill"; }},
      {{"space", "space"},
       [](const AttentionShape& s) -> Cell { return s.space == QuerySpace::kHead ? "head" : "latent"; }},
      {{"heads", "heads"}, [](const AttentionShape& s) -> Cell { return std::int64_t{s.dims.num_heads}; }},
      {{"batch", "batch"}, [](const AttentionShape& s) -> Cell { return format_batch(s.batch); }},
      {{"requests", "requests"}, [](const AttentionShape& s) -> Cell { return std::ssize(s.batch); }},
      {{"q_len", "q len"}, longest_query},
      {{"kv", "kv", 0, true}, longest},
      {{"shared_prefix", "shared prefix"},
       [](const AttentionShape& s) -> Cell {  // a number where all requests share one, as the axis is
         if (s.shared.empty()) return std::int64_t{0};
         const SharedPrefix& first = s.shared.front();
         if (s.shared.size() == 1 && first.count == std::ssize(s.batch)) return std::int64_t{first.tokens};
         return fmt::format("{} groups", s.shared.size());
       }},
      {{"window", "window"},
       [](const AttentionShape& s) -> Cell {
         if (s.topk > 0) return fmt::format("topk{}", s.topk);
         if (!s.mask.causal) return "not causal";
         return s.mask.window ? fmt::format("{}", *s.mask.window) : std::string("full");
       }},
      {{"sink", "sink"}, [](const AttentionShape& s) -> Cell { return std::int64_t{s.mask.sink}; }},
      {{"block_size", "block"}, [](const AttentionShape& s) -> Cell { return std::int64_t{s.block_size}; }},
      {{"q_dtype", "q"}, [](const AttentionShape& s) -> Cell { return std::string(name_of(s.q_dtype)); }},
      {{"cache", "cache"}, [](const AttentionShape& s) -> Cell { return std::string(name_of(s.cache)); }}};
  return columns;
}

using R = BenchRecord;
const std::vector<RecordField>& fields() {
  static const std::vector<RecordField> list{{{"backend", "backend"}, &R::backend, true, true},
                                             {{"model", "model"}, &R::model, true, true},
                                             {{"device", "device"}, &R::device, true, true},
                                             {{"work", "work"}, &R::work, true, true},
                                             {{"cache_state", "caches"}, &R::cache_state, true, true},
                                             {{"timer", "timer"}, &R::timer, true, true},
                                             {{"num_splits", "splits"}, &R::num_splits, true, true},
                                             {{"threads", "threads"}, &R::threads, true, true},
                                             {{"mode", "mode"}, &R::mode, true, true},
                                             {{"status", "status"}, &R::status, true},
                                             {{"time_us", "time us", 1}, &R::time_us, true},
                                             {{"time_low_us", "low us", 1}, &R::time_low_us},
                                             {{"time_high_us", "high us", 1}, &R::time_high_us},
                                             {{"time_min_us", "min us", 1}, &R::time_min_us, true},
                                             {{"time_p25_us", "p25 us", 1}, &R::time_p25_us},
                                             {{"time_p75_us", "p75 us", 1}, &R::time_p75_us},
                                             {{"noise", "noise", 4}, &R::noise, true},
                                             {{"event_us", "event us", 1}, &R::event_us, true},
                                             {{"n", "n"}, &R::n, true},
                                             {{"calls_per_sample", "calls"}, &R::calls_per_sample},
                                             {{"gbps", "GB/s", 2}, &R::gbps, true},
                                             {{"gflops", "GFLOP/s", 2}, &R::gflops, true},
                                             {{"ceiling_gbps", "ceiling GB/s", 1}, &R::ceiling_gbps},
                                             {{"ceiling_gflops", "ceiling GFLOP/s", 0}, &R::ceiling_gflops},
                                             {{"floor_us", "floor us", 1}, &R::floor_us, true},
                                             {{"of_floor", "of floor", 3}, &R::of_floor, true},
                                             {{"bound", "bound"}, &R::bound, true},
                                             {{"tokens_per_s", "tokens/s", 0}, &R::tokens_per_s},
                                             {{"bytes", "bytes", 0}, &R::bytes},
                                             {{"flops", "flops", 0}, &R::flops},
                                             {{"least_flops", "least flops", 0}, &R::least_flops},
                                             {{"plan_us", "plan us", 1}, &R::plan_us},
                                             {{"sm_clock_mhz", "SM MHz", 0}, &R::sm_clock_mhz, true},
                                             {{"power_w", "W", 0}, &R::power_w, true},
                                             {{"slowed_by", "slowed by"}, &R::slowed_by, true},
                                             {{"input_sets", "sets"}, &R::input_sets},
                                             {{"workspace_bytes", "workspace B"}, &R::workspace_bytes},
                                             {{"verified", "verified"}, &R::verified, true},
                                             {{"error_share", "of budget", 3}, &R::error_share, true},
                                             {{"strategy", "strategy"}, &R::strategy},
                                             {{"origin", "origin"}, &R::origin},
                                             {{"plan", "plan"}, &R::plan},
                                             {{"reason", "reason"}, &R::reason, true},
                                             {{"seed", "seed"}, &R::seed},
                                             {{"repetition", "repetition"}, &R::repetition},
                                             {{"spec", "spec"}, &R::spec},
                                             {{"when", "when"}, &R::when},
                                             {{"env", "env"}, &R::env},
                                             {{"command", "command"}, &R::command}};
  return list;
}

/// Rates of GPUs are read in tera: where one row has at least ten.
void use_tera(Table& table) {
  const auto column = std::ranges::find(table.columns, "gflops", &Column::key);
  if (column == table.columns.end()) return;
  const auto at = static_cast<std::size_t>(column - table.columns.begin());
  const auto large = [&](const std::vector<Cell>& row) {
    const auto* rate = std::get_if<double>(&row[at]);
    return rate != nullptr && *rate >= 1e4;
  };
  if (std::ranges::none_of(table.rows, large)) return;
  *column = {"tflops", "TFLOP/s", 2};
  for (std::vector<Cell>& row : table.rows) {
    if (auto* rate = std::get_if<double>(&row[at])) *rate /= 1e3;
  }
}

/// Whether a column is worth a person's eye: not where every record has nothing, no forced number or no
/// trouble.
bool tells(std::span<const BenchRecord> records, const RecordField& field) {
  return std::ranges::any_of(records, [&](const BenchRecord& record) {
    const Cell cell = get(record, field);
    return cell != Cell{} && cell != Cell{std::int64_t{0}} && cell != Cell{std::string("ok")};
  });
}

}  // namespace

std::span<const RecordField> record_fields() {
  return fields();
}

Cell get(const BenchRecord& record, const RecordField& field) {
  if (const auto* text = std::get_if<std::string R::*>(&field.member)) {
    return (record.**text).empty() ? Cell{} : Cell{record.**text};
  }
  if (const auto* integer = std::get_if<std::int64_t R::*>(&field.member)) return record.**integer;
  const std::optional<double>& real = record.*std::get<std::optional<double> R::*>(field.member);
  return real ? Cell{*real} : Cell{};
}

std::string identity(const BenchRecord& record) {
  return fmt::format("{} | {} | {} | {} | {} | splits {} | threads {}{}{}", record.key, record.backend,
                     record.device, record.cache_state, record.timer, record.num_splits, record.threads,
                     record.work.empty() ? std::string() : " | " + record.work,
                     record.mode.empty() ? std::string() : " | " + record.mode);
}

std::vector<Column> axis_columns() {
  std::vector<Column> columns;
  for (const RecordField& field : fields()) {
    if (field.axis) columns.push_back(field.column);
    if (field.column.key == "backend") {  // then the axes of the shape
      for (const ShapeColumn& c : shape_columns()) columns.push_back(c.column);
    }
  }
  return columns;
}

std::vector<Cell> axis_cells(const BenchRecord& record) {
  const AttentionShape shape = parse_shape(record.key);
  std::vector<Cell> cells;
  for (const RecordField& field : fields()) {
    if (field.axis) cells.push_back(get(record, field));
    if (field.column.key == "backend") {
      for (const ShapeColumn& c : shape_columns()) cells.push_back(c.get(shape));
    }
  }
  return cells;
}

std::vector<std::size_t> telling_axes(std::span<const BenchRecord> records) {
  std::vector<std::size_t> kept;
  const std::vector<Column> axes = axis_columns();
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto field = std::ranges::find(
        fields(), axes[i].key, [](const RecordField& f) -> const std::string& { return f.column.key; });
    // Columns of the shape always tell; of the others, those that hold something.
    if (field == fields().end() || tells(records, *field)) kept.push_back(i);
  }
  return kept;
}

void sort_by_axes(std::vector<BenchRecord>& records) {
  // Numbers before text, whose order is no order of lengths ("2k" < "512"); the backend last: rivals stand
  // together.
  const std::vector<Column> axes = axis_columns();
  const auto batch = std::ranges::find(axes, "batch", &Column::key) - axes.begin();
  const auto order = [batch](const BenchRecord& record) {
    std::vector<Cell> cells = axis_cells(record);
    std::rotate(cells.begin() + batch, cells.begin() + batch + 1, cells.end());
    std::rotate(cells.begin(), cells.begin() + 1, cells.end());
    return cells;
  };
  std::vector<std::pair<std::vector<Cell>, BenchRecord>> keyed;
  for (BenchRecord& record : records) keyed.emplace_back(order(record), std::move(record));
  std::ranges::stable_sort(keyed, {},
                           [](const auto& entry) -> const std::vector<Cell>& { return entry.first; });
  records.clear();
  for (auto& [cells, record] : keyed) records.push_back(std::move(record));
}

Table record_table(std::span<const BenchRecord> records, bool all) {
  Table table{"points", "", {}, {}};
  const std::vector<Column> axes = axis_columns();
  std::vector<std::size_t> kept = telling_axes(records);
  if (all) {
    kept.resize(axes.size());
    std::iota(kept.begin(), kept.end(), 0);
  }
  std::vector<const RecordField*> rest;
  for (const RecordField& field : fields()) {
    if (!field.axis && (all || (field.in_table && tells(records, field)))) rest.push_back(&field);
  }
  const bool several =
      std::ranges::any_of(records, [](const BenchRecord& record) { return record.repetitions > 1; });
  if (all) table.columns.push_back({"key", "key"});
  for (const std::size_t i : kept) table.columns.push_back(axes[i]);
  for (const RecordField* field : rest) table.columns.push_back(field->column);
  if (several) table.columns.push_back({"repetitions", "runs"});
  table.columns.push_back({"flags", "flags"});
  for (const BenchRecord& record : records) {
    std::vector<Cell> row;
    if (all) row.emplace_back(record.key);
    const std::vector<Cell> cells = axis_cells(record);
    for (const std::size_t i : kept) row.push_back(cells[i]);
    for (const RecordField* field : rest) row.push_back(get(record, *field));
    if (several) row.emplace_back(record.repetitions);
    row.push_back(record.flags.empty() ? Cell{} : Cell{fmt::format("{}", fmt::join(record.flags, " "))});
    table.rows.push_back(std::move(row));
  }
  if (!all) use_tera(table);
  return table;
}

}  // namespace mla::report
