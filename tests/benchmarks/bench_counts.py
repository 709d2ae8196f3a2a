"""Peak memory of commands on tables whose counts are 10^12, beside the same command on counts of about 10.

A table of four variables (24 cells) with a count a cell, and one of 40 rows of three counts, each small and large.
Every command is a process of its own; the peak is that of the whole process, and the second figure its time.

    python tests/benchmarks/bench_counts.py [--only WORD] [--limit SECONDS] [--append]
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from harness import about, markdown, publish, script

from support.verbs import verb_first

LIMIT_MB = 150
LARGE = 10**12
FITS = {
    "fit": "",
    "fit, split": "--split 0.5,0.2,0.3",
    "fit --edges": "--edges a*b+b*c+c*d --tests wald",
    "learn": "learn",
    "learn, sampled": "learn --trainer sampled",
    "learn, pseudo-likelihood": "learn --trainer pseudo-likelihood",
    "fit --posterior": "--order 1 --posterior --draws 100 --burn-in 100 --chains 2",
    "structures": "structures",
    "fit, dependency network": "--model dependency-network",
    "fit, hidden units": "--model rbm --hidden 2 --iterations 200 --columns a,c,d",
    "fit, root model": "--model grm --l1 0.01",
}
USES = {
    "score": "score {model} {file}",
    "predict": "predict {model} {file} --target a",
    "interactions": "interactions {model}",
    "report": "report {model}",
}
RUN = "import sys; from pyro_hoim.cli import main; sys.exit(main())"


def write_table(path, scale):
    """Cells of 2 x 3 x 2 x 2 levels with counts from 1 to 20 times the scale."""
    counts = np.random.default_rng(1).integers(1, 21, 24)
    cells = np.stack(np.unravel_index(np.arange(24), (2, 3, 2, 2)), axis=1)
    lines = [",".join(map(str, [*cell, count * scale])) for cell, count in zip(cells, counts, strict=True)]
    path.write_text("\n".join(["a,b,c,d,count", *lines]) + "\n")


def write_counts(path, scale):
    """Forty rows of three dependent counts."""
    random = np.random.default_rng(2)
    rate = random.gamma(3.0, 2.0, (40, 1))
    rows = random.poisson(np.concatenate([rate, rate + 1, np.full((40, 1), 4.0)], axis=1)) * scale
    path.write_text("\n".join(["a,b,c", *(",".join(map(str, row)) for row in rows)]) + "\n")


def measured(arguments, limit):
    """Peak in MB, seconds, and the last line of what went wrong, of a command in a process of its own."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen([sys.executable, "-c", RUN, *arguments], stdout=subprocess.DEVNULL, stderr=errors)
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if time.perf_counter() - start > limit:
                child.kill()
                os.wait4(child.pid, 0)
                return None, limit, f"longer than {limit} s"
            time.sleep(0.02)
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read().decode().strip().splitlines() or [""]
    problem = said[-1] if child.returncode else ""
    return usage.ru_maxrss / 1024, time.perf_counter() - start, problem


def main():
    parser = script(__doc__)
    parser.add_argument("--only", default="", help="commands whose name holds this word")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one command")
    options = parser.parse_args()
    rows, bad = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name, words in [*FITS.items(), *USES.items()]:
            if options.only not in name:
                continue
            found = []
            for scale in (1, LARGE):
                is_root = "root" in name
                file, out = Path(folder, f"{is_root}{scale}.csv"), Path(folder, f"{'fit'}{scale}")
                (write_counts if is_root else write_table)(file, scale)
                model = out / "model.safetensors"
                if name in FITS:
                    out = Path(folder, name.replace(" ", "_") + str(scale)) if name != "fit" else out
                    arguments = verb_first(str(file), *words.split(), "--out", str(out))
                else:
                    if not model.exists():
                        measured(["fit", str(file), "--out", str(out)], options.limit)
                    arguments = words.format(model=model, file=file).split()
                found.append(measured(arguments, options.limit))
            (small, quick, why), (large, slow, problem) = found
            problem = problem or why
            more = None if small is None or large is None else large - small
            bad += bool(problem) or more is None or more > LIMIT_MB
            shown = ["" if v is None else f"{v:.0f}" for v in (small, large, more)]
            rows.append([name, *shown, f"{quick:.1f}", f"{slow:.1f}", problem])
            print(*rows[-1], sep=" | ", file=sys.stderr)
    head = ["command", "MB, counts of 10", "MB, counts of 10^12", "difference, MB", "s", "s, 10^12", "problem"]
    publish("Memory of tables with large counts", "\n".join([about(), "", *markdown(head, rows)]), options.append)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
