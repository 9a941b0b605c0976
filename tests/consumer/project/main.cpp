// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "mla/mla.hpp"

int main() {
  const mla::CacheLayout layout = mla::cache_layout(mla::CacheFormat::kBF16, mla::MlaDims{});
  std::cout << "bf16 row of DeepSeek-V3: " << layout.bytes_per_token() << " bytes\n";
  for (const mla::Backend* backend : mla::backends()) std::cout << backend->info().name << "\n";
  return mla::backends().empty() ? 1 : 0;
}
