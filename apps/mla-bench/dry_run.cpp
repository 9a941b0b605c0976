// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "commands.hpp"
#include "mla/backend.hpp"
#include "mla/device.hpp"
#include "run/backends.hpp"
#include "run/device_call.hpp"
#include "run/device_inputs.hpp"
#include "run/modelled.hpp"
#include "run/point.hpp"
#include "run/work.hpp"
#include "sweep_view.hpp"

namespace mla::bench {
namespace {

// What a point on a GPU took beside its samples, and a process before its first point, on the machines that
// results/ is about.
constexpr double kPointSeconds = 0.25;
constexpr double kProcessSeconds = 3;
constexpr double kSampleSeconds = 1e-3;

bool is_modelled(const spec::SweepPoint& point) {
  const std::vector<std::string> names = run::modelled_backends();
  return std::ranges::find(names, point.backend) != names.end();
}

class Look {
 public:
  Look(const spec::Sweep& sweep, double memory_limit, const DryRunOn& on)
      : sweep_(sweep), memory_limit_(memory_limit), on_(on) {}

  /// A row of the table.
  std::vector<report::Cell> row(const spec::SweepPoint& point) {
    const run::Work work = run::count_work(point.shape);
    bool on_device = true;
    std::string strategy = point.backend == "model-expanded" ? "expanded" : "absorbed";
    Support support = Support::yes();
    if (is_modelled(point)) {
      const report::BenchRecord record = run::model_point(point, *on_.described, sweep_.name);
      if (record.status != "ok") support = Support::no(record.reason);
    } else {
      const Backend& backend = run::backend_named(point.backend);
      on_device = backend.info().on_device;
      strategy = backend.info().strategy;
      support = on_.described ? run::DeviceCall::supports(backend, point, *on_.described)
                              : run::supports_here(backend, point, on_.gpu ? &*on_.gpu : nullptr);
    }
    const double bytes = on_device ? run::set_bytes(point.shape) : run::estimated_bytes(point.shape);
    const double room = !on_device      ? memory_limit_
                        : on_.described ? static_cast<double>(on_.described->memory_bytes)
                        : on_.gpu       ? static_cast<double>(on_.gpu->memory_bytes)
                                        : bytes;
    if (support && bytes > room) {
      support = Support::no(fmt::format("its inputs need about {} of {}memory, {} can be had",
                                        report::human_gib(bytes), on_device ? "GPU " : "",
                                        report::human_gib(room)));
    }
    if (support) {
      ++runnable_;
      on_devices_ += on_device ? 1 : 0;
      largest_ = std::max(largest_, bytes);
    }
    return {point.backend,
            to_text(point.shape),
            std::int64_t{point.options.num_splits},
            std::int64_t{point.options.threads},
            spec::mode_text(point.options),
            std::string(spec::name_of(point.caches)),
            bytes,
            work.bytes,
            work.flops_of(strategy),
            support.ok,
            support.ok ? report::Cell{} : report::Cell{support.why}};
  }

  [[nodiscard]] std::string summary() const {
    const spec::Measure& m = sweep_.measure;
    const int rounds = m.repetitions * m.processes;
    const double most = runnable_ * rounds * (m.rule.max_time + m.preheat);
    std::string text = fmt::format("{}: {} points, {} of them run {}; the largest needs {} of memory",
                                   sweep_.name, sweep_.points.size(), runnable_,
                                   on_.described ? "on " + on_.described->title : std::string("here"),
                                   report::human_gib(largest_));
    const double samples = std::max(m.rule.min_time, m.rule.min_samples * kSampleSeconds);
    const double likely =
        on_devices_ * rounds * (kPointSeconds + m.preheat + std::min(samples, m.rule.max_time)) +
        kProcessSeconds * m.processes;
    if (on_devices_ > 0) text += fmt::format("; it takes about {:.0f} s", likely);
    return text + fmt::format("{} at most {:.0f} s of measuring", on_devices_ > 0 ? "," : "; it takes", most);
  }

 private:
  const spec::Sweep& sweep_;
  double memory_limit_;
  const DryRunOn& on_;
  int runnable_ = 0, on_devices_ = 0;
  double largest_ = 0;
};

}  // namespace

int dry_run(spec::Sweep sweep, double memory_limit, const DryRunOn& on, cli::Output output) {
  std::ranges::sort(sweep.points, {}, &spec::SweepPoint::position);
  report::Table table{"points",
                      "",
                      {{"backend", "backend"},
                       {"shape", "shape"},
                       {"splits", "splits"},
                       {"threads", "threads"},
                       {"mode", "mode"},
                       {"caches", "caches"},
                       {"input_bytes", "inputs B", 0},
                       {"bytes", "least bytes", 0},
                       {"flops", "flops", 0},
                       {"supported", "runs"},
                       {"reason", "why not"}},
                      {}};
  Look look(sweep, memory_limit, on);
  for (const spec::SweepPoint& point : sweep.points) table.rows.push_back(look.row(point));
  report::Document document;
  document.kind = "bench.dry_run";
  document.headline.push_back(look.summary());
  document.tables.push_back(std::move(table));
  output.fold_constant_columns = true;
  cli::print(document, output);
  return cli::kOk;
}

}  // namespace mla::bench
