/* SPDX-License-Identifier: GPL-2.0 */
/* Precompiled, because these headers take longer to compile than most files: see the Makefile. */
#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>
