"""The cluster of threads that is used where no address of one is given: it needs no network."""

import socket
import threading
import time
import warnings

import numpy as np
import pandas as pd
import pytest

from pyro_hoim.data import open_rows
from pyro_hoim.data.sources.cluster import local_client


@pytest.fixture
def no_ports(monkeypatch):
    """No socket may listen."""

    def refuse(*arguments):
        raise PermissionError("no port may be opened")

    monkeypatch.setattr(socket.socket, "bind", refuse, raising=False)


@pytest.mark.usefixtures("no_ports")
def test_the_local_cluster_opens_no_port():
    import dask.dataframe as dd

    frame = dd.from_pandas(pd.DataFrame({"a": list("xyxxy")}), npartitions=3)
    with local_client() as client, client.cluster:
        rows = open_rows(frame, cluster=client)
        assert rows.marginal_counts([("a",)]).tolist() == [3, 2]
        assert client.scheduler_info()["address"].startswith("inproc://")


@pytest.mark.usefixtures("no_ports")
def test_control_a_server_is_refused():
    with socket.socket() as listening, pytest.raises(PermissionError):
        listening.bind(("127.0.0.1", 0))


def test_nothing_is_warned_of_where_warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with local_client(workers=2) as client, client.cluster:
            assert client.submit(sum, (1, 2)).result() == 3


def test_two_clusters_stand_side_by_side():
    with local_client() as one, one.cluster, local_client() as other, other.cluster:
        assert one.submit(sum, (1, 2)).result() == other.submit(sum, (1, 2)).result() == 3


def _slowly(batch):
    time.sleep(0.03)
    return (batch.codes == np.array([[0], [1]])).sum(1)


def test_a_worker_that_ends_on_the_way_costs_no_row():
    import dask.dataframe as dd

    frame = pd.DataFrame({"a": list("xyxxy") * 40, "b": list("yx") * 100})
    with local_client(workers=2) as client, client.cluster as cluster:
        rows = open_rows(dd.from_pandas(frame, npartitions=40), cluster=client)
        assert rows.num_rows == 200
        worker = cluster.workers[0]
        end = threading.Timer(0.1, client.sync, [worker.close])
        end.start()
        assert rows.fold(_slowly).tolist() == [120, 100]
        end.join()
        assert worker.status.name == "closed"
