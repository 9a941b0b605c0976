// SPDX-License-Identifier: Apache-2.0
#include "fuzz.hpp"
#include "mla/model.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return mla::fuzz::try_text(data, size, [](std::string_view text) {
    const mla::ModelConfig model = mla::parse_model(text, "input");
    // What every reader of a model relies on.
    mla::fuzz::require(model.num_layers >= 1 && model.hidden_size >= 1 && model.num_heads >= 1);
    mla::fuzz::require(model.ffn.size() == static_cast<std::size_t>(model.num_layers + model.num_mtp_layers));
    mla::fuzz::require(model.mla.has_value() == (model.count(mla::AttentionKind::kMla, true) > 0));
    mla::fuzz::require(model.compressed.has_value() ==
                       (model.count(mla::AttentionKind::kCompressed, true) > 0));
    for (const mla::LayerCache& layer : model.layers) {
      const bool heads = layer.kind == mla::AttentionKind::kMha || layer.kind == mla::AttentionKind::kGqa ||
                         layer.kind == mla::AttentionKind::kMqa;
      mla::fuzz::require(!heads ||
                         (layer.kv_heads >= 1 && layer.kv_heads <= layer.q_heads && layer.head_dim_k >= 1));
      mla::fuzz::require(layer.kind != mla::AttentionKind::kRecurrent || layer.state_bytes > 0);
      mla::fuzz::require(layer.window >= 0 && layer.state_bytes >= 0);
    }
    // What was taken for MLA never ends as anything else.
    for (const mla::FieldNote& note : model.notes) {
      mla::fuzz::require(note.field != "attention family" || note.value != "MLA" || model.mla.has_value());
    }
    mla::fuzz::require(!mla::is_mla(model).reason.empty() && !mla::is_sparse(model).reason.empty());
    if (model.quantization_config)
      static_cast<void>(model.quantization_config->covers("model.layers.0.mlp.down_proj"));
  });
}
