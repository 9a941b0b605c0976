// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "common/params.hpp"
#include "mla/backend.hpp"

namespace mla::kernels {

/// Head space for a kernel that attends in latent space: the query absorbs W_UK before it, and its output
/// goes through W_UV behind it.
class Projections {
 public:
  /// Takes its room in a workspace from `used` on and moves `used` behind it, in steps of 256 bytes.
  Projections(const AttentionShape& shape, std::int64_t& used);

  /// `attend` enqueues the attention of what it is given, in latent space. Throws kInvalidArgument if there
  /// are more tokens than the shape has.
  void run(const AttentionShape& shape, const AttentionArgs& args, AttentionParams params,
           std::span<std::byte> workspace, Stream stream,
           const std::function<void(const AttentionParams&)>& attend) const;

 private:
  std::int64_t query_at_ = 0, latent_at_ = 0, product_at_ = 0;
};

}  // namespace mla::kernels
