/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest useful plug-in: absorbed MLA attention in plain C, one query head after another, for float tensors in latent space.
 * Copy it to bring a kernel of your own: fill in supports() honestly, put what depends on lengths into plan(), and read the true
 * lengths in run(). Build:  cc -shared -fPIC -O2 -I <prefix>/include naive.c -lm -o naive.so
 * Try:    mla-verify run --plugin ./naive.so --backends naive      mla-bench run --plugin ./naive.so --backend naive,cpu-absorbed ...
 */
#include <math.h>
#include <mla/plugin.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char last_error[256] = "no error";

static int fail(const char* what) {
  snprintf(last_error, sizeof last_error, "%s", what);
  return 1;
}

static int refuse(char* why, size_t why_bytes, const char* what, int value) {
  snprintf(why, why_bytes, "naive takes no %s %d", what, value);
  return 0;
}

static int supports(const mla_shape_v1* shape, const mla_device_v1* device, char* why, size_t why_bytes) {
  (void)device;
  if (shape->space != MLA_LATENT) return refuse(why, why_bytes, "query space", shape->space);
  if (shape->q_dtype != MLA_F32) return refuse(why, why_bytes, "query type", shape->q_dtype);
  if (shape->out_dtype != MLA_F32) return refuse(why, why_bytes, "output type", shape->out_dtype);
  if (shape->cache_format != MLA_CACHE_F32)
    return refuse(why, why_bytes, "cache format", shape->cache_format);
  return 1;
}

/* What a run needs to know of the shape beside its arguments. */
typedef struct plan_state {
  int32_t num_heads, latent, width, causal, window, sink, topk, num_requests;
} plan_state;

static int plan(const mla_shape_v1* shape, const mla_device_v1* device, int32_t num_splits, void** out,
                size_t* workspace_bytes) {
  (void)device;
  (void)num_splits; /* one part is all it can do */
  plan_state* state = malloc(sizeof *state);
  if (state == NULL) return fail("out of memory");
  state->num_heads = shape->num_heads;
  state->latent = shape->kv_lora_rank;
  state->width = shape->kv_lora_rank + shape->qk_rope_head_dim;
  state->causal = shape->causal;
  state->window = shape->window;
  state->sink = shape->sink;
  state->topk = shape->topk;
  state->num_requests = shape->num_requests;
  *out = state;
  *workspace_bytes = (size_t)state->latent * sizeof(double); /* the running output of one row */
  return 0;
}

static void plan_free(void* state) {
  free(state);
}

/* Row of a key position through the block table. */
static const float* row_of(const mla_cache_v1* cache, int32_t request, int64_t position) {
  const int64_t block =
      cache->block_table[request * cache->block_table_stride + position / cache->block_size];
  return (const float*)(cache->data + block * cache->block_stride_bytes +
                        position % cache->block_size * cache->row_stride_bytes);
}

static int sees(const plan_state* s, int64_t query, int64_t key) {
  if (!s->causal) return 1;
  if (key > query) return 0;
  return s->window == 0 || key > query - s->window || key < s->sink;
}

/* One (token, head) row: softmax in one pass, rescaled whenever the maximum grows. */
static void attend(const plan_state* s, const mla_args_v1* args, int32_t request, int64_t token,
                   int64_t query, int32_t head, double* acc) {
  const mla_tensor_v1* q_tensor = &args->q;
  const float* q = (const float*)q_tensor->data + token * q_tensor->stride[0] + head * q_tensor->stride[1];
  const int64_t keys = args->seq_lens[request];
  const int64_t candidates = s->topk > 0 ? s->topk : keys;
  double max = -INFINITY;
  double sum = 0;
  for (int32_t c = 0; c < s->latent; ++c) acc[c] = 0;
  for (int64_t i = 0; i < candidates; ++i) {
    const int64_t key = s->topk > 0 ? args->token_index[token * args->token_index_stride + i] : i;
    if (key < 0 || key >= keys || (s->topk == 0 && !sees(s, query, key))) continue;
    const float* row = row_of(&args->cache, request, key);
    double score = 0;
    for (int32_t c = 0; c < s->width; ++c) score += (double)q[c * q_tensor->stride[2]] * row[c];
    score *= args->softmax_scale;
    if (score > max) {
      const double shrink = max == -INFINITY ? 0 : exp(max - score);
      for (int32_t c = 0; c < s->latent; ++c) acc[c] *= shrink;
      sum *= shrink;
      max = score;
    }
    const double weight = exp(score - max);
    sum += weight;
    for (int32_t c = 0; c < s->latent; ++c) acc[c] += weight * row[c];
  }
  const mla_tensor_v1* out_tensor = &args->out;
  float* out = (float*)out_tensor->data + token * out_tensor->stride[0] + head * out_tensor->stride[1];
  for (int32_t c = 0; c < s->latent; ++c)
    out[c * out_tensor->stride[2]] = sum > 0 ? (float)(acc[c] / sum) : 0.0F;
  if (args->lse.data == NULL) return;
  const double lse = sum > 0 ? max + log(sum) : -INFINITY;
  const int64_t at = token * args->lse.stride[0] + head * args->lse.stride[1];
  if (args->lse.dtype == MLA_F64) {
    ((double*)args->lse.data)[at] = lse;
  } else {
    ((float*)args->lse.data)[at] = (float)lse;
  }
}

static int run(void* opaque, const mla_args_v1* args) {
  const plan_state* s = opaque;
  if (args->workspace_bytes < (size_t)s->latent * sizeof(double)) return fail("the workspace is too small");
  for (int32_t b = 0; b < s->num_requests; ++b) {
    const int64_t first = args->cu_seqlens_q[b];
    const int64_t tokens = args->cu_seqlens_q[b + 1] - first;
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t position = args->seq_lens[b] - tokens + i; /* new tokens are the last ones */
      for (int32_t h = 0; h < s->num_heads; ++h) attend(s, args, b, first + i, position, h, args->workspace);
    }
  }
  return 0;
}

static const char* get_last_error(void) {
  return last_error;
}

const mla_plugin_v1* mla_plugin_query(uint32_t host_abi) {
  static const mla_plugin_v1 plugin = {
      .abi = MLA_PLUGIN_ABI,
      .struct_size = sizeof(mla_plugin_v1),
      .name = "naive",
      .version = "1.0",
      .summary = "absorbed attention in plain C, the example of a plug-in",
      .strategy = "absorbed",
      .on_device = 0,
      .accumulate = MLA_F64,
      .probabilities = MLA_F64,
      .partials = MLA_F64,
      .absorbed_query = MLA_F64,
      .latent_output = MLA_F64,
      .expanded_kv = MLA_F64,
      .lse_from_rounded_p = 0,
      .supports = supports,
      .plan = plan,
      .run = run,
      .plan_free = plan_free,
      .last_error = get_last_error,
  };
  return host_abi == MLA_PLUGIN_ABI ? &plugin : NULL;
}
