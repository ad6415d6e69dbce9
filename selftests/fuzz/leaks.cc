// SPDX-License-Identifier: GPL-2.0
/* Finds what the calls have left behind in the kernel. */
#include "fuzz/fuzz.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "lib/hit.h"

template <typename Next> static uint64_t count_ids(Next next)
{
	uint64_t number = 0;

	for (uint32_t id = 0; !next(id, &id);)
		number++;
	return number;
}

std::map<std::string, uint64_t> census()
{
	std::map<std::string, uint64_t> found = {
		{ "BPF programs", count_ids(bpf_prog_get_next_id) },
		{ "BPF maps", count_ids(bpf_map_get_next_id) },
		{ "BPF links", count_ids(bpf_link_get_next_id) },
	};
	/* All objects of these caches are from the fuzzer, unless the kernel merges slab caches. */
	static const char *const caches[] = { "perf_event", "fasync_cache" };

	for (auto cache : caches)
		std::ofstream(std::string("/sys/kernel/slab/") + cache + "/shrink") << 1;

	std::ifstream slabs("/proc/slabinfo");

	for (std::string line; std::getline(slabs, line);) {
		std::istringstream words(line);
		std::string name;
		uint64_t objects = 0;

		words >> name >> objects;
		for (auto cache : caches)
			if (name == cache)
				found["slab " + name] = objects;
	}
	return found;
}

static bool more(const std::map<std::string, uint64_t> &now,
		 const std::map<std::string, uint64_t> &before)
{
	return std::any_of(now.begin(), now.end(), [&](auto &item) {
		auto was = before.find(item.first);

		return was == before.end() || item.second > was->second;
	});
}

int free_registers()
{
	std::vector<Fd> held;
	const perf_event_attr attr = breakpoint(hit);

	for (;;) {
		Fd fd = open_event(attr);

		if (!fd.valid())
			return held.size();
		held.push_back(std::move(fd));
	}
}

/* The kernel frees many objects later, after RCU grace periods, so wait for that. */
int report_leaks(const std::map<std::string, uint64_t> &before)
{
	constexpr int PATIENCE = 30;
	int leaks = 0;

	for (int seconds = 0; more(census(), before) && seconds < PATIENCE; seconds++)
		sleep(1);
	for (auto &[name, now] : census()) {
		auto was = before.find(name); /* always found, because caches are not removed */

		bool leaked = now > was->second;

		printf("%s%s: %lu, before %lu\n", leaked ? "leak: " : "", name.c_str(), now,
		       was->second);
		leaks += leaked;
	}
	return leaks;
}

/* Prints the leaks that kmemleak reports, if the kernel has it. It requires two scans. */
int report_kmemleak()
{
	static const char file[] = "/sys/kernel/debug/kmemleak";
	int leaks = 0;

	if (access(file, R_OK)) {
		puts("kmemleak: not in this kernel");
		return 0;
	}
	for (int scans = 0; scans < 2; scans++) {
		sleep(6);
		std::ofstream(file) << "scan" << std::endl;
	}

	std::ifstream found(file);

	for (std::string line; std::getline(found, line);) {
		leaks += line.starts_with("unreferenced object");
		printf("%s%s\n", line.starts_with("unref") ? "leak: " : "  ", line.c_str());
	}
	printf("kmemleak: %d\n", leaks);
	return leaks;
}
