// SPDX-License-Identifier: Apache-2.0
// Which GPUs have kernels for a format. Memory is counted all the same; whoever answers people refuses what no kernel reads.
#include "plan/hardware_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "plan/plan_request.hpp"

namespace mla::capacity {
namespace {

using Cautions = std::vector<std::string>;

bool nvidia(const GpuTraits& gpu) {
  return gpu.vendor == "nvidia";
}

/// For which cache format no kernel of the engine runs there.
std::string refused_format(const ModelConfig& model, const PlanRequest& request) {
  const GpuTraits& gpu = request.gpu;
  const std::string_view name = request.cache.name;
  const bool latent = caches_latent(model, request.engine);
  if (name.starts_with("nvfp4") && !(gpu.fp4 && nvidia(gpu))) {
    return fmt::format(
        "cache format {} on {}: only NVIDIA's Blackwell reads it ({} has no kernel for it), so "
        "{} would not start",
        name, request.gpu_name, gpu.architecture, request.engine.name);
  }
  constexpr std::array<std::string_view, 2> kSparse{"hopper", "blackwell"};
  if (name == "fp8_ds_mla" && latent && std::ranges::find(kSparse, gpu.architecture) == kSparse.end()) {
    return fmt::format(
        "cache format fp8_ds_mla on {}: its rows are read by sparse kernels for Hopper and "
        "data-centre Blackwell alone, not on {}",
        request.gpu_name, gpu.architecture);
  }
  if (name.starts_with("fp8") && !gpu.fp8 && latent) {
    return fmt::format(
        "cache format {} on {}: {} does not multiply fp8, and no MLA kernel converts it as it is read, so {} "
        "would not start",
        name, request.gpu_name, gpu.architecture, request.engine.name);
  }
  return {};
}

void cache_format(Cautions& out, const ModelConfig& model, const PlanRequest& request) {
  const GpuTraits& gpu = request.gpu;
  if (std::string refusal = refused_format(model, request); !refusal.empty()) {
    out.push_back(std::move(refusal));
  } else if (request.cache.name.starts_with("fp8") && !gpu.fp8) {
    out.push_back(
        fmt::format("cache format {} on {}: {} does not multiply fp8, so K and V are stored as e5m2 and "
                    "converted as they are read, where the engine takes it at all",
                    request.cache.name, request.gpu_name, gpu.architecture));
  }
}

void weight_format(Cautions& out, const PlanRequest& request) {
  const GpuTraits& gpu = request.gpu;
  if (request.weight_bytes) return;
  const WeightScheme& weights = request.weights;
  for (const WeightFormat* format : {&weights.experts, &weights.dense, &weights.attention, &weights.shared}) {
    const bool fp4 = format->name == "nvfp4";
    const bool fp8 = format->name.starts_with("fp8");
    if ((!fp4 || (gpu.fp4 && nvidia(gpu))) && (!fp8 || gpu.fp8)) continue;
    out.push_back(fmt::format(
        "weights: {} on {}: {} does not multiply {}, {}", format->name, request.gpu_name, gpu.architecture,
        fp4 ? "nvfp4" : "fp8",
        nvidia(gpu)
            ? "so kernels unpack the weights to 16 bits as they multiply: memory as counted, prefill slower"
            : "and no kernel for them is known there"));
    return;
  }
}

void small_blocks(Cautions& out, const ModelConfig& model, const PlanRequest& request) {
  constexpr int kLeast = 16;
  const int block = request.block;
  if (request.engine.name != "vllm" || block == 0 || block >= kLeast) return;
  const bool aiter = block == 1 && caches_latent(model, request.engine);
  if (aiter && request.gpu.vendor == "amd") return;
  out.push_back(
      fmt::format("block size {}: vllm's flag takes it, but its attention kernels want multiples of 16{}, "
                  "and it ends when the "
                  "cache is made (vllm#42510)",
                  block, aiter ? " everywhere but in AITER's MLA kernels on AMD" : ""));
}

/// Whether a GPU and an engine that runs on it are known.
bool known(const PlanRequest& request) {
  return !request.gpu.vendor.empty() && !request.engine.gguf;
}

}  // namespace

std::string hardware_refusal(const ModelConfig& model, const PlanRequest& request) {
  if (!known(request) || request.engine.off_gpu || request.engine.name == "none") return {};
  return refused_format(model, completed(model, request));
}

std::vector<std::string> hardware_cautions(const ModelConfig& model, const PlanRequest& request) {
  Cautions out;
  small_blocks(out, model, request);
  if (!known(request)) return out;
  if (!request.engine.off_gpu && request.engine.name != "none") cache_format(out, model, request);
  weight_format(out, request);
  return out;
}

}  // namespace mla::capacity
