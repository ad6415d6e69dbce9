/* SPDX-License-Identifier: GPL-2.0 */
/* Mounts of the caller's own, which go with it. */
#pragma once

/* mount(2) in a mount namespace that it makes for the calling process; whether it could. */
bool mount_for_us(const char *type, const char *where, const char *options = nullptr);
