/* SPDX-License-Identifier: GPL-2.0 */
/* The ring buffer of an event, see "MMAP layout" in perf_event_open(2). */
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/event.h"

/* Newer than the headers here. */
constexpr uint32_t RECORD_CALLCHAIN_DEFERRED = 22;
constexpr uint64_t CONTEXT_USER_DEFERRED = -640;

/* The PERF_RECORD_* of a record that starts with @header. */
inline uint32_t type_of_record(uint64_t header)
{
	return header; /* the lower half */
}

/* The event's ring buffer, read and emptied by drain(). */
class Ring {
public:
	static constexpr size_t DATA_PAGES = 8; /* a power of two; some 1300 samples */

	enum class Mode {
		NORMAL, /* the kernel does not overwrite what the reader has not read */
		OVERWRITE, /* mapped read-only and overwritten; requires attr.write_backward */
	};

	/* mmap(2) of the event: fails with EINVAL for an event of a task with attr.inherit. */
	explicit Ring(const Event &event, Mode mode = Mode::NORMAL, size_t data_pages = DATA_PAGES);
	~Ring();
	Ring(const Ring &) = delete;

	/* Consumes all records. With OVERWRITE it only looks at them, the newest one first. */
	void drain();
	/* Consumes all records, and returns them with their headers. Not with OVERWRITE. */
	std::vector<std::vector<uint64_t>> take_records();
	/* The same, but returns only the samples. */
	std::vector<std::vector<uint64_t>> take_samples();
	/* The position of the next record, in bytes; it only grows. Not with OVERWRITE. */
	uint64_t head() const;
	/* Where the kernel stores it, for code that must not call a function. */
	const uint64_t *head_address() const;
	/* Forgets what drain() has seen, to make room for more records. */
	void forget() { seen_count_ = 0; }
	/* Size of the data area in bytes. */
	size_t size() const { return data_size_; }
	/* Records of @type (PERF_RECORD_*) that drain() has seen. */
	uint64_t records(uint32_t type) const;
	uint64_t samples() const { return records(PERF_RECORD_SAMPLE); }
	/* Records that did not fit into the ring, from PERF_RECORD_LOST. */
	uint64_t lost() const;
	/* Samples whose PERF_SAMPLE_ADDR is @addr. */
	uint64_t samples_at(const volatile void *addr) const;
	/* The sum, over all samples, of the word at the offset of PERF_SAMPLE_ADDR. */
	uint64_t sum() const;

	/*
	 * Calls poll(2) without waiting. It is ready once after each wakeup, because the kernel
	 * clears rb->poll when it reports it, see perf_poll().
	 */
	bool poll_ready() const;

private:
	template <typename Record> void consume(Record record);

	struct Seen {
		uint32_t type;
		uint64_t third; /* word: ADDR in a sample, the number of lost records in a LOST */
	};
	Mode mode_;
	void *map_;
	size_t data_size_;
	int fd_;
	size_t seen_count_ = 0;
	static constexpr size_t MOST = 2048; /* records that are remembered until forget() */
	Seen seen_[MOST];
};
