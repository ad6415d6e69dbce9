// SPDX-License-Identifier: GPL-2.0
#include "gdb/breakpoints.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <elf.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cinttypes>
#include <cstdlib>
#include <cstring>

#include "gdb/bytecode.h"
#include "gdb/translate.h"
#include "lib/child.h"
#include "lib/event.h"
#include "lib/fail.h"
#include "lib/hit.h"
#include "lib/program.h"

#if defined(__x86_64__)
/*
 * Breakpoints and watchpoints share the debug registers. gdbserver splits a wide or unaligned
 * watchpoint into aligned pieces of 8, 4, 2 and 1 bytes. The length comes from the peer, so it does
 * not count more pieces than any CPU has registers.
 */
static size_t slots_of(const Place &place)
{
	constexpr size_t MORE_THAN_THERE_ARE = 16;
	uint64_t at = place.address, left = std::max<uint64_t>(place.kind, 1);
	size_t slots = 0;

	if (place.type == '0')
		return 0;
	if (place.type == '1')
		return 1;
	for (; left && slots < MORE_THAN_THERE_ARE; slots++) {
		uint64_t piece = 8;

		while (piece > left || at % piece)
			piece /= 2;
		at += piece;
		left -= piece;
	}
	return slots;
}
static constexpr uint8_t OUR_MACHINE = EM_X86_64;
#else
/* Watchpoints have separate registers. */
static size_t slots_of(const Place &place)
{
	return place.type == '1';
}
static constexpr uint8_t OUR_MACHINE = EM_AARCH64;
#endif

/* Counts by opening events, so slots that other events occupy are not included. */
static size_t count_slots()
{
	constexpr size_t MOST = 16;
	std::vector<Fd> events;

	while (events.size() < MOST) {
		Fd event = open_event(breakpoint(hit));

		if (!event.valid())
			break;
		events.push_back(std::move(event));
	}
	return events.size();
}

Breakpoints::Breakpoints(std::function<ino_t()> socket_of_gdbserver)
	: socket_of_gdbserver_(std::move(socket_of_gdbserver))
	, slots_(count_slots())
{
	/* Each breakpoint has a file descriptor for each thread. */
	rlimit files;

	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

static std::vector<std::string> names_in(const std::string &folder)
{
	std::vector<std::string> names;
	DIR *dir = opendir(folder.c_str());

	if (!dir)
		return names;
	while (const dirent *entry = readdir(dir))
		if (entry->d_name[0] != '.')
			names.push_back(entry->d_name);
	closedir(dir);
	return names;
}

static std::vector<pid_t> threads_of(pid_t pid);

/* The folder of a thread in /proc that has memory: after pthread_exit(3) the first one has none. */
static std::string with_memory(pid_t pid)
{
	const std::string process = "/proc/" + std::to_string(pid);

	for (pid_t tid : threads_of(pid)) {
		const std::string task = process + "/task/" + std::to_string(tid);

		if (std::ifstream(task + "/maps").peek() != EOF)
			return task;
	}
	return process;
}

/*
 * The file that is mapped at @address, and the place in the file; "anonymous"; "nothing"; or "" if
 * the mappings cannot be read. When a library is unloaded, gdb does not remove its breakpoints, and
 * something else may be mapped there afterwards.
 */
static std::string mapping_at(pid_t pid, uint64_t address)
{
	std::ifstream maps(with_memory(pid) + "/maps");
	bool readable = false;

	for (std::string line; std::getline(maps, line); readable = true) {
		uint64_t start, end, offset, inode;
		char device[32];

		if (sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %31s %" SCNu64,
			   &start, &end, &offset, device, &inode) == 5 &&
		    address - start < end - start)
			return inode ? device + (" " + std::to_string(inode)) + " " +
					       std::to_string(address - start + offset)
				     : "anonymous";
	}
	return readable ? "nothing" : "";
}

static std::vector<pid_t> threads_of(pid_t pid)
{
	std::vector<pid_t> threads;

	for (const std::string &tid : names_in("/proc/" + std::to_string(pid) + "/task"))
		threads.push_back(atoi(tid.c_str()));
	return threads;
}

static bool holds_socket(pid_t pid, ino_t inode)
{
	const std::string fds = "/proc/" + std::to_string(pid) + "/fd/";

	for (const std::string &fd : names_in(fds)) {
		struct stat status;

		if (!stat((fds + fd).c_str(), &status) && S_ISSOCK(status.st_mode) &&
		    status.st_ino == inode)
			return true;
	}
	return false;
}

/* The number in the line "NAME:" of @task/status, in base @base, or 0. */
static uint64_t number_in_status(const std::string &task, const std::string &name, int base)
{
	return strtoull(status_field(task, name).c_str(), nullptr, base);
}

/*
 * Whether gdbserver traces @pid, and @pid runs code of this machine's 64-bit architecture.
 * gdbserver may be on another machine or in another container, where @pid is another process than
 * here, and may have both 32-bit and 64-bit processes.
 */
std::string Breakpoints::why_not_here(pid_t pid) const
{
	const std::string proc = "/proc/" + std::to_string(pid);
	std::ifstream program(with_memory(pid) + "/exe", std::ios::binary);
	Elf64_Ehdr header = {};
	const pid_t tracer = number_in_status(proc, "TracerPid", 10);

	if (!tracer || !holds_socket(tracer, socket_of_gdbserver_()))
		return "is in a process that this gdbserver does not trace on this machine";
	program.read(reinterpret_cast<char *>(&header), sizeof(header));
	if (!program || memcmp(header.e_ident, ELFMAG, SELFMAG) ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != OUR_MACHINE)
		return "is in a program for another architecture";
	return "";
}

constexpr uint64_t TRAP = 1ull << (SIGTRAP - 1); /* in the masks of proc(5) */

struct Masks {
	uint64_t pending = 0, blocked = 0;
	bool traced = false;
};

static Masks masks_of(pid_t pid, pid_t tid)
{
	const std::string task = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid);

	return { number_in_status(task, "SigPnd", 16), number_in_status(task, "SigBlk", 16),
		 number_in_status(task, "TracerPid", 10) != 0 };
}

/*
 * The SIGTRAP of a hit stays pending in a thread that blocks it, and does not stop the thread. The
 * C library blocks all signals while it creates or ends a thread and in posix_spawn(3), including
 * its two internal signals that sigfillset(3) leaves out. Which signals a new thread blocks
 * afterwards cannot be seen.
 */
static std::string why_not_in_all_threads(pid_t pid)
{
	constexpr uint64_t LIBRARY = 3ull << 31; /* nptl(7) */

	for (pid_t tid : threads_of(pid)) {
		const Masks masks = masks_of(pid, tid);
		const uint64_t blocked = masks.blocked;

		/* A thread of the kernel, as of io_uring, executes no code of the process. */
		if (!masks.traced)
			continue;
		if (blocked & TRAP)
			return (blocked & LIBRARY) == LIBRARY
				       ? "is in a process with a thread that is starting, ending "
					 "or creating a process, and may block SIGTRAP"
				       : "is in a process with a thread that blocks SIGTRAP";
	}
	return "";
}

std::set<pid_t> Breakpoints::threads_that_do_not_stop(pid_t of) const
{
	std::set<pid_t> processes, found;

	for (auto &[pid, address] : addresses_)
		if (!of || pid == of)
			processes.insert(pid);
	for (pid_t pid : processes)
		for (pid_t tid : threads_of(pid)) {
			const Masks masks = masks_of(pid, tid);

			if (masks.pending & masks.blocked & TRAP)
				found.insert(tid);
		}
	return found;
}

static Fd load_program(const std::vector<std::string> &bytecode, const Registers &registers,
		       std::string &why)
{
	std::vector<Expression> conditions;

	for (const std::string &bytes : bytecode) {
		std::optional<Expression> expression = decode(bytes, why);

		if (!expression)
			return Fd();
		conditions.push_back(std::move(*expression));
	}

	const std::vector<bpf_insn> insns = translate(conditions, registers, why);

	if (insns.empty())
		return Fd();

	Fd program(bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "gdb_condition", "GPL", insns.data(),
				 insns.size(), nullptr));

	if (!program.valid())
		why = std::string("is refused by the kernel: ") + errno_name(errno);
	return program;
}

static perf_event_attr breakpoint_at(uint64_t address)
{
	perf_event_attr attr = with_sigtrap(inherited(breakpoint(
		Access::EXECUTE, reinterpret_cast<const void *>(address), EXECUTE_LENGTH)));

	/* A forked process does not inherit it: gdb inserts breakpoints there if it follows it. */
	attr.inherit_thread = 1;
	return attr;
}

static constexpr char NO_SLOT[] = "finds all debug registers in use";

static std::string open_on(const std::vector<pid_t> &threads, uint64_t address, const Fd &program,
			   std::vector<Fd> &events)
{
	const perf_event_attr attr = breakpoint_at(address);

	for (pid_t tid : threads) {
		Fd event = open_event(attr, tid);

		if (!event.valid() && errno == ESRCH)
			continue;
		if (!event.valid() || ioctl(event.get(), PERF_EVENT_IOC_SET_BPF, program.get()))
			return errno == ENOSPC
				       ? NO_SLOT
				       : std::string("cannot be opened: ") + errno_name(errno);
		fcntl(event.get(), F_SETOWN, getpid());
		fcntl(event.get(), F_SETFL, O_ASYNC);
		events.push_back(std::move(event));
	}
	return events.empty() ? "is in a process that has no threads" : "";
}

/*
 * In non-stop mode, threads run while their events are opened. A new thread inherits the breakpoint
 * only if its creator already has it. So this starts again if a thread has started or exited.
 */
static std::string open_on_threads(pid_t pid, uint64_t address, const Fd &program,
				   std::vector<Fd> &events)
{
	constexpr int TRIES = 100;

	for (int i = 0; i < TRIES; i++) {
		const std::vector<pid_t> threads = threads_of(pid);

		events.clear();
		if (std::string why = open_on(threads, address, program, events); !why.empty())
			return why;
		if (threads_of(pid) == threads)
			return "";
	}
	return "is in a process whose threads start and exit all the time";
}

static void set_enabled(Filtered &filtered, bool on)
{
	for (const Fd &event : filtered.events)
		ioctl(event.get(), on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0);
	filtered.enabled = on;
}

void Breakpoints::name_first(pid_t pid)
{
	auto first = registers_.extract(0);

	if (first.empty())
		return;
	first.key() = pid;
	registers_.insert(std::move(first));
}

const Registers &Breakpoints::registers_of(pid_t pid) const
{
	static const Registers unknown;
	const auto known = registers_.find(pid);

	return known == registers_.end() ? unknown : known->second;
}

std::string Breakpoints::insert(const Place &place, const std::string &request,
				const std::vector<std::string> &bytecode)
{
	const Registers &registers = registers_of(place.pid);
	const auto known = filtered_.find(place);
	std::string why = vforked_.contains(place.pid) ? "" : why_not_in_all_threads(place.pid);

	if (!why.empty())
		return why;
	if (known != filtered_.end() && known->second.request == request &&
	    !known->second.events.empty()) {
		known->second.mapping = mapping_at(place.pid, place.address);
		set_enabled(known->second, true);
		return "";
	}
	if (!registers.known())
		return "is in a program for another architecture";
	if (why = why_not_here(place.pid); !why.empty())
		return why;

	const Fd program = load_program(bytecode, registers, why);
	Filtered filtered{ request, {}, mapping_at(place.pid, place.address) };

	if (!program.valid())
		return why;
	close_unloaded(place.pid);
	if (slots_taken(place.pid) >= slots_)
		close_unused(place.pid);
	/* In non-stop mode the earlier condition stays in force meanwhile, if there is a slot. */
	if (slots_taken(place.pid) >= slots_ && filtered_.contains(place))
		filtered_[place].events.clear();
	if (slots_taken(place.pid) >= slots_)
		return NO_SLOT;
	why = open_on_threads(place.pid, place.address, program, filtered.events);
	/* Others have slots, too: ptrace(2) keeps that of a watchpoint which was removed. */
	if (why == NO_SLOT) {
		close_unused(place.pid);
		if (const auto earlier = filtered_.find(place); earlier != filtered_.end())
			earlier->second.events.clear();
		filtered.events.clear();
		why = open_on_threads(place.pid, place.address, program, filtered.events);
	}
	if (!why.empty())
		return why;
	/*
	 * Meanwhile the process may have been detached, and may have executed a program with more
	 * rights. Events that were open then are gone, as attr.sigtrap requires remove_on_exec.
	 */
	if (why = why_not_here(place.pid); !why.empty())
		return why;
	set_enabled(filtered, true);
	filtered_[place] = std::move(filtered);
	addresses_.insert({ place.pid, place.address });
	return "";
}

bool Breakpoints::remove(const Place &place)
{
	const auto known = filtered_.find(place);

	if (known == filtered_.end())
		return false;
	set_enabled(known->second, false);
	return true;
}

void Breakpoints::continued()
{
	for (auto &[place, filtered] : filtered_)
		filtered.in_use = filtered.enabled;
}

size_t Breakpoints::slots_taken(pid_t pid) const
{
	size_t taken = 0;

	for (auto &[place, filtered] : filtered_)
		taken += place.pid == pid && !filtered.events.empty();
	for (const Place &place : gdbserver_)
		taken += place.pid == pid ? slots_of(place) : 0;
	return taken;
}

/* Closes the breakpoints that gdb has removed and not inserted again. */
void Breakpoints::close_unused(pid_t pid)
{
	std::erase_if(filtered_, [&](const auto &entry) {
		return entry.first.pid == pid && !entry.second.enabled &&
		       !entry.second.events.empty();
	});
}

/* Closes the breakpoints in files that are no longer mapped there: gdbserver must not get them. */
void Breakpoints::close_unloaded(pid_t pid)
{
	std::erase_if(filtered_, [&](const auto &entry) {
		const auto &[place, filtered] = entry;

		if (place.pid != pid || filtered.events.empty() || filtered.mapping.empty())
			return false;

		const std::string now = mapping_at(pid, place.address);

		return !now.empty() && now != filtered.mapping;
	});
}

std::optional<std::vector<std::string>> Breakpoints::make_room(const Place &place)
{
	std::vector<std::string> requests;
	const size_t wanted = in_gdbserver(place) ? 0 : slots_of(place);
	const auto can_be_given_up = [&](const auto &entry) {
		/* gdbserver must not get those of a vforked process: see vforked(). */
		return entry.first.pid == place.pid && entry.second.enabled &&
		       entry.first.type == '0' && !vforked_.contains(place.pid);
	};

	if (wanted)
		close_unloaded(place.pid);
	if (wanted && slots_taken(place.pid) + wanted > slots_)
		close_unused(place.pid);

	/* gdbserver, which does not know of the others, would take more slots than there are. */
	const size_t at_will = std::count_if(filtered_.begin(), filtered_.end(), can_be_given_up);
	const bool shares = std::any_of(filtered_.begin(), filtered_.end(), [&](auto &entry) {
		return entry.first.pid == place.pid && !entry.second.events.empty();
	});

	if (wanted && shares && slots_taken(place.pid) + wanted > slots_ + at_will)
		return std::nullopt;
	while (wanted && slots_taken(place.pid) + wanted > slots_) {
		const auto given_up =
			std::find_if(filtered_.begin(), filtered_.end(), can_be_given_up);

		if (given_up == filtered_.end())
			break;
		requests.push_back(given_up->second.request);
		gdbserver_has(given_up->first);
		filtered_.erase(given_up);
	}
	return requests;
}

std::string Breakpoints::report() const
{
	std::string lines;

	for (auto &[place, filtered] : filtered_) {
		uint64_t hits = 0, of_event;
		char line[128];

		if (filtered.events.empty() || !(filtered.enabled || filtered.in_use))
			continue;
		for (const Fd &event : filtered.events)
			if (read(event.get(), &of_event, sizeof(of_event)) == sizeof(of_event))
				hits += of_event;
		snprintf(line, sizeof(line), "0x%llx in process %d: %llu hits in the kernel\n",
			 static_cast<unsigned long long>(place.address), place.pid,
			 static_cast<unsigned long long>(hits));
		lines += line;
	}
	return lines.empty() ? "no condition is in the kernel\n" : lines;
}

void Breakpoints::forked(pid_t parent, pid_t child)
{
	const auto in_child = [&](Place place) {
		place.pid = child;
		return place;
	};
	std::vector<std::pair<Place, std::string>> filtered;
	std::vector<Place> gdbserver;

	forget(child);
	/* gdb does not read it again. */
	registers_[child] = registers_of(parent);
	for (auto &[place, each] : filtered_)
		if (place.pid == parent && (each.enabled || each.events.empty()))
			filtered.push_back({ in_child(place), each.request });
	for (const Place &place : gdbserver_)
		if (place.pid == parent)
			gdbserver.push_back(in_child(place));
	for (auto &[place, request] : filtered)
		filtered_[place] = { request, {}, "" };
	gdbserver_.insert(gdbserver.begin(), gdbserver.end());
}

std::vector<std::string> Breakpoints::vforked(pid_t parent, pid_t child)
{
	std::vector<std::string> requests;

	forked(parent, child);
	vforked_.insert(child);
	for (auto &[place, filtered] : filtered_)
		if (place.pid == child)
			requests.push_back(filtered.request);
	return requests;
}

void Breakpoints::forget(pid_t pid)
{
	const auto is_of_pid = [&](const auto &place) { return place.pid == pid; };

	registers_.erase(pid);
	vforked_.erase(pid);
	std::erase_if(filtered_, [&](const auto &entry) { return is_of_pid(entry.first); });
	std::erase_if(gdbserver_, is_of_pid);
	std::erase_if(addresses_, [&](const auto &entry) { return entry.first == pid; });
}

void Breakpoints::forget_all()
{
	registers_.clear();
	filtered_.clear();
	gdbserver_.clear();
	addresses_.clear();
	vforked_.clear();
}
