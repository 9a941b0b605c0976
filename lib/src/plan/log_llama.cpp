// SPDX-License-Identifier: Apache-2.0
// What llama.cpp, ik_llama.cpp and programs around them print about memory.
#include <algorithm>
#include <string>

#include "plan/log_line.hpp"

namespace mla::capacity {
namespace {

/// "K (f16): 9.00 MiB", "c^KV (q8_0): 1166.62 MiB", "kv^T: not used".
void read_half(const LogLine& line, std::string_view key, LogKind kind, std::string& dtype) {
  const std::optional<std::string_view> rest = after(line.text, key);
  if (!rest) return;
  const std::size_t close = rest->find(')');
  const std::string_view word = close == std::string_view::npos ? std::string_view() : rest->substr(0, close);
  const std::optional<ScannedNumber> size =
      close == std::string_view::npos ? std::nullopt : leading_number(rest->substr(close + 1));
  if (!size) return;
  const double unit = unit_of(size->rest);
  if (unit == 0) return;
  line.add(kind, *size, unit);
  if (dtype.empty() && word.size() < 20) dtype = std::string(word);
}

/// "(64000 cells, 0 layers": the cache of full-length layers of a model that has none.
bool empty_cache(const LogLine& line) {
  const auto cells = number_after(line.text, "MiB (");
  const auto layers = cells ? number_after(cells->rest, "cells,") : std::nullopt;
  return layers && layers->value == 0 && layers->rest.starts_with(" layers");
}

/// "( 2048 cells, 27 layers, 8/8 seqs)": cells of each of the streams, the second of the last two numbers.
void read_cells(const LogLine& line) {
  const auto cells = number_after(line.text, "MiB (");
  if (!cells || cells->rest.find("cells") >= 3) return;
  LogNumber& number = line.add(LogKind::kTokens, *cells, 1);
  number.cache = line.reading.cache;
  if (const auto layers = number_after(cells->rest, ",")) {
    if (layers->rest.starts_with(" layers")) number.layers = small(*layers);
    const auto sequences = number_after(layers->rest, ",");
    if (sequences && sequences->rest.starts_with("/")) {
      const auto streams = leading_number(sequences->rest.substr(1));
      if (streams && streams->value >= 1) number.streams = small(*streams);
      if (number.streams == 1) keep(line.reading.sequences, small(*sequences));
    }
  }
  line.bytes(LogKind::kCacheBytes, "size =");
}

}  // namespace

void read_llama_line(const LogLine& line) {
  constexpr double kPadding = 0.05 * 1024 * 1024;  // what tensors of one buffer are padded by, at most
  constexpr std::int64_t kMostContext = std::int64_t{1} << 40;
  const std::string_view t = line.text;
  LogReading& r = line.reading;
  const bool cache_line = line.has("llama_kv_cache");
  if (line.has("new slot")) {
    if (const auto slot = setting_number(t, "n_ctx_slot"); slot && *slot < kMostContext)
      r.slots_context = std::min(r.slots_context + *slot, kMostContext);
  }
  if (line.has("llama_") || line.has("llm_load")) {
    keep(r.max_length, setting_number(t, "n_ctx"));
    keep(r.layers, setting_number(t, "n_layer"));
    keep(r.micro_batch, setting_number(t, "n_ubatch"));
    if (const auto mode = setting_number(t, "mla_attn"))
      r.mla_mode = static_cast<int>(std::min<std::int64_t>(*mode, 9));
  }
  if (cache_line && line.has("full-size SWA cache")) r.full_windows = true;
  if (cache_line && line.has("SWA KV cache"))
    r.cache = line.has("non-SWA") ? CacheOf::kFull : CacheOf::kWindow;
  if (cache_line && line.has("creating DSV4")) {
    r.cache = line.has("CSA")       ? CacheOf::kDense
              : line.has("HCA")     ? CacheOf::kSparse
              : line.has("indexer") ? CacheOf::kIndex
                                    : CacheOf::kUnknown;
  }
  const bool self = line.has("KV self size") || line.has("kv self size");
  if ((!cache_line && !self) || empty_cache(line)) return;
  const bool latent = line.has("c^KV");
  line.engine(latent ? "ik_llama.cpp" : "llama.cpp");
  if (latent) r.engine = "ik_llama.cpp";  // only it knows c^KV; the K/V line may come first
  if (!line.bytes(LogKind::kCacheBytes, "KV self size")) line.bytes(LogKind::kCacheBytes, "kv self size");
  read_cells(line);
  if (line.has("KV buffer size")) {
    if (const auto size = number_after(t, "KV buffer size"); size && unit_of(size->rest) > 0) {
      r.buffer_bytes += size->value * unit_of(size->rest);
      r.buffer_slack += kPadding + size->half_digit * unit_of(size->rest);
      r.buffer_line = line.number;
    }
  }
  read_half(line, " K (", LogKind::kKeyBytes, r.cache_dtype);
  read_half(line, " V (", LogKind::kValueBytes, r.cache_dtype_v);
  read_half(line, " c^KV (", LogKind::kKeyBytes, r.cache_dtype);
  read_half(line, " kv^T (", LogKind::kValueBytes, r.cache_dtype_v);
}

void finish_llama_log(LogReading& reading) {
  constexpr double kMiB = 1024.0 * 1024.0;
  if (reading.max_length == 0 && reading.engine == "ik_llama.cpp") reading.max_length = reading.slots_context;
  const bool total = std::any_of(reading.numbers.begin(), reading.numbers.end(), [](const LogNumber& one) {
    return one.kind == LogKind::kCacheBytes || one.kind == LogKind::kKeyBytes;
  });
  if (reading.buffer_bytes <= 0 || total) return;
  LogNumber number;
  number.kind = LogKind::kCacheBytes;
  number.value = reading.buffer_bytes / kMiB;
  number.half_digit = reading.buffer_slack / kMiB;
  number.unit = kMiB;
  number.line = reading.buffer_line;
  number.text = "sum of the KV buffers of all devices";
  reading.numbers.push_back(std::move(number));
}

}  // namespace mla::capacity
