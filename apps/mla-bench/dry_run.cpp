// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "commands.hpp"
#include "mla/backend.hpp"
#include "mla/device.hpp"
#include "run/backends.hpp"
#include "run/device_inputs.hpp"
#include "run/point.hpp"
#include "run/work.hpp"
#include "sweep_view.hpp"

namespace mla::bench {

int dry_run(const spec::Sweep& sweep, double memory_limit, const std::optional<Device>& gpu,
            cli::Output output) {
  report::Table table{"points",
                      "",
                      {{"backend", "backend"},
                       {"shape", "shape"},
                       {"splits", "splits"},
                       {"threads", "threads"},
                       {"caches", "caches"},
                       {"input_bytes", "inputs B", 0},
                       {"bytes", "least bytes", 0},
                       {"flops", "flops", 0},
                       {"supported", "runs"},
                       {"reason", "why not"}},
                      {}};
  std::size_t runnable = 0;
  double largest = 0;
  for (const spec::SweepPoint& point : sweep.points) {
    const Backend& backend = run::backend_named(point.backend);
    const run::Work work = run::count_work(point.shape);
    const bool on_device = backend.info().on_device;
    const double bytes = on_device ? run::set_bytes(point.shape) : run::estimated_bytes(point.shape);
    Support support = run::supports_here(backend, point, gpu ? &*gpu : nullptr);
    if (support && on_device && bytes > static_cast<double>(gpu->memory_bytes)) {
      support = Support::no(fmt::format("its inputs need about {} of GPU memory", report::human_gib(bytes)));
    }
    if (support && !on_device && bytes > memory_limit) {
      support = Support::no(fmt::format("its inputs need about {} of memory, {} are allowed",
                                        report::human_gib(bytes), report::human_gib(memory_limit)));
    }
    runnable += support ? 1 : 0;
    if (support) largest = std::max(largest, bytes);
    table.rows.push_back({point.backend, to_text(point.shape), std::int64_t{point.options.num_splits},
                          std::int64_t{point.options.threads}, std::string(spec::name_of(point.caches)),
                          bytes, work.bytes, work.flops_of(backend.info().strategy), support.ok,
                          support.ok ? report::Cell{} : report::Cell{support.why}});
  }
  report::Document document;
  document.kind = "bench.dry_run";
  document.headline.push_back(fmt::format(
      "{}: {} points, {} of them run here, at most {:.0f} s of measuring; the largest needs {} of memory",
      sweep.name, table.rows.size(), runnable,
      static_cast<double>(runnable) * sweep.measure.repetitions * sweep.measure.rule.max_time,
      report::human_gib(largest)));
  document.tables.push_back(std::move(table));
  output.fold_constant_columns = true;
  cli::print(document, output);
  return cli::kOk;
}

}  // namespace mla::bench
