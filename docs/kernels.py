"""Kernels of the tutorials, forked from one process that has imported what nearly every tutorial imports.

Importing takes more processor time than most tutorials do. :func:`install` starts that process, and lets Jupyter's
client fork from it in place of starting a new interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_IMPORTED = ["ipykernel.kernelapp", "matplotlib.pyplot", "pandas", "pyro.infer.autoguide", "pyro_hoim.study"]


class Kernel:
    """A forked kernel, as far as Jupyter's client uses an object of :class:`subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: Sequence[str], folder: str | None, environment: Mapping[str, str]) -> None:
        here, there = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_run, args=(list(arguments), folder, dict(environment), there))
        self._process.start()
        there.close()
        here.recv()  # from here on it leads a group of processes, which the client signals
        here.close()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.exitcode

    def wait(self) -> int | None:
        """The exit status, once it has ended."""
        self._process.join()
        return self._process.exitcode

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it."""
        self._process.kill()


def install() -> None:
    """Fork the kernels of this process, and of those that it forks, from one that has imported the libraries."""
    from jupyter_client.provisioning import local_provisioner

    _CONTEXT.set_forkserver_preload(_IMPORTED)
    forkserver.ensure_running()
    # Processes that read pages would ask whether the server is a child of theirs.
    forkserver._forkserver.ensure_running = lambda: None

    def launch(command: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str], **_: Any) -> Kernel:
        return Kernel(command[command.index("-f") :], cwd, env)

    local_provisioner.launch_kernel = launch


def _run(arguments: list[str], folder: str | None, environment: Mapping[str, str], ready: Connection) -> None:
    os.setsid()
    ready.send(None)
    ready.close()
    if folder is not None:
        os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["ipykernel", *arguments]
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])  # it ends with the server
