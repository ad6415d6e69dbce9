/* SPDX-License-Identifier: GPL-2.0 */
/* Pseudo-random choices that can be repeated from a seed, for the stress test and the fuzzer. */
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>

/* splitmix64: small, the same on all machines, and good with every seed, even 0. */
class Random {
public:
	explicit Random(uint64_t seed)
		: state_(seed)
	{
	}
	uint64_t next()
	{
		uint64_t z = state_ += 0x9e3779b97f4a7c15;

		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
		z = (z ^ z >> 27) * 0x94d049bb133111eb;
		return z ^ z >> 31;
	}
	uint64_t below(uint64_t n) { return next() % n; }
	bool one_in(uint64_t n) { return !below(n); }
	template <typename Choices> auto of(const Choices &choices)
	{
		return std::data(choices)[below(std::size(choices))];
	}
	template <typename T> T of(std::initializer_list<T> choices)
	{
		return choices.begin()[below(choices.size())];
	}

private:
	uint64_t state_;
};
