/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A small test harness: each test is a function that runs in a child of its own, with a deadline
 * of its own, and tells the parent its verdict through a pipe. The parent alone prints KTAP. So a
 * test that is killed by a stray signal, or that hangs, costs one "not ok" and nothing else.
 */
#pragma once

#include <functional>
#include <string>
#include <type_traits>

/* Where a call is in the sources: std::source_location, which clang has from version 16 on. */
struct CallSite {
	const char *file;
	int line;

	static constexpr CallSite of_call(const char *file = __builtin_FILE(), int line = __builtin_LINE())
	{
		return { file, line };
	}
};

struct Test {
	std::string name; /* "theme.what.how" */
	std::string rule; /* of the contract, "C1" */
	std::string says; /* what holds, in one sentence */
	std::function<void()> run;
	int seconds = 30; /* after which it is taken to hang */
	std::string file = ""; /* set by add_test(): "tests/theme.cc" */
};

/* For tests that come from a table; returns true so that it can initialise a static. */
bool add_test(Test test, CallSite at = CallSite::of_call());

/* TEST("theme.what.how", "C1", "what holds") { ... } */
#define TEST(name, rule, says) TEST_AT(name, rule, says, __LINE__)
#define TEST_AT(name, rule, says, line) TEST_ON(name, rule, says, line)
#define TEST_ON(name, rule, says, line)                                                            \
	static void test_##line();                                                                 \
	[[maybe_unused]] static const bool added_##line =                                          \
		add_test({ name, rule, says, test_##line });                                       \
	static void test_##line()

/* A test that is one call. */
#define TEST_OF(name, rule, says, call)                                                            \
	TEST(name, rule, says)                                                                     \
	{                                                                                          \
		call;                                                                              \
	}

/* A failed expectation fails the test, and the test goes on. Each side is evaluated once. */
#define EXPECT_EQ(got, want, what) EXPECT_THAT(std::equal_to(), "", got, want, what)
#define EXPECT_GT(got, want, what) EXPECT_THAT(std::greater(), "more than ", got, want, what)
#define EXPECT_GE(got, want, what) EXPECT_THAT(std::greater_equal(), "at least ", got, want, what)
#define EXPECT_LT(got, want, what) EXPECT_THAT(std::less(), "less than ", got, want, what)
#define EXPECT_LE(got, want, what) EXPECT_THAT(std::less_equal(), "at most ", got, want, what)
#define EXPECT_TRUE(got, what) EXPECT_EQ(static_cast<bool>(got), true, what)
#define EXPECT_FALSE(got, what) EXPECT_EQ(static_cast<bool>(got), false, what)
#define EXPECT_THAT(holds, how, got, want, what)                                                   \
	expect(holds, how, got, want, what, __FILE__, __LINE__)

/* A line of diagnostics, whatever the verdict. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the test as failed. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the test as skipped, unless an expectation has failed: then it ends as failed. */
[[noreturn]] void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails the test: "expected @want, got @got: @what (@file:@line)". */
void expected(const std::string &want, const std::string &got, const char *what, const char *file,
	      int line);

/* Numbers and enumerators, of whatever types, are compared by value. */
template <typename Number> auto value_of(const Number &number)
{
	if constexpr (std::is_floating_point_v<Number>)
		return static_cast<double>(number);
	else
		return static_cast<long long>(number);
}

/* Fails the test if it does not hold: "expected HOW@want, got @got: ...". */
template <typename Holds, typename Got, typename Want>
void expect(Holds holds, const char *how, const Got &got, const Want &want, const char *what,
	    const char *file, int line)
{
	const auto text = [](const auto &number) {
		if constexpr (std::is_same_v<Got, bool> && std::is_same_v<Want, bool>)
			return std::string(number ? "true" : "false");
		else
			return std::to_string(+number);
	};

	if (!holds(value_of(got), value_of(want)))
		expected(how + text(want), text(got), what, file, line);
}
