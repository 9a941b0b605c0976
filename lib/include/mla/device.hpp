// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mla/export.h"

namespace mla {

/// Where a Device description comes from. Numbers of a described device are never mistaken for measurements.
enum class DeviceOrigin : std::uint8_t { kHost, kReal, kDescribed };

/// A machine that runs attention: this host's CPU, a real GPU (ordinal) or one described by
/// configs/gpus/*.json.
struct Device {
  std::string name;          ///< "h200", "host", or the driver's name for a real GPU
  std::string title;         ///< "NVIDIA H200 SXM 141 GB"
  std::string vendor;        ///< "nvidia", "amd", "intel", "cpu"
  std::string architecture;  ///< "hopper", "cdna3", ...
  DeviceOrigin origin = DeviceOrigin::kDescribed;
  int ordinal = -1;            ///< real GPUs only
  int compute_capability = 0;  ///< CUDA: 80, 90, 100, ...; 0 elsewhere
  std::int64_t memory_bytes =
      0;  ///< as the driver reports it to an application, or the nominal size if unknown
  double memory_bandwidth = 0;  ///< bytes / s, nominal; 0 for the host
  std::map<std::string, double>
      dense_flops;  ///< by dtype name ("bf16", "f16", "e4m3", "e2m1", "i8", "f32", "tf32"): FLOP/s, dense
  std::int64_t l2_bytes = 0;                 ///< the host: its last-level cache
  int num_sms = 0;                           ///< AMD: compute units; the host: hardware threads
  std::int64_t shared_memory_per_block = 0;  ///< opt-in maximum, bytes; 0 if unknown
  std::string source;                        ///< where the numbers come from
  std::string checked;                       ///< date, yyyy-mm-dd
  std::string path;                          ///< the file it was read from, or empty
  std::vector<std::string> aliases;          ///< other names load_device takes
  std::string note;                          ///< what the file's author wants the user to know, or empty
};

/// The machine this runs on, CPU side: one Device with vendor "cpu".
[[nodiscard]] MLA_EXPORT Device host_device();

/// The GPUs of this machine that a runtime of this build can see; `why_none` says why if there are none.
struct RealDevices {
  std::vector<Device> devices;
  std::string why_none;
};
[[nodiscard]] MLA_EXPORT RealDevices real_devices();

/// Reads one GPU description (JSON text with unknown keys refused). Throws kParse / kInvalidArgument naming
/// the key.
[[nodiscard]] MLA_EXPORT Device parse_device(std::string_view json_text, std::string_view origin);

/// `what` is a name or alias found in <config dir>/gpus, or a path to a file. Throws with a did-you-mean
/// hint.
[[nodiscard]] MLA_EXPORT Device load_device(std::string_view what);

/// All described GPUs, by name.
[[nodiscard]] MLA_EXPORT std::vector<Device> list_devices();

/// The folders there are among: set_config_dir, $MLA_CONFIG_DIR, $XDG_CONFIG_HOME/mla, <folder of the
/// executable>/../share/mla, the source tree's configs/ of the build. For each file the first folder that has
/// it counts. Throws kIo if $MLA_CONFIG_DIR is set to what is no folder.
[[nodiscard]] MLA_EXPORT std::vector<std::filesystem::path> config_dirs();
/// Throws kIo unless `dir` is a folder; empty takes an earlier choice back.
MLA_EXPORT void set_config_dir(std::filesystem::path dir);

}  // namespace mla
