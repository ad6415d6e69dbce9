// SPDX-License-Identifier: GPL-2.0
#include "lib/fd.h"

#include <cerrno>
#include <cstring>

#include "lib/fail.h"

Pipe::Pipe(int flags)
{
	int ends[2];

	if (pipe2(ends, flags))
		setup_failed("pipe2", errno);
	out = Fd(ends[0]);
	in = Fd(ends[1]);
}

SocketPair::SocketPair()
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		setup_failed("socketpair", errno);
	here = Fd(ends[0]);
	there = Fd(ends[1]);
}

/* One byte, and room for one descriptor. */
struct Message : msghdr {
	Message()
		: msghdr{}
	{
		msg_iov = &data;
		msg_iovlen = 1;
		msg_control = control;
		msg_controllen = sizeof(control);
	}
	Message(const Message &) = delete;

	char byte = 0;
	iovec data = { &byte, 1 };
	alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
};

int send_fd(int socket, int fd, int flags)
{
	Message message;
	cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return sendmsg(socket, &message, flags) < 0 ? errno : 0;
}

Fd receive_fd(int socket, int *err, int flags)
{
	Message message;
	int fd = -1;

	*err = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC) < 0 ? errno : 0;
	if (cmsghdr *header = *err ? nullptr : CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return Fd(fd);
}
