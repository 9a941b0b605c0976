// SPDX-License-Identifier: Apache-2.0
#include "gemm/lt_api.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <vector>

namespace mla::kernels::lt {
namespace {

constexpr int kMajor = CUBLAS_VER_MAJOR;  // the ABI we compiled against

/// A file named by the user alone; else the loader's own search, then where toolkits put it.
std::vector<std::string> candidates() {
  if (const char* named = std::getenv("MLA_CUBLASLT"); named != nullptr && *named != '\0') return {named};
  const std::string file = fmt::format("libcublasLt.so.{}", kMajor);
  std::vector<std::string> paths = {file};
  const auto add_root = [&](std::string_view root) {
    for (const char* folder : {"lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "lib"})
      paths.push_back(fmt::format("{}/{}/{}", root, folder, file));
  };
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable); root != nullptr && *root != '\0') add_root(root);
  }
  add_root("/usr/local/cuda");
  return paths;
}

template <class Function>
bool resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

/// Name of the first function that is missing, or null.
const char* resolve_all(void* library, Api& api) {
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto& function) {
    if (!resolve(library, name, function) && missing == nullptr) missing = name;
  };
  need("cublasLtCreate", api.create);
  need("cublasLtGetVersion", api.version);
  need("cublasLtGetStatusString", api.status_string);
  need("cublasLtMatmul", api.matmul);
  need("cublasLtMatmulAlgoGetHeuristic", api.heuristic);
  need("cublasLtMatmulDescCreate", api.desc_create);
  need("cublasLtMatmulDescDestroy", api.desc_destroy);
  need("cublasLtMatmulDescSetAttribute", api.desc_set);
  need("cublasLtMatrixLayoutCreate", api.layout_create);
  need("cublasLtMatrixLayoutDestroy", api.layout_destroy);
  need("cublasLtMatrixLayoutSetAttribute", api.layout_set);
  need("cublasLtMatmulPreferenceCreate", api.preference_create);
  need("cublasLtMatmulPreferenceDestroy", api.preference_destroy);
  need("cublasLtMatmulPreferenceSetAttribute", api.preference_set);
  return missing;
}

Loaded open_library(Api& api) {
  const std::vector<std::string> paths = candidates();
  std::string tried;
  for (const std::string& path : paths) {
    // Never closed: a library that talks to the driver does not survive being unloaded.
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      tried += fmt::format("{}{}", tried.empty() ? "" : ", ", path);
      continue;
    }
    if (const char* missing = resolve_all(library, api))
      return {nullptr, fmt::format("{} has no function {}", path, missing)};
    if (const auto major = static_cast<int>(api.version() / 10000); major != kMajor)
      return {nullptr, fmt::format("{} is cuBLAS {}, this build needs {}", path, major, kMajor)};
    return {&api, {}};
  }
  return {nullptr,
          fmt::format("cuBLAS {} was not found (tried {}); MLA_CUBLASLT may name the file", kMajor, tried)};
}

}  // namespace

const Loaded& load() {
  static Api api;
  static const Loaded loaded = open_library(api);
  return loaded;
}

}  // namespace mla::kernels::lt
