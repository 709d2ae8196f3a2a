"""Whole processes beside the imports that they cannot do without: commands on a model of four columns, and a fit.

python tests/benchmarks/bench_commands.py [--append] [processes] [OPTIONS]
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
from harness import main, markdown, part

import pyro_hoim as hoim

COMMANDS = {
    "score": ["score", "MODEL", "FILE"],
    "predict": ["predict", "MODEL", "FILE", "--target", "d"],
    "sample": ["sample", "MODEL", "-n", "100"],
    "log-z": ["log-z", "MODEL"],
    "interactions": ["interactions", "MODEL"],
    "tables": ["tables"],
}
FIT = """
import sys
import pandas as pd
import pyro_hoim as hoim
rows = pd.read_csv(sys.argv[1])
result = hoim.fit(".^2", rows)
result.summary()
result.predict(rows, "d")
"""


def table():
    """1,000 rows of four columns in a chain."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 1000)
    b = np.where(rng.random(1000) < 0.7, a, rng.integers(0, 3, 1000))
    c = rng.integers(0, 2, 1000)
    d = np.where(rng.random(1000) < 0.6, b, rng.integers(0, 3, 1000))
    return pd.DataFrame({name: np.array(list("xyz"))[codes] for name, codes in zip("abcd", (a, b, c, d), strict=True)})


LAUNCHER = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
assert status == 0, sys.argv
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""
"""Starts a process from a small one, for the peak of a process is not below that of the one it comes from."""


def used(program, *arguments):
    """Processor time in seconds, and peak memory in MB, of a process."""
    command = [sys.executable, "-c", LAUNCHER, sys.executable, "-c", program, *arguments]
    return tuple(map(float, subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()))


@part("Commands beside their imports")
def processes(repeats=5):
    """Medians of interleaved runs, after one that is not counted."""
    with tempfile.TemporaryDirectory() as folder:
        names = {"MODEL": str(Path(folder, "model.safetensors")), "FILE": str(Path(folder, "table.csv"))}
        rows = table()
        rows.to_csv(names["FILE"], index=False)
        hoim.fit(".^2", rows).save(names["MODEL"])
        main_program = "from pyro_hoim.cli import main; main()"
        programs = {
            "import torch, pandas": ("import torch, pandas",),
            "import torch, pandas, scipy.stats": ("import torch, pandas, scipy.stats",),
            **{name: (main_program, *(names.get(word, word) for word in words)) for name, words in COMMANDS.items()},
            "fit, summary, predict": (FIT, names["FILE"]),
        }
        figures = {name: [] for name in programs}
        for number in range(repeats + 1):
            for name, program in programs.items():
                usage = used(*program)
                if number:
                    figures[name].append(usage)
    medians = {name: [median(each) for each in zip(*runs, strict=True)] for name, runs in figures.items()}
    lines = []
    for name, (seconds, memory) in medians.items():
        is_fit = name.startswith("fit")
        least = medians["import torch, pandas, scipy.stats" if is_fit else "import torch, pandas"]
        lines.append([name, f"{seconds:.2f}", f"{memory:.0f}", f"{seconds / least[0]:.2f}", f"{memory / least[1]:.2f}"])
    return markdown(["process", "s", "MB", "times the import's s", "times its MB"], lines)


if __name__ == "__main__":
    main(__doc__)
