/* SPDX-License-Identifier: GPL-2.0 */
/* Child processes, and memory that they share with their parent. */
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <new>

/* @size bytes of zeroes that the test and its children see, until the last of them has ended. */
void *shared_with_children(size_t size);

template <typename T> T &shared_with_children()
{
	return *new (shared_with_children(sizeof(T))) T();
}

/* The status of waitpid(2) for it. */
int wait_for(pid_t pid);

/* A forked process: @body runs in it, it exits with what @body returns, and is killed with us. */
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
	/* Waits for the end, or for a ptrace stop; the status of waitpid(2). */
	int wait();

private:
	static pid_t spawn();
	pid_t pid_;
};
