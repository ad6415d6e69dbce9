// SPDX-License-Identifier: GPL-2.0
#include "lib/ring.h"

#include <linux/perf_event.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/fail.h"

Ring::Ring(const Event &event, Mode mode, size_t data_pages)
	: mode_(mode)
	, fd_(event.fd())
{
	size_t page = sysconf(_SC_PAGESIZE);
	int access = mode == Mode::NORMAL ? PROT_READ | PROT_WRITE : PROT_READ;

	data_size_ = data_pages * page;
	map_ = mmap(nullptr, page + data_size_, access, MAP_SHARED, fd_, 0);
	if (map_ == MAP_FAILED)
		setup_failed("mmap of the ring buffer", errno);
}

Ring::~Ring()
{
	munmap(map_, sysconf(_SC_PAGESIZE) + data_size_);
}

/* Calls @record(header, word) for each record, where word(n) is the nth word of the record. */
template <typename Record> void Ring::consume(Record record)
{
	auto *page = static_cast<perf_event_mmap_page *>(map_);
	const char *data = static_cast<char *>(map_) + sysconf(_SC_PAGESIZE);
	uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
	uint64_t at = page->data_tail, end = head;

	/* A backward ring has the newest record at its head, and zeroes after the oldest one. */
	if (mode_ == Mode::OVERWRITE) {
		seen_count_ = 0;
		at = head;
		end = head + data_size_;
	}

	/* Records are multiples of 8 bytes, so a u64 never wraps though a record may. */
	auto word = [&](size_t n) {
		uint64_t value;

		memcpy(&value, data + ((at + n * sizeof(value)) & (data_size_ - 1)), sizeof(value));
		return value;
	};

	while (at != end) {
		uint64_t first = word(0);
		perf_event_header header;

		memcpy(&header, &first, sizeof(header));
		/* Not a record, or the oldest one, which is partly overwritten by the newest. */
		if (!header.size || header.size > end - at)
			break;
		record(header, word);
		at += header.size;
	}
	if (mode_ == Mode::NORMAL)
		__atomic_store_n(&page->data_tail, at, __ATOMIC_RELEASE);
}

void Ring::drain()
{
	consume([this](const perf_event_header &header, auto word) {
		/* A sample: header, IP, ADDR. PERF_RECORD_LOST: header, id, number. */
		if (seen_count_ < MOST)
			seen_[seen_count_++] = { header.type, word(2) };
	});
}

std::vector<std::vector<uint64_t>> Ring::take_records()
{
	std::vector<std::vector<uint64_t>> records;

	consume([&](const perf_event_header &header, auto word) {
		records.emplace_back();
		for (size_t n = 0; n < header.size / sizeof(uint64_t); n++)
			records.back().push_back(word(n));
	});
	return records;
}

std::vector<std::vector<uint64_t>> Ring::take_samples()
{
	auto records = take_records();

	std::erase_if(records, [](const auto &words) {
		return type_of_record(words[0]) != PERF_RECORD_SAMPLE;
	});
	return records;
}

uint64_t Ring::head() const
{
	return __atomic_load_n(head_address(), __ATOMIC_ACQUIRE);
}

const uint64_t *Ring::head_address() const
{
	return reinterpret_cast<const uint64_t *>(
		&static_cast<perf_event_mmap_page *>(map_)->data_head);
}

uint64_t Ring::records(uint32_t type) const
{
	uint64_t n = 0;

	for (size_t i = 0; i < seen_count_; i++)
		n += seen_[i].type == type;
	return n;
}

uint64_t Ring::lost() const
{
	uint64_t n = 0;

	for (size_t i = 0; i < seen_count_; i++)
		if (seen_[i].type == PERF_RECORD_LOST)
			n += seen_[i].third;
	return n;
}

uint64_t Ring::samples_at(const volatile void *addr) const
{
	uint64_t n = 0;

	for (size_t i = 0; i < seen_count_; i++)
		n += seen_[i].type == PERF_RECORD_SAMPLE &&
		     seen_[i].third == reinterpret_cast<uintptr_t>(addr);
	return n;
}

uint64_t Ring::sum() const
{
	uint64_t sum = 0;

	for (size_t i = 0; i < seen_count_; i++)
		sum += seen_[i].type == PERF_RECORD_SAMPLE ? seen_[i].third : 0;
	return sum;
}

bool Ring::poll_ready() const
{
	struct pollfd poller = { fd_, POLLIN, 0 };

	return poll(&poller, 1, 0) == 1 && poller.revents & POLLIN;
}
