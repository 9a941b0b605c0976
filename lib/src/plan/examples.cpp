// SPDX-License-Identifier: Apache-2.0
#include "plan/examples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "mla/error.hpp"
#include "mla/index.hpp"
#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

constexpr std::int64_t kBf16 = 2;

/// What the documents put in: 64 heads of 128, a latent of 512, no rotary key, one layer.
struct DocumentInputs {
  std::int64_t heads = 64, head_dim = 128, latent = 512, rope = 64;
  std::int64_t context = 4096, users = 256;
  std::int64_t blocks = 1024, block = 16;
};

std::string bytes(std::int64_t value) {
  return num(value) + " B";
}
std::string ratio(std::int64_t a, std::int64_t b) {
  return fmt::format("{:.1f}x", static_cast<double>(a) / static_cast<double>(b));
}
std::string in_gib(std::int64_t value) {
  return fmt::format("{:.4g} GiB", static_cast<double>(value) / (1 << 30));
}
std::string in_mib(std::int64_t value) {
  return fmt::format("{:.4g} MiB", static_cast<double>(value) / (1 << 20));
}
std::string whole_gib(std::int64_t value) {
  return fmt::format("{} GiB", num(static_cast<std::int64_t>(static_cast<double>(value) / (1 << 30) + 0.5)));
}

using Examples = std::vector<Example>;

/// Appendix F, 14.1 and section 8 of the second document: bytes of a token and what they add up to.
void memory_examples(Examples& out, const ModelConfig& v3, const ModelConfig& k2) {
  const DocumentInputs in;
  const AttentionBytes mha = attention_bytes(v3);
  const AttentionBytes mha_k2 = attention_bytes(k2);
  const MlaDims& d = *v3.mla;
  const std::int64_t row = cache_layout(CacheFormat::kBF16, d).bytes_per_token();
  const std::int64_t doc_mha = 2 * in.heads * in.head_dim * kBf16;
  const std::int64_t doc_mla = in.latent * kBf16;
  const int layers = v3.count(AttentionKind::kMla);
  const std::int64_t tokens = in.context * in.users;

  out.push_back({"F, 14.1", "KV heads of DeepSeek-V3", "64", num(in.heads), num(std::int64_t{d.num_heads}),
                 fmt::format("config of {}", v3.name), fmt::format("64 heads are {}", k2.title)});
  out.push_back({"F", "standard K and V, one token, one layer", "32 KB",
                 fmt::format("{} = 2 x {} x {} x 2 B", bytes(doc_mha), in.heads, in.head_dim),
                 fmt::format("{} with K {} and V {}; {} with K {}", bytes(mha.mha), d.head_width(),
                             d.v_head_dim, bytes(mha.mha_textbook), d.qk_nope_head_dim),
                 fmt::format("{} x ({} + {}) x 2 B; {} x ({} + {}) x 2 B", d.num_heads, d.head_width(),
                             d.v_head_dim, d.num_heads, d.qk_nope_head_dim, d.v_head_dim),
                 "128 heads, and a key is nope 128 + rope 64 wide"});
  out.push_back({"F, 14.1, BB2", "MLA, one token, one layer", "1 KB",
                 fmt::format("{} = {} x 2 B", bytes(doc_mla), in.latent), bytes(row),
                 fmt::format("({} + {}) x 2 B", d.kv_lora_rank, d.qk_rope_head_dim),
                 "the rotary key is cached too"});
  out.push_back({"F, 14.1", "compression", "32x", ratio(doc_mha, doc_mla),
                 fmt::format("{} (K as wide as V) or {} (K with its rotary part)",
                             ratio(mha.mha_textbook, row), ratio(mha.mha, row)),
                 fmt::format("{} / {} and {} / {}", num(mha.mha_textbook), num(row), num(mha.mha), num(row)),
                 fmt::format("for the 64 heads of {}: {} and {}", k2.title, ratio(mha_k2.mha_textbook, row),
                             ratio(mha_k2.mha, row))});
  out.push_back(
      {"F", "4K context x 256 users, MLA", "1 GB",
       fmt::format("{} = {} x {} x {}", in_gib(doc_mla * tokens), bytes(doc_mla), num(in.context), in.users),
       fmt::format("{} a layer, {} the model", in_gib(row * tokens), in_gib(times(row * tokens, layers))),
       fmt::format("{} tokens x {} B x {} layers", num(tokens), num(row), layers),
       "the document leaves the layers out, and its GB are GiB"});
  out.push_back(
      {"F", "4K context x 256 users, standard", "32 GB",
       fmt::format("{} = {} x {} x {}", in_gib(doc_mha * tokens), bytes(doc_mha), num(in.context), in.users),
       fmt::format("{} the model, {} with the real K width",
                   whole_gib(times(mha.mha_textbook * tokens, layers)),
                   whole_gib(times(mha.mha * tokens, layers))),
       fmt::format("{} tokens x {} (or {}) B x {} layers", num(tokens), num(mha.mha_textbook), num(mha.mha),
                   layers),
       "so the saving is thousands of GiB, not 31 GB"});
  out.push_back(
      {"003, section 8", "compression of DeepSeek-V3", "about 57x",
       fmt::format("{} = 2 x 128 x 128 / 576", ratio(std::int64_t{2} * 128 * 128, 576)),
       fmt::format("{}; {} with the real K width", ratio(mha.mha_textbook, row), ratio(mha.mha, row)),
       fmt::format("{} / {}; {} / {}", num(mha.mha_textbook), num(row), num(mha.mha), num(row)),
       "right for K and V of 128"});
  out.push_back({"003, section 8", "compression, in its table", "about 4-8x", "",
                 ratio(mha.mha_textbook, row), "", "the table contradicts the section's own 57x"});
}

/// Appendix BB2: pool shapes.
void pool_examples(Examples& out, const ModelConfig& v3) {
  const DocumentInputs in;
  const MlaDims& d = *v3.mla;
  const std::int64_t slots = in.blocks * in.block;
  const std::int64_t doc_mha = 2 * slots * in.heads * in.head_dim * kBf16;
  const std::int64_t right_mha = 2 * slots * d.num_heads * in.head_dim * kBf16;
  const std::int64_t latent = slots * d.kv_lora_rank * kBf16;
  const std::int64_t rope = slots * d.qk_rope_head_dim * kBf16;
  out.push_back({"BB2", "pool (2, 1024, 16, 64, 128)", "512 MB",
                 fmt::format("{} = {}", bytes(doc_mha), in_mib(doc_mha)),
                 fmt::format("{} with {} heads", in_mib(right_mha), d.num_heads),
                 fmt::format("2 x {} x {} x {} x {} x 2 B, one layer", num(in.blocks), in.block, d.num_heads,
                             in.head_dim),
                 "the arithmetic is right, the heads are not; MB are MiB"});
  out.push_back({"BB2", "latent pool + rope pool", "16 MB + 2 MB = 18 MB, 28x",
                 fmt::format("{} + {} = {}, {}", in_mib(latent), in_mib(rope), in_mib(latent + rope),
                             ratio(doc_mha, latent + rope)),
                 fmt::format("{}, {}", in_mib(latent + rope), ratio(right_mha, latent + rope)),
                 fmt::format("{} slots x ({} + {}) x 2 B; {} / {}", num(slots), d.kv_lora_rank,
                             d.qk_rope_head_dim, num(right_mha), num(latent + rope)),
                 "28x is the ratio for 64 heads"});
  out.push_back({"BB2", "rope cache", "a pool of its own", "",
                 fmt::format("one row of {}: [{} latent | {} rope]", d.latent_width(), d.kv_lora_rank,
                             d.qk_rope_head_dim),
                 fmt::format("{} + {}", d.kv_lora_rank, d.qk_rope_head_dim),
                 "vLLM, SGLang and TensorRT-LLM keep one row; Ascend splits it"});
  out.push_back({"15.1, U", "shape of the cache", "(blocks, block, 512)", "",
                 fmt::format("(blocks, block, {})", d.latent_width()), "",
                 "a kernel takes head size 576 and reads V as its first 512"});
  out.push_back({"BB2", "FlashInfer MLA", "stores full K and V, saves nothing", "",
                 "reads the same 576-wide rows", "",
                 "as FlashAttention, Cutlass and Triton MLA do: only the computation differs"});
  out.push_back({"BB2", "Triton MLA at decode", "must decompress", "",
                 "absorbs W_UK and W_UV, as FlashMLA does", "", "no K or V is ever expanded"});
  const std::int64_t kv_a = std::int64_t{d.latent_width()} * v3.hidden_size;
  const std::int64_t concat = std::int64_t{d.kv_lora_rank} * 2 * d.num_heads * in.head_dim;
  out.push_back({"Y2", "down-projection C = W_DKV concat(K, V)", "W_DKV [512, 2 x heads x head_size]",
                 fmt::format("{} weights a layer", num(concat)),
                 fmt::format("kv_a takes the hidden state: {} weights a layer", num(kv_a)),
                 fmt::format("{} x {}", d.latent_width(), num(std::int64_t{v3.hidden_size})),
                 "14.1 of the same document has it right"});
}

/// 16.2, V.1 and V.2: windows, pages and their index arrays.
void index_examples(Examples& out) {
  constexpr int kBlock = 16;
  constexpr std::int64_t kWindow = 4096;
  constexpr std::int64_t kSink = 4;
  const WindowSavings small = window_savings(100, 32, kSink, kBlock);
  out.push_back(
      {"16.2", "100 tokens, window 32, sink 4", "memory saved 64 % (36/100)",
       fmt::format("{} of 100 tokens kept", small.tokens_read),
       fmt::format("{} % of the reads skipped; memory saved 0 %", small.tokens_skipped),
       fmt::format("{} - {}", small.full_cache_tokens, small.tokens_read),
       fmt::format("36 % is what is kept, and a sparse index lies over a full cache; a ring cache would hold "
                   "{} slots",
                   small.ring_cache_tokens)});
  constexpr std::array<std::int64_t, 3> kLengths{10000, 5000, 1000};
  std::array<WindowSavings, 3> pages;
  for (std::size_t i = 0; i < pages.size(); ++i)
    pages[i] = window_savings(kLengths[i], kWindow, kSink, kBlock);
  const auto block_text = [&](std::size_t i) {
    const std::int64_t start = std::max<std::int64_t>(0, kLengths[i] - kWindow);
    return fmt::format("blocks {}..{} and 0", start / kBlock, (kLengths[i] - 1) / kBlock);
  };
  const std::int64_t skipped_blocks = pages[0].blocks_total - pages[0].blocks_touched;
  out.push_back(
      {"V.1", "length 10000: blocks read", "257, 368 skipped (59 %)",
       fmt::format("{} + 1 = {}", kWindow / kBlock, kWindow / kBlock + 1),
       fmt::format("{}, {} of {} skipped ({:.1f} %), {} tokens", pages[0].blocks_touched, skipped_blocks,
                   pages[0].blocks_total,
                   100.0 * static_cast<double>(skipped_blocks) / static_cast<double>(pages[0].blocks_total),
                   num(pages[0].tokens_skipped)),
       block_text(0), "right: 10000 - 4096 is a multiple of 16"});
  out.push_back({"V.2", "length 5000: blocks read", "257",
                 fmt::format("1 + {} = {}", kWindow / kBlock, kWindow / kBlock + 1),
                 num(pages[1].blocks_touched), block_text(1),
                 "904 = 56.5 x 16: the window starts inside a block"});
  std::int64_t doc_total = 0;
  std::int64_t total = 0;
  std::string doc_indptr = "0";
  std::string indptr = "0";
  for (std::size_t i = 0; i < pages.size(); ++i) {
    doc_total += std::min(kWindow / kBlock + 1, pages[i].blocks_total);
    total += pages[i].blocks_touched;
    doc_indptr += fmt::format(", {}", doc_total);
    indptr += fmt::format(", {}", total);
  }
  out.push_back(
      {"V.2", "lengths 10000, 5000, 1000: indptr", "[0, 257, 514, 577]", fmt::format("[{}]", doc_indptr),
       fmt::format("[{}], {} blocks", indptr, total),
       fmt::format("{} + {} + {}", pages[0].blocks_touched, pages[1].blocks_touched, pages[2].blocks_touched),
       "follows from the line above"});
  out.push_back({"V.2", "logical blocks of request 1", "0, 369, 370, ..., 624", "", block_text(1), "",
                 "copied from request 0"});
  out.push_back({"V.1", "last_page_len of 10000", "10000 % 16 = 0", fmt::format("{}", 10000 % kBlock),
                 fmt::format("{}", last_page_len(10000, kBlock)), "((10000 - 1) % 16) + 1",
                 "a full page has 16 tokens, not 0"});
  out.push_back({"17.2", "slot of the new token", "position seq_len", "", "position seq_len - 1", "",
                 "vLLM's seq_lens includes the new token; off by a block at multiples of the block"});
}

/// 16 and EE2: which models are MLA, and which are sparse.
void detection_examples(Examples& out, const ModelConfig& v3) {
  const auto windowed = std::count_if(v3.layers.begin(), v3.layers.end(),
                                      [](const LayerCache& layer) { return layer.window > 0; });
  out.push_back({"16, EE2", "DeepSeek-V3 is sparse by a sliding window", "sliding_window > 0", "",
                 fmt::format("{} layers of {} have a window", windowed, v3.name), "",
                 fmt::format("V3.2 and GLM-5 are sparse by index_topk, which adds {} B a token and layer",
                             kIndexKeyBytes)});
  out.push_back({"EE2", "is it MLA", "kv_lora_rank > 0", "",
                 "the field may be null, nested in text_config or renamed", "",
                 "a TypeError, or an MLA model read as GQA"});
  out.push_back({"EE2", "DeepSeek-V4 in the list of MLA classes", "yes", "",
                 "no: a 512-wide compressed cache with a formula of its own", "", "it has no kv_lora_rank"});
}

}  // namespace

std::vector<Example> document_examples(const ModelConfig& v3, const ModelConfig& k2) {
  if (!v3.mla || !k2.mla) {
    throw Error(ErrorCode::kInvalidArgument,
                "the documents' examples need two MLA models: DeepSeek-V3 and Kimi-K2");
  }
  Examples out;
  memory_examples(out, v3, k2);
  pool_examples(out, v3);
  index_examples(out);
  detection_examples(out, v3);
  return out;
}

}  // namespace mla::capacity
