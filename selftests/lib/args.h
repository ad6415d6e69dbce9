/* SPDX-License-Identifier: GPL-2.0 */
/* Parses the arguments of a program with getopt_long(3). */
#pragma once

#include <cstdint>
#include <initializer_list>

/* --NAME sets @flag, or --NAME N sets @number, which must be from @least to @most. */
struct Option {
	const char *name;
	bool *flag;
	uint64_t *number = nullptr;
	uint64_t least = 0, most = UINT64_MAX;
	char letter = 0; /* short form of the flag, -LETTER */
};

/* Ends the process with exit code 2 and one line on stderr: the program's name, @what, @about. */
[[noreturn]] void bad_usage(const char *what, const char *about = "");

/* Prints the program's name and the version of the suite to stdout. */
void print_version();

/*
 * Sets the options from the arguments. -h and --help print @usage, followed by the lines for these
 * two and for --version, which prints the version. Returns the remaining arguments, terminated by
 * nullptr.
 */
char **parse_arguments(int argc, char **argv, const char *usage,
		       std::initializer_list<Option> options);
