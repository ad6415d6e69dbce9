/* SPDX-License-Identifier: GPL-2.0 */
/* JSON on stdout, value by value: commas and quotes come by themselves. */
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

class Json {
public:
	/* '{' or '[', each element on a line of its own if there are to be @lines; and its end. */
	Json &begin(char bracket, bool lines = false);
	Json &end();

	/* What follows is the value of @name, in an object. */
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

	/* With three digits behind the point, or none. */
	static std::string number(double value);

private:
	static std::string quoted(std::string_view text);
	Json &put(const std::string &text);

	/* Of each that is open, the innermost last. */
	struct Open {
		char end;
		bool lines, empty;
	};
	std::vector<Open> open_;
	bool named_ = false;
};
