// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/table.hpp"

/// One measured point of a sweep and the file it lives in: JSON Lines, one object a line, appended as points
/// finish. Schema version 1. A reader refuses a higher version; within one, keys are only added and unknown
/// ones are ignored.
namespace mla::report {

inline constexpr int kRecordSchema = 1;

/// Where and with what a run was made; the first line of a file, repeated when a run is continued.
struct Environment {
  std::string id;  ///< referred to by the records
  std::vector<std::pair<std::string, Cell>> facts;
  friend bool operator==(const Environment&, const Environment&) = default;
};

struct BenchRecord {
  // What was measured: together the identity of the point.
  std::string key;              ///< to_text(AttentionShape)
  std::string backend;          ///< "cpu-absorbed"
  std::string device;           ///< "host", "h200"
  std::string work;             ///< "step": the whole step around the attention; empty: the attention
  std::string cache_state;      ///< "cold", "warm"
  std::string timer;            ///< "wall", "graph", "event" (could not be captured), "modelled"
  std::int64_t num_splits = 0;  ///< forced by the caller; 0: the backend's choice
  std::int64_t threads = 0;
  std::string mode;  ///< "invariant", "prefix-once", "prefix-each" (spec::mode_text); empty: neither
  // How.
  std::string model;     ///< name the widths came from, or "custom"
  std::string strategy;  ///< "absorbed", "expanded"
  std::string origin;    ///< of a backend from outside: "plug-in 0.3 (libx.so)"; else empty
  std::string plan;      ///< Plan::describe()
  std::string spec;      ///< name of the sweep
  std::string command;   ///< measures this point alone again
  std::string env;       ///< Environment::id
  std::string when;      ///< UTC, ISO 8601
  std::int64_t seed = 1;
  std::int64_t repetition = 0;
  std::int64_t repetitions = 1;  ///< that this record stands for (merge_repetitions); not in files
  // Outcome.
  std::string status;                 ///< "ok", "unsupported", "wrong", "error"
  std::string reason;                 ///< why, unless ok
  std::string verified;               ///< "sample", "full", "no"
  std::optional<double> error_share;  ///< of the error budget, by the verified rows
  std::int64_t n = 0;                 ///< samples
  std::int64_t calls_per_sample = 0;
  std::optional<double> time_us, time_low_us, time_high_us, time_min_us, time_p25_us, time_p75_us;
  std::optional<double> noise;  ///< half width of the median's 95 % interval / median
  std::optional<double> plan_us;
  // GPUs only.
  std::optional<double> event_us;                   ///< one call by itself, launched from the host: median
  std::int64_t input_sets = 0;                      ///< rotated through
  std::optional<double> sm_clock_mhz, power_w;      ///< under this load
  std::string slowed_by;                            ///< what held the clock down: "power", "thermal", ...
  std::optional<double> bytes, flops, least_flops;  ///< run::Work
  std::optional<double> gbps, gflops;
  std::optional<double> ceiling_gbps,
      ceiling_gflops;  ///< of this machine, measured in the same run (or nominal: modelled)
  std::optional<double> floor_us, of_floor;  ///< of_floor = floor / time, 1 is the limit of this machine
  std::string bound;                   ///< what the floor is mostly made of: "memory", "compute", "launch"
  std::optional<double> tokens_per_s;  ///< new tokens through this one layer
  std::int64_t workspace_bytes = 0;
  std::vector<std::string> flags;  ///< docs/measurement.md lists them
  std::vector<double> samples_us;  ///< raw, in the order taken

  friend bool operator==(const BenchRecord&, const BenchRecord&) = default;
};

/// The same point in another run: everything of the first block, as one text.
[[nodiscard]] std::string identity(const BenchRecord& record);

/// Single lines, each ending with '\n'. Values that are not finite are left out.
[[nodiscard]] std::string to_json_line(const Environment& environment);
[[nodiscard]] std::string to_json_line(const BenchRecord& record);

struct RunFile {
  std::string path;
  std::vector<Environment> environments;
  std::vector<BenchRecord> records;
  std::vector<std::string> warnings;  ///< e.g. a last line cut off by a crash
};
/// Throws kIo, or kParse naming file and line: malformed JSON (but for an unfinished last line), a wrong
/// type, a newer schema.
[[nodiscard]] RunFile read_run(const std::filesystem::path& file);
[[nodiscard]] RunFile parse_run(std::string_view text, std::string_view origin);

/// What a record was measured at, axis by axis ("backend", "heads", "batch", "kv", "window", ...): columns
/// and their cells.
[[nodiscard]] std::vector<Column> axis_columns();
[[nodiscard]] std::vector<Cell> axis_cells(const BenchRecord& record);
/// Indices of the axis columns worth a person's eye: no forced splits and threads where nobody forced any.
[[nodiscard]] std::vector<std::size_t> telling_axes(std::span<const BenchRecord> records);
/// By the axes of the shape, then the rest, the backend last, so that rivals stand together.
void sort_by_axes(std::vector<BenchRecord>& records);

/// The columns of a result table, one truth for terminal, CSV, Markdown and JSON. `all`: also those only of
/// interest to programs (raw identity, intervals, command).
[[nodiscard]] Table record_table(std::span<const BenchRecord> records, bool all);

}  // namespace mla::report
