"""Time from Ctrl-C to the end of long commands: ``python tests/benchmarks/bench_interrupts.py [NAME[@SECONDS] ...]``.

Each command, or program, is interrupted once it has used some seconds of processor time. Printed are wall time,
processor time of the command after the signal (what a machine without other work would need), and the exit status,
which must be 130 of commands and -2 of programs.
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
    "learn": "learn levels.csv",
    "network": "fit bits.csv --model dependency-network",
    "grm": "fit counts.csv --model grm",
    "rbm": "fit bits.csv --model rbm",
    "posterior": "fit titanic --order 3 --posterior --draws 20000",
    "structure posterior": "structures czech_autoworkers --space graphical",
    "fit, sampled gradients": "fit levels.csv --order 2 --prior normal:1",
    "posterior, one process": "fit titanic --order 3 --posterior --draws 20000 --jobs 1",
    "penalty": "fit bits.csv --columns 20 --order 3 --penalty sparse-low-rank:5,5",
    "exact log-z": "log-z large --method exact",
    "rows": "fit long.csv --order 1",
    "network, many columns": "fit wide.csv --model dependency-network",
    "compilation": "fit bits.csv --order 2",
}
PROGRAMS = {
    "bootstrap": "h.goodness_of_fit(h.fit('a*b + b*c + c*d + a*d', table), 'bootstrap', num_tables=10**6)",
    "exact test": "h.goodness_of_fit(h.fit('a*b + b*c + c*d', table), 'exact', num_tables=10**6)",
    "estimator": "from pyro_hoim.estimators import *; InteractionDensity(order=3).fit(levels)",
    "node log partition": "from pyro_hoim.generalized_root import *; "
    "node_moments(GaussianFamily(), torch.tensor([-0.5, 0.3, 0.2]).repeat(500_000, 1))",
}
START = """import numpy as np, torch, pandas as pd, pyro_hoim as h
domain = h.Domain.from_cardinalities({name: 4 for name in "abcd"})
table = h.Observations.from_table(domain, np.random.default_rng(0).poisson(20, (4, 4, 4, 4)))
levels = pd.read_csv("levels.csv")
"""


def prepare():
    """Tables and a model that keep every command busy for long."""
    random = np.random.default_rng(0)
    for name, cells in (
        ("levels", random.integers(0, 3, (20_000, 30))),
        ("bits", random.integers(0, 2, (100_000, 60))),
        ("counts", random.poisson(3, (5_000, 40))),
        ("long", random.integers(0, 3, (1_000_000, 12))),
        ("wide", random.integers(0, 2, (2_000, 1_500))),
    ):
        pd.DataFrame(cells, columns=[f"c{i}" for i in range(cells.shape[1])]).to_csv(f"{name}.csv", index=False)
    for name, sizes in (("model", [3] * 40), ("large", [2] * 30)):
        graph = InteractionHypergraph.from_order(Domain.from_cardinalities(sizes), 2)
        generator = torch.Generator().manual_seed(0)
        theta = 0.05 * torch.randn(graph.num_parameters, generator=generator, dtype=torch.float64)
        save_model(name, ModelFile(graph, theta))


def arguments(name):
    """The program or command of a name, with its arguments, and what its environment has besides."""
    if name in PROGRAMS:
        return [sys.executable, "-c", START + PROGRAMS[name]], {}
    command = [sys.executable, "-c", "from pyro_hoim.cli import main; main()", *COMMANDS[name].split()]
    return command, {"NUMBA_CACHE_DIR": "empty"} if name == "compilation" else {}


def used(process):
    """Seconds of processor time so far."""
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        words = file.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def interrupted(name, seconds):
    """Wall time, processor time after Ctrl-C, and exit status; None where the command ended before."""
    command, more = arguments(name)
    environment = {**os.environ, **more}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    while process.poll() is None and used(process) < seconds:
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
        for word in sys.argv[1:] or [*COMMANDS, *PROGRAMS]:
            name, _, seconds = word.partition("@")
            found = interrupted(name, float(seconds or SECONDS))
            shown = "ended before | | " if found is None else f"{found[0]:.2f} | {found[1]:.2f} | {found[2]}"
            print(f"| {word} | {shown} |", flush=True)
        os.chdir("/")
