"""Rows whose pieces are read by the workers of a cluster of ``dask.distributed``."""

import importlib
import os
import socket
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ...errors import refused, wrong_type
from .chunked import FramePiece, Piece, PieceRows
from .folds import RowBatch
from .rows import itself

# A cluster of ``dask.distributed`` in this process alone: its workers are threads, and it opens no port.


def local_client(workers: int = 1) -> Any:
    """A client of a new cluster of threads, which listens to nothing and looks up no address.

    ``LocalCluster`` would serve pages on every interface of the machine, also where no dashboard is asked for. The
    cluster ends with the process, or when ``client.cluster`` is closed.

    Args:
        workers: among which the threads, one for each processor, are shared out.
    """
    # Scheduler and workers talk within the process.
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


T = TypeVar("T")

_PATIENCE = 10  # seconds until a scheduler answers
_NO_WORKER = 20.0  # seconds that a scheduler without workers is waited for
_AWAITED = 64  # tasks whose ends are waited for at once


@dataclass(frozen=True, eq=False)
class DaskRows(PieceRows):
    """Rows on a cluster of ``dask.distributed``; made by :func:`~pyro_hoim.data.open_rows`.

    Every piece is a task of its own. A worker that ends while it works, or with a result that was not fetched, costs
    time only: its pieces are given to others, and are counted once.

    Attributes:
        client: of the cluster.
    """

    client: Any = field(kw_only=True)

    def piece_batches(self, piece: int) -> list[RowBatch]:
        """The batches of one piece."""
        return next(self._run(self._reader.mapped, [self._tasks(itself)[piece]]))

    def stream(self, function: Callable[[RowBatch], T]) -> Iterator[T]:
        """What a function makes of each batch, in the order of the rows."""
        for values in self._run(self._reader.mapped, self._tasks(function)):
            yield from values

    def _run(self, function: Callable[..., T], tasks: list[tuple[Any, ...]], in_order: bool = True) -> Iterator[T]:
        return run_tasks(self.client, partial(of_piece, function), tasks, in_order)


def run_tasks(
    client: Any, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], in_order: bool = False
) -> Iterator[T]:
    """What a function makes of each task on a cluster, as they end, or in order; those left are cancelled."""
    dask: Any = importlib.import_module("dask")
    send = dask.delayed(function, pure=False)
    futures = client.compute([send(*task) for task in tasks])
    # Results are taken as they come, so that the cluster can forget them.
    try:
        while futures:
            part = futures[: 1 if in_order else _AWAITED]
            ended = _first_ended(client, part)
            for future in ended:
                yield future.result()
            futures[: len(part)] = [future for future in part if future not in ended]
    finally:
        client.cancel(futures)


def _first_ended(client: Any, futures: Sequence[Any]) -> Collection[Any]:
    """The tasks that have ended once one has; refuse to wait where there is nobody to work at them."""
    distributed: Any = importlib.import_module("distributed")
    while True:
        try:
            return distributed.wait(futures, timeout=_NO_WORKER, return_when="FIRST_COMPLETED").done
        except distributed.TimeoutError:
            address = client.scheduler.address
            if not client.scheduler_info()["workers"]:
                problem = f"the scheduler at {address} has had no worker for {_NO_WORKER:g} seconds"
                hint = f"start one (dask worker {address}), or wait until the cluster has started its own"
                raise refused("cluster", problem, hint, code="missing-part") from None


def of_piece(function: Callable[..., T], held: Any, *others: Any) -> T:
    """What a function makes of a piece, or of a partition of a data frame."""
    return function(held if isinstance(held, Piece) else FramePiece(held), *others)


def is_dask(data: object) -> bool:
    """Whether something is a collection of Dask; no module is imported for it."""
    return type(data).__module__.partition(".")[0] == "dask" and hasattr(data, "__dask_graph__")


def connected(cluster: Any) -> Any:
    """A client of a cluster: of an address, the client given, the one in use, or of a new local cluster of threads."""
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        hint = "pip install 'pyro-hoim[large]'"
        raise refused("cluster", "rows on a cluster need dask.distributed", hint, code="no-method") from None
    # A client, or the one in use, needs no address.
    if isinstance(cluster, distributed.Client):
        return cluster
    if cluster is None or cluster == "local":
        try:
            return distributed.get_client()
        except ValueError:
            return local_client()
    if not isinstance(cluster, str):
        raise wrong_type("cluster", "the address of a scheduler such as 'tcp://host:8786', or a Client", cluster)
    # Anything else is the address of a scheduler.
    try:
        address = urlsplit(cluster)
        if address.port is None:
            raise ValueError("an address has a host and a port")  # noqa: TRY301
        if address.scheme in ("tcp", "tls"):  # a client that cannot connect leaves a trace of its own at the end
            socket.create_connection((address.hostname, address.port), timeout=_PATIENCE).close()
        return distributed.Client(cluster, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        hint = "start dask scheduler, and give its address, such as tcp://host:8786"
        raise refused("cluster", f"no scheduler at {cluster!r} ({reason})", hint) from None


def partitions_of(data: Any) -> tuple[list[Any], list[str]]:
    """Delayed partitions of a data frame or an array of Dask, and names of the columns.

    The columns of an array (N, d) are ``x0``, ``x1``, ...
    """
    import pandas as pd

    if hasattr(data, "columns"):
        return [*data.to_delayed()], [str(name) for name in data.columns]
    if getattr(data, "ndim", 0) != 2:
        raise wrong_type("data", "a data frame of Dask, or an array of Dask of two dimensions", data)
    dask: Any = importlib.import_module("dask")
    names = [f"x{i}" for i in range(data.shape[1])]
    blocks = data.rechunk({1: -1}).to_delayed()[:, 0]
    return [dask.delayed(pd.DataFrame)(block, columns=names) for block in blocks], names
