"""Settings of glibc's malloc that keep freed memory inside the process while it trains.

A training step allocates and frees the same few megabytes again and again. By default glibc maps
every block above 128 KiB freshly and unmaps the block when it is freed, so each step pays a page fault per
4 KiB that it touches. Never mapping, never trimming and growing the heap in large steps removes the faults;
the process then keeps the memory of its largest step until it ends.

While data sets are read, large blocks are mapped instead. So the data of one run are given back before the
next run of a sweep reads its own. On the heap they would leave holes into which later blocks do not fit.
"""

from __future__ import annotations

import ctypes
import sys

# Parameters of mallopt(3) in glibc's malloc.h, with the value given to each.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -2, -3, -4
_TRAINING = {
    _M_MMAP_MAX: 0,
    _M_TRIM_THRESHOLD: -1,  # read as the largest unsigned value: never trim
    _M_TOP_PAD: 256 * 2**20,  # bytes by which the heap grows at a time
}
_READING = {
    _M_MMAP_THRESHOLD: 32 * 2**20,  # bytes, the most that glibc takes: blocks above it are mapped
    _M_MMAP_MAX: 2**16,  # glibc's own
}


def tune_allocator(reading: bool = False) -> bool:
    """Tell glibc's malloc to reuse memory.

    The effect is that of starting Python with ``MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=-1
    MALLOC_TOP_PAD_=268435456``. Blocks that are mapped already stay mapped. Results do not depend on it.

    Args:
        reading: Whether data sets are read until the next call; then large blocks are mapped.

    Returns:
        True if every setting was accepted. False where malloc refused one of them, or, with nothing changed,
        where malloc is not glibc's (other systems, musl).
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version") or not hasattr(libc, "mallopt"):
        return False
    settings = _READING if reading else _TRAINING
    accepted = [libc.mallopt(parameter, value) == 1 for parameter, value in settings.items()]
    return all(accepted)
