/* SPDX-License-Identifier: GPL-2.0 */
/* Writes JSON to stdout, value by value, with commas and quotes where they are needed. */
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

class Json {
public:
	/* Opens '{' or '['. With @lines each element is on a separate line. */
	Json &begin(char bracket, bool lines = false);
	/* Closes the innermost bracket. */
	Json &end();

	/* Writes the name of the next value, in an object. */
	Json &name(std::string_view name);

	template <typename Value> Json &value(const Value &value)
	{
		if constexpr (std::is_same_v<Value, bool>)
			return put(value ? "true" : "false");
		else if constexpr (std::is_arithmetic_v<Value>)
			return put(number(value));
		else
			return put(quoted(value));
	}
	template <typename Value> Json &field(std::string_view of, const Value &is)
	{
		return name(of).value(is);
	}

	/* With three decimal places, or none for an integer. */
	static std::string number(double value);

private:
	static std::string quoted(std::string_view text);
	Json &put(const std::string &text);

	/* The open brackets, the innermost last. */
	struct Open {
		char end;
		bool lines, empty;
	};
	std::vector<Open> open_;
	bool named_ = false;
};
