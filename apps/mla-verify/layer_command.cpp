// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "commands.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"
#include "view.hpp"

namespace mla::verify_app {
namespace {

namespace fs = std::filesystem;

ModelConfig configuration(const LayerRequest& request, const verify::Checkpoint& checkpoint) {
  if (!request.config.empty()) return load_model(request.config);
  const fs::path beside = checkpoint.path().parent_path() / "config.json";
  if (!fs::exists(beside)) {
    throw Error(ErrorCode::kIo,
                fmt::format("there is no config.json beside {}", text::quoted(checkpoint.path().string())),
                "--config names the model's configuration: a file, or a model that mla-memcalc knows");
  }
  return load_model(beside.string());
}

std::vector<std::string> choose_blocks(const verify::Checkpoint& checkpoint, const LayerRequest& request) {
  std::vector<std::string> blocks = verify::find_blocks(checkpoint, request.layer);
  if (!request.block) return blocks;
  if (*request.block >= static_cast<int>(blocks.size())) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--block is {}, but layer {} has {} attention block{}", *request.block,
                            request.layer, blocks.size(), blocks.size() == 1 ? "" : "s"));
  }
  return {blocks[static_cast<std::size_t>(*request.block)]};
}

verify::LayerInput make_input(const LayerRequest& request, const verify::LoadedLayer& layer) {
  if (request.hidden == "random") {
    return verify::random_input(layer.config.hidden_size, request.tokens, request.start, request.seed);
  }
  return verify::read_input(request.hidden, layer.config.hidden_size, request.start);
}

/// FILE of the only block; FILE with the block's number before its extension where there are two.
fs::path save_path(const fs::path& file, std::size_t block, std::size_t blocks) {
  if (blocks == 1) return file;
  return file.parent_path() / fmt::format("{}.{}{}", file.stem().string(), block, file.extension().string());
}

}  // namespace

int layer(const LayerRequest& request) {
  const verify::Checkpoint checkpoint(request.weights);
  const ModelConfig model = configuration(request, checkpoint);
  const std::vector<std::string> blocks = choose_blocks(checkpoint, request);
  const verify::Participants participants = verify::choose_participants(request.backends);
  verify::LayerOptions options;
  options.rule = request.rule;
  options.f32_angles = request.f32_angles;
  options.formats = request.caches;
  LayerReport report{request.layer, model, request.hidden, {}, {}};
  bool passed = true;
  {
    report::Progress progress("layer", static_cast<std::int64_t>(blocks.size()), !request.output.quiet);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (cli::interrupted()) return cli::kInterrupted;
      progress.step(blocks[b]);
      verify::LoadedLayer loaded =
          verify::load_block(checkpoint, blocks[b], model, request.norm_eps.value_or(model.rms_norm_eps));
      const verify::LayerInput input = make_input(request, loaded);
      verify::LayerResult result = verify::check_layer(loaded, model, input, options, participants.ready);
      if (!request.save.empty()) {
        verify::save_step(save_path(request.save, b, blocks.size()), loaded, result.step);
      }
      passed = passed && result.passed();
      loaded.weights = {};  // gigabytes, no longer needed
      report.layers.push_back(std::move(loaded));
      report.results.push_back(std::move(result));
    }
  }
  cli::print(layer_document(report), request.output);
  return passed ? cli::kOk : cli::kCheckFailed;
}

}  // namespace mla::verify_app
