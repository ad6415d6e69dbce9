/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A small test harness. Each test is a function that runs in its own child with its own deadline
 * and sends its result to the parent through a pipe. Only the parent prints KTAP. A test that
 * hangs or is killed by a stray signal therefore fails alone, and all other tests run.
 */
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>

#include "lib/child.h"
#include "lib/fail.h"

/* The place of a call in the sources. clang has no std::source_location before version 16. */
struct CallSite {
	const char *file;
	int line;

	static constexpr CallSite of_call(const char *file = __builtin_FILE(),
					  int line = __builtin_LINE())
	{
		return { file, line };
	}
};

struct Test {
	std::string name; /* "theme.what.how" */
	std::string rule; /* the rule of the contract, "C1" */
	std::string description; /* what must hold, in one sentence that can be understood alone */
	std::function<void()> run;
	int seconds = 30; /* deadline */
	std::string file = ""; /* set by add_test(): "tests/theme.cc" */
};

/* For tests that come from a table; returns true so that it can initialise a static. */
bool add_test(Test test, CallSite at = CallSite::of_call());

/* TEST("theme.what.how", "C1", "what must hold") { ... } */
#define TEST(name, rule, description) TEST_AT(name, rule, description, __LINE__)
#define TEST_AT(name, rule, description, line) TEST_ON(name, rule, description, line)
#define TEST_ON(name, rule, description, line)                                                     \
	static void test_##line();                                                                 \
	[[maybe_unused]] static const bool added_##line =                                          \
		add_test({ name, rule, description, test_##line });                                \
	static void test_##line()

/* A test that is one call. */
#define TEST_OF(name, rule, description, call)                                                     \
	TEST(name, rule, description)                                                              \
	{                                                                                          \
		call;                                                                              \
	}

/*
 * A failed expectation fails the test, and the test continues. Each side is evaluated once.
 *
 * These compare numbers of @things, a plural: "expected 20 SIGTRAPs, got 19".
 */
#define EXPECT_EQ(got, want, things) EXPECT_THAT(std::equal_to(), "", got, want, things)
#define EXPECT_GT(got, want, things) EXPECT_THAT(std::greater(), "more than ", got, want, things)
#define EXPECT_GE(got, want, things)                                                               \
	EXPECT_THAT(std::greater_equal(), "at least ", got, want, things)
#define EXPECT_LT(got, want, things) EXPECT_THAT(std::less(), "less than ", got, want, things)
#define EXPECT_LE(got, want, things) EXPECT_THAT(std::less_equal(), "at most ", got, want, things)
#define EXPECT_THAT(holds, how, got, want, things)                                                 \
	expect(holds, how, got, want, things, __FILE__, __LINE__)

/* These compare other values: "expected EEXIST, got EINVAL: attaching the second program". */
#define EXPECT_VALUE(got, want, what) EXPECT_AS(value_text, got, want, what)
#define EXPECT_TRUE(got, what) EXPECT_VALUE(static_cast<bool>(got), true, what)
#define EXPECT_FALSE(got, what) EXPECT_VALUE(static_cast<bool>(got), false, what)
#define EXPECT_HEX(got, want, what) EXPECT_AS(hex_text, got, want, what)
#define EXPECT_ERRNO(got, want, what) EXPECT_AS(errno_name, got, want, what)
/* Compares the status that waitpid(2) returns. */
#define EXPECT_STATUS(got, want, what) EXPECT_AS(status_text, got, want, what)
#define EXPECT_AS(text, got, want, what)                                                           \
	expect_as([](const auto &value) { return text(value); }, got, want, what, __FILE__,        \
		  __LINE__)

/* Prints a line of diagnostics, whether the test passes or fails. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the test as failed. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the test as skipped, or as failed if an expectation has failed. */
[[noreturn]] void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails the test: "expected @want, got @got: @what (@file:@line)". */
void expected(const std::string &want, const std::string &got, const char *what, const char *file,
	      int line);

/* Fails the test: "expected @how@want @things, got @got (@file:@line)". */
void expected_quantity(const char *how, const std::string &want, const char *things,
		       const std::string &got, const char *file, int line);

std::string hex_text(uint64_t value);

template <typename Value> std::string value_text(const Value &value)
{
	if constexpr (std::is_same_v<Value, bool>)
		return value ? "true" : "false";
	else
		return std::to_string(+value);
}

/* Numbers and enumerators of different types are compared by value. */
template <typename Number> auto value_of(const Number &number)
{
	if constexpr (std::is_floating_point_v<Number>)
		return static_cast<double>(number);
	else
		return static_cast<long long>(number);
}

/* Fails the test if @holds(@got, @want) is false: "expected @how@want @things, got @got". */
template <typename Holds, typename Got, typename Want>
void expect(Holds holds, const char *how, const Got &got, const Want &want, const char *things,
	    const char *file, int line)
{
	if (!holds(value_of(got), value_of(want)))
		expected_quantity(how, std::to_string(+want), things, std::to_string(+got), file,
				  line);
}

/* Fails the test if the two differ: "expected @text(@want), got @text(@got): @what". */
template <typename Text, typename Got, typename Want>
void expect_as(Text text, const Got &got, const Want &want, const char *what, const char *file,
	       int line)
{
	if (value_of(got) != value_of(want))
		expected(text(want), text(got), what, file, line);
}
