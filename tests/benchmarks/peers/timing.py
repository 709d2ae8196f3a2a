"""Seconds of repeated calls, for the scripts of peers, which run in environments of their own."""

import statistics
import time


def measure(call, repeats):
    """The first call, and median and fastest of those after it."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    first, *times = times
    return {"first_call": first, "seconds": statistics.median(times), "fastest": min(times), "repeats": repeats}
