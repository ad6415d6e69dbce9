/* SPDX-License-Identifier: GPL-2.0 */
/* The matrix of what can happen to a filtered event, as data for scripts. */
#pragma once

#include <string>
#include <vector>

/* One cell of a table: the test that covers it, or the reason why none is needed. */
struct Cell {
	std::string table, row, column, test, why;
};

const std::vector<Cell> &cells();
