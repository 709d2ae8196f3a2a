"""Processes in which the library is imported already, for tests that kill them or let them fork.

They are forked from a server, one for each process of pytest, which imports once and runs nothing itself.
"""

import multiprocessing
import os
import signal
import sys
import time

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pyro.infer", "pyro_hoim.study", "pyro_hoim.cli", "pyro_hoim.inference"])


def start(program, output, *arguments):
    """Run a program as ``python -c`` does, in a session of its own; what it writes goes to a file."""
    process = _CONTEXT.Process(target=_run, args=(program, str(output), arguments))
    process.start()
    return process


def wait_for(is_there, process, seconds=120):
    """Whether something is there before a process ends, or after some seconds."""
    deadline = time.monotonic() + seconds
    while not is_there() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.005)
    return is_there()


def run(program, output, *arguments):
    """Wait for a program that ends with status 0; what it wrote."""
    process = start(program, output, *arguments)
    process.join(240)
    if process.is_alive():
        process.kill()
    written = output.read_text(encoding="utf-8")
    assert process.exitcode == 0, written
    return written


class Parallel:
    """Such processes in place of those of :class:`joblib.Parallel`, each of which imports the library."""

    def __init__(self, n_jobs, **_):
        self._jobs = n_jobs

    def __call__(self, calls):
        with _CONTEXT.Pool(self._jobs) as pool:
            yield from pool.imap_unordered(_called, calls)


def _called(call):
    function, arguments, options = call
    return function(*arguments, **options)


def _run(program, output, arguments):
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    with open(output, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv[:] = ["-c", *arguments]
    try:
        exec(program, {"__name__": "__main__"})
    except KeyboardInterrupt:  # ends an interpreter by the signal, and a process of multiprocessing with status 1
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
