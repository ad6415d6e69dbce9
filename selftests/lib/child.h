/* SPDX-License-Identifier: GPL-2.0 */
/* Child processes, and memory that they share with their parent. */
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

/* @size bytes of zeroes that the caller shares with the children that it forks from now on. */
void *shared_with_children(size_t size);

template <typename T> T &shared_with_children()
{
	return *new (shared_with_children(sizeof(T))) T();
}

/* Waits for @pid, and returns the status of waitpid(2). */
int wait_for(pid_t pid);

/*
 * The value in the line "NAME:" of the file "status" in @task, a folder such as "/proc/self", or ""
 * if there is none. Only whole lines count: the first one has the name of the task, which may
 * contain anything but a newline, see proc(5).
 */
std::string status_field(const std::string &task, const std::string &name);

/* Waits until @pid sleeps, and returns how often it has gone to sleep so far. */
uint64_t wait_until_asleep(pid_t pid);

/* Returns the status as text: "exit code 1", "killed by SIGTRAP", "stopped by SIGSTOP". */
std::string status_text(int status);

/* "SIGTRAP", or "signal 35" for a real-time one. */
std::string signal_name(int sig);

/* The path of the file @name in the folder of this program. */
std::string file_of_own_folder(const std::string &name);

/*
 * A forked process that runs @body and exits with what @body returns. It is killed when its parent
 * exits or this object goes out of scope.
 */
class Child {
public:
	template <typename Body>
	explicit Child(Body body)
		: pid_(spawn())
	{
		if (!pid_)
			_exit(body());
	}
	~Child();
	Child(const Child &) = delete;

	pid_t pid() const { return pid_; }
	/* Waits until it exits or stops for its tracer, and returns the status of waitpid(2). */
	int wait();

private:
	static pid_t spawn();
	pid_t pid_;
};
