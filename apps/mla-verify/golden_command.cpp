// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "commands.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"
#include "view.hpp"

namespace mla::verify_app {
namespace {

std::vector<const verify::GoldenVariant*> choose_sets(const verify::GoldenManifest& manifest,
                                                      const std::vector<std::string>& names) {
  std::vector<const verify::GoldenVariant*> chosen;
  std::vector<std::string> known;
  for (const verify::GoldenVariant& v : manifest.variants) {
    known.push_back(v.name);
    if (names.empty() || std::ranges::find(names, v.name) != names.end()) chosen.push_back(&v);
  }
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) == known.end()) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no set '{}' in the manifest", name),
                  text::suggestion(name, known));
    }
  }
  return chosen;
}

}  // namespace

int golden(const GoldenRequest& request) {
  const verify::GoldenManifest manifest = verify::load_golden_manifest(request.dir);
  const std::vector<const verify::GoldenVariant*> sets = choose_sets(manifest, request.sets);
  std::vector<const Backend*> backends;
  for (const verify::Participant& p : verify::choose_participants(request.backends).ready)
    backends.push_back(p.backend);
  std::vector<verify::GoldenResult> results;
  bool passed = true;
  {
    report::Progress progress("golden", static_cast<std::int64_t>(sets.size()), !request.output.quiet);
    for (const verify::GoldenVariant* set : sets) {
      if (cli::interrupted()) return cli::kInterrupted;
      progress.step(set->name);
      results.push_back(verify::check_golden(manifest, *set, backends));
      passed = passed && results.back().passed();
    }
  }
  cli::print(golden_document(manifest, results, !request.summary), request.output);
  return passed ? cli::kOk : cli::kCheckFailed;
}

}  // namespace mla::verify_app
