// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mla/capacity.hpp"
#include "options.hpp"
#include "report/table.hpp"
#include "request.hpp"

/// From answers to documents. Nothing here computes; it chooses words, units and columns.
namespace mla::memcalc {

struct Answer {
  report::Document document;
  std::string plain_text;  ///< instead of the document: names for completion
  std::string complaint;   ///< instead of both, on stderr with exit 1: there is nothing to print
  bool fits = true;        ///< false: exit 1
};

[[nodiscard]] Answer answer_to(const Options& options);

// One for each command.
[[nodiscard]] Answer plan_answer(const Options& options);
[[nodiscard]] Answer solve_answer(const Options& options);
[[nodiscard]] Answer compare_answer(const Options& options);
[[nodiscard]] Answer sweep_answer(const Options& options);
[[nodiscard]] Answer savings_answer(const Options& options);
[[nodiscard]] Answer table_answer(const Options& options);
[[nodiscard]] Answer examples_answer(const Options& options);
[[nodiscard]] Answer list_answer(const Options& options);
[[nodiscard]] Answer check_answer(const Options& options);
[[nodiscard]] Answer explain_answer(const Options& options);

// ---- shared words -----------------------------------------------------------------------------------------

[[nodiscard]] constexpr double to_gib(double bytes) {
  return bytes / (1024.0 * 1024.0 * 1024.0);
}
[[nodiscard]] constexpr double to_gb(double bytes) {
  return bytes / 1e9;
}
/// 131072 -> "128k", 100000 -> "100,000".
[[nodiscard]] std::string length_text(std::int64_t tokens);
/// Empty, or where a context is more than the model's maximum, words that say so.
[[nodiscard]] std::string beyond_text(const ModelConfig& model, std::int64_t tokens);
/// "128k context", with these words.
[[nodiscard]] std::string context_text(const ModelConfig& model, std::int64_t tokens);
/// A whole number of bytes as an integer, others as they are.
[[nodiscard]] report::Cell bytes_cell(double bytes);
/// "1 sequence", "24 sequences".
[[nodiscard]] std::string counted(std::int64_t count, std::string_view noun);
/// "8 x NVIDIA H200 SXM 141 GB".
[[nodiscard]] std::string gpus_text(const Question& question, std::int64_t gpus);
/// "3 on each of 8 replicas", or empty for one replica.
[[nodiscard]] std::string replicas_text(const capacity::MemoryPlan& plan);
/// The table that --formulas adds: every line with its arithmetic and source.
[[nodiscard]] report::Table formulas_table(const std::vector<capacity::Line>& lines);
/// Whether the answer's figure will be looked at: it takes many plans to make one.
[[nodiscard]] inline bool draws(const Options& options) {
  return !options.plot.empty() || options.output.format == report::Format::kHtml;
}
/// "DeepSeek-V3 on 8 x NVIDIA H200".
[[nodiscard]] std::string setting(const Question& question);
/// Plans side by side; `rows` index them.
[[nodiscard]] report::Table plans_table(const std::vector<capacity::MemoryPlan>& plans,
                                        const std::vector<std::size_t>& rows);
/// Ranks of a replica that keep the same latent rows; 0 for models without.
[[nodiscard]] std::int64_t latent_copies(const Question& question, const capacity::Layout& layout);
/// plan --lengths: a sentence and a table.
void add_lengths(report::Document& document, const Question& question, const std::string& file,
                 std::vector<capacity::Line>& lines);
/// plan --with: a table of the decode batches that fit, at the times of a run of mla-bench. Throws where it holds none that
/// apply.
void add_measured(report::Document& document, const Question& question, const std::string& path);
/// plan --versus: a sentence and a table.
void add_versus(report::Document& document, const Question& question, const capacity::MemoryPlan& plan,
                const std::string& list, std::vector<capacity::Line>& lines);
/// As notes.
void add_warnings(report::Document& document, const std::vector<std::string>& warnings);
/// Lines of a plan in reading order, each stage's weights after their total.
[[nodiscard]] std::vector<capacity::Line> all_lines(const capacity::MemoryPlan& plan);

}  // namespace mla::memcalc
