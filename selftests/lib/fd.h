/* SPDX-License-Identifier: GPL-2.0 */
/* File descriptors, which close as their owner goes; in pairs, and sent to other processes. */
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

class Fd {
public:
	Fd() = default;
	/* Takes it over; below 0 there is none. */
	explicit Fd(int fd)
		: fd_(fd)
	{
	}
	Fd(Fd &&other) noexcept
		: fd_(std::exchange(other.fd_, -1))
	{
	}
	/* What it had is closed at once. */
	Fd &operator=(Fd &&other) noexcept
	{
		const int fd = std::exchange(other.fd_, -1);

		close();
		fd_ = fd;
		return *this;
	}
	~Fd() { close(); }

	int get() const { return fd_; }
	bool valid() const { return fd_ >= 0; }
	/* To the caller, who has to close it. */
	int release() { return std::exchange(fd_, -1); }
	void close()
	{
		if (fd_ >= 0)
			::close(fd_);
		fd_ = -1;
	}

private:
	int fd_ = -1;
};

/* pipe2(2): what is written to @in comes out of @out. */
struct Pipe {
	explicit Pipe(int flags = O_CLOEXEC);

	Fd out, in;
};

/* socketpair(2) of unix(7): a process keeps one end, and closes the other. */
struct SocketPair {
	SocketPair();

	Fd here, there;
};

/*
 * SCM_RIGHTS of unix(7), with one byte: 0, or the errno of sendmsg(2). @flags are MSG_*.
 * receive_fd() gives back one that closes at exec, or none with 0 in @err if the other side is gone,
 * or has sent none.
 */
int send_fd(int socket, int fd, int flags = 0);
Fd receive_fd(int socket, int *err, int flags = 0);
