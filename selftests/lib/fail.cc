// SPDX-License-Identifier: GPL-2.0
#include "lib/fail.h"

#include <cstring>

std::string errno_name(int err)
{
	if (!err)
		return "success";
	if (const char *name = strerrorname_np(err))
		return name;
	return "errno " + std::to_string(err);
}

std::string quantity(const std::string &number, const std::string &things)
{
	std::string text = number + " " + things;

	/* The first word that ends in "s" is the plural. */
	for (size_t i = 0; number == "1" && i < text.size(); i++) {
		if (text[i] != 's' ||
		    (i + 1 < text.size() && text[i + 1] != ' ' && text[i + 1] != ','))
			continue;
		if (text.substr(0, i).ends_with("sse"))
			text.erase(i - 1, 2);
		else
			text.erase(i, 1);
		break;
	}
	return text;
}
