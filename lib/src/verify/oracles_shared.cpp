// SPDX-License-Identifier: Apache-2.0
// Shared prefixes: reading one once, or being told of one that is not there, must not change what is computed.
#include <fmt/format.h>

#include "verify/oracle_list.hpp"
#include "verify/oracle_tools.hpp"

namespace mla::verify {
namespace {

/// Three members, the first of which ends with the prefix; a group of one; two with a longer prefix; and requests of
/// no group between them. Several new tokens where the base has them.
Case grouped(const Case& base) {
  const std::int32_t b = base.shape.block_size, q = base.shape.batch.front().q_len;
  Case c = base;
  c.shape.mask = {};
  c.shape.topk = 0;
  c.shape.batch = {{1, 3},         {1, 2 * b}, {1, 2 * b + 1}, {q, 5 * b + 7}, {q, 70},
                   {1, 2 * b + 9}, {q, 9 * b}, {1, 4 * b + 5}, {1, 0}};
  c.shape.shared = {{2 * b, 1, 3}, {b, 5, 1}, {4 * b, 6, 2}};
  c.prefix_reads = PrefixReads::kOnce;
  return c;
}

/// The case, run as `planned` says.
std::string wrong_as(const OracleSubject& subject, const Case& c, const AttentionShape& planned) {
  const Problem problem(c);
  return against_reference(subject, run_problem(subject, problem, &planned), problem);
}

}  // namespace

OracleOutcome oracle_shared_prefix(const OracleSubject& subject) {
  const Case c = grouped(subject.base);
  AttentionShape apart = c.shape;
  apart.shared.clear();

  // As a captured graph is replayed: shorter behind the prefix; then also a leader that is gone and a group of nobody.
  Case shorter = c;
  shorter.shape.batch[3].kv_len -= c.shape.block_size;
  shorter.shape.batch[6].kv_len = shorter.shape.shared[2].tokens + shorter.shape.batch[6].q_len - 1;
  Case fewer = shorter;
  fewer.shape.batch[1].kv_len = fewer.shape.batch[5].kv_len = 0;
  fewer.shape.shared = {{c.shape.shared[0].tokens, 2, 2}, c.shape.shared[2]};
  // Tables that begin alike nowhere, and members that end within the prefix.
  Case false_word = fewer;
  false_word.shape.batch[2].kv_len = c.shape.block_size;
  false_word.shape.shared.clear();

  struct Trial {
    const char* what;
    const Case& c;
    const AttentionShape& planned;
  };
  for (const Trial& trial : {Trial{"told of the prefixes", c, c.shape},
                             {"not told of them", c, apart},
                             {"a plan for longer requests", shorter, c.shape},
                             {"a plan for more members", fewer, c.shape},
                             {"told of prefixes that are not there", false_word, c.shape}}) {
    const std::string wrong = wrong_as(subject, trial.c, trial.planned);
    if (!wrong.empty()) return OracleOutcome::failed(fmt::format("{}: {}", trial.what, wrong));
  }
  return OracleOutcome::passed();
}

}  // namespace mla::verify
