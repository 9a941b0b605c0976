// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "commands.hpp"
#include "mla/device_ops.hpp"
#include "mla/error.hpp"
#include "verify/index_check.hpp"
#include "view.hpp"

namespace mla::verify_app {

int index(const IndexRequest& request) {
  if (request.cases == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "--cases is 0, but what checks no batch must not pass: at least 1");
  }
  std::vector<std::unique_ptr<verify::Indexer>> owned;
  owned.push_back(verify::host_indexer());
  const Support device = device_ops::available();
  if (device) owned.push_back(verify::device_indexer(real_devices().devices.front()));
  std::vector<const verify::Indexer*> indexers;
  for (const auto& indexer : owned) indexers.push_back(indexer.get());
  const std::vector<verify::IndexOutcome> outcomes =
      verify::check_indexers(indexers, request.seed, request.cases);
  cli::print(index_document(outcomes, device.ok ? std::string() : device.why), request.output);
  return std::ranges::all_of(outcomes, [](const verify::IndexOutcome& o) { return o.finding.empty(); })
             ? cli::kOk
             : cli::kCheckFailed;
}

}  // namespace mla::verify_app
