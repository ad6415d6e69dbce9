// SPDX-License-Identifier: GPL-2.0
#include "lib/args.h"

#include <errno.h>
#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

void bad_usage(const char *what, const char *about)
{
	fprintf(stderr, "%s: %s%s (try --help)\n", program_invocation_short_name, what, about);
	exit(2);
}

static uint64_t number_for(const Option &option, const char *text)
{
	char *end;

	errno = 0;

	const uint64_t number = strtoull(text, &end, 0);

	if (*text < '0' || *text > '9' || *end || errno || number < option.least ||
	    number > option.most) {
		std::string what = std::string("--") + option.name + " requires a number";

		if (option.least || option.most != UINT64_MAX)
			what += " from " + std::to_string(option.least);
		if (option.most != UINT64_MAX)
			what += " to " + std::to_string(option.most);
		bad_usage(what.c_str());
	}
	return number;
}

void print_version()
{
	printf("%s %s\n", program_invocation_short_name, SUITE_VERSION);
}

char **parse_arguments(int argc, char **argv, const char *usage,
		       std::initializer_list<Option> options)
{
	constexpr int VERSION = 256, FIRST = 257; /* no letters */
	std::string letters = ":h";
	std::vector<option> known = { { "help", no_argument, nullptr, 'h' },
				      { "version", no_argument, nullptr, VERSION } };

	for (auto &o : options) {
		known.push_back({ o.name, o.number ? required_argument : no_argument, nullptr,
				  FIRST + int(&o - options.begin()) });
		if (o.letter)
			letters += o.letter;
	}
	known.push_back({});
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, letters.c_str(), known.data(), nullptr)) != -1;) {
		if (c == 'h') {
			printf("%s"
			       "  -h, --help   print this text\n"
			       "  --version    print the version\n",
			       usage);
			exit(0);
		}
		if (c == VERSION) {
			print_version();
			exit(0);
		}

		const Option *which = nullptr;

		for (auto &o : options)
			if (c == o.letter || c == FIRST + int(&o - options.begin()) ||
			    (c == ':' && optopt == FIRST + int(&o - options.begin())))
				which = &o;
		if (!which)
			bad_usage("unknown option ", argv[optind - 1]);
		if (which->number)
			*which->number = number_for(*which, c == ':' ? "" : optarg);
		else
			*which->flag = true;
	}
	return argv + optind;
}
