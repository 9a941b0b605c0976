// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <mutex>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "peer/peer_backend.hpp"

namespace mla::peer {

std::shared_ptr<const PeerBackend> open_peer(const std::string& name, PeerBackend::Options options) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const PeerBackend>> open;
  if (!is_peer_name(name)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is no peer's name: it must start with '{}'",
                                                         text::quoted(name), kPeerPrefix));
  }
  const std::scoped_lock lock(mutex);
  std::weak_ptr<const PeerBackend>& known = open[name];
  if (std::shared_ptr<const PeerBackend> alive = known.lock()) return alive;
  auto fresh = std::make_shared<const PeerBackend>(name, name.substr(kPeerPrefix.size()), options);
  known = fresh;
  return fresh;
}

}  // namespace mla::peer
