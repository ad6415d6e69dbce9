/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A small test harness: each test is a function that runs in a child of its own, with a deadline
 * of its own, and tells the parent its verdict through a pipe. The parent alone prints KTAP. So a
 * test that is killed by a stray signal, or that hangs, costs one "not ok" and nothing else.
 */
#ifndef HARNESS_H
#define HARNESS_H

#include <functional>
#include <string>
#include <type_traits>

struct Test {
	std::string name; /* "theme.what.how" */
	std::string rule; /* of the contract, "C1" */
	std::string says; /* what holds, in one sentence */
	std::function<void()> run;
	int seconds = 30; /* after which it is taken to hang */
};

/* For tests that come from a table; returns true so that it can initialise a static. */
bool add_test(Test test);

/* TEST("theme.what.how", "C1", "what holds") { ... } */
#define TEST(name, rule, says) TEST_AT(name, rule, says, __LINE__)
#define TEST_AT(name, rule, says, line) TEST_ON(name, rule, says, line)
#define TEST_ON(name, rule, says, line)                      \
	static void test_##line();                           \
	[[maybe_unused]] static const bool added_##line =    \
		add_test({ name, rule, says, test_##line }); \
	static void test_##line()

/* A failed expectation fails the test, and the test goes on. */
#define EXPECT_EQ(got, want, what) expect_eq(got, want, what, __FILE__, __LINE__)

/* A line of diagnostics, whatever the verdict. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the test as failed. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the test as skipped, unless an expectation has failed: then it ends as failed. */
[[noreturn]] void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

void expected(const std::string &want, const std::string &got, const char *what, const char *file,
	      int line);

/* Numbers and enumerators, of whatever types, are compared by value. */
template <typename Got, typename Want>
void expect_eq(const Got &got, const Want &want, const char *what, const char *file, int line)
{
	static_assert(std::is_convertible_v<Got, long long> &&
		      std::is_convertible_v<Want, long long>);
	if (static_cast<long long>(got) != static_cast<long long>(want))
		expected(std::to_string(+want), std::to_string(+got), what, file, line);
}

#endif
