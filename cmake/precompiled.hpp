// SPDX-License-Identifier: Apache-2.0
// What nearly every file includes, parsed once where MLA_PCH asks for it. No file may rely on it: most builds are without.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>
