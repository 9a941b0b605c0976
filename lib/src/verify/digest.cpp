// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <fstream>
#include <memory>

#include "mla/error.hpp"
#include "verify/golden.hpp"

#ifdef MLA_HAVE_OPENSSL
#include <openssl/evp.h>
#endif

namespace mla::verify {

#ifdef MLA_HAVE_OPENSSL

std::string sha256_of_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, fmt::format("{} cannot be opened", path.string()));
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool ok = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::array<char, 1 << 16> buffer{};
  while (ok && in.read(buffer.data(), buffer.size()).gcount() > 0) {
    ok = EVP_DigestUpdate(context.get(), buffer.data(), static_cast<std::size_t>(in.gcount())) == 1;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  ok = ok && EVP_DigestFinal_ex(context.get(), digest.data(), &size) == 1;
  if (!ok || in.bad()) throw Error(ErrorCode::kIo, fmt::format("{} cannot be read", path.string()));
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

#else

std::string sha256_of_file(const std::filesystem::path&) {
  return {};
}

#endif

}  // namespace mla::verify
