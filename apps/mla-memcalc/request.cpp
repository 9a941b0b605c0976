// SPDX-License-Identifier: Apache-2.0
#include "request.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "core/text.hpp"
#include "idle_flags.hpp"
#include "mla/device.hpp"
#include "mla/error.hpp"
#include "plan/checkpoint.hpp"
#include "plan/drafter.hpp"
#include "plan/format_rules.hpp"
#include "plan/hardware_rules.hpp"
#include "spec/values.hpp"
#include "spec/weight_index.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

constexpr int kMostGpus = 65536;

[[noreturn]] void refuse(const std::string& sentence, const std::string& hint = {}) {
  throw Error(ErrorCode::kInvalidArgument, sentence, hint);
}

std::int64_t count_in(const std::string& text, const char* flag, std::int64_t low, std::int64_t high) {
  constexpr std::int64_t kReadable = 1'000'000;
  const std::string most = high < kReadable ? fmt::format("{}", high) : text::with_thousands(high);
  if (text.starts_with('-'))
    refuse(fmt::format("{} is {}; it must be {} to {}", flag, text::quoted(text), low, most));
  const std::int64_t value = spec::parse_count(text, flag);
  if (value < low || value > high)
    refuse(fmt::format("{} is {}; it must be {} to {}", flag, value, low, most));
  return value;
}

int size_of_flag(const std::string& text, const char* flag, int low = 1) {
  return static_cast<int>(count_in(text, flag, low, kMostGpus));
}

std::optional<std::int64_t> bytes_of(const std::string& text, const char* flag) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  if (text.empty()) return std::nullopt;
  const std::int64_t bytes = spec::parse_size(text, flag);
  if (bytes > kMost) refuse(fmt::format("{} is {}; it must be 0 to 1024TiB", flag, text));
  return bytes;
}

/// "0.9" or "90%".
double share_of(std::string_view text, const char* flag) {
  const bool percent = text.ends_with('%');
  const std::string_view digits = percent ? text.substr(0, text.size() - 1) : text;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = error == std::errc{} && end == digits.data() + digits.size() && std::isfinite(value);
  if (percent) value /= 100;
  if (!whole || !(value > 0) || value > 1) {
    refuse(fmt::format("{} {} is not a share above 0 and at most 1", flag, text::quoted(text)),
           "write it as 0.9 or 90%");
  }
  return value;
}

}  // namespace

capacity::KvFormat cache_format(const RequestOptions& options, const ModelConfig& model,
                                const capacity::EngineRules& engine) {
  const bool fp8_checkpoint = model.quantization_config && model.quantization_config->kv_cache_bits == 8;
  const bool ggml = engine.pools == capacity::PoolKind::kCells;
  std::string name = options.cache;
  const bool fp8 = fp8_checkpoint || capacity::only_fp8_entries(model, engine);
  if (name == "auto") name = ggml ? "f16" : fp8 ? "fp8" : "bf16";
  if (name == "fp8" && model.mla && model.indexer) name = engine.sparse_fp8;
  const capacity::KvFormat format = capacity::find_kv_format(name);
  if (options.cache_v.empty()) return format;
  return capacity::mixed_kv_format(format, capacity::find_kv_format(options.cache_v));
}

capacity::EngineRules engine_rules(const RequestOptions& options) {
  capacity::EngineRules engine = capacity::find_engine(options.engine);
  if (options.swa_full && engine.pools == capacity::PoolKind::kCells)
    engine.window = capacity::WindowRule::kFullLength;
  if (options.mla_storage.empty()) return engine;
  engine.expanded = {};  // the user knows better
  engine.no_latent = {};
  if (options.mla_storage == "latent") {
    engine.mla_storage = capacity::MlaStorage::kLatent;
  } else if (options.mla_storage == "latent+value") {
    engine.mla_storage = capacity::MlaStorage::kLatentAndValue;
  } else if (options.mla_storage == "expanded") {
    engine.mla_storage = capacity::MlaStorage::kExpanded;
  } else {
    refuse(fmt::format("--mla-storage {} is not known", text::quoted(options.mla_storage)),
           "allowed are latent, latent+value and expanded");
  }
  return engine;
}

namespace {

capacity::WeightScheme weight_scheme(const RequestOptions& options, const ModelConfig& model) {
  capacity::WeightScheme scheme =
      options.weights.empty() ? capacity::scheme_of(model)
                              : capacity::uniform_scheme(capacity::find_weight_format(options.weights));
  if (!options.expert_weights.empty()) {
    scheme.experts = capacity::find_weight_format(options.expert_weights);
    scheme.source += fmt::format("; routed experts {}", scheme.experts.name);
  }
  return scheme;
}

constexpr const char* kGiveContext = "give --context, for example --context 32k";

std::string no_context(const ModelConfig& model) {
  return fmt::format(
      "the config of {} has no max_position_embeddings (or null there), so nothing says how long a "
      "sequence may be",
      model.name);
}

/// Why the engine cannot load such weights; empty if it can, or if their size does not matter.
void check_files(Question& question, const RequestOptions& options) {
  const capacity::PlanRequest& request = question.request;
  if (!request.engine.gguf || request.weight_bytes || !request.cache_bytes.empty()) return;
  const capacity::WeightScheme& weights = request.weights;
  for (const auto* format : {&weights.dense, &weights.experts, &weights.shared, &weights.attention}) {
    if (format->files != capacity::WeightFiles::kSafetensors) continue;
    const bool asked = !options.weights.empty() || !options.expert_weights.empty();
    question.why_not =
        asked ? fmt::format("{} has no weight format {}: it loads GGUF files", request.engine.name,
                            format->name)
              : fmt::format(
                    "the checkpoint of {} stores {} weights, which {} does not load: it takes GGUF files",
                    question.model.name, format->name, request.engine.name);
    question.why_not_hint =
        "say what the GGUF file holds: --weights bf16, q8_0, q6_k, q4_k_m, ... ('mla-memcalc "
        "list formats'), or its size on a GPU: --weight-bytes";
    return;
  }
}

void add_draft_layers(ModelConfig& model, const RequestOptions& options) {
  constexpr int kMost = 64;
  if (options.draft_layers.empty()) return;
  const auto layers = static_cast<int>(count_in(options.draft_layers, "--draft-layers", 1, kMost));
  if (!options.mtp) capacity::drop_prediction_layers(model);
  capacity::add_drafter(model, layers);
}

capacity::StateBlocks state_blocks(const std::string& word) {
  if (word == "one") return capacity::StateBlocks::kOne;
  if (word == "aligned") return capacity::StateBlocks::kAligned;
  if (word == "all") return capacity::StateBlocks::kAll;
  refuse(fmt::format("--state-blocks {} is not known", text::quoted(word)),
         "allowed are one, aligned and all");
}

/// What the flags fix of a layout when the number of GPUs is open. They mean what they mean for a given number: tp
/// or dp alone takes all GPUs of a stage, stages and context ranks come only by their flags; stages alone leave open how
/// the GPUs of one share its work.
void read_space(Question& question, const RequestOptions& options) {
  const capacity::Layout& layout = question.request.layout;
  capacity::LayoutSpace& space = question.space;
  const bool attention = options.attention != "auto";
  space.split_heads = attention || !options.tp.empty() || !options.dcp.empty();
  if (question.layout_given) space.dcp = layout.dcp;
  if (options.attention == "tp") space.dp = 1;
  if (options.attention == "dp") space.tp = 1;
  if (!options.tp.empty()) space.tp = layout.tp;
  if (!options.dp.empty()) space.dp = layout.dp;
  if (attention || layout.pp > 1 || !options.pp.empty()) space.pp = layout.pp;
  if (!options.ep.empty()) space.ep = layout.ep;
  space.stage_layers = layout.stage_layers;
}

void read_layout(Question& question, const RequestOptions& options) {
  capacity::Layout& layout = question.request.layout;
  const bool sizes =
      !options.tp.empty() || !options.dp.empty() || !options.dcp.empty() || !options.ep.empty();
  if (options.attention != "auto" && options.attention != "tp" && options.attention != "dp") {
    refuse(fmt::format("--attention {} is not known", text::quoted(options.attention)),
           "allowed are auto, tp and dp");
  }
  question.layout_given = sizes || options.attention != "auto";
  question.stages_given = !question.layout_given && (!options.pp.empty() || !options.stages.empty());
  question.space.gpus_per_node = question.gpus_per_node;
  if (!question.narrowed()) return;
  if (options.attention != "auto") question.layout_flags.emplace_back("--attention");
  for (const auto& [flag, value] : {std::pair{"--tp", &options.tp},
                                    {"--dp", &options.dp},
                                    {"--pp", &options.pp},
                                    {"--dcp", &options.dcp},
                                    {"--ep", &options.ep},
                                    {"--stages", &options.stages}}) {
    if (!value->empty()) question.layout_flags.emplace_back(flag);
  }
  if (options.attention == "dp" && !options.tp.empty() && size_of_flag(options.tp, "--tp") > 1) {
    refuse(fmt::format("--attention dp keeps whole attention replicas, but --tp {} splits heads", options.tp),
           "leave --attention out: --tp and --dp together say how many of each");
  }
  if (options.attention == "tp" && !options.dp.empty() && size_of_flag(options.dp, "--dp") > 1) {
    refuse(fmt::format("--attention tp splits heads over all GPUs, but --dp {} keeps replicas", options.dp),
           "leave --attention out: --tp and --dp together say how many of each");
  }
  if (!options.pp.empty()) layout.pp = size_of_flag(options.pp, "--pp");
  if (!options.dcp.empty()) layout.dcp = size_of_flag(options.dcp, "--dcp");
  if (!options.stages.empty()) {
    for (const std::int64_t layers : spec::parse_count_list(options.stages, "--stages")) {
      layout.stage_layers.push_back(static_cast<int>(std::min<std::int64_t>(layers, kMostGpus)));
    }
    if (options.pp.empty()) layout.pp = static_cast<int>(layout.stage_layers.size());
  }
  const int replicas_and_heads = std::max(1, question.gpus / layout.pp);
  if (!options.tp.empty()) layout.tp = size_of_flag(options.tp, "--tp");
  if (!options.dp.empty()) layout.dp = size_of_flag(options.dp, "--dp");
  if (options.tp.empty() && options.dp.empty()) {
    const bool spread = options.attention == "dp";
    if (question.request.engine.splits_heads || options.attention != "auto" || !options.dcp.empty())
      (spread ? layout.dp : layout.tp) = replicas_and_heads;
  } else if (options.tp.empty() && options.attention != "dp") {
    layout.tp = std::max(1, replicas_and_heads / layout.dp);
  } else if (options.dp.empty() && options.attention != "tp") {
    layout.dp = std::max(1, replicas_and_heads / layout.tp);
  }
  if (layout.gpus() > kMostGpus) {
    refuse(fmt::format("tp {} x dp {} x pp {} are {}; at most {} are planned for", layout.tp, layout.dp,
                       layout.pp, counted(layout.gpus(), "GPU"), kMostGpus));
  }
  if (options.gpus.empty()) question.gpus = static_cast<int>(layout.gpus());
  const int fixed = (options.tp.empty() ? 1 : layout.tp) * (options.dp.empty() ? 1 : layout.dp) * layout.pp;
  if (question.gpus > fixed && question.gpus % fixed != 0) {
    refuse(fmt::format("--gpus {} cannot be split: the layout given takes them by {} (tp {} x dp {} x pp {})",
                       question.gpus, fixed, options.tp.empty() ? 1 : layout.tp,
                       options.dp.empty() ? 1 : layout.dp, layout.pp),
           "leave --gpus out, or choose sizes that divide it");
  }
  if (layout.gpus() != question.gpus) {
    refuse(fmt::format("tp {} x dp {} x pp {} are {}, but --gpus is {}", layout.tp, layout.dp, layout.pp,
                       counted(layout.gpus(), "GPU"), question.gpus),
           "leave one of them out and it follows from the others");
  }
  if (question.stages_given) {
    validate(capacity::Layout{.pp = layout.pp, .stage_layers = layout.stage_layers}, question.model);
    read_space(question, options);
    layout = {};
    return;
  }
  if (const std::string why = capacity::crossing(layout, question.gpus_per_node); !why.empty()) {
    refuse(why, fmt::format("use --pp or --dp between nodes, or --gpus-per-node {} if such a node is one",
                            layout.tp));
  }
  layout.ep = options.ep.empty() ? capacity::default_expert_ranks(question.model, layout)
                                 : size_of_flag(options.ep, "--ep", 0);
  read_space(question, options);
}

/// "NVIDIA H200 SXM 141 GB" without its memory, which is another.
std::string without_memory(const std::string& title) {
  if (title.empty()) return "GPU";
  const std::size_t digits = title.ends_with(" GB") ? title.rfind(' ', title.size() - 4) : std::string::npos;
  return title.substr(0, digits);
}

void read_hardware(Question& question, const RequestOptions& options) {
  if (!options.gpus.empty()) question.gpus = size_of_flag(options.gpus, "--gpus");
  question.gpus_per_node = size_of_flag(options.gpus_per_node, "--gpus-per-node");
  if (options.gpu.empty() && options.gpu_memory.empty()) {
    refuse("neither --gpu nor --gpu-memory is given",
           "for example --gpu h200; 'mla-memcalc list gpus' names them");
  }
  if (!options.gpu.empty()) {
    const Device device = load_device(options.gpu);
    question.gpu_title = device.title;
    question.request.gpu_name = device.name;
    question.request.gpu_memory_bytes = device.memory_bytes;
    question.request.gpu = {.vendor = device.vendor,
                            .architecture = device.architecture,
                            .fp8 = device.dense_flops.contains("e4m3"),
                            .fp4 = device.dense_flops.contains("e2m1")};
  }
  if (!options.gpu_memory.empty()) {
    question.request.gpu_memory_bytes = *bytes_of(options.gpu_memory, "--gpu-memory");
    if (question.request.gpu_memory_bytes < 1) refuse("--gpu-memory must be more than 0 bytes");
    question.gpu_title =
        fmt::format("{} with {} (--gpu-memory)", without_memory(question.gpu_title), options.gpu_memory);
    question.request.gpu_name =
        fmt::format("{}{}--gpu-memory {}", options.gpu, options.gpu.empty() ? "" : " ", options.gpu_memory);
  }
}

}  // namespace

int rank_count(const std::string& text, const char* flag) {
  return size_of_flag(text, flag);
}

ModelConfig read_model(const std::string& what) {
  return what == "-" ? load_model(what, cli::read_stdin()) : load_model(what);
}

Question read_question(const RequestOptions& options) {
  Question question = read_question(options, read_model(options.model));
  if (!question.why_not.empty()) refuse(question.why_not, question.why_not_hint);
  return question;
}

Question read_question(const RequestOptions& options, ModelConfig model) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
  Question question;
  question.model = std::move(model);
  capacity::PlanRequest& request = question.request;
  request.engine = engine_rules(options);
  read_hardware(question, options);
  read_layout(question, options);
  request.cache = cache_format(options, question.model, request.engine);
  request.weights = weight_scheme(options, question.model);
  if (!options.index.empty()) {
    if (!options.weight_bytes.empty()) {
      refuse("--safetensors-index and --weight-bytes say the same thing twice", "give one of them");
    }
    const capacity::Checkpoint checkpoint = spec::read_checkpoint(options.index);
    request.weight_scales = capacity::weight_scales(question.model, request.weights, checkpoint);
    request.weights.source =
        fmt::format("{} of {}", checkpoint.sizes_known ? "tensors" : "total", options.index);
  }
  request.weight_bytes = bytes_of(options.weight_bytes, "--weight-bytes");
  request.runtime.activations = bytes_of(options.activations, "--activations");
  request.runtime.graphs = bytes_of(options.graphs, "--graphs");
  request.runtime.other = bytes_of(options.other, "--non-torch");
  if (!options.cache_bytes.empty()) {
    for (const std::string& size : spec::parse_words(options.cache_bytes, "--kv-memory")) {
      request.cache_bytes.push_back(spec::parse_size(size, "--kv-memory"));
      if (!request.engine.off_gpu && request.cache_bytes.back() > request.gpu_memory_bytes) {
        refuse(fmt::format("--kv-memory {} is more than the {} of a GPU", size,
                           report::human_gib(static_cast<double>(request.gpu_memory_bytes))),
               "it is what one GPU keeps for the cache, as its engine logs it");
      }
    }
  }
  if (request.engine.off_gpu && request.cache_bytes.empty()) {
    refuse(fmt::format("{} keeps the cache in host memory or on disk, so no GPU says how much there is",
                       request.engine.name),
           "give --kv-memory, the memory it has for each GPU: --kv-memory 64GiB");
  }
  if (!options.block.empty())
    request.block = static_cast<int>(count_in(options.block, "--block", 1, 1 << 20));
  if (!options.utilization.empty()) request.utilization = share_of(options.utilization, "--utilization");
  if (!options.context.empty()) request.context = count_in(options.context, "--context", 1, kMostTokens);
  if (!options.concurrency.empty()) {
    request.concurrency = count_in(options.concurrency, "--concurrency", 1, kMostTokens);
  }
  request.max_batched_tokens = count_in(options.batched_tokens, "--batched-tokens", 1, kMostTokens);
  request.prefill_chunks = static_cast<int>(count_in(options.prefill_chunks, "--prefill-chunks", 1, 16));
  request.max_sequences = count_in(options.max_sequences, "--max-seqs", 1, kMostTokens);
  request.with_mtp = options.mtp || !options.draft_layers.empty();
  add_draft_layers(question.model, options);
  if (!options.speculative.empty()) {
    request.speculative_tokens =
        static_cast<int>(count_in(options.speculative, "--speculative-tokens", 1, 1024));
  }
  request.state_blocks = state_blocks(options.state_blocks);
  request.micro_batch = count_in(options.micro_batch, "--micro-batch", 1, 1 << 20);
  request.window_sequences = count_in(options.window_sequences, "--window-sequences", 1, 1 << 20);
  check_files(question, options);
  if (std::string refusal = capacity::hardware_refusal(question.model, request); !refusal.empty()) {
    question.why_not = std::move(refusal);
    question.why_not_hint = "another --cache; --engine none counts the memory, whatever could run there";
  }
  if (request.context == 0) {
    request.context = question.model.max_position;
    if (request.context == 0) {
      question.why_not = no_context(question.model);
      question.why_not_hint = kGiveContext;
    }
  }
  question.warnings = idle_flags(options, question);
  return question;
}

std::int64_t longest_context(const ModelConfig& model) {
  if (model.max_position < 1) refuse(no_context(model), kGiveContext);
  return model.max_position;
}

std::vector<capacity::Layout> candidate_layouts(const Question& question) {
  if (question.layout_given) return {question.request.layout};
  const std::vector<capacity::Layout> layouts =
      capacity::possible_layouts(question.model, question.request, question.gpus, question.space);
  if (layouts.empty()) {
    refuse(fmt::format("no split of {} into tp, dp, pp and dcp suits {} on {}", counted(question.gpus, "GPU"),
                       question.model.name, question.request.engine.name),
           "try another number of GPUs");
  }
  return layouts;
}

capacity::Layout chosen_layout(const Question& question) {
  if (question.layout_given) return question.request.layout;
  return capacity::best_layout(question.model, question.request, candidate_layouts(question));
}

}  // namespace mla::memcalc
