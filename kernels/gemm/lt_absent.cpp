// SPDX-License-Identifier: Apache-2.0
// What a build without cublasLt.h answers.
#include "gemm/lt.hpp"
#include "mla/error.hpp"

namespace mla::kernels::lt {
namespace {

constexpr const char* kReason =
    "this build has no cuBLASLt (cublasLt.h was not found when it was configured)";

}  // namespace

Support available() {
  return Support::no(kReason);
}

std::string version() {
  return {};
}

void multiply(const Product&, const void*, const void*, void*, std::span<std::byte>, void*, const void*) {
  throw Error(ErrorCode::kUnsupported, kReason);
}

}  // namespace mla::kernels::lt
