/* SPDX-License-Identifier: GPL-2.0 */
/* The ring buffer of an event, as perf_event_open(2) has it under "MMAP layout". */
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/event.h"

constexpr uint32_t RECORD_CALLCHAIN_DEFERRED = 22; /* newer than the headers here */

/* The event's ring buffer, read and emptied by drain(). */
class Ring {
public:
	static constexpr size_t DATA_PAGES = 8; /* a power of two; some 1300 samples */

	enum class Mode {
		NORMAL, /* the kernel writes no further than the reader has read */
		OVERWRITE, /* mapped read-only: it goes on; wants attr.write_backward */
	};

	/* mmap(2) of the event; EINVAL for an inherited event of a task. */
	explicit Ring(const Event &event, Mode mode = Mode::NORMAL, size_t data_pages = DATA_PAGES);
	~Ring();
	Ring(const Ring &) = delete;

	/* Consumes what is there; with OVERWRITE looks at it, the newest record first. */
	void drain();
	/* Consumes what is there: the words of each sample, header and all. Not with OVERWRITE. */
	std::vector<std::vector<uint64_t>> take_samples();
	/* Where the next record will be: more with each one. Not with OVERWRITE. */
	uint64_t head() const;
	/* As if drain() had seen nothing yet: for more records than it can remember. */
	void forget() { seen_count_ = 0; }
	/* Bytes that the data part holds. */
	size_t size() const { return data_size_; }
	/* Records of @type (PERF_RECORD_*) that drain() has seen. */
	uint64_t records(uint32_t type) const;
	uint64_t samples() const { return records(PERF_RECORD_SAMPLE); }
	/* Records that the kernel had no room for, as PERF_RECORD_LOST says. */
	uint64_t lost() const;
	/* Samples whose PERF_SAMPLE_ADDR is @addr. */
	uint64_t samples_at(const volatile void *addr) const;
	/* Of the same word of all samples, whatever attr.sample_type makes it: which ones came. */
	uint64_t sum() const;

	/*
	 * What poll(2) says now, with no wait: POLLIN once after each wakeup, since the kernel
	 * clears its flag (rb->poll) as it reports it; see perf_poll().
	 */
	bool poll_ready() const;

private:
	template <typename Record> void consume(Record record);

	struct Seen {
		uint32_t type;
		uint64_t third; /* word: of a sample ADDR, of PERF_RECORD_LOST how many */
	};
	Mode mode_;
	void *map_;
	size_t data_size_;
	int fd_;
	size_t seen_count_ = 0;
	static constexpr size_t MOST = 2048; /* records remembered, of all drain()s together */
	Seen seen_[MOST];
};
