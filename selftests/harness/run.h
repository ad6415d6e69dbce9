/* SPDX-License-Identifier: GPL-2.0 */
#pragma once

#include <string>
#include <vector>

#include "harness/test.h"

/* What became of a test. */
struct Outcome {
	char verdict = 0; /* 'P', 'F', 'S' */
	std::vector<std::string> lines; /* of diagnostics */
	double seconds = 0; /* from fork to exit */
};

/* Runs it in a child of its own; whatever that starts is killed in the end. */
Outcome run_test(const Test &test);
