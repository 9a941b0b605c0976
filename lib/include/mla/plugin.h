/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MLA_PLUGIN_H
#define MLA_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

/*
 * Backends from outside the tree: a shared object with one C function, mla_plugin_query. Plain C11, no header of ours
 * besides this one, nothing to link. The programs load it with --plugin FILE.so and then verify and time it like their own.
 *
 * Growing without breaking: every struct begins with its size as the host knows it. Fields are only ever added at the end, and 0
 * in a new one means what was so before; a plug-in must not read past struct_size, and the host does not read past the struct_size
 * that the plug-in filled in.
 * MLA_PLUGIN_ABI changes when anything else does; a host refuses another one.
 *
 * All functions may be called from several threads, but a plan is used by one at a time. None may throw or exit.
 */
#ifdef __cplusplus
extern "C" {
#endif

#define MLA_PLUGIN_ABI 1u

/* Element types; the names are those of the command line. */
enum {
  MLA_F64 = 0,
  MLA_F32 = 1,
  MLA_F16 = 2,
  MLA_BF16 = 3,
  MLA_E4M3 = 4,
  MLA_E8M0 = 5,
  MLA_I64 = 6,
  MLA_I32 = 7,
  MLA_U8 = 8
};

/* How a token lies in the cache (mla/cache.hpp describes the rows byte by byte). */
enum {
  MLA_CACHE_F64 = 0,
  MLA_CACHE_F32 = 1,
  MLA_CACHE_BF16 = 2,
  MLA_CACHE_F16 = 3,
  MLA_CACHE_BF16_SPLIT = 4,
  MLA_CACHE_F16_SPLIT = 5,
  MLA_CACHE_FP8 = 6,
  MLA_CACHE_FP8_DS_MLA = 7
};

enum { MLA_DECODE = 0, MLA_PREFILL = 1 };
enum { MLA_LATENT = 0, MLA_HEAD = 1 }; /* in which space q and out live (mla/shape.hpp, QuerySpace) */

/* What is asked for. Widths by their letters: H heads, L latent, R rope, P nope, V value. */
typedef struct mla_shape_v1 {
  uint32_t struct_size;
  int32_t phase, space;
  int32_t num_heads, kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim, v_head_dim;
  int32_t causal;     /* 0: every query sees every key */
  int32_t window;     /* 0: none; counts the current key */
  int32_t sink;       /* first keys kept beside a window */
  int32_t topk;       /* > 0: token_index replaces the mask */
  int32_t block_size; /* tokens a cache block */
  int32_t q_dtype, out_dtype, cache_format;
  int32_t num_requests;
  const int32_t* q_len;  /* [num_requests] upper bounds: run() reads the true lengths */
  const int32_t* kv_len; /* [num_requests] new tokens included */
} mla_shape_v1;

typedef struct mla_device_v1 {
  uint32_t struct_size;
  const char* name;           /* "host", "h200" */
  const char* vendor;         /* "cpu", "nvidia", "amd", ... */
  int32_t ordinal;            /* of a real GPU, else -1 */
  int32_t compute_capability; /* CUDA: 80, 90, ...; else 0 */
  int32_t num_sms;
  int64_t memory_bytes;
} mla_device_v1;

/* Strides in elements; unused extents are 1. data NULL: absent. */
typedef struct mla_tensor_v1 {
  void* data;
  int32_t dtype;
  int32_t rank;
  int64_t extent[4], stride[4];
} mla_tensor_v1;

/* Strides in bytes. Unused rows, blocks and table columns may hold anything, NaN too. */
typedef struct mla_cache_v1 {
  int32_t format, block_size;
  int64_t num_blocks;
  unsigned char* data;
  int64_t block_stride_bytes, row_stride_bytes;
  unsigned char* k_pe; /* split formats */
  int64_t k_pe_block_stride_bytes, k_pe_row_stride_bytes;
  float scale;                /* MLA_CACHE_FP8 */
  const int32_t* block_table; /* [requests, columns] */
  int64_t block_table_columns, block_table_stride;
} mla_cache_v1;

typedef struct mla_args_v1 {
  uint32_t struct_size;
  mla_tensor_v1 q;          /* latent [tokens, H, L+R]; head [tokens, H, P+R] */
  mla_tensor_v1 w_uk, w_uv; /* head space: [H, P, L], [H, V, L] */
  mla_tensor_v1 out;        /* latent [tokens, H, L]; head [tokens, H, V]; write every element */
  mla_tensor_v1 lse; /* [tokens, H] or absent: natural log, -inf for a row without keys (whose out is 0) */
  mla_cache_v1 cache;
  const int32_t* cu_seqlens_q; /* [requests + 1] */
  const int32_t* seq_lens;     /* [requests] */
  const int32_t* token_index;  /* [tokens, topk] or NULL; entries outside [0, seq_len) are skipped */
  int64_t token_index_stride;
  double softmax_scale;
  void* workspace; /* as many bytes as plan() asked for */
  size_t workspace_bytes;
  void* stream; /* cudaStream_t or the like; NULL: the default */
} mla_args_v1;

typedef struct mla_plugin_v1 {
  uint32_t abi;         /* MLA_PLUGIN_ABI */
  uint32_t struct_size; /* sizeof(mla_plugin_v1) as the plug-in knows it */
  const char* name;     /* "flashmla": lower-case letters, digits, '-', '_', '.' */
  const char* version;  /* "0.3" */
  const char* summary;  /* one line: the idea */
  const char* strategy; /* "absorbed" or "expanded" */
  int32_t on_device;    /* tensors live in device memory */
  /* Where it rounds, as element types: scores and sums, P before P.V, split outputs, absorbed query, latent output, expanded K
   * and V. Verification allows the errors that follow from these and no more. */
  int32_t accumulate, probabilities, partials, absorbed_query, latent_output, expanded_kv;
  int32_t lse_from_rounded_p;

  /* 1: yes. 0: no, with a sentence naming the offending value in why (why_bytes long, the end included). */
  int (*supports)(const mla_shape_v1* shape, const mla_device_v1* device, char* why, size_t why_bytes);
  /* 0: done. The plan is freed by plan_free. Otherwise last_error says what happened. num_splits 0: choose yourself. */
  int (*plan)(const mla_shape_v1* shape, const mla_device_v1* device, int32_t num_splits, void** plan,
              size_t* workspace_bytes);
  /* Enqueues on args->stream (or runs, on a CPU). 0: done. */
  int (*run)(void* plan, const mla_args_v1* args);
  void (*plan_free)(void* plan);
  /* Of the last call on this thread that failed; never NULL. */
  const char* (*last_error)(void);

  /* Added later. 0, or a struct that ends before: as each comment says first. */
  int32_t
      fused_maximum; /* 0: the largest weight is exactly 1, exp of a difference of scores. 1: scale and maximum enter one
                            * fused product, whose rounding leaves the weight of even the only key next to 1 */
  int32_t batch_invariant; /* 0: not claimed. 1: the same bits for a request alone and in any batch */
  int32_t num_edges;       /* 0: none. Tile and split sizes around whose multiples lengths are tried */
  const int32_t* edges;    /* [num_edges], each at least 1 */
} mla_plugin_v1;

/* The one exported symbol. NULL: the plug-in cannot serve that ABI. The struct must live as long as the process. */
const mla_plugin_v1* mla_plugin_query(uint32_t host_abi);
typedef const mla_plugin_v1* (*mla_plugin_query_fn)(uint32_t host_abi);

#ifdef __cplusplus
}
#endif

#endif
