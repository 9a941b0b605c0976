// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "commands.hpp"
#include "core/text.hpp"
#include "mla/backend.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "mla/model.hpp"
#include "mla/plugin_host.hpp"
#include "mla/selector.hpp"
#include "run/host.hpp"
#include "run/threads.hpp"
#include "session.hpp"
#include "spec/sweep.hpp"

namespace mla::bench {
namespace {

using report::Cell;
using report::Table;

/// The GPU that device backends are asked about: one of this machine by number, a described one by name, or
/// the first there is.
struct ChosenGpu {
  std::optional<Device> device;
  std::string why_none;
};
ChosenGpu choose_gpu(const std::string& text) {
  const bool number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!text.empty() && !number && text != "none") return {load_device(text), {}};
  ChosenGpu chosen{find_gpu(text), {}};
  if (!chosen.device) chosen.why_none = text == "none" ? "none is to be used" : real_devices().why_none;
  return chosen;
}

/// Whether a backend runs on this machine as it is.
Support runs_here(const Backend& backend, const ChosenGpu& gpu) {
  if (!backend.info().on_device) return Support::yes();
  if (!gpu.device) return Support::no("it needs a GPU, and " + gpu.why_none);
  if (gpu.device->origin == DeviceOrigin::kReal) return Support::yes();
  return Support::no(fmt::format("{} is only described", gpu.device->title));
}

/// The shape to answer for: that of --explain, or one decode step of --model.
std::optional<AttentionShape> asked_shape(const ListRequest& request) {
  if (!request.explain && request.model.empty()) return std::nullopt;
  if (!request.shape.empty()) {
    if (!request.model.empty())
      throw Error(ErrorCode::kInvalidArgument, "--explain SHAPE and --model say the same thing twice",
                  "give one");
    AttentionShape shape = parse_shape(request.shape);
    validate(shape);
    return shape;
  }
  spec::SweepSpec spec = spec::default_spec();
  if (!request.model.empty())
    spec::override_setting(spec, "model", request.model, spec::Level::kFlag, "--model");
  const std::vector<std::string> any{"any"};
  return spec::resolve(spec, any).points.front().shape;
}

Device asked_device(const ChosenGpu& gpu) {
  return gpu.device ? *gpu.device : host_device();
}

/// The measured times to choose by; empty where there are none.
Selector measured_times(const ListRequest& request, const ChosenGpu& gpu) {
  return request.selector.empty() ? selector_for(asked_device(gpu)) : load_selector(request.selector);
}

/// What choose_backend says; null if nothing can do the shape.
const Backend* choice(const AttentionShape& shape, const ChosenGpu& gpu, const Selector& times) {
  try {
    return &choose_backend(shape, asked_device(gpu), times);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return nullptr;
  }
}

/// A backend's time at a measured shape, in microseconds.
std::optional<double> time_at(const Selector::Point* point, const Backend& backend) {
  if (point == nullptr) return std::nullopt;
  for (const auto& [name, time] : point->times_us)
    if (name == backend.info().name) return time;
  return std::nullopt;
}

/// All backends; with a shape the better first (candidates()), those for GPUs before those for the processor,
/// each asked about the device it would run on.
std::vector<Candidate> asked_backends(const std::optional<AttentionShape>& shape, const ChosenGpu& gpu) {
  std::vector<Candidate> all;
  if (!shape) {
    for (const Backend* backend : backends()) all.push_back({backend, Support::yes(), {}});
    return all;
  }
  const std::vector<Candidate> on_host = candidates(*shape, host_device());
  for (const Candidate& c : gpu.device ? candidates(*shape, *gpu.device) : on_host) {
    if (!c.backend->info().on_device) continue;
    all.push_back(c);
    if (gpu.device) continue;
    all.back().support = runs_here(*c.backend, gpu);
    all.back().reason = all.back().support.why;
  }
  std::copy_if(on_host.begin(), on_host.end(), std::back_inserter(all),
               [](const Candidate& c) { return !c.backend->info().on_device; });
  return all;
}

Table backends_table(const ListRequest& request) {
  const ChosenGpu gpu = choose_gpu(request.gpu);
  const std::optional<AttentionShape> shape = asked_shape(request);
  if (!shape && !request.selector.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--selector marks what a table chooses for a shape, and no shape is given",
                "name one with --explain SHAPE or --model MODEL");
  }
  Table table{"backends", "", {{"backend", "backend"}, {"strategy", "strategy"}, {"runs_here", "here"}}, {}};
  const Selector times = shape ? measured_times(request, gpu) : Selector();
  const Selector::Point* const nearest = shape ? times.nearest(*shape) : nullptr;
  const Backend* const chosen = shape ? choice(*shape, gpu, times) : nullptr;
  if (shape) {
    table.title =
        fmt::format("{}, on {}", to_text(*shape), gpu.device ? gpu.device->title : "this processor");
    table.columns.push_back({"supported", "shape"});
    table.columns.push_back({"chosen", "chosen"});
  }
  if (nearest) {
    table.title += fmt::format("; measured nearest to it: {}", to_text(nearest->shape));
    table.columns.push_back({"measured_us", "us there", 1});
  }
  table.columns.push_back({"reason", shape ? "why" : "why not"});
  table.columns.push_back({"origin", "from"});
  table.columns.push_back({"summary", "idea"});
  for (const Candidate& c : asked_backends(shape, gpu)) {
    const BackendInfo& info = c.backend->info();
    const Support here = runs_here(*c.backend, gpu);
    std::vector<Cell> row{std::string(info.name), std::string(info.strategy), here.ok};
    if (shape) {
      row.emplace_back(c.support.ok);
      row.emplace_back(c.backend == chosen);
    }
    if (nearest) {
      const std::optional<double> time = time_at(nearest, *c.backend);
      row.push_back(time ? Cell{*time} : Cell{});
    }
    const std::string& reason = shape ? c.reason : here.why;
    row.push_back(reason.empty() ? Cell{} : Cell{reason});
    const std::string origin = origin_of(*c.backend);
    row.push_back(origin.empty() ? Cell{} : Cell{origin});
    row.emplace_back(std::string(info.summary));
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// What this machine has: its GPUs by the number --gpu takes, then the processor.
Table devices_table() {
  Table table{"devices",
              "",
              {{"gpu", "--gpu"},
               {"title", "device"},
               {"memory_bytes", "memory B", 0, true},
               {"units", "SMs or threads"},
               {"compute_capability", "capability"},
               {"source", "from"}},
              {}};
  const RealDevices found = real_devices();
  for (const Device& device : found.devices) {
    table.rows.push_back({fmt::format("{}", device.ordinal), device.title, device.memory_bytes,
                          std::int64_t{device.num_sms}, std::int64_t{device.compute_capability},
                          device.source});
  }
  table.rows.push_back({std::string("none"), run::cpu_model(), Cell{}, std::int64_t{run::hardware_threads()},
                        Cell{}, found.devices.empty() ? found.why_none : std::string("this host")});
  return table;
}

Table models_table() {
  Table table{"models",
              "",
              {{"model", "model"},
               {"mla", "MLA"},
               {"heads", "heads"},
               {"kv_lora_rank", "latent"},
               {"qk_rope_head_dim", "rope"},
               {"qk_nope_head_dim", "nope"},
               {"v_head_dim", "value"},
               {"layers", "layers"},
               {"title", "title"},
               {"path", "file"}},
              {}};
  for (const ModelConfig& model : list_models()) {
    std::vector<Cell> row{model.name, model.mla.has_value(), std::int64_t{model.num_heads}};
    if (model.mla) {
      for (const int width : {model.mla->kv_lora_rank, model.mla->qk_rope_head_dim,
                              model.mla->qk_nope_head_dim, model.mla->v_head_dim}) {
        row.emplace_back(std::int64_t{width});
      }
    } else {
      row.resize(row.size() + 4);
    }
    row.emplace_back(std::int64_t{model.num_layers});
    row.emplace_back(model.title);
    row.emplace_back(model.path);
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table gpus_table() {
  Table table{"gpus",
              "",
              {{"gpu", "gpu"},
               {"memory_gb", "GB", 0},
               {"bandwidth_tbps", "TB/s", 2},
               {"bf16_tflops", "bf16 TFLOP/s", 0},
               {"title", "title"},
               {"path", "file"}},
              {}};
  for (const Device& gpu : list_devices()) {
    const auto bf16 = gpu.dense_flops.find("bf16");
    table.rows.push_back({gpu.name, static_cast<double>(gpu.memory_bytes) / 1e9, gpu.memory_bandwidth / 1e12,
                          bf16 == gpu.dense_flops.end() ? Cell{} : Cell{bf16->second / 1e12}, gpu.title,
                          gpu.path});
  }
  return table;
}

Table specs_table() {
  Table table{"specs", "", {{"spec", "spec"}, {"question", "question it answers"}, {"path", "file"}}, {}};
  for (const spec::SpecEntry& entry : spec::list_specs()) {
    table.rows.push_back({entry.name, entry.question, entry.path.string()});
  }
  return table;
}

Table axes_table() {
  Table table{
      "axes",
      "",
      {{"key", "key"}, {"section", "section"}, {"type", "values"}, {"default", "default"}, {"what", "what"}},
      {}};
  for (const spec::SweepKey& key : spec::sweep_keys()) {
    table.rows.push_back({std::string(key.name), key.section == spec::Section::kAxes ? "axes" : "measure",
                          std::string(key.type),
                          key.fallback.empty() ? Cell{} : Cell{std::string(key.fallback)},
                          std::string(key.what)});
  }
  return table;
}

Table table_of(const ListRequest& request) {
  if (request.what == "backends") return backends_table(request);
  for (const auto& [given, name] : {std::pair{request.explain, "--explain"},
                                    {!request.model.empty(), "--model"},
                                    {!request.selector.empty(), "--selector"},
                                    {!request.gpu.empty(), "--gpu"}}) {
    if (given)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} is about backends, not {}", name, request.what));
  }
  if (request.what == "devices") return devices_table();
  if (request.what == "models") return models_table();
  if (request.what == "gpus") return gpus_table();
  if (request.what == "specs") return specs_table();
  if (request.what == "axes") return axes_table();
  const std::vector<std::string> known{"backends", "devices", "models", "gpus", "specs", "axes"};
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no list of {}", text::quoted(request.what)),
              text::suggestion(request.what, known));
}

}  // namespace

int answer(const ListRequest& request) {
  report::Document document;
  document.kind = "bench.list." + request.what;
  document.tables.push_back(table_of(request));
  if (!request.names) {
    cli::print(document, request.output);
    return cli::kOk;
  }
  std::string names;
  for (const auto& row : document.tables.front().rows) names += std::get<std::string>(row.front()) + '\n';
  cli::write_stdout(names);
  return cli::kOk;
}

}  // namespace mla::bench
