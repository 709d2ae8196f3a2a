"""Time from Ctrl-C to the end of every long command: ``python tests/benchmarks/bench_interrupts.py [NAME ...]``.

Each command is interrupted once it has used some seconds of processor time. Printed are wall time, processor time of
the command after the signal (what a machine without other work would need), and the exit status, which must be 130.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pandas as pd
import torch

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.log_linear import ModelFile, save_model

SECONDS = 6.0  # of processor time before the signal
COMMANDS = {
    "log-z, 20,000 chains": "log-z model --method ais --chains 20000 --temperatures 1000",
    "log-z, 100,000 temperatures": "log-z model --method ais --chains 64 --temperatures 100000",
    "sample": "sample model -n 100000 --method gibbs --out drawn.csv",
    "fit": "fit levels.csv --order 2",
    "fit --select": "fit levels.csv --select",
    "network": "fit bits.csv --model dependency-network",
    "grm": "fit counts.csv --model grm",
    "rbm": "fit bits.csv --model rbm",
    "posterior": "fit titanic --order 3 --posterior --draws 20000",
    "structure posterior": "fit czech_autoworkers --structure-posterior --space graphical",
}


def prepare():
    """Tables and a model that keep every command busy for long."""
    random = np.random.default_rng(0)
    for name, cells in (
        ("levels", random.integers(0, 3, (20_000, 30))),
        ("bits", random.integers(0, 2, (100_000, 60))),
        ("counts", random.poisson(3, (5_000, 40))),
    ):
        pd.DataFrame(cells, columns=[f"c{i}" for i in range(cells.shape[1])]).to_csv(f"{name}.csv", index=False)
    graph = InteractionHypergraph.from_order(Domain.from_cardinalities([3] * 40), 2)
    generator = torch.Generator().manual_seed(0)
    theta = 0.05 * torch.randn(graph.num_parameters, generator=generator, dtype=torch.float64)
    save_model("model", ModelFile(graph, theta))


def used(process):
    """Seconds of processor time so far."""
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def interrupted(words):
    """Wall time, processor time after Ctrl-C, and exit status; None where the command ended before."""
    command = [sys.executable, "-c", "from pyro_hoim.cli import main; main()", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and used(process) < SECONDS:
        time.sleep(0.02)
    if process.returncode is not None:
        return None
    before, start = used(process), time.perf_counter()
    process.send_signal(signal.SIGINT)
    _, status, usage = os.wait4(process.pid, 0)
    after = usage.ru_utime + usage.ru_stime - before
    process.returncode = os.waitstatus_to_exitcode(status)
    return time.perf_counter() - start, after, process.returncode


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        prepare()
        print("| command | wall, s | processor, s | status |\n|---|---|---|---|")
        for name in sys.argv[1:] or COMMANDS:
            found = interrupted(COMMANDS[name].split())
            shown = "ended before | | " if found is None else f"{found[0]:.2f} | {found[1]:.2f} | {found[2]}"
            print(f"| {name} | {shown} |", flush=True)
        os.chdir("/")
