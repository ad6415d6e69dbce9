/* SPDX-License-Identifier: GPL-2.0 */
/* Mounts that only the calling process and its children see, and that end with them. */
#pragma once

/* mount(2) in a new mount namespace for the calling process. Returns whether that succeeded. */
bool mount_privately(const char *type, const char *where, const char *options = nullptr);
