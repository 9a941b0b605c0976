// SPDX-License-Identifier: Apache-2.0
#include "gemm/lt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>

#include "common/check.hpp"
#include "gemm/lt_api.hpp"
#include "mla/error.hpp"

namespace mla::kernels::lt {
namespace {

void check(const Api& api, cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::kDevice, fmt::format("cuBLASLt: {} in {}", api.status_string(status), call));
}

cudaDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF32:
      return CUDA_R_32F;
    default:
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("matrix products take bf16, f16 and f32, not {}", name_of(dtype)));
  }
}

/// An opaque object of the library, freed with the scope.
template <class Handle>
class Owned {
 public:
  using Destroy = cublasStatus_t (*)(Handle);
  Owned(Handle handle, Destroy destroy) : handle_(handle), destroy_(destroy) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { destroy_(handle_); }
  [[nodiscard]] Handle get() const noexcept { return handle_; }

 private:
  Handle handle_;
  Destroy destroy_;
};

Owned<cublasLtMatmulDesc_t> make_desc(const Api& api, const Product& product, const void* bias) {
  cublasLtMatmulDesc_t raw = nullptr;
  check(api, api.desc_create(&raw, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const cublasOperation_t transpose = product.w_by_columns ? CUBLAS_OP_N : CUBLAS_OP_T;
  check(api, api.desc_set(raw, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose), "TRANSA");
  if (product.with_bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    check(api, api.desc_set(raw, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue), "EPILOGUE");
    check(api, api.desc_set(raw, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias), "BIAS_POINTER");
  }
  return {raw, api.desc_destroy};
}

Owned<cublasLtMatrixLayout_t> make_layout(const Api& api, DType dtype, std::int64_t rows,
                                          std::int64_t columns, std::int64_t ld, std::int64_t batch,
                                          std::int64_t stride) {
  cublasLtMatrixLayout_t raw = nullptr;
  check(api,
        api.layout_create(&raw, type_of(dtype), static_cast<std::uint64_t>(rows),
                          static_cast<std::uint64_t>(columns), ld),
        "cublasLtMatrixLayoutCreate");
  const auto count = static_cast<std::int32_t>(batch);
  check(api, api.layout_set(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "BATCH_COUNT");
  check(api, api.layout_set(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
        "BATCH_OFFSET");
  return {raw, api.layout_destroy};
}

/// A product in the library's terms. Row-major out = a w^T is column-major out^T = w a^T, so w is the
/// library's A.
struct Problem {
  Problem(const Api& api, const Product& p, const void* bias)
      : desc(make_desc(api, p, bias)),
        w(p.w_by_columns ? make_layout(api, p.in, p.n, p.k, p.w_row, p.batch, p.w_batch)
                         : make_layout(api, p.in, p.k, p.n, p.w_row, p.batch, p.w_batch)),
        a(make_layout(api, p.in, p.k, p.m, p.a_row, p.batch, p.a_batch)),
        out(make_layout(api, p.out, p.n, p.m, p.out_row, p.batch, p.out_batch)) {}
  Owned<cublasLtMatmulDesc_t> desc;
  Owned<cublasLtMatrixLayout_t> w, a, out;
};

/// Largest power of two up to 256 that divides the address and every stride a matrix is stepped by.
std::uint32_t alignment_of(const void* data, std::int64_t row, std::int64_t batch, DType dtype) {
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const auto bits = reinterpret_cast<std::uintptr_t>(data) | static_cast<std::uintptr_t>(row * size) |
                    static_cast<std::uintptr_t>(batch * size) | 256U;
  return 1U << std::countr_zero(bits);
}

struct Key {
  int device = 0;
  Product product;
  std::uint32_t align_a = 0, align_w = 0, align_out = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

cublasLtMatmulAlgo_t ask(const Api& api, cublasLtHandle_t handle, const Problem& problem, const Key& key) {
  cublasLtMatmulPreference_t raw = nullptr;
  check(api, api.preference_create(&raw), "cublasLtMatmulPreferenceCreate");
  const Owned<cublasLtMatmulPreference_t> preference(raw, api.preference_destroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    check(api, api.preference_set(raw, what, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  // Parts of a split sum are added in f32, never in the type of the output: that would be a rounding of its
  // own.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_w);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_out);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_out);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = api.heuristic(handle, problem.desc.get(), problem.w.get(), problem.a.get(),
                                              problem.out.get(), problem.out.get(), raw, 1, &result, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    const Product& p = key.product;
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("cuBLASLt has no algorithm for [{}, {}] = [{}, {}] x [{}, {}] (batch {}, {} to {}): {}",
                    p.m, p.n, p.m, p.k, p.k, p.n, p.batch, name_of(p.in), name_of(p.out),
                    api.status_string(status)));
  }
  return result.algo;
}

/// Handles of devices and algorithms of shapes, kept for the life of the process.
struct State {
  std::mutex mutex;
  std::map<int, cublasLtHandle_t> handles;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms;
};
State& state() {
  static auto* const kept = new State;  // never destroyed: the driver may be gone by then
  return *kept;
}

/// The library's kernels count bytes within a tile of rows in 32 bits: rows of 2^30 elements are an illegal
/// access. Tiles have up to 256 rows.
bool far_apart(std::int64_t stride, DType dtype) {
  constexpr std::int64_t kMostRows = 256;
  return stride * static_cast<std::int64_t>(size_of(dtype)) * kMostRows > std::int64_t{1} << 31;
}

template <class T>
T* step(T* data, std::int64_t elements, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

Support available() {
  const Loaded& loaded = load();
  return loaded.api != nullptr ? Support::yes() : Support::no(loaded.why);
}

std::string version() {
  const Loaded& loaded = load();
  if (loaded.api == nullptr) return {};
  const std::size_t number = loaded.api->version();
  return fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

void multiply(const Product& product, const void* a, const void* w, void* out, std::span<std::byte> workspace,
              void* stream, const void* bias) {
  if (product.m == 0 || product.n == 0 || product.batch == 0) return;
  if (product.m > 1 && (far_apart(product.a_row, product.in) || far_apart(product.out_row, product.out))) {
    Product row = product;
    row.m = 1;
    row.a_row = product.k;
    row.out_row = product.n;
    for (std::int64_t i = 0; i < product.m; ++i) {
      multiply(row, step(a, i * product.a_row, product.in), w, step(out, i * product.out_row, product.out),
               workspace, stream, bias);
    }
    return;
  }
  const Loaded& loaded = load();
  if (loaded.api == nullptr) throw Error(ErrorCode::kUnsupported, loaded.why);
  if (workspace.size() < kWorkspaceBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a matrix product has a workspace of {} bytes, but wants {}", workspace.size(),
                            kWorkspaceBytes));
  }
  const Api& api = *loaded.api;
  Key key{0, product, alignment_of(a, product.a_row, product.a_batch, product.in),
          alignment_of(w, product.w_row, product.w_batch, product.in),
          alignment_of(out, product.out_row, product.out_batch, product.out)};
  MLA_CHECK_CUDA(cudaGetDevice(&key.device));
  const Problem problem(api, product, bias);

  State& kept = state();
  const std::lock_guard lock(kept.mutex);
  cublasLtHandle_t& handle = kept.handles[key.device];
  if (handle == nullptr) check(api, api.create(&handle), "cublasLtCreate");
  auto known = kept.algorithms.find(key);
  if (known == kept.algorithms.end())
    known = kept.algorithms.emplace(key, ask(api, handle, problem, key)).first;
  const float one = 1.0F, zero = 0.0F;
  check(api,
        api.matmul(handle, problem.desc.get(), &one, w, problem.w.get(), a, problem.a.get(), &zero, out,
                   problem.out.get(), out, problem.out.get(), &known->second, workspace.data(),
                   kWorkspaceBytes, static_cast<cudaStream_t>(stream)),
        "cublasLtMatmul");
}

}  // namespace mla::kernels::lt
