"""Posteriors over interactions beside conting and bayesloglin: moves per second, inclusion, models of Rochdale.

usage: bench_structure.py [--parts speed agreement rochdale] [--iterations N] [--append]

Czech autoworkers: 6 binary variables, 1,841 rows, letters a to f in schema order; alcohol, hypertension and obesity:
4 x 2 x 3 cells, 491 rows; Rochdale: 8 binary variables, 665 rows. Prior of unit information, every hierarchical
collection of interactions of at most three variables (four in Rochdale) equally likely. The peers run under the Rscript
that PYRO_HOIM_PEER_R names, with R_LIBS as it is; without it their rows say "not run". Seconds are processor time.
"""

import csv
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from harness import PEERS, ROOT, about, markdown, plain_script, printed, publish

from pyro_hoim import Domain, Observations, load_table
from pyro_hoim.inference import ChainSettings, StructurePrior, sample_structures

GOLDEN = json.loads((ROOT / "tests" / "golden" / "structure_posteriors.json").read_text(encoding="utf-8"))
PEER = os.environ.get("PYRO_HOIM_PEER_R")


def peer(name, data, order, iterations, seed=1):
    """What the R package says of a table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        with path.open("w", newline="") as file:
            rows = zip(data.codes.tolist(), data.counts.tolist(), strict=True)
            csv.writer(file).writerows([[*data.domain.names, "count"], *([*row, count] for row, count in rows)])
        (said,) = printed([PEER, PEERS / "structure.R", name, path, order, iterations, seed])
    return said


def letters(data, edge):
    """An interaction by the letters of its variables in schema order."""
    return "".join(sorted("abcdefgh"[data.domain.names.index(name)] for name in edge))


def timed(data, *arguments, **options):
    """A posterior by chains and its seconds of processor time."""
    start = time.process_time()
    posterior = sample_structures(data, *arguments, **options)
    return posterior, time.process_time() - start


def alcohol():
    """The table of alcohol, hypertension and obesity."""
    says = GOLDEN["alcohol"]
    domain = Domain.from_cardinalities(dict(zip(says["variables"], says["levels"], strict=True)))
    return Observations.from_table(domain, torch.tensor(says["counts"], dtype=torch.float64).reshape(says["levels"]))


def speed(iterations):
    czech = load_table("czech_autoworkers")
    cases = [
        ("unit information, Laplace", "unit", StructurePrior(czech.domain, max_order=3), True),
        ("unit information, jumps with theta", "unit", StructurePrior(czech.domain, max_order=3), False),
        ("conjugate, decomposable", "conjugate:1", StructurePrior(czech.domain, space="decomposable"), True),
    ]
    rows, rates = [], []
    for name, prior, structures, collapsed in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few draws only compile the kernels
            timed(czech, prior, structures, ChainSettings(2, 4, 0), collapsed=collapsed)
        settings = ChainSettings(num_chains=4, num_draws=1000, burn_in=0)
        _, seconds = timed(czech, prior, structures, settings, collapsed=collapsed, seed=1)
        moves = 4 * 1000 * structures.space.num_free
        rates.append(moves / seconds)
        rows.append([f"ours: {name}", f"{moves:,}", f"{seconds:.1f}", f"{moves / seconds:,.0f}", ""])
    for name, label, where, against in (
        ("conting", "conting 1.7, jumps with theta", 3, rates[:2]),
        ("bayesloglin", "bayesloglin 1.0.1, Laplace", "Hierarchical", rates[:1]),
        ("bayesloglin", "bayesloglin 1.0.1, decomposable", "Decomposable", rates[2:]),
    ):
        if PEER is None:
            rows.append([label, "not run", "", "", ""])
            continue
        said = peer(name, czech, where, iterations // 50)
        rate = said["iterations"] / said["seconds"]
        ratios = " and ".join(f"{ours / rate:,.0f}" for ours in against)
        rows.append([label, f"{said['iterations']:,}", f"{said['seconds']:.1f}", f"{rate:,.0f}", ratios])
    head = ["method", "moves", "seconds", "moves per second", "ours over it"]
    what = (
        "Czech autoworkers; every run begins with no collection scored. Ratios are to ours with the same law (conting: "
        "without and with theta):"
    )
    return [what, "", *markdown(head, rows)]


def agreement(iterations):
    text = []
    for name, data in (("Czech autoworkers", load_table("czech_autoworkers")), ("alcohol table", alcohol())):
        structures = StructurePrior(data.domain, max_order=3)
        settings = ChainSettings(num_chains=4, num_draws=4000, burn_in=500)
        laplace, jumps = (
            sample_structures(data, "unit", structures, settings, collapsed=c, seed=1) for c in (True, False)
        )
        said = peer("conting", data, 3, iterations) if PEER else None
        theirs = {}
        if said:
            theirs = {
                term.replace(":", "").lower(): probability
                for term, probability in zip(said["terms"], said["probability"], strict=True)
            }
        rows, gaps = [], [0.0, 0.0]
        for edge in structures.space.candidates:
            key = letters(data, edge)
            found = [float(p.inclusion[edge]) for p in (laplace, jumps)]
            if said:
                gaps = [max(gap, abs(value - theirs[key])) for gap, value in zip(gaps, found, strict=True)]
            if max(found) > 0.02:
                rows.append([key, *(f"{value:.3f}" for value in found), f"{theirs[key]:.3f}" if said else "not run"])
        head = ["interaction", "Laplace", "jumps with theta", f"conting, {iterations:,} iterations"]
        text += [f"{name}: inclusion ({laplace.status}, {jumps.status})", "", *markdown(head, rows), ""]
        if said:
            text += [f"Largest difference from conting over all candidates: {gaps[0]:.3f} and {gaps[1]:.3f}.", ""]
    return text


def rochdale(_):
    data = load_table("rochdale")
    settings = ChainSettings(num_chains=4, num_draws=400, burn_in=100)
    posterior, seconds = timed(data, "unit", StructurePrior(data.domain, max_order=4), settings, seed=1)
    published = {tuple(sorted(GOLDEN["rochdale"][who].split(","))): who for who in ("whittaker", "dobra")}
    models = posterior.models(5)
    rows = []
    for model in models:
        generators = sorted(letters(data, edge) for edge in model.hypergraph.maximal_edges)
        mark = published.get(tuple(generators), "").capitalize()
        rows.append([" ".join(generators), f"{model.probability:.4f}", f"{model.log_evidence:.3f}", mark])
    what = (
        f"Rochdale, four chains of 400 draws after 100: {posterior.status}, {seconds:.0f} s, "
        f"{posterior.num_structures:,} collections in the draws."
    )
    text = [
        what,
        "",
        *markdown(["most probable", "share of draws", "log evidence (Laplace)", "published by"], rows),
        "",
    ]
    inclusion = posterior.inclusion
    flags = posterior.gamma[posterior.index].double().mean(1)
    rows = [
        [letters(data, edge), f"{float(inclusion[edge]):.3f}", ", ".join(f"{v:.2f}" for v in flags[:, k].tolist())]
        for k, edge in enumerate(posterior.structure_prior.space.candidates)
        if float(inclusion[edge]) > 0.2
    ]
    return text + markdown(["interaction", "inclusion", "by chain"], rows)


def main():
    parser = plain_script(__doc__)
    parser.add_argument("--parts", nargs="+", choices=("speed", "agreement", "rochdale"))
    parser.add_argument("--iterations", type=int, default=50_000, help="of conting")
    parser.add_argument("--append", action="store_true", help="append to docs/benchmarks.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = {"speed": speed, "agreement": agreement, "rochdale": rochdale}
    text = [f"`{' '.join(['python', 'tests/benchmarks/bench_structure.py', *sys.argv[1:]])}`", "", about(), ""]
    for name in options.parts or parts:
        text += [*parts[name](options.iterations), ""]
    publish("Posteriors over interactions", "\n".join(text), options.append)


if __name__ == "__main__":
    main()
