// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "common/params.hpp"

/// Shared prefixes: what the kernels around the two launches of the attention take (cascade.cu).
namespace mla::kernels::latent {

/// A request of a launch that is not one of the call's: what a request sees behind a shared prefix, or a stretch of
/// a prefix for all queries of a group.
struct Slice {
  std::int32_t first_query = 0;  // row of q
  std::int32_t first_token = 0;  // row of out and lse
  std::int32_t queries = 0;
  std::int32_t keys = 0;
};

/// Requests that share a prefix, and where its stretches are among the slices and rows of the first launch.
struct CascadeGroup {
  std::int32_t first = 0, count = 0;  // requests
  std::int32_t tokens = 0;            // keys of the prefix
  std::int32_t stretch =
      0;                   // keys of each of its stretches, a multiple of the block size; the last: the rest
  std::int32_t slice = 0;  // of its first stretch
  std::int32_t stretches = 0;
  std::int32_t row = 0;   // of partial results, in tokens: the first stretch's first
  std::int32_t rows = 0;  // of a stretch: the members' queries at most
};

/// A kernel takes 4 KB of parameters.
inline constexpr int kMostGroups = 64;
/// A warp has a lane for each of a row's partial results.
inline constexpr int kMostStretches = 31;

/// What makes up a request's rows: partial results in tokens, normalized, each with its LSE.
struct Source {
  std::int32_t first_token = 0, queries = 0;
  std::int32_t own = 0;        // row of the first query's part behind the prefix
  std::int32_t prefix = 0;     // row of its part of the first stretch
  std::int32_t rows = 0;       // from a stretch to the next
  std::int32_t stretches = 0;  // 0: the request does not share after all
};

/// Cuts the call into slices: first all stretches of all groups, then every request.
struct CutParams {
  AttentionParams attention;
  std::int32_t table_columns = 0;  // of the call's block table
  std::int32_t num_groups = 0, num_stretches = 0;
  std::int32_t own_row = 0;          // of partial results: where those behind the prefixes begin
  std::int32_t stretch_columns = 0;  // of the block tables below
  std::int32_t own_columns = 0;
  Slice* slices = nullptr;                // [num_stretches + requests]
  std::int32_t* stretch_table = nullptr;  // [num_stretches, stretch_columns]
  std::int32_t* own_table = nullptr;      // [requests, own_columns]
  Source* sources = nullptr;              // [requests]
  CascadeGroup groups[kMostGroups];
};

/// Adds the partial results up.
struct JoinParams {
  AttentionParams attention;      // where they go
  std::int32_t most_queries = 1;  // of a request
  const Source* sources = nullptr;
  const float* parts = nullptr;  // [rows, H, L]
  const float* lse = nullptr;    // [rows, H] natural log
};

}  // namespace mla::kernels::latent
