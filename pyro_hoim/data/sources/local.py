"""A cluster of ``dask.distributed`` in this process alone: its workers are threads, and it opens no port."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

__all__ = ["local_client"]


def local_client(workers: int = 1) -> Any:
    """A client of a new cluster of threads, which listens to nothing and looks up no address.

    ``LocalCluster`` would serve pages on every interface of the machine, also where no dashboard is asked for. The
    cluster ends with the process, or when ``client.cluster`` is closed.

    Args:
        workers: among which the threads, one for each processor, are shared out.
    """
    distributed: Any = importlib.import_module("distributed")
    scheduler, worker = (_without_pages(kind) for kind in (distributed.Scheduler, distributed.Worker))
    protocol = {"protocol": "inproc://"}
    threads = -(-(os.cpu_count() or 1) // workers)
    options = {**protocol, "nthreads": threads, "memory_limit": 0}  # a share of this process's memory means nothing
    with warnings.catch_warnings():  # about the address of this machine, which is not used
        warnings.filterwarnings("ignore", "Couldn't detect a suitable IP", RuntimeWarning)
        cluster = distributed.SpecCluster(
            workers={i: {"cls": worker, "options": options} for i in range(workers)},
            scheduler={"cls": scheduler, "options": {**protocol, "dashboard": False}},
        )
        return distributed.Client(cluster)


def _without_pages(kind: Any) -> Any:
    """A class of servers of Dask without its server of web pages."""

    def start_http_server(*arguments: Any, **options: Any) -> None:
        """Start none."""

    return type(kind.__name__, (kind,), {"start_http_server": start_http_server})
