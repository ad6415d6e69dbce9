// SPDX-License-Identifier: GPL-2.0
/*
 * /init for guests of scripts/boot with a distribution's kernel, whose drivers for the root file
 * system are modules. Loads /modules/10, 11, ..., mounts the root file system that the kernel
 * parameters name, and executes their init= with the arguments that follow "--".
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char line[4096];

static void check(int failed, const char *what)
{
	if (failed) {
		fprintf(stderr, "initramfs: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

/* The value of NAME= on the kernel's command line; "" if there is none. */
static const char *parameter(const char *name)
{
	size_t length = strlen(name);
	char *word, *rest = strdup(line);

	while ((word = strsep(&rest, " \n")))
		if (!strncmp(word, name, length))
			return word + length;
	return "";
}

int main(int argc, char **argv)
{
	char module[32];

	mkdir("/proc", 0755);
	mkdir("/root", 0755);
	check(mount("proc", "/proc", "proc", 0, NULL), "mount of /proc");
	int fd = open("/proc/cmdline", O_RDONLY);

	check(fd < 0 || read(fd, line, sizeof line - 1) < 0, "read of /proc/cmdline");
	for (int i = 10;; i++) {
		snprintf(module, sizeof module, "/modules/%d", i);
		fd = open(module, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			break;
		check(syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST, module);
	}
	check(mount(parameter("root="), "/root", parameter("rootfstype="), MS_RDONLY,
		    parameter("rootflags=")), "mount of the root file system");
	check(mount("dev", "/root/dev", "devtmpfs", 0, NULL), "mount of devtmpfs");
	check(umount2("/proc", MNT_DETACH), "umount of /proc");
	check(chdir("/root") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot("."),
	      "switch to the new root");
	fd = open("/dev/console", O_RDWR);
	for (int i = 0; i < 3; i++)
		dup2(fd, i);
	const char *init = parameter("init=");

	argv[0] = (char *)init;
	execv(init, argv);
	check(argc, init);
}
