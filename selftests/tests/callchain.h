/* SPDX-License-Identifier: GPL-2.0 */
/* For tests of rule C2: the callchain of a sample must be that of its own hit. */
#pragma once

#include <algorithm>

#include "tests/common.h"

/*
 * Samples have only user frames and, for PERF_SAMPLE_WEIGHT, a word of 0 after the callchain. If
 * that word is not 0, the callchain does not have the size that the kernel has reserved for it.
 */
inline perf_event_attr with_user_callchain(perf_event_attr attr)
{
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_WEIGHT;
	attr.exclude_callchain_kernel = 1;
	return attr;
}

/* Samples have only kernel frames, which means none for a hit in user mode. */
inline perf_event_attr with_kernel_callchain(perf_event_attr attr)
{
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN;
	attr.exclude_callchain_user = 1;
	return attr;
}

/* The tracepoint that Program::PRINTS hits. */
inline perf_event_attr traced_prints()
{
	perf_event_attr attr = software(id_of_tracepoint("bpf_trace/bpf_trace_printk"), 1);

	attr.type = PERF_TYPE_TRACEPOINT;
	return attr;
}

/* Expects @hits samples of with_user_callchain(), of the right size and with only user frames. */
inline void expect_user_callchains(Ring &ring, uint64_t hits, CallSite at = CallSite::of_call())
{
	enum { HEADER, IP, NUMBER, CALLCHAIN };
	uint64_t short_or_long = 0, other = 0, leaks = 0, displaced = 0;
	const auto equal = [&](uint64_t got, uint64_t want, const char *what) {
		expect(std::equal_to(), "", got, want, what, at.file, at.line);
	};
	const auto samples = ring.take_samples();

	for (const auto &words : samples) {
		short_or_long += words.size() != CALLCHAIN + words[NUMBER] + 1;
		other += words[CALLCHAIN] != uint64_t(PERF_CONTEXT_USER) ||
			 !(words[IP] >> 63 || words[IP] == words[CALLCHAIN + 1]);
		leaks += std::any_of(words.begin() + CALLCHAIN, words.end(), [](uint64_t word) {
			return word >> 63 && word < uint64_t(PERF_CONTEXT_MAX);
		});
		displaced += words.back() != 0;
	}
	equal(samples.size(), hits, "samples");
	equal(short_or_long, 0, "samples whose number of frames does not match their size");
	equal(other, 0, "callchains that do not begin with the user frame that was hit");
	equal(leaks, 0, "samples with a kernel address");
	equal(displaced, 0, "samples with a wrong word after their callchain");
}

/* Numbers of callchains, by how they were written, of samples with IP, ADDR and CALLCHAIN. */
struct UserCallchains {
	uint64_t samples, whole, deferred, stray;
};

/*
 * A sample has its user callchain, or else a cookie, with which the record of the deferred
 * callchain follows. A record with any other cookie, or with one of an earlier record, is stray.
 */
inline UserCallchains take_user_callchains(Ring &ring)
{
	enum { SAMPLE_NUMBER = 3, SAMPLE_FRAMES = 4 };
	enum { DEFERRED_COOKIE = 1, DEFERRED_NUMBER };
	UserCallchains found = {};
	std::vector<uint64_t> cookies;

	for (const auto &words : ring.take_records()) {
		const auto type = type_of_record(words[0]);

		if (type == PERF_RECORD_SAMPLE) {
			const uint64_t frames = words.at(SAMPLE_NUMBER);

			found.samples++;
			if (frames < 2)
				continue;
			if (words.at(SAMPLE_FRAMES) == CONTEXT_USER_DEFERRED)
				cookies.push_back(words.at(SAMPLE_FRAMES + 1));
			else
				found.whole += words[SAMPLE_FRAMES] == uint64_t(PERF_CONTEXT_USER);
		} else if (type == RECORD_CALLCHAIN_DEFERRED) {
			if (words.at(DEFERRED_NUMBER) &&
			    std::erase(cookies, words.at(DEFERRED_COOKIE)) == 1)
				found.deferred++;
			else
				found.stray++;
		}
	}
	return found;
}
