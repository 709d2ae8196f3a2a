"""Rows beyond memory: 10^8 rows of 20 columns in Parquet, pairs counted and a pairwise model fitted; Dask with a kill.

The columns are a chain: each repeats its left neighbour with a probability of its own. Every stage is a process of its
own, so that the peak memory is that of the stage with the interpreter and all imports. The files are made in a folder
that is deleted at the end. Prints one line of JSON for every stage. pandas and pyarrow count all pairs file by file.

    python tests/benchmarks/bench_rows.py [--rows 100000000] [--columns 20] [--folder DIR] [--stages pairs,fit,roots]
    python tests/benchmarks/bench_rows.py --rows 10000000 --stages dask
    python tests/benchmarks/bench_rows.py --rows 20000000 --columns 30 --stages pairs,learn
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
from harness import peak_mb, plain_script

PER_FILE = 1_000_000


def names(columns):
    return [f"c{i:02d}" for i in range(columns)]


def generate(folder, rows, columns):
    """Files of a million rows, column by column whole numbers of one byte."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    stays = np.linspace(0.55, 0.95, columns)
    for number, start in enumerate(range(0, rows, PER_FILE)):
        random = np.random.default_rng([1, number])
        size = min(PER_FILE, rows - start)
        last = random.integers(0, 2, size, dtype=np.int8)
        found = {}
        for name, stay in zip(names(columns), stays, strict=True):
            last = last ^ (random.random(size, dtype=np.float32) > stay).astype(np.int8)
            found[name] = pa.array(last)
        pq.write_table(pa.table(found), folder / f"{number:04d}.parquet")
    return {"gigabytes": round(sum(path.stat().st_size for path in folder.iterdir()) / 1e9, 3)}


def disk(folder, rows, columns):
    """The bytes of the files read and thrown away, as ``cat`` does."""
    with open(os.devnull, "wb") as null:
        subprocess.run(["cat", *sorted(map(str, folder.iterdir()))], stdout=null, check=True)
    return {}


def decoded(folder, rows, columns):
    """All columns decoded by pyarrow, and thrown away."""
    import pyarrow.dataset

    held = pyarrow.dataset.dataset(str(folder)).to_batches(batch_size=2**18, batch_readahead=2, fragment_readahead=1)
    return {"rows": sum(batch.num_rows for batch in held)}


def pandas(folder, rows, columns):
    """All pairs counted by pandas, file after file."""
    import pandas as pd

    total = dict.fromkeys(combinations(names(columns), 2), 0)
    for path in sorted(folder.iterdir()):
        frame = pd.read_parquet(path)
        for pair in total:
            total[pair] = frame.groupby(list(pair)).size().add(total[pair], fill_value=0)
    return {"pairs": len(total), "cells": sum(map(len, total.values()))}


def arrow(folder, rows, columns):
    """All pairs counted by pyarrow, file after file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = {pair: [] for pair in combinations(names(columns), 2)}
    for path in sorted(folder.iterdir()):
        table = pq.read_table(path)
        for pair, parts in found.items():
            parts.append(table.group_by(list(pair), use_threads=False).aggregate([([], "count_all")]))
    joined = [pa.concat_tables(parts).group_by(list(pair)) for pair, parts in found.items()]
    return {"pairs": len(found), "cells": sum(one.aggregate([("count_all", "sum")]).num_rows for one in joined)}


def opened(folder, columns, **options):
    from pyro_hoim import Domain
    from pyro_hoim.data import open_rows

    return open_rows(folder, domain=Domain.from_cardinalities(dict.fromkeys(names(columns), 2)), **options)


def levels(folder, rows, columns):
    """The pass that finds the levels."""
    from pyro_hoim.data import open_rows

    return {"rows": open_rows(folder).num_rows}


def pairs(folder, rows, columns):
    """All pairs counted in one pass."""
    found = opened(folder, columns).marginal_counts(combinations(names(columns), 2))
    assert int(found[:4].sum()) == rows
    return {"pairs": len(found) // 4, "cells": len(found)}


def triples(folder, rows, columns):
    """All triples counted in one pass."""
    found = opened(folder, columns).marginal_counts(combinations(names(columns), 3))
    return {"triples": len(found) // 8, "cells": len(found)}


def distinct(folder, rows, columns):
    """The distinct rows with their counts."""
    return {"distinct": opened(folder, columns).distinct().num_rows}


def fit(folder, rows, columns):
    """The pairwise model by maximum likelihood."""
    import pyro_hoim as hoim

    result = hoim.fit(2, opened(folder, columns))
    return {"parameters": len(result.theta), "status": result.status, "iterations": result.num_iterations}


def roots(folder, rows, columns):
    """A root model of pairs: the columns as counts, their distinct rows with how often each was seen."""
    import pyro_hoim as hoim
    from pyro_hoim.generalized_root import RootSettings

    settings = RootSettings(false_discovery_rate=None)
    result = hoim.fit_roots(opened(folder, columns), order=2, l1=0.01, settings=settings)
    return {"interactions": result.num_interactions, "rows": result.num_rows}


def network(folder, rows, columns):
    """A dependency network, on rows held as bits or on the distinct ones."""
    import pyro_hoim as hoim

    learned = hoim.learn_network(opened(folder, columns))
    return {"leaves": sum(node.num_leaves for node in learned.nodes)}


def learn(folder, rows, columns):
    """Interactions learned, from margins and a sample where the distinct rows do not fit; neighbours are planted."""
    import pyro_hoim as hoim
    from pyro_hoim.runs import RunOptions

    learned = hoim.learn(opened(folder, columns), run=RunOptions(progress=True))
    planted = set(pairwise(names(columns)))
    found = {edge for edge in learned.structure.hypergraph.edges if len(edge) > 1}
    return {
        "rows": learned.num_rows,
        "rounds": len(learned.selection.rounds),
        "predictive": learned.hypergraph.num_interactions,
        "neighbours": [len(found & planted), len(planted)],
        "others": len(found - planted),
        "stages": {name: round(seconds) for name, seconds in learned.seconds.items()},
    }


def dask(folder, rows, columns):
    """Pairs counted by two worker processes of Dask, one of which is killed on the way, and by this process."""
    import distributed

    sets = list(combinations(names(columns), 2))
    begin = time.perf_counter()
    expected = opened(folder, columns).marginal_counts(sets)
    here = time.perf_counter() - begin
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    cluster = distributed.LocalCluster(worker_dashboard_address="127.0.0.1:0", **options)
    with cluster, distributed.Client(cluster) as client:
        source = opened(folder, columns, cluster=client)
        assert source.num_rows == rows  # known from here on
        pids = list(client.run(os.getpid).values())
        threading.Timer(here / 4, os.kill, (pids[0], signal.SIGKILL)).start()
        begin = time.perf_counter()
        killed = source.marginal_counts(sets)
        after = time.perf_counter() - begin
        is_new = pids[0] not in client.run(os.getpid).values()
    shown = {"here": round(here, 1), "cluster_with_kill": round(after, 1)}
    return shown | {"equal": bool((killed == expected).all()), "killed": is_new}


STAGES = {
    function.__name__: function
    for function in (
        generate,
        disk,
        decoded,
        pandas,
        arrow,
        levels,
        pairs,
        triples,
        distinct,
        fit,
        roots,
        network,
        learn,
        dask,
    )
}


def run_stage(name, folder, rows, columns):
    begin = time.perf_counter()
    figures = STAGES[name](folder, rows, columns)
    times = os.times()
    spent = times.user + times.system + times.children_user + times.children_system
    shown = {"stage": name, "seconds": round(time.perf_counter() - begin, 1), "processor_seconds": round(spent, 1)}
    print(json.dumps(shown | {"peak_mb": round(peak_mb())} | figures), flush=True)


def main():
    parser = plain_script(__doc__)
    parser.add_argument("--rows", type=int, default=10**8)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="where the files are kept; by default they are deleted")
    parser.add_argument("--stages", default="disk,decoded,pandas,arrow,levels,pairs,distinct,fit,roots,network")
    parser.add_argument("--stage", help="run this one in this process")
    options = parser.parse_args()
    if options.stage:
        run_stage(options.stage, options.folder, options.rows, options.columns)
        return
    folder = options.folder or Path(tempfile.mkdtemp(prefix="rows-"))
    stages = options.stages.split(",")
    try:
        if not folder.exists() or not any(folder.iterdir()):
            folder.mkdir(exist_ok=True)
            stages = ["generate", *stages]
        sizes = [f"--rows={options.rows}", f"--columns={options.columns}", f"--folder={folder}"]
        for name in stages:
            subprocess.run([sys.executable, __file__, "--stage", name, *sizes], check=False)
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
