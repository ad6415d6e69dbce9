// SPDX-License-Identifier: GPL-2.0
#include "lib/json.h"

#include <cmath>
#include <cstdio>

Json &Json::begin(char bracket, bool lines)
{
	put({ bracket });
	open_.push_back({ bracket == '{' ? '}' : ']', lines, true });
	return *this;
}

Json &Json::end()
{
	const Open last = open_.back();

	open_.pop_back();
	printf("%s%c", last.lines && !last.empty ? "\n" : "", last.end);
	if (open_.empty())
		putchar('\n');
	return *this;
}

Json &Json::name(std::string_view name)
{
	put(quoted(name) + ": ");
	named_ = true;
	return *this;
}

std::string Json::number(double value)
{
	char text[32];

	snprintf(text, sizeof(text), value == std::round(value) ? "%.0f" : "%.3f", value);
	return text;
}

std::string Json::quoted(std::string_view text)
{
	std::string quoted = "\"";

	for (unsigned char c : text) {
		char escaped[8];

		if (c == '"' || c == '\\')
			quoted += '\\';
		if (c < ' ')
			snprintf(escaped, sizeof(escaped), "\\u%04x", c);
		quoted += c < ' ' ? std::string(escaped) : std::string(1, c);
	}
	return quoted + '"';
}

/* Writes a comma first, unless @text is the first element or the value of a name. */
Json &Json::put(const std::string &text)
{
	if (!open_.empty() && !named_) {
		Open &in = open_.back();

		fputs(in.empty ? "" : in.lines ? "," : ", ", stdout);
		fputs(in.lines ? "\n  " : "", stdout);
		in.empty = false;
	}
	named_ = false;
	fputs(text.c_str(), stdout);
	return *this;
}
