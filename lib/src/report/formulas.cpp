// SPDX-License-Identifier: Apache-2.0
#include "report/formulas.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mla/cache.hpp"
#include "mla/dtype.hpp"
#include "mla/shape.hpp"
#include "report/render.hpp"
#include "run/work.hpp"

namespace mla::report {
namespace {

std::string whole(double value) {
  return with_thousands(static_cast<std::int64_t>(value));
}

/// Lines of one record.
class Lines {
 public:
  Lines(const BenchRecord& record, Table& table)
      : r_(record), shape_(parse_shape(record.key)), work_(run::count_work(shape_)), table_(table) {}

  void add() {
    bytes();
    flops();
    if (r_.time_us && r_.floor_us && r_.ceiling_gbps && r_.ceiling_gflops) rates();
  }

 private:
  void line(std::string quantity, std::string arithmetic, std::string value, std::string from) {
    table_.rows.push_back({r_.backend, r_.work.empty() ? r_.key : fmt::format("{} ({})", r_.key, r_.work),
                           std::move(quantity), std::move(arithmetic), std::move(value), std::move(from)});
  }
  [[nodiscard]] bool head_space() const { return shape_.space == QuerySpace::kHead; }
  [[nodiscard]] std::string widths() const { return fmt::format("shape, widths of {}", r_.model); }

  void bytes() {
    const MlaDims& d = shape_.dims;
    const std::size_t q_size = size_of(shape_.q_dtype);
    const double total = r_.bytes.value_or(work_.bytes);
    std::string text = fmt::format(
        "{} rows x {} B + {} tokens x {} heads x ({} x {} + {} x {} + 4) B", with_thousands(work_.rows),
        cache_layout(shape_.cache, d).bytes_per_token(), with_thousands(shape_.num_tokens()), d.num_heads,
        head_space() ? d.head_width() : d.latent_width(), q_size,
        head_space() ? d.v_head_dim : d.kv_lora_rank, size_of(shape_.out_dtype));
    if (head_space())
      text += fmt::format(" + {} heads x {} x ({} + {}) x {} B", d.num_heads, d.kv_lora_rank,
                          d.qk_nope_head_dim, d.v_head_dim, q_size);
    if (total > work_.bytes) text += fmt::format(" + {} B of new rows", whole(total - work_.bytes));
    line("bytes", text, whole(total) + " B", widths());
  }

  void flops() {
    const MlaDims& d = shape_.dims;
    const bool expanded = r_.strategy == "expanded" && head_space();
    std::string text =
        expanded
            ? fmt::format("2 x {} heads x {} pairs x ({} + {} + {})", d.num_heads,
                          with_thousands(work_.pairs), d.qk_nope_head_dim, d.qk_rope_head_dim, d.v_head_dim)
            : fmt::format("2 x {} heads x {} pairs x (2 x {} + {})", d.num_heads, with_thousands(work_.pairs),
                          d.kv_lora_rank, d.qk_rope_head_dim);
    if (head_space())
      text += fmt::format(
          " + 2 x {} heads x {} x {} x ({} + {})", d.num_heads,
          expanded ? with_thousands(work_.rows) + " rows" : with_thousands(shape_.num_tokens()) + " tokens",
          d.kv_lora_rank, d.qk_nope_head_dim, d.v_head_dim);
    line("flops", text, whole(work_.flops_of(r_.strategy)), widths());
  }

  void rates() {
    const bool modelled = r_.timer == "modelled";
    const double flops = modelled ? work_.flops_of(r_.strategy) : work_.least_flops();
    const double memory = r_.cache_state == "warm" ? 0 : *r_.bytes / *r_.ceiling_gbps / 1e3;
    const double compute = flops / *r_.ceiling_gflops / 1e3;
    const double launch = std::max(0.0, *r_.floor_us - std::max(memory, compute));
    const std::string from = modelled ? fmt::format("nominal peaks of {}", r_.device)
                                      : std::string("ceilings measured in the same run");
    line("floor",
         fmt::format("max({}, {} FLOP / {:.4g} GFLOP/s = {:.4g} us) + {:.3g} us of launch",
                     r_.cache_state == "warm" ? std::string("0, for warm data may come from the caches")
                                              : fmt::format("{} B / {:.4g} GB/s = {:.4g} us",
                                                            whole(*r_.bytes), *r_.ceiling_gbps, memory),
                     whole(flops), *r_.ceiling_gflops, compute, launch),
         fmt::format("{:.4g} us", *r_.floor_us), from);
    if (modelled) return;
    line("of floor", fmt::format("{:.4g} us / {:.4g} us", *r_.floor_us, *r_.time_us),
         fmt::format("{:.3f}", *r_.floor_us / *r_.time_us), fmt::format("median of {} samples", r_.n));
    line("GB/s", fmt::format("{} B / {:.4g} us", whole(*r_.bytes), *r_.time_us),
         fmt::format("{:.4g}", *r_.bytes / *r_.time_us / 1e3), "bytes and time above");
    line("GFLOP/s", fmt::format("{} / {:.4g} us", whole(work_.flops_of(r_.strategy)), *r_.time_us),
         fmt::format("{:.4g}", work_.flops_of(r_.strategy) / *r_.time_us / 1e3), "flops and time above");
  }

  const BenchRecord& r_;
  AttentionShape shape_;
  run::Work work_;
  Table& table_;
};

}  // namespace

Table formulas_table(std::span<const BenchRecord> records) {
  Table table{"formulas",
              "",
              {{"backend", "backend"},
               {"key", "shape"},
               {"quantity", "quantity"},
               {"arithmetic", "arithmetic"},
               {"value", "value"},
               {"from", "from"}},
              {}};
  for (const BenchRecord& record : records) {
    if (record.status != "unsupported") Lines(record, table).add();
  }
  return table;
}

}  // namespace mla::report
