/* SPDX-License-Identifier: GPL-2.0 */
/* What is compiled once for all, as it takes longer than most files here: see the Makefile. */
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
