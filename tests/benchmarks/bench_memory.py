"""Memory and time of whole processes: long chains, large counts, long tables, rows beyond memory, and Ctrl-C.

python tests/benchmarks/bench_memory.py [--append] [chains | counts | learn | rows | interrupts] [OPTIONS]
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from harness import BEYOND, CORES, MUSHROOM, Report, apart, main, markdown, part, peak_mb

from pyro_hoim import Domain, InteractionHypergraph, sample_chains
from pyro_hoim.log_linear import GibbsChains, LogLinearEnergy, ModelFile, save_model

from support.hard_models import subsets
from support.verbs import verb_first

CHAINS_MB = 500


def mushroom_model():
    """Single variables, 40 pairs and 20 triples; tables normal with standard deviation 0.3."""
    rng = np.random.default_rng(2)
    d = len(MUSHROOM)
    scopes = [(i,) for i in range(d)] + subsets(rng, d, 2, 40) + subsets(rng, d, 3, 20)
    domain = Domain.from_cardinalities({f"v{i}": n for i, n in enumerate(MUSHROOM)})
    hypergraph = InteractionHypergraph(domain, [tuple(f"v{i}" for i in s) for s in scopes], hierarchical=False)
    return LogLinearEnergy(hypergraph, torch.from_numpy(rng.normal(0, 0.3, hypergraph.num_terms)))


def chain_figures(chains, sweeps, threads, engine):
    """Of one run: the imports' share of the peak, and what the run adds."""
    torch.set_num_threads(threads)
    model = mushroom_model()
    # The compiler (or the loader of its cache) belongs to the imports.
    sample_chains(GibbsChains(model, 16, engine=engine), 2)
    imports, start = peak_mb(), time.perf_counter()
    run = sample_chains(GibbsChains(model, chains, engine=engine), sweeps)
    seconds, peak = time.perf_counter() - start, peak_mb()
    updates = chains * sweeps * sum(n > 1 for n in MUSHROOM)
    return {
        "chains": chains,
        "sweeps": sweeps,
        "terms": model.hypergraph.num_terms,
        "engine": type(run.chains._engine).__name__,
        "threads": threads,
        "s": round(seconds, 2),
        "million updates/s": round(updates / seconds / 1e6, 1),
        "peak MB": round(peak, 1),
        "imports MB": round(imports, 1),
        "run MB": round(peak - imports, 1),
        "within": peak < CHAINS_MB,
    }


@part("Memory of chains that keep statistics only")
def chains(number=100_000, sweeps=1000, threads=CORES, engine="auto"):
    """Peak memory of a long run: 100,000 chains of 23 variables for 1,000 sweeps; within 500 MB.

    The model has the cardinalities of the mushroom data, 40 random pairs and 20 random triples with full tables. The
    peak is that of the whole process, the interpreter and all imports included.
    """
    figures = apart(chain_figures, number, sweeps, threads, engine)
    return markdown(figures, [figures.values()])


LIMIT_MB = 150
LARGE = 10**12
FITS = {
    "fit": "",
    "fit, split": "--split 0.5,0.2,0.3",
    "fit --edges": "--edges a*b+b*c+c*d --tests wald",
    "learn": "learn",
    "learn, sampled": "learn --trainer sampled",
    "learn, pseudo-likelihood": "learn --trainer pseudo-likelihood",
    "fit --posterior": "--order 1 --posterior --num-draws 100 --burn-in 100 --num-chains 2",
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
    """Peak in MB, processor seconds, and the last line of what went wrong, of a command in a process of its own."""
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
    return usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime, problem


@part("Memory of tables with large counts")
def counts(only="", limit=300.0):
    """Peak memory of commands on tables whose counts are 10^12, beside the same command on counts of about 10.

    A table of four variables (24 cells) with a count a cell, and one of 40 rows of three counts, each small and large.
    Every command whose name holds the word of ``--only`` is a process of its own, which ends after ``--limit`` seconds;
    the peak is that of the whole process, and the second figure its time. A difference above 150 MB is marked.
    """
    report = Report("command|MB, counts of 10|MB, counts of 10^12|difference, MB|s|s, 10^12|problem")
    with tempfile.TemporaryDirectory() as folder:
        for name, words in [*FITS.items(), *USES.items()]:
            if only not in name:
                continue
            runs = []
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
                        measured(["fit", str(file), "--out", str(out)], limit)
                    arguments = words.format(model=model, file=file).split()
                runs.append(measured(arguments, limit))
            (small, quick, why), (large, slow, problem) = runs
            more = None if small is None or large is None else large - small
            problem = problem or why
            if problem or more is None or more > LIMIT_MB:
                problem = f"{problem} {BEYOND}".strip()
            report.row(name, *("" if v is None else f"{v:.0f}" for v in (small, large, more)), f"{quick:.1f}",
                       f"{slow:.1f}", problem)  # fmt: skip
    return report.lines()


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


_STAGES = (generate, disk, decoded, pandas, arrow, levels, pairs, distinct, fit, roots, network)
STAGES = {function.__name__: function for function in _STAGES}
DEFAULT_STAGES = ("disk", "decoded", "pandas", "arrow", "levels", "pairs", "distinct", "fit", "roots", "network")


def stage_figures(name, folder, num_rows, columns):
    """What a stage finds, its time and its peak memory."""
    begin = time.perf_counter()
    figures = STAGES[name](Path(folder), num_rows, columns)
    times = os.times()
    spent = times.user + times.system + times.children_user + times.children_system
    shown = {"stage": name, "seconds": round(time.perf_counter() - begin, 1), "processor_seconds": round(spent, 1)}
    return shown | {"peak_mb": round(peak_mb())} | figures


@part("Rows beyond memory")
def rows(number=10**8, columns=20, folder=None, stages=DEFAULT_STAGES):
    """10^8 rows of 20 columns in Parquet, pairs counted and a pairwise model fitted.

    The columns are a chain: each repeats its left neighbour with a probability of its own. Every stage is a process of
    its own, so that the peak memory is that of the stage with the interpreter and all imports. The files are made in a
    folder that is deleted at the end, but for one that is named. pandas and pyarrow count all pairs file by file.

        bench_memory.py rows --number 20000000 --columns 30 --stages pairs
    """
    report = Report("stage|s|processor s|peak MB|found")
    with tempfile.TemporaryDirectory(prefix="rows-") as temporary:
        files = Path(folder or temporary)
        files.mkdir(exist_ok=True)
        for name in stages if any(files.iterdir()) else ["generate", *stages]:
            figures = apart(stage_figures, name, str(files), number, columns)
            shown = [figures.pop(key) for key in ("stage", "seconds", "processor_seconds", "peak_mb")]
            report.row(*shown, ", ".join(f"{key} {value}" for key, value in figures.items()))
    return report.lines()


LEARN_MB = 2000


def learn_figures(path):
    """Peaks and processor times of a process that reads a table as a frame and learns a model of it, step by step."""
    import pyro_hoim as hoim

    hoim.learn(pd.read_parquet(path).iloc[:2000, :10])  # the kernels belong to the imports
    steps = {"imports": (peak_mb(), time.process_time())}
    rows = hoim.Observations.from_pandas(pd.read_parquet(path))
    steps["frame to rows"] = peak_mb(), time.process_time()
    learned = hoim.learn(rows)
    name = f"learn: {learned.structure.hypergraph.num_interactions} interactions"
    return steps | {name: (peak_mb(), time.process_time())}


@part("Memory of learn")
def learn(number=10**6, columns=100, suffixes=("parquet", "csv"), limit=3600.0):
    """Peak memory of ``learn`` of a long table of binary columns; within 2 GB.

    The table is that of ``rows``. Its frame is learned from in one process, and the command reads it from a file of
    every kind, splits the rows, scores all parts and writes the report. Peaks are those of whole processes.
    """
    report = Report("process|MB|processor s|problem")

    def show(name, peak, seconds, problem=""):
        is_beyond = peak is None or peak > LEARN_MB
        shown = "" if peak is None else f"{peak:.0f}"
        report.row(name, shown, f"{seconds:.1f}", f"{problem} {BEYOND * is_beyond}".strip())

    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), number, columns)
        table = pd.concat([pd.read_parquet(path) for path in sorted(Path(folder).iterdir())])
        files = {suffix: Path(folder, f"table.{suffix}") for suffix in {"parquet", *suffixes}}
        table.to_parquet(files["parquet"], index=False, row_group_size=max(1, number // 8))
        if "csv" in files:
            table.to_csv(files["csv"], index=False)
        del table
        for name, (peak, seconds) in apart(learn_figures, str(files["parquet"])).items():
            show(name, peak, seconds)
        for suffix in suffixes:
            words = ["learn", str(files[suffix]), "--out", str(Path(folder, f"of {suffix}"))]
            show(f"pyro-hoim learn, {suffix}", *measured(words, limit))
    return report.lines()


COMMANDS = {
    "log-z, 20,000 chains": "log-z model --method ais --num-chains 20000 --num-temperatures 1000",
    "log-z, 100,000 temperatures": "log-z model --method ais --num-chains 64 --num-temperatures 100000",
    "sample": "sample model -n 100000 --method gibbs --out drawn.csv",
    "fit": "fit levels.csv --order 2",
    "learn": "learn levels.csv",
    "network": "fit bits.csv --model dependency-network",
    "grm": "fit counts.csv --model grm",
    "rbm": "fit bits.csv --model rbm",
    "posterior": "fit titanic --order 3 --posterior --num-draws 20000",
    "structure posterior": "structures czech_autoworkers --space graphical",
    "fit, sampled gradients": "fit levels.csv --order 2 --prior normal:1",
    "posterior, one process": "fit titanic --order 3 --posterior --num-draws 20000 --jobs 1",
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


@part("Time to the end after Ctrl-C")
def interrupts(names=(*COMMANDS, *PROGRAMS), seconds=6.0):
    """Time from Ctrl-C to the end of long commands.

    Each command, or program, is interrupted once it has used some seconds of processor time. Shown are wall time,
    processor time of the command after the signal (what a machine without other work would need), and the exit status,
    which must be 130 of commands and -2 of programs.
    """
    report = Report("command|wall, s|processor, s|status")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        prepare()
        for name in names:
            ended = interrupted(name, seconds)
            shown = ("ended before", "", "") if ended is None else (*(f"{v:.2f}" for v in ended[:2]), ended[2])
            report.row(name, *shown)
    return report.lines()


if __name__ == "__main__":
    main(__doc__)
