// SPDX-License-Identifier: Apache-2.0
#include "plan/refused_cuts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

class Cuts {
 public:
  void check(const WeightFormat& format, std::int64_t width, std::int64_t shards, const char* what,
             const char* hint) {
    if (shards <= 1 || width == 0) return;
    if (width % shards != 0) {
      refused_.push_back(fmt::format("{} of {} cannot be cut into {} equal parts: engines refuse this{}",
                                     what, num(width), shards, hint));
      return;
    }
    // Kernels for mxfp4 pad the parts of experts to whole blocks.
    const int block = format.name == "mxfp4" ? 1 : std::max(format.block_rows, format.block_cols);
    if (format.scale_bits == 0 || block <= 1 || width / shards % block == 0) return;
    refused_.push_back(
        fmt::format("{} of {} cut into {} parts are {} wide, no multiple of the {} weights that share a {} "
                    "scale: engines refuse this{}",
                    what, num(width), shards, num(width / shards), block, format.name, hint));
  }
  std::vector<std::string> take() { return std::move(refused_); }

 private:
  std::vector<std::string> refused_;
};

}  // namespace

std::vector<std::string> refused_cuts(const ModelConfig& model, const PlanRequest& request,
                                      const Layout& layout) {
  Cuts cuts;
  if (request.engine.gguf) return {};  // llama.cpp cuts rows where it likes
  if (model.moe) {
    cuts.check(request.weights.experts, model.moe->moe_intermediate_size,
               std::int64_t{layout.tp} * layout.dp / std::max(1, layout.ep), "routed experts",
               "; ep keeps experts whole");
    cuts.check(request.weights.shared, model.moe->shared_intermediate_size, layout.tp, "shared experts", "");
  }
  const auto dense = std::ranges::find_if(model.ffn, [](const LayerFfn& ffn) { return ffn.dense_count > 0; });
  if (dense != model.ffn.end())
    cuts.check(request.weights.dense, dense->dense_intermediate_size, layout.tp, "dense FFNs", "");
  return cuts.take();
}

}  // namespace mla::capacity
