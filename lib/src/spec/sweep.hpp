// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/backend.hpp"
#include "mla/shape.hpp"
#include "run/sampler.hpp"

/// Sweeps: what to measure and how, as text from a JSON file and flags, then as typed points.
/// One table of keys (sweep_keys) is the truth for the flags of mla-bench, the keys of a file, --print-spec and `list axes`.
namespace mla::spec {

/// Where a key stands in a file: "axes" are crossed with one another, "measure" holds one value each.
enum class Section : std::uint8_t { kAxes, kMeasure };

struct SweepKey {
  std::string_view name;  ///< "block_size" in a file, --block-size as a flag
  Section section;
  std::string_view type;      ///< for help: "COUNTS", "WORDS"
  std::string_view fallback;  ///< value if nobody says anything; empty: not set
  std::string_view what;      ///< one sentence
  bool in_shape;              ///< part of the attention shape
};
[[nodiscard]] std::span<const SweepKey> sweep_keys();

/// Who said it; a later level replaces an earlier one.
enum class Level : std::uint8_t { kDefault, kFile, kFlag };

struct Setting {
  std::string text;
  Level level = Level::kDefault;
  std::string origin;  ///< "default", "smoke.json", "--window"
};

/// A sweep as text: complete (every key is there, unset ones empty), not yet checked beyond its keys.
struct SweepSpec {
  std::string name = "custom";
  std::string question;  ///< what the sweep answers, for people
  std::map<std::string, Setting, std::less<>> settings;
};

/// All keys at their defaults.
[[nodiscard]] SweepSpec default_spec();

/// Reads {"name", "question", "axes": {...}, "measure": {...}}; comments allowed; values are numbers, texts in the grammar
/// of the flags, or lists of both. Throws kParse for malformed JSON (with line), wrong types, unknown keys (with a
/// suggestion) and keys given twice.
[[nodiscard]] SweepSpec parse_spec(std::string_view json_text, std::string_view origin);

/// `what`: a name found in <config dir>/sweeps, a path, or "-" for `stdin_text`.
[[nodiscard]] SweepSpec load_spec(std::string_view what, std::string_view stdin_text = {});
/// All of <config dir>/sweeps, by name.
struct SpecEntry {
  std::string name, question;
  std::filesystem::path path;
};
[[nodiscard]] std::vector<SpecEntry> list_specs();

/// Replaces one value unless it was said at a higher level.
void override_setting(SweepSpec& spec, std::string_view key, std::string_view text, Level level,
                      std::string_view origin);

/// Whether a key takes part. Of alternatives (shape | every other axis of the shape; model | dims; heads | tp;
/// batch | requests q_len kv) those said at the higher level count.
[[nodiscard]] bool is_active(const SweepSpec& spec, std::string_view key);
/// Throws kInvalidArgument naming both sides if alternatives were said at the same level.
void check_alternatives(const SweepSpec& spec);

/// JSON with a comment behind each value that says where it came from; parse_spec reads it back.
[[nodiscard]] std::string print_spec(const SweepSpec& spec);

enum class Caches : std::uint8_t { kCold, kWarm };
[[nodiscard]] std::string_view name_of(Caches caches) noexcept;

enum class VerifyMode : std::uint8_t { kSample, kFull, kNo };
[[nodiscard]] std::string_view name_of(VerifyMode mode) noexcept;

/// One thing to measure.
struct SweepPoint {
  AttentionShape shape;
  std::string backend;
  std::string model;  ///< where the widths came from, or "custom"
  PlanOptions options;
  Caches caches = Caches::kCold;
  bool step = false;         ///< the whole step around the attention; then the shape is in head space
  std::size_t position = 0;  ///< in the order of the axes, whatever the order of measurement
};

/// How to measure.
struct Measure {
  run::StopRule rule;
  double preheat = 0.1;  ///< GPUs: seconds of the same work before the first sample
  int repetitions = 1;   ///< in each process
  int processes = 1;
  bool random_order = true;
  std::uint64_t seed = 1;
  VerifyMode verify = VerifyMode::kSample;
};

struct Sweep {
  std::string name, question;
  std::vector<SweepPoint> points;  ///< in the order to be run
  Measure measure;
};

/// Crosses the axes, the backend innermost; drops what means the same thing twice (a sink without a window, a window
/// beside an index). `backends`: what "all" stands for. Throws kInvalidArgument naming key, origin and value;
/// more than 100000 points are refused.
[[nodiscard]] Sweep resolve(const SweepSpec& spec, std::span<const std::string> backends);

/// The "measure" half of a spec alone. Throws kInvalidArgument naming key, origin and value.
[[nodiscard]] Measure measure_of(const SweepSpec& spec);

/// "0.5%" -> 0.005. Throws kInvalidArgument unless it is in (0 %, 100 %].
[[nodiscard]] double parse_percent(std::string_view text, std::string_view what);

/// What records say of a plan's options beside splits and threads: "invariant", "prefix-once", "prefix-each", two of them, or nothing.
[[nodiscard]] std::string mode_text(const PlanOptions& options);
/// Sets what mode_text wrote. Throws kParse naming the word.
void read_mode(std::string_view text, PlanOptions& options);

/// The options that make `mla-bench run` measure just this point again.
[[nodiscard]] std::string command_for(const SweepPoint& point, const Measure& measure);

}  // namespace mla::spec
