/* SPDX-License-Identifier: GPL-2.0 */
/* The arguments of a program, by getopt_long(3). */
#pragma once

#include <cstdint>
#include <initializer_list>

/* --NAME sets @flag, or --NAME N sets @number, which has bounds. */
struct Option {
	const char *name;
	bool *flag;
	uint64_t *number = nullptr;
	uint64_t least = 0, most = UINT64_MAX;
	char letter = 0; /* the flag may be given as -LETTER, too */
};

/* Ends the process with exit code 2 and one line on stderr: the program's name, @what, @about. */
[[noreturn]] void bad_usage(const char *what, const char *about = "");

/*
 * Sets what the arguments say; -h and --help print @usage, --version the version. Returns those that are no options, and
 * behind the last one nullptr.
 */
char **parse_arguments(int argc, char **argv, const char *usage,
		       std::initializer_list<Option> options);
