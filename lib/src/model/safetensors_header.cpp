// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors_header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "model/json_value.hpp"

namespace mla {
namespace {

struct StoredType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;  // none: its bytes are counted and left alone
};

constexpr StoredType kStoredTypes[] = {
    {"F64", 64, DType::kF64},
    {"F32", 32, DType::kF32},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"F8_E4M3", 8, DType::kE4M3},
    {"F8_E8M0", 8, DType::kE8M0},
    {"I64", 64, DType::kI64},
    {"I32", 32, DType::kI32},
    {"U8", 8, DType::kU8},
    {"BOOL", 8, {}},
    {"I8", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"U32", 32, {}},
    {"U64", 64, {}},
    {"C64", 64, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
};

int bits_of(std::string_view stored) {
  return std::ranges::find(kStoredTypes, stored, &StoredType::name)->bits;
}

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 48;
constexpr std::size_t kMaxDims = 32;

class HeaderReader {
 public:
  HeaderReader(std::int64_t data_bytes, std::string_view origin) : data_bytes_(data_bytes), origin_(origin) {}

  HeaderEntry read_entry(const std::string& name, const json::Value& value) const {
    const json::Object* object = value.get_if<json::Object>();
    if (object == nullptr) fail(name, fmt::format("must be an object, but is {}", json::describe(value)));
    for (const auto& [key, ignored] : *object) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        fail(name, fmt::format("has a key {}; allowed are dtype, shape and data_offsets", text::quoted(key)));
      }
    }
    HeaderEntry entry;
    entry.name = name;
    read_dtype(entry, member(name, value, "dtype"));
    read_shape(entry, member(name, value, "shape"));
    read_offsets(entry, member(name, value, "data_offsets"));
    check_size(entry);
    return entry;
  }

  // The format keeps tensors back to back: anything else hides bytes or reads them twice.
  void check_cover(const std::vector<HeaderEntry>& entries) const {
    std::vector<const HeaderEntry*> order;
    for (const HeaderEntry& entry : entries) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const HeaderEntry* a, const HeaderEntry* b) {
      return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    std::int64_t covered = 0;
    for (const HeaderEntry* entry : order) {
      if (entry->begin < covered) {
        fail(entry->name,
             fmt::format("begins at byte {}, inside another tensor that ends at {}", entry->begin, covered));
      }
      if (entry->begin > covered) {
        fail(entry->name,
             fmt::format("begins at byte {}, but the tensor before it ends at {}: {} bytes belong to no "
                         "tensor",
                         entry->begin, covered, entry->begin - covered));
      }
      covered = entry->end;
    }
    if (covered != data_bytes_) {
      throw Error(ErrorCode::kParse,
                  fmt::format("{}: the tensors end at byte {}, but the file holds {} bytes of data", origin_,
                              covered, data_bytes_));
    }
  }

  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw Error(ErrorCode::kParse, fmt::format("{}: tensor {} {}", origin_, text::quoted(name), what));
  }

 private:
  const json::Value& member(const std::string& name, const json::Value& value, std::string_view key) const {
    const json::Value* found = value.find(key);
    if (found == nullptr) fail(name, fmt::format("has no {}", key));
    return *found;
  }

  void read_dtype(HeaderEntry& entry, const json::Value& value) const {
    const std::string* word = value.get_if<std::string>();
    std::vector<std::string> known;
    for (const StoredType& type : kStoredTypes) {
      if (word != nullptr && *word == type.name) {
        entry.stored_dtype = *word;
        entry.dtype = type.dtype;
        return;
      }
      known.emplace_back(type.name);
    }
    fail(entry.name, fmt::format("has dtype {}; known are {}", json::describe(value), text::join_or(known)));
  }

  std::int64_t whole(const HeaderEntry& entry, std::string_view what, const json::Value& value,
                     std::int64_t most) const {
    const std::int64_t* number = value.get_if<std::int64_t>();
    if (number == nullptr || *number < 0 || *number > most) {
      fail(entry.name, fmt::format("has {} in its {}, where whole numbers from 0 to {} are allowed",
                                   json::describe(value), what, most));
    }
    return *number;
  }

  const json::Array& list(const HeaderEntry& entry, std::string_view what, const json::Value& value) const {
    const json::Array* array = value.get_if<json::Array>();
    if (array == nullptr)
      fail(entry.name, fmt::format("has {} as {}, which must be a list", json::describe(value), what));
    return *array;
  }

  void read_shape(HeaderEntry& entry, const json::Value& value) const {
    const json::Array& extents = list(entry, "shape", value);
    if (extents.size() > kMaxDims)
      fail(entry.name, fmt::format("has {} dimensions, more than {}", extents.size(), kMaxDims));
    for (const json::Value& extent : extents)
      entry.shape.push_back(whole(entry, "shape", extent, kMaxExtent));
  }

  void read_offsets(HeaderEntry& entry, const json::Value& value) const {
    const json::Array& offsets = list(entry, "data_offsets", value);
    if (offsets.size() != 2) fail(entry.name, fmt::format("has {} data_offsets, not two", offsets.size()));
    entry.begin = whole(entry, "data_offsets", offsets[0], data_bytes_);
    entry.end = whole(entry, "data_offsets", offsets[1], data_bytes_);
    if (entry.end < entry.begin) {
      fail(entry.name, fmt::format("ends at byte {}, before its begin at {}", entry.end, entry.begin));
    }
  }

  void check_size(const HeaderEntry& entry) const {
    const int bits = bits_of(entry.stored_dtype);
    const bool whole_bytes = bits % 8 == 0;
    const std::int64_t element = whole_bytes ? bits / 8 : 1;
    std::int64_t bytes = whole_bytes ? element : bits;
    bool overflow = false;
    for (const std::int64_t extent : entry.shape) overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
    if (!whole_bytes && !overflow) {
      if (bytes % 8 != 0) {
        fail(entry.name, fmt::format("of {} [{}] has {} bits, which are no whole bytes", entry.stored_dtype,
                                     fmt::join(entry.shape, ", "), bytes));
      }
      bytes /= 8;
    }
    // An overflow on the way to a zero extent is still a shape that no tensor has.
    if (overflow || bytes != entry.end - entry.begin) {
      fail(entry.name,
           fmt::format("of {} [{}] needs {} bytes, but its data_offsets hold {}", entry.stored_dtype,
                       fmt::join(entry.shape, ", "), overflow ? "more than 2^63" : fmt::format("{}", bytes),
                       entry.end - entry.begin));
    }
    if (entry.begin % element != 0 && bytes > 0) {
      fail(entry.name, fmt::format("begins at byte {}, which is no multiple of the {} bytes of {}",
                                   entry.begin, element, entry.stored_dtype));
    }
  }

  std::int64_t data_bytes_;
  std::string_view origin_;
};

std::map<std::string, std::string> read_metadata(const json::Value& value, std::string_view origin) {
  const json::Object* object = value.get_if<json::Object>();
  if (object == nullptr) {
    throw Error(ErrorCode::kParse,
                fmt::format("{}: __metadata__ must be an object, but is {}", origin, json::describe(value)));
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [key, entry] : *object) {
    const std::string* word = entry.get_if<std::string>();
    if (word == nullptr) {
      throw Error(ErrorCode::kParse, fmt::format("{}: __metadata__ {} must be a text, but is {}", origin,
                                                 text::quoted(key), json::describe(entry)));
    }
    metadata.emplace(key, *word);
  }
  return metadata;
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json_text, std::int64_t data_bytes,
                                           std::string_view origin) {
  const json::Value root = json::parse(json_text, origin, {.max_depth = 8, .max_values = 4'000'000});
  const json::Object* object = root.get_if<json::Object>();
  if (object == nullptr) {
    throw Error(ErrorCode::kParse,
                fmt::format("{}: the header must be an object, but is {}", origin, json::describe(root)));
  }
  const HeaderReader reader(data_bytes, origin);
  SafetensorsHeader header;
  for (const auto& [name, value] : *object) {
    if (name == "__metadata__") {
      header.metadata = read_metadata(value, origin);
    } else {
      header.entries.push_back(reader.read_entry(name, value));
    }
  }
  reader.check_cover(header.entries);
  return header;
}

std::string_view stored_name(DType dtype) {
  for (const StoredType& type : kStoredTypes) {
    if (type.dtype == dtype) return type.name;
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("safetensors has no name for {}", name_of(dtype)));
}

}  // namespace mla
