// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mla/cache.hpp"
#include "mla/export.h"
#include "mla/model.hpp"

/// Capacity planning: how many bytes a model's weights and cache take on each rank of a layout, under the
/// rules of a serving engine, and so what fits. Value types and pure functions; nothing here reads a file or
/// a GPU. All bytes are exact integers; a product that leaves 64 bits is an error, never a wrong number.
namespace mla::capacity {

// ---- numbers that explain themselves ----------------------------------------------------------------------

enum class Unit : std::uint8_t { kBytes, kTokens, kSequences, kBlocks, kCount, kRatio };
using Number = std::variant<std::int64_t, double>;

/// One number with its arithmetic and with where its constants come from.
struct Line {
  std::string key{};    ///< machine name: "cache.bytes_per_token"
  std::string title{};  ///< "cache, one token"
  Unit unit = Unit::kBytes;
  Number value{};
  std::string formula{};  ///< "61 layers x 1,152 B"
  std::string source{};   ///< "model deepseek-v3; row layout bf16"
};

// ---- how cache elements are stored ------------------------------------------------------------------------

/// `bytes` bytes hold `elements` consecutive elements: bf16 2/1, q8_0 34/32, nvfp4 9/16.
struct ElementFormat {
  std::string_view name{};
  int bytes = 2;
  int elements = 1;
  friend constexpr bool operator==(const ElementFormat&, const ElementFormat&) = default;
};

/// How the [c_kv | k_pe] row of an MLA layer is laid out.
enum class MlaRow : std::uint8_t {
  kLayout,      ///< cache_layout(row_format): the rows our kernels read
  kElements,    ///< L + R elements of the K format, as ggml stores it
  kNvfp4DsMla,  ///< L/2 + L/16 + 16 + 2R: packed fp4, one e4m3 scale per 16, padding, bf16 rope (432 B for
                ///< 512 + 64)
};

/// A cache dtype as users name it: bf16, f16, fp8, fp8_ds_mla, nvfp4, nvfp4_ds_mla, fp8_per_token_head, q8_0,
/// ...
struct KvFormat {
  std::string_view name{};
  std::string_view title{};
  ElementFormat k, v;
  MlaRow mla_row = MlaRow::kElements;
  CacheFormat row_format = CacheFormat::kBF16;  ///< kLayout only
  int scale_bytes_per_head = 0;                 ///< K and V each, per token and KV head
  bool mla_only = false;                        ///< no layout for ordinary K/V heads
};
[[nodiscard]] MLA_EXPORT std::span<const KvFormat> all_kv_formats() noexcept;
/// Throws kInvalidArgument with a did-you-mean hint. Takes fp16/float16/bfloat16/auto
/// (bf16)/fp8_e4m3/fp8_e5m2 too.
[[nodiscard]] MLA_EXPORT KvFormat find_kv_format(std::string_view name);
/// K stored as `k`, V as `v` (llama.cpp's --cache-type-k and -v).
[[nodiscard]] MLA_EXPORT KvFormat mixed_kv_format(const KvFormat& k, const KvFormat& v);

// ---- what engines do, as data -----------------------------------------------------------------------------

/// What the engine calls "tokens" in its log.
enum class TokenCount : std::uint8_t {
  kBlocks,       ///< blocks // groups x smallest block (x dcp)
  kConcurrency,  ///< int(max concurrency x max model length)
};
enum class PoolKind : std::uint8_t {
  kSharedBlocks,  ///< one pool of equal blocks; layer groups draw from it (vLLM)
  kPoolPerKind,   ///< full-length, window and state layers have pools of their own (SGLang, TensorRT-LLM)
  kCells,         ///< a fixed context of cells is allocated whatever the requests are (llama.cpp)
};
/// What an MLA layer keeps for a token.
enum class MlaStorage : std::uint8_t {
  kLatent,          ///< L + R elements, V is the first L of them: nothing more
  kLatentAndValue,  ///< and L elements again as V (old llama.cpp; ik_llama.cpp -mla 1: a transposed copy)
  kExpanded,  ///< H heads of K (P + R) and V, as if it were MHA (ik_llama.cpp -mla 0, vLLM with MLA disabled)
};
enum class Budget : std::uint8_t {
  kShareOfTotal,  ///< utilization x total - weights - runtime
  kShareOfFree,   ///< utilization x (total - weights - runtime)
};

/// How many tokens of a sequence a window layer holds.
enum class WindowRule : std::uint8_t {
  kFullLength,  ///< all of them: the window saves reads, not memory
  kExact,       ///< min(window, length)
  kWithChunk,   ///< min(window - 1 + prefill chunk, length), and a block because it starts anywhere (vLLM)
  kWithBatch,   ///< min(window + micro-batch, length) padded to 256 cells (llama.cpp)
};

/// What an engine keeps of the sparse indexer's keys.
enum class IndexKeys : std::uint8_t {
  kScaled,    ///< e4m3 and one f32 scale per 128: 132 B
  kElements,  ///< plain elements in the format of K (llama.cpp)
  kNone,      ///< none: the model runs with dense attention
};

/// How pools of a kind each share the cache's bytes.
enum class PoolShare : std::uint8_t {
  kTokens,  ///< a window pool gets window_pool_ratio tokens for each of the full one (SGLang)
  kLength,  ///< a pool gets window x bytes of a token of it, full layers the longest sequence (TensorRT-LLM)
};

/// What an engine needs beside weights and cache.
enum class RuntimeRule : std::uint8_t {
  kPrefillStep,  ///< the profiled peak of max_batched_tokens tokens, captured graphs, libraries
  kMicroBatch,  ///< llama.cpp's compute buffer: a graph of n_ubatch tokens with their logits, and a CUDA context
  kNone,        ///< nothing of it lies where the cache lies
};

/// How vLLM's groups of DeepSeek-V4 share blocks: each page size of the compressed layers is a size class.
enum class EntryPages : std::uint8_t {
  kByKind,  ///< no shared blocks
  kTuples,  ///< (one page of every class) x (most layers a class has in a group)
  kPacked,  ///< page of every class x (most layers that class has in a group)
};

/// How a version that was asked for relates to those the rules were checked against.
enum class VersionFit : std::uint8_t {
  kCovered,
  kOlder,  ///< before the oldest rules known: those are used
  kNewer,  ///< after the newest version whose logs were checked
};

/// An MLA class that an engine runs with K and V heads in its cache, whatever it does with the others.
struct ExpandedClass {
  std::string_view model_type{};
  bool pad_v = false;  ///< V is cached as wide as K
  std::string_view why{};
};

/// The rules of one engine from one version on. A fact about an engine is a field, not a branch elsewhere.
struct EngineRules {
  std::string_view name{};   ///< "vllm"
  std::string_view since{};  ///< first version these rules hold for; empty: the oldest known
  std::string_view date{};   ///< month of that version, yyyy-mm
  std::string_view title{};
  PoolKind pools = PoolKind::kSharedBlocks;
  TokenCount token_count = TokenCount::kBlocks;
  MlaStorage mla_storage = MlaStorage::kLatent;
  std::span<const ExpandedClass> expanded{};  ///< classes for which that is kExpanded
  std::string_view no_latent{};  ///< why mla_storage is kExpanded, where it is so for every class
  int expanded_width =
      0;  ///< kExpanded: elements that K and V of a head are padded to; 0: as wide as they are
  bool weights_by_free_memory = false;  ///< logs as weights what loading took of the GPU's free memory
  bool absorbed_copies = false;         ///< a quantised kv_b is kept in 16 bits too, for absorbed decoding
  WindowRule window = WindowRule::kExact;
  Budget budget = Budget::kShareOfTotal;
  double utilization = 0.9;            ///< the engine's default share
  bool runtime_outside_share = false;  ///< activations and graphs live in the rest of the memory (SGLang)
  int block = 16, mla_block = 64;      ///< default tokens a block, ordinary and MLA models
  int block_step = 1;                  ///< block sizes that are no multiple of it are refused
  std::span<const int>
      asked_blocks{};    ///< sizes that a user may ask for, whatever block_step says; empty: any
  int sparse_block = 0;  ///< the only block size top-k sparse MLA kernels take; 0: any
  int block_alignment = 16,
      mla_block_alignment = 64;      ///< steps in which blocks grow to hold a recurrent state
  std::int64_t most_sequences = 0;   ///< that it can run, however many cells it has; 0: as --max-seqs says
  int reserved_blocks = 0;           ///< counted in the pool, never usable (vLLM's null block)
  int spare_blocks = 0;              ///< allocated beyond the pool (SGLang's spare page)
  bool round_blocks_up = false;      ///< TensorRT-LLM: ceil(budget / block bytes)
  double group_padding_limit = 1.0;  ///< largest / smallest layer count below which groups are padded up
  PoolShare pool_share = PoolShare::kTokens;
  double window_pool_ratio = 1.0;  ///< kTokens: tokens of the window pool per token of the full pool
  double state_pool_ratio = 0.0;   ///< kPoolPerKind: bytes of the state pool per byte of the others
  IndexKeys index_keys = IndexKeys::kScaled;
  bool index_on_every_layer = false;  ///< index keys are charged on layers that share another layer's indexer
  bool index_whole_under_dcp = false;   ///< every rank keeps all index keys
  std::string_view sparse_fp8 = "fp8";  ///< what cache format "fp8" means for top-k sparse MLA
  bool k_and_v_logged_apart = false;
  int rope_table_bytes = 2;          ///< bytes an element of the cos/sin table kept with the weights
  bool power_of_two_blocks = false;  ///< other block sizes are refused (TensorRT-LLM)
  EntryPages entry_pages = EntryPages::kByKind;
  bool splits_heads = true;   ///< tp is a usual layout (llama.cpp spreads layers)
  bool replicas = true;       ///< dp inside one engine
  bool expert_ranks = true;   ///< ep
  bool context_ranks = true;  ///< dcp
  bool sparse_models = true;  ///< runs models with a top-k indexer
  bool gguf = false;          ///< weights come from GGUF files, in ggml's formats
  RuntimeRule runtime = RuntimeRule::kPrefillStep;
  bool off_gpu = false;         ///< its cache lies in host memory or on disk: no GPU's memory is its budget
  bool marlin_experts = false;  ///< runs MXFP4 experts in Marlin's kernels, which pad them
  std::span<const std::string_view> cache_formats{};  ///< that it takes; empty: every one
  bool mixed_cache = false;                           ///< K and V may differ in format
  std::string_view source{};
  std::string_view oldest{}, newest{};    ///< versions between which the rules of the engine were checked
  VersionFit fit = VersionFit::kCovered;  ///< set by find_engine
};
[[nodiscard]] MLA_EXPORT std::span<const EngineRules> all_engines() noexcept;
/// "vllm", "vllm@0.11", "sglang", "tensorrt-llm", "llama.cpp", "ik_llama.cpp", "none" (no paging overhead at
/// all). Without a version the newest rules. A version outside the checked ones gives the nearest rules with
/// `fit` saying so; a plan then warns. Throws kInvalidArgument naming what is known.
[[nodiscard]] MLA_EXPORT EngineRules find_engine(std::string_view what);

/// Throws kInvalidArgument, naming the formats that it takes, where the engine does not store this model's cache so.
MLA_EXPORT void validate(const KvFormat& format, const ModelConfig& model, const EngineRules& engine);

/// What an engine keeps for this model's MLA layers.
struct StoredMla {
  MlaStorage storage = MlaStorage::kLatent;
  int head_dim_k = 0, head_dim_v = 0;  ///< kExpanded: as cached
  std::string_view why{};              ///< of an ExpandedClass or EngineRules::no_latent; else empty
};
/// Throws kInvalidArgument for a model without MLA widths.
[[nodiscard]] MLA_EXPORT StoredMla stored_mla(const ModelConfig& model, const EngineRules& engine);
/// Whether any layer's latent rows lie in the cache (a model without MLA: no).
[[nodiscard]] MLA_EXPORT bool caches_latent(const ModelConfig& model, const EngineRules& engine);

// ---- how a model is spread over GPUs ----------------------------------------------------------------------

/// GPUs = tp x dp x pp. The words are the engines': tp splits attention heads, dp keeps whole attention
/// replicas (each with its own requests and cache), pp splits layers.
struct Layout {
  int tp = 1;
  int dp = 1;
  int pp = 1;
  int dcp = 1;  ///< inside tp: each rank keeps 1/dcp of every sequence's tokens
  int ep = 0;   ///< routed experts kept whole on this many of the tp x dp ranks; 0: cut like any matrix over
                ///< all of them
  std::vector<int> stage_layers{};  ///< decoder layers per pipeline stage; empty: even, as vLLM does it
  [[nodiscard]] constexpr std::int64_t gpus() const noexcept { return std::int64_t{tp} * dp * pp; }
  friend bool operator==(const Layout&, const Layout&) = default;
};
/// "TP8", "DP8+EP8", "PP2xTP4", "TP8+DCP8".
[[nodiscard]] MLA_EXPORT std::string to_text(const Layout& layout);
/// Throws kInvalidArgument naming the rule that the layout breaks for this model (heads not divisible by tp,
/// dcp not a divisor of tp, stage sums, ep beyond the ranks or experts, ...).
MLA_EXPORT void validate(const Layout& layout, const ModelConfig& model);
/// And for this engine, which may have no dp, ep or dcp, or keep K and V heads that dcp cannot split.
MLA_EXPORT void validate(const Layout& layout, const ModelConfig& model, const EngineRules& engine);
/// First decoder layer and number of decoder layers of a stage.
struct StageLayers {
  int first = 0, count = 0;
};
[[nodiscard]] MLA_EXPORT std::vector<StageLayers> stage_layers(const Layout& layout,
                                                               const ModelConfig& model);

// ---- bytes of the cache -----------------------------------------------------------------------------------

/// One thing a layer keeps on one rank. A layer of DeepSeek-V3.2 has two (row, index keys), of V4 up to five.
enum class PartKind : std::uint8_t {
  kRow,      ///< MLA's latent row
  kHeads,    ///< K and V heads
  kIndex,    ///< keys of the sparse indexer
  kEntries,  ///< DeepSeek-V4: one compressed entry for several tokens
  kState,    ///< recurrent: a fixed number of bytes a sequence
};
struct CachePart {
  PartKind kind = PartKind::kHeads;
  std::int64_t k_bytes = 0,
               v_bytes = 0;  ///< of one entry; kState: k_bytes a sequence. V lies in a latent row
  int tokens_per_entry = 1;
  std::int64_t window = 0;  ///< tokens kept at most; 0: all
  bool chunked = false;     ///< the window is a chunk: it starts at its multiples, not at every token
  int block = 0;            ///< tokens a page of this part holds where the engine fixes it; 0: the pool's
  int page_alignment = 1;   ///< bytes
  std::string formula{};    ///< of one entry, "(512 + 64) x 2 B"
  [[nodiscard]] constexpr std::int64_t entry_bytes() const noexcept { return k_bytes + v_bytes; }
};
/// Throws kInvalidArgument where the format has no layout for this layer (fp8_ds_mla on ordinary heads, q8_0
/// with a width that is no multiple of 32).
[[nodiscard]] MLA_EXPORT std::vector<CachePart> cache_parts(const ModelConfig& model, const LayerCache& layer,
                                                            const KvFormat& format, const EngineRules& engine,
                                                            int tp = 1);
/// Bytes that `tokens` tokens of one sequence take in one part, without pages.
[[nodiscard]] MLA_EXPORT std::int64_t part_bytes(const CachePart& part, std::int64_t tokens);

/// A model's cache on one rank, pages left aside: a sequence takes growing x tokens + what windows and states
/// hold.
/// Per-token numbers are whole unless several tokens share an entry (DeepSeek-V4).
struct CacheCost {
  double bytes_per_token = 0;  ///< growing, index keys not included
  double k_bytes_per_token = 0, v_bytes_per_token = 0;
  double index_bytes_per_token = 0;   ///< growing
  double window_bytes_per_token = 0;  ///< of window layers while the window fills
  std::int64_t window_bytes = 0;      ///< of window layers once it is full, per sequence
  std::int64_t state_bytes = 0;       ///< per sequence
  int full_layers = 0, window_layers = 0, state_layers = 0, index_layers = 0;
  std::vector<Line> lines;
};
[[nodiscard]] MLA_EXPORT CacheCost cache_cost(const ModelConfig& model, const KvFormat& format,
                                              const EngineRules& engine, int tp = 1, bool with_mtp = false);

/// One layer's cache under each kind of attention a designer could have chosen for the same widths, bf16.
struct AttentionBytes {
  std::int64_t mha = 0;           ///< H x (P + R + V) x 2: what this model would cache without the latent
  std::int64_t mha_textbook = 0;  ///< H x (P + V) x 2: without the rope part of K
  std::int64_t gqa8 = 0;          ///< 8 x (P + V) x 2
  std::int64_t mqa = 0;           ///< 1 x (P + V) x 2
};
/// Of an MLA model's widths, or of an ordinary model's (P + R = head_dim_k). Throws for models with neither.
[[nodiscard]] MLA_EXPORT AttentionBytes attention_bytes(const ModelConfig& model);

/// Window + sink on a layer that holds `length` tokens: what is read, and what is stored, are different
/// questions.
struct WindowSavings {
  std::int64_t tokens_read = 0, tokens_skipped = 0;
  std::int64_t blocks_touched = 0, blocks_total = 0;
  std::int64_t full_cache_tokens = 0;  ///< stored when the sparse index lies over a full cache: no saving
  std::int64_t ring_cache_tokens =
      0;  ///< stored (whole blocks) when the allocator drops what left the window
};
[[nodiscard]] MLA_EXPORT WindowSavings window_savings(std::int64_t length, std::int64_t window,
                                                      std::int64_t sink, int block);

// ---- bytes of the weights ---------------------------------------------------------------------------------

/// Which files hold a weight format.
enum class WeightFiles : std::uint8_t { kAny, kSafetensors, kGguf };

/// How a matrix is stored: `bits` a weight and `scale_bits` (zero points too) for every block of rows x cols.
struct WeightFormat {
  std::string name = "bf16";
  int bits = 16;
  int scale_bits = 0;
  int block_rows = 0, block_cols = 0;  ///< 0: the whole extent
  WeightFiles files = WeightFiles::kAny;
};
[[nodiscard]] MLA_EXPORT std::span<const WeightFormat> all_weight_formats();
/// "bf16", "fp8" (128 x 128 blocks), "fp8_channel", "int4" (AWQ), "mxfp4", "nvfp4", GGUF's "q8_0", "q4_k_m", ...;
/// throws kInvalidArgument.
[[nodiscard]] MLA_EXPORT WeightFormat find_weight_format(std::string_view name);
/// Bytes of a [rows, cols] matrix.
[[nodiscard]] MLA_EXPORT std::int64_t matrix_bytes(const WeightFormat& format, std::int64_t rows,
                                                   std::int64_t cols);

/// Which format each part is stored in. Norms are bf16 always, embeddings and gates unless a file says so.
struct WeightScheme {
  WeightFormat attention, dense, shared, experts, head, router, embedding;
  std::string source = "bf16 everywhere";
  std::vector<std::string>
      doubts{};  ///< sentences: what of the config could not be read, and so counts as bf16
};
/// One format for attention and FFNs; embeddings, head and gates in bf16. A GGUF format covers embeddings and head
/// too, as llama.cpp's quantiser stores them: the head of a K-quant file in q6_k.
[[nodiscard]] MLA_EXPORT WeightScheme uniform_scheme(const WeightFormat& format);
/// From the config's quantization_config and torch_dtype; bf16 where they say nothing.
[[nodiscard]] MLA_EXPORT WeightScheme scheme_of(const ModelConfig& model);

/// What one rank of a pipeline stage holds: lines whose values sum to `bytes`.
struct WeightPlan {
  std::int64_t bytes = 0;
  std::vector<Line> lines;
  std::vector<std::string> gaps;  ///< parts the config does not describe (vision towers), so left out
};
[[nodiscard]] MLA_EXPORT WeightPlan weights_on_rank(const ModelConfig& model, const WeightScheme& scheme,
                                                    const Layout& layout, int stage,
                                                    const EngineRules& engine, bool with_mtp = false);
/// Parameters of the language model.
[[nodiscard]] MLA_EXPORT std::int64_t parameter_count(const ModelConfig& model, bool with_mtp = false);

// ---- pools of blocks --------------------------------------------------------------------------------------

enum class GroupKind : std::uint8_t { kFull, kWindow, kState };
/// Layers that share one block table.
struct CacheGroup {
  GroupKind kind = GroupKind::kFull;
  int layers = 0;                ///< of the stage
  int padding_layers = 0;        ///< of the whole model: dummies that make groups equal
  std::int64_t block_bytes = 0;  ///< what its layers of the stage fill of a block
  std::int64_t block = 0;        ///< tokens a block of this group holds on one rank; kState: a whole sequence
  std::int64_t window = 0;
  bool chunked = false;
};
/// Blocks of one size; a sequence takes some for each group.
struct CachePool {
  std::string name{};  ///< "cache", "full", "window", "state"
  std::int64_t block_bytes =
      0;  ///< one block id: all layers of the stage that it backs. 0: none on this stage
  std::int64_t page_bytes = 0;     ///< one layer's page, where all are equal
  std::int64_t padding_bytes = 0;  ///< of that page, wasted under a recurrent state
  std::int64_t blocks = 0;         ///< in the pool
  std::int64_t usable = 0;         ///< without reserved ones
  std::vector<CacheGroup> groups;
};

// ---- the plan ---------------------------------------------------------------------------------------------

/// How many blocks of a recurrent layer a sequence takes in an engine with shared blocks (vLLM's
/// mamba_cache_mode).
enum class StateBlocks : std::uint8_t {
  kOne,      ///< the state alone: without prefix caching
  kAligned,  ///< and the state at the last block boundary: prefix caching, mode "align"
  kAll,      ///< one at every block boundary: mode "all"
};

/// Memory that is neither weights nor cache. Empty values are estimated by a stated rule.
struct RuntimeMemory {
  std::optional<std::int64_t> activations, graphs, other;
};

/// Weights as a checkpoint really stores them: every line whose key begins with `prefix` is multiplied by
/// real / estimated, both of the whole model. Nothing estimated: `real` bytes more on every rank.
struct WeightScale {
  std::string prefix{};  ///< "weights.attention"
  std::int64_t real = 0, estimated = 0;
  std::string source{};  ///< the file
};

/// What decides whether a GPU has kernels for a format.
struct GpuTraits {
  std::string vendor{}, architecture{};  ///< as in a Device; empty: not known, and nothing is said of it
  bool fp8 = false, fp4 = false;         ///< its matrix units multiply e4m3, e2m1
};

struct PlanRequest {
  std::string gpu_name{};
  std::int64_t gpu_memory_bytes = 0;
  GpuTraits gpu{};
  Layout layout;
  EngineRules engine;
  KvFormat cache;
  WeightScheme weights;
  std::optional<std::int64_t> weight_bytes;  ///< per rank, instead of the estimate
  std::vector<WeightScale> weight_scales{};  ///< the first prefix that fits counts
  std::vector<std::int64_t>
      cache_bytes;               ///< cache budget of a rank, instead of what is left: one, or one a stage
  int block = 0;                 ///< 0: the engine's default for this model
  std::int64_t context = 0;      ///< tokens of one sequence; 0: the model's maximum
  std::int64_t concurrency = 0;  ///< wanted sequences; 0: just say what fits
  std::optional<double> utilization;
  RuntimeMemory runtime;
  std::int64_t max_batched_tokens = 8192;
  int prefill_chunks =
      1;  ///< steps of so many tokens that vLLM's window layers hold: 2 where it schedules ahead
  std::int64_t max_sequences = 256;
  bool with_mtp = false;
  int speculative_tokens = 0;  ///< drafted at a time; 0: one if prediction layers are cached, else none
  StateBlocks state_blocks = StateBlocks::kOne;
  std::int64_t micro_batch = 512;     ///< llama.cpp's n_ubatch: its window layers hold that much more
  std::int64_t window_sequences = 1;  ///< llama.cpp with a unified cache: sequences whose windows it holds
};

/// What stops more from fitting.
enum class Binding : std::uint8_t {
  kNothing,   ///< the wanted concurrency fits
  kWeights,   ///< weights and runtime alone exceed the budget
  kSequence,  ///< not even one sequence of that context fits
  kCache,     ///< the cache pool
  kBatch,     ///< the wanted concurrency fits, but max_sequences lets less of it run at once
};
[[nodiscard]] MLA_EXPORT std::string_view name_of(Binding binding) noexcept;

struct StagePlan {
  StageLayers layers;
  WeightPlan weights;
  std::int64_t weight_bytes = 0, runtime_bytes = 0;
  std::int64_t charged_bytes = 0;  ///< of the runtime, what the cache's budget has to pay for
  std::vector<Line> runtime;
  std::int64_t cache_budget = 0;  ///< may be negative: by how much weights and runtime exceed the budget
  std::vector<CachePool> pools;
  bool fluid = false;          ///< pools have no fixed shares: any takes any byte
  std::int64_t sequences = 0;  ///< of the asked context, if this stage alone decided
};

struct MemoryPlan {
  Layout layout;
  std::int64_t gpu_memory_bytes = 0, budget_bytes = 0;  ///< per GPU
  std::int64_t context = 0;
  int block = 0;
  std::vector<StagePlan> stages;
  int limiting_stage = 0;
  double cache_bytes_per_token = 0;     ///< growing, on a rank of the limiting stage, index keys included
  std::int64_t bytes_per_sequence = 0;  ///< the same, one sequence of the context, whole blocks
  std::int64_t blocks = 0;              ///< of the first pool, smallest over stages
  std::int64_t tokens_logged = 0;       ///< what the engine would print, per replica: one of the next two
  std::int64_t tokens_by_blocks = 0, tokens_by_concurrency = 0;
  double concurrency_logged = 0;           ///< what the engine would print at the asked context, per replica
  std::int64_t sequences_per_replica = 0;  ///< whole ones
  std::int64_t replicas = 1;               ///< dp
  std::int64_t sequences = 0;              ///< whole cluster
  std::int64_t at_once = 0;                ///< of them: what max_sequences lets the replicas run
  std::int64_t longest_context = 0;        ///< one sequence alone on a replica, at most the model's maximum
  Binding binding = Binding::kCache;
  bool fits = false;                  ///< the wanted concurrency (or one sequence) runs at once
  std::vector<Line> lines;            ///< every number above and its parts, in reading order
  std::vector<std::string> warnings;  ///< rules of engine and layout that this plan touches
};
/// Throws kInvalidArgument for a layout or format this model cannot have.
[[nodiscard]] MLA_EXPORT MemoryPlan plan_memory(const ModelConfig& model, const PlanRequest& request);

}  // namespace mla::capacity
