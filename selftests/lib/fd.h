/* SPDX-License-Identifier: GPL-2.0 */
/* File descriptors that their owner closes: single, in pairs, sent to other processes. */
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

class Fd {
public:
	Fd() = default;
	/* Takes ownership of @fd; a negative @fd means no descriptor. */
	explicit Fd(int fd)
		: fd_(fd)
	{
	}
	Fd(Fd &&other) noexcept
		: fd_(std::exchange(other.fd_, -1))
	{
	}
	/* Closes the previous descriptor. */
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
	/* The caller must close it. */
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

/* socketpair(2), unix(7): each of two processes keeps one end and closes the other. */
struct SocketPair {
	SocketPair();

	Fd here, there;
};

/*
 * SCM_RIGHTS, unix(7), with one byte of data. @flags are MSG_*. send_fd() returns 0 or an errno.
 * receive_fd() returns a close-on-exec descriptor. If it has received none, *@err is an errno,
 * or 0 if the peer has closed its end or has sent no descriptor.
 */
int send_fd(int socket, int fd, int flags = 0);
Fd receive_fd(int socket, int *err, int flags = 0);
