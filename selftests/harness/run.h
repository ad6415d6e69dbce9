/* SPDX-License-Identifier: GPL-2.0 */
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/test.h"

/* The result of a test. */
struct Outcome {
	char verdict = 0; /* 'P', 'F', 'S' */
	std::vector<std::string> lines; /* diagnostics */
	double seconds = 0; /* from fork to exit */
	/* How often both sides of the test's race have met, and how often they must. */
	struct Met {
		uint64_t times, least;
	};
	std::optional<Met> met;
};

/* Runs the test in its own child, and kills all processes that the child has left running. */
Outcome run_test(const Test &test);
