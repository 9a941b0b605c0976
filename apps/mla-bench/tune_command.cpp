// SPDX-License-Identifier: Apache-2.0
// From runs to a table of the fastest backend by region, which mla::choose_backend reads.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "commands.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/selector.hpp"
#include "model/json_value.hpp"
#include "peer/peer_backend.hpp"
#include "run/environment.hpp"
#include "run_files.hpp"

namespace mla::bench {
namespace {

using report::BenchRecord;

/// What an engine would meet: cold caches, the attention alone, no forced choices, a backend that a library
/// can call.
bool counts(const BenchRecord& r) {
  return r.status == "ok" && r.timer != "modelled" && r.cache_state == "cold" && r.work.empty() &&
         r.num_splits == 0 && r.threads == 0 && r.mode.empty() && parse_shape(r.key).shared.empty() &&
         !peer::is_peer_name(r.backend);
}

std::string the_device(const std::vector<BenchRecord>& records) {
  std::set<std::string> devices;
  for (const BenchRecord& r : records) devices.insert(r.device);
  // Of CPU rows in a run with a GPU, the GPU's are meant.
  if (devices.size() == 2) devices.erase("host");
  if (devices.size() > 1)
    throw Error(ErrorCode::kInvalidArgument, "the runs are of several devices",
                "choose one with --where device=...");
  return devices.empty() ? std::string() : *devices.begin();
}

/// Shapes in the order of their axes; repetitions of a point count by their best median.
Selector selector_of(std::vector<BenchRecord> records) {
  std::erase_if(records, [](const BenchRecord& r) { return !counts(r); });
  const std::string device = the_device(records);
  std::erase_if(records, [&](const BenchRecord& r) { return r.device != device; });
  if (records.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the runs hold no point that a choice can be made from",
                "cold caches, attention alone, nothing forced, measured");
  }
  report::sort_by_axes(records);
  std::vector<std::string> order;
  std::map<std::string, std::map<std::string, double>> times;
  for (const BenchRecord& r : records) {
    if (!times.contains(r.key)) order.push_back(r.key);
    const auto [at, fresh] = times[r.key].emplace(r.backend, *r.time_us);
    if (!fresh) at->second = std::min(at->second, *r.time_us);
  }
  std::vector<Selector::Point> points;
  for (const std::string& key : order)
    points.push_back({parse_shape(key), {times[key].begin(), times[key].end()}});
  return {device, std::move(points)};
}

std::string file_text(const Selector& selector, const std::string& command_line) {
  std::string text = fmt::format(
      "{{\n  \"schema_version\": 1,\n  \"device\": {},\n  \"made\": {},\n  \"command\": {},\n  \"points\": "
      "[\n",
      json::quote(selector.device()), json::quote(run::utc_now().substr(0, 10)), json::quote(command_line));
  bool first = true;
  for (const Selector::Point& point : selector.points()) {
    std::string times;
    for (const auto& [backend, us] : point.times_us)
      times += fmt::format("{}{}: {:.2f}", times.empty() ? "" : ", ", json::quote(backend), us);
    text += fmt::format("{}    {{\"shape\": {},\n     \"us\": {{{}}}}}", first ? "" : ",\n",
                        json::quote(to_text(point.shape)), times);
    first = false;
  }
  return text + "\n  ]\n}\n";
}

}  // namespace

int answer(const TuneRequest& request) {
  report::RunFile file = read_runs(request.paths);
  select(file.records, request.where);
  const Selector selector = selector_of(std::move(file.records));
  if (!request.to.empty()) cli::write_new_file(request.to, file_text(selector, request.command_line));

  report::Table table{"regions",
                      "",
                      {{"shape", "around"},
                       {"best", "best"},
                       {"best_us", "time us", 1},
                       {"second", "second"},
                       {"ratio", "second / best", 2}},
                      {}};
  std::map<std::string, int> wins;
  for (const Selector::Point& point : selector.points()) {
    const auto& times = point.times_us;
    ++wins[times.front().first];
    std::vector<report::Cell> row{to_text(point.shape), times.front().first, times.front().second};
    row.push_back(times.size() < 2 ? report::Cell{} : report::Cell{times[1].first});
    row.push_back(times.size() < 2 ? report::Cell{} : report::Cell{times[1].second / times.front().second});
    table.rows.push_back(std::move(row));
  }
  report::Document document;
  document.kind = "bench.tune";
  std::string summary;
  for (const auto& [backend, count] : wins)
    summary += fmt::format("{}{} at {}", summary.empty() ? "" : ", ", backend, count);
  document.headline.push_back(
      fmt::format("fastest on {}: {} of {} shapes", selector.device(), summary, selector.points().size()));
  document.tables.push_back(std::move(table));
  if (!request.to.empty()) {
    document.notes.push_back(
        fmt::format("written to {}; in <config dir>/selectors/ it is what choose_backend goes by on {}",
                    request.to, selector.device()));
  }
  cli::print(document, request.output);
  return cli::kOk;
}

}  // namespace mla::bench
