/* SPDX-License-Identifier: Apache-2.0 */
/* Plug-ins that are wrong in one way each, or of another age, chosen at compile time. */
#include <mla/plugin.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int supports(const mla_shape_v1* shape, const mla_device_v1* device, char* why, size_t why_bytes) {
  (void)shape;
  (void)device;
#ifdef REFUSES_SILENTLY
  (void)why;
  (void)why_bytes;
  return 0;
#elif defined(OVERFLOWS_WHY)
  memset(why, 'x', why_bytes); /* and no end */
  return 0;
#else
  (void)why;
  (void)why_bytes;
  return 1;
#endif
}

static int plan(const mla_shape_v1* shape, const mla_device_v1* device, int32_t num_splits, void** out,
                size_t* workspace_bytes) {
  (void)shape;
  (void)device;
  (void)num_splits;
  *out = NULL;
  *workspace_bytes = 64;
#ifdef PLAN_FAILS
  return 1;
#else
  return 0;
#endif
}

/* Zeros everywhere: a wrong answer that the verification must find. */
static int run(void* state, const mla_args_v1* args) {
  (void)state;
#ifdef RUN_FAILS
  (void)args;
  return 1;
#else
  const mla_tensor_v1* out = &args->out;
  for (int64_t t = 0; t < out->extent[0]; ++t) {
    for (int64_t h = 0; h < out->extent[1]; ++h) {
      memset((float*)out->data + t * out->stride[0] + h * out->stride[1], 0,
             sizeof(float) * (size_t)out->extent[2]);
    }
  }
  return 0;
#endif
}

static void plan_free(void* state) {
  (void)state;
}
static const char* last_error(void) {
  return "the reason of the broken plug-in";
}

#ifndef NO_SYMBOL
const mla_plugin_v1* mla_plugin_query(uint32_t host_abi) {
  static mla_plugin_v1 plugin;
  (void)host_abi;
  plugin.abi = MLA_PLUGIN_ABI;
  plugin.struct_size = sizeof plugin;
  plugin.name = "broken";
  plugin.version = "0";
  plugin.summary = "wrong on purpose";
  plugin.strategy = "absorbed";
  plugin.accumulate = plugin.probabilities = plugin.partials = MLA_F32;
  plugin.absorbed_query = plugin.latent_output = plugin.expanded_kv = MLA_F32;
  plugin.supports = supports;
  plugin.plan = plan;
  plugin.run = run;
  plugin.plan_free = plan_free;
  plugin.last_error = last_error;
#if defined(WRONG_ABI)
  plugin.abi = 99;
#elif defined(SHORT_STRUCT)
  plugin.struct_size = 16;
#elif defined(NO_NAME)
  plugin.name = NULL;
#elif defined(BAD_NAME)
  plugin.name = "Bad Name\x1b[31m";
#elif defined(TAKEN_NAME)
  plugin.name = "cpu-absorbed";
#elif defined(BAD_STRATEGY)
  plugin.strategy = "hope";
#elif defined(NO_RUN)
  plugin.run = NULL;
#elif defined(BAD_TYPE)
  plugin.accumulate = 77;
#elif defined(MANY_EDGES)
  plugin.num_edges = 65;
#elif defined(NO_EDGES)
  plugin.num_edges = 1;
#elif defined(ZERO_EDGE)
  static const int32_t edges[] = {64, 0};
  plugin.num_edges = 2;
  plugin.edges = edges;
#elif defined(FIRST_RELEASE) /* what lies behind its struct is not the host's to read */
  plugin.struct_size = offsetof(mla_plugin_v1, fused_maximum);
  plugin.fused_maximum = plugin.batch_invariant = plugin.num_edges = -1;
#elif defined(SAYS_MORE)
  static const int32_t edges[] = {48, 96};
  plugin.fused_maximum = plugin.batch_invariant = 1;
  plugin.num_edges = 2;
  plugin.edges = edges;
#elif defined(REFUSES_HOST)
  return NULL;
#endif
  return &plugin;
}
#endif
