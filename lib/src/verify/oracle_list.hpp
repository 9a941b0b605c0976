// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "verify/oracles.hpp"

/// One function an oracle; all_oracles() lists them with what they expect.
namespace mla::verify {

// Answers built into the inputs.
[[nodiscard]] OracleOutcome oracle_one_key(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_constant_value(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_count(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_spike(const OracleSubject& subject);

// Changes that must not change a bit.
[[nodiscard]] OracleOutcome oracle_permuted_pages(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_wide_table(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_poison(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_no_nan_left(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_repeats(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_scaled_query(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_batch(const OracleSubject& subject);

// Changes whose effect is known.
[[nodiscard]] OracleOutcome oracle_permuted_keys(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_duplicates(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_shifted_scores(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_one_by_one(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_shorter(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_splits(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_chunks(const OracleSubject& subject);
[[nodiscard]] OracleOutcome oracle_shared_prefix(const OracleSubject& subject);

}  // namespace mla::verify
