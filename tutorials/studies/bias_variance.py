r"""Bias and variance of higher-order against restricted Boltzmann machines: the experiment of Luo and Sugiyama (2019).

.. math:: E\,D(P^*; \hat P_B) = D(P^*; P^*_B) + E\,D(P^*_B; \hat P_B) + \text{remainder}

:math:`P^*` is a random law, :math:`\hat P_B` what a machine learns from a sample of it and :math:`P^*_B` what it learns
from the law itself. The remainder is zero for exponential families and exact :math:`P^*_B`; a restricted Boltzmann
machine has one.

usage: PYTHONPATH=tutorials python -m studies.bias_variance RESULTS [--whole] [--rows N ...] [--table FILE] ...

RESULTS holds one line of JSON for every machine that was learned. A run that was stopped goes on where it stopped; the
numbers do not depend on the order or on the number of processes.
"""

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from pyro_hoim import Domain, InteractionHypergraph
from pyro_hoim.boltzmann import LearningOptions, fit_machine
from pyro_hoim.core import Law
from pyro_hoim.data import Observations
from pyro_hoim.errors import check_choice
from pyro_hoim.information import project
from pyro_hoim.log_linear import MachineTraining, mle_existence, train_machine

from studies.bias_variance_kernels import hidden_steps, interaction_steps
from studies.random_laws import random_uniform_law

__all__ = [
    "FIGURE_9",
    "HIDDEN",
    "ORDERS",
    "SIZES",
    "Design",
    "Machine",
    "References",
    "Sampled",
    "divergence",
    "learn",
    "learn_by_samples",
    "limit",
    "main",
    "num_parameters",
    "references",
    "run",
    "sample",
    "seconds",
    "summary",
    "true_law",
]

SIZES = tuple(m * 10**k for k in range(1, 5) for m in (1, 3, 5))
FIGURE_9 = (50, 500, 5_000, 50_000)
ORDERS, HIDDEN = tuple(range(1, 11)), tuple(range(16))


class Machine(NamedTuple):
    """Which machine, and how it is learned.

    Attributes:
        kind: ``hbm`` of an order and ``rbm`` with hidden units make steps along exact gradients; ``mle`` is ``hbm``
            without end of steps; ``gibbs`` and ``cd`` are ``hbm`` and ``rbm`` as in the paper, by Gibbs samples and by
            contrastive divergence.
        complexity: the order, or the number of hidden units.
    """

    kind: str
    complexity: int

    @property
    def is_restricted(self) -> bool:
        """Whether it has hidden units."""
        return self.kind in ("rbm", "cd")


@dataclass(frozen=True)
class Design:
    """What the numbers depend on, beside the machine, the number of rows and the number of the data set.

    Attributes:
        num_variables: not printed in the paper. Its orders end at 10, where 10 variables have no further one; with 15
            there would be 30,826 parameters at order 10, each an entry of the O(M |S(B)|^2) of every iteration.
        steps, rate: plain gradient steps, from zero (hidden units: from weights of standard deviation ``spread``,
            which the paper does not print either).
        reference_rows: of the sample that takes the place of the law for a restricted Boltzmann machine.
        seed: of the law, the samples and the first weights.
        num_samples, num_temperatures: Gibbs samples of a step, and steps of the annealed runs for log Z, of the kinds
            ``gibbs`` and ``cd``; the second is not printed.
    """

    num_variables: int = 10
    steps: int = 10_000
    rate: float = 0.1
    spread: float = 0.01
    reference_rows: int = 10**6
    seed: int = 0
    num_samples: int = 10_000
    num_temperatures: int = 1000


def true_law(design: Design) -> np.ndarray:
    """The law of the experiment (2^n,): uniform draws, normalised."""
    domain = Domain.from_cardinalities([2] * design.num_variables)
    law = random_uniform_law(domain, generator=torch.Generator().manual_seed(design.seed))
    return law.probs.reshape(-1).numpy()


def sample(design: Design, num_rows: int, repeat: int) -> np.ndarray:
    """The law of a sample (2^n,); every size and repeat has rows of its own, which all machines see."""
    random = np.random.default_rng([design.seed, num_rows, repeat])
    return random.multinomial(num_rows, true_law(design)) / num_rows


def num_parameters(machine: Machine, num_variables: int) -> int:
    """Interactions of an order, or biases and weights: the horizontal axis of figure 9."""
    n, k = num_variables, machine.complexity
    return n + k + n * k if machine.is_restricted else sum(math.comb(n, size) for size in range(1, k + 1))


def divergence(p: np.ndarray, log_q: np.ndarray) -> float:
    """D(p; q) in nats; infinite where q is zero and p is not."""
    occurs = p > 0
    return float(np.dot(p[occurs], np.log(p[occurs]) - log_q[occurs]))


def learn(machine: Machine, target: np.ndarray, design: Design, *key: int) -> np.ndarray:
    """Log probabilities (2^n,) of a machine after the design's steps of exact gradient towards a law.

    Args:
        machine: which.
        target: the law (2^n,), most often of a sample.
        design: number and length of steps.
        key: numbers that the first weights of hidden units depend on.

    Raises:
        FloatingPointError: parameters ran out of range.
    """
    n, k = design.num_variables, machine.complexity
    check_choice(machine.kind, ("hbm", "mle", "rbm"), "machine kind")
    if machine.kind == "mle":
        return limit(k, target)
    if machine.kind == "hbm":
        sizes = np.array([cell.bit_count() for cell in range(2**n)])
        rate = np.where((sizes > 0) & (sizes <= k), design.rate, 0.0)
        found = interaction_steps(target, rate, design.steps, np.zeros(2**n))
    else:
        weights = np.random.default_rng([design.seed, k, *key]).normal(scale=design.spread, size=(k, n))
        found = hidden_steps(target, design.rate, design.steps, weights, np.zeros(n), np.zeros(k))
    if not np.isfinite(found).all():
        raise FloatingPointError(f"{machine} left the range of numbers after {design.steps} steps of {design.rate}")
    return found


def limit(order: int, target: np.ndarray) -> np.ndarray:
    """Log probabilities (2^n,) of the projection of a law on the interactions of an order: gradient steps without end.

    Minus infinity everywhere if it lies on the boundary, so that no finite maximum-likelihood estimate exists.
    """
    domain = Domain.from_cardinalities([2] * (len(target).bit_length() - 1))
    probs = torch.from_numpy(target.reshape(domain.cardinalities))
    collection = InteractionHypergraph.from_order(domain, order)
    if (
        bool((probs == 0).any())
        and not mle_existence(collection, Observations.from_table(domain, weights=probs)).exists
    ):
        return np.full(len(target), -np.inf)
    return project(Law(domain, probs), collection).probs.reshape(-1).log().numpy()


class Sampled(NamedTuple):
    """What was learned from samples.

    Attributes:
        log_probs: of all cells (2^n,), with exact log Z.
        log_z_error: annealed log Z less the exact one, nats: what annealing adds to every reported divergence.
    """

    log_probs: np.ndarray
    log_z_error: float


def learn_by_samples(machine: Machine, target: np.ndarray, num_rows: int, design: Design, *key: int) -> Sampled:
    """A machine learned as in the paper, by the library: plain steps along gradients estimated from Gibbs samples.

    Chains of ``gibbs`` begin at rows of the data and make three sweeps, as in the authors' program; ``cd`` makes one.
    """
    domain = Domain.from_cardinalities([2] * design.num_variables)
    rows = Observations.from_table(domain, np.rint(target * num_rows).astype(int).reshape(domain.cardinalities))
    seed = int(np.random.SeedSequence([design.seed, machine.complexity, *key]).generate_state(1)[0])
    if machine.kind == "cd":
        options = LearningOptions(
            "cd", rate=design.rate, iterations=design.steps, batch_size=design.num_samples, scale=design.spread
        )
        law = fit_machine(rows, machine.complexity, options, seed=seed).law
        return Sampled(law.log_prob_table.reshape(-1).numpy(), 0.0)
    training = MachineTraining(
        learning_rate=design.rate,
        num_iterations=design.steps,
        num_chains=design.num_samples,
        num_temperatures=design.num_temperatures,
        seed=seed,
    )
    found = train_machine(rows, machine.complexity, method="gibbs", training=training)
    exact = replace(found, partition=None)
    error = float(found.log_partition.value) - float(exact.log_partition.value)
    return Sampled(exact.law.log_prob_table.reshape(-1).numpy(), error)


class References(NamedTuple):
    """Log probabilities (2^n,) of the machines that may stand for P*_B.

    Attributes:
        best: the projection of the law, or the restricted Boltzmann machine learned from the large sample.
        stepped: what the same steps make of the law itself.
    """

    best: np.ndarray
    stepped: np.ndarray


def references(machine: Machine, design: Design) -> References:
    """Both references of a machine."""
    truth, large = true_law(design), design.reference_rows
    if machine.is_restricted:
        rbm = Machine("rbm", machine.complexity)
        best = learn(rbm, sample(design, large, 0), design, large, 0)
        return References(best, learn(rbm, truth, design, large, 0))
    return References(limit(machine.complexity, truth), learn(Machine("hbm", machine.complexity), truth, design))


def _fits(
    machine: Machine, num_rows: int, repeats: Iterable[int], found: References, design: Design
) -> list[dict[str, Any]]:
    """Lines of results of one machine and size: divergences of what was learned from four laws, in nats."""
    truth, lines = true_law(design), []
    for repeat in repeats:
        rows = sample(design, num_rows, repeat)
        start = time.process_time()
        if machine.kind in ("gibbs", "cd"):
            learned, log_z_error = learn_by_samples(machine, rows, num_rows, design, num_rows, repeat)
        else:
            learned, log_z_error = learn(machine, rows, design, num_rows, repeat), 0.0
        seconds = time.process_time() - start
        ends = {
            "total": truth,
            "variance": np.exp(found.best),
            "stepped_variance": np.exp(found.stepped),
            "train": rows,
        }
        errors = {name: divergence(p, learned) for name, p in ends.items()}
        errors |= {"log_z_error": log_z_error, "seconds": seconds}
        lines.append({**machine._asdict(), "num_rows": num_rows, "repeat": repeat, **errors})
    return lines


def _read(path: Path, design: Design) -> list[dict[str, Any]]:
    """Lines of a results file that are complete; the file is begun if there is none.

    Raises:
        ValueError: the file belongs to another design.
    """
    if not path.exists():
        path.write_text(json.dumps({"design": asdict(design)}) + "\n", encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:  # killed within a line
        path.write_text(whole, encoding="utf-8")
    first, *lines = [json.loads(line) for line in whole.splitlines()]
    if first["design"] != asdict(design):
        raise ValueError(f"{path} holds results of {first['design']}, not of {asdict(design)}; give another file")
    return lines


def run(
    path: str | Path,
    machines: Iterable[Machine],
    sizes: Iterable[int],
    *,
    repeats: int = 24,
    design: Design = Design(),
    jobs: int = 1,
    progress: bool = True,
) -> pd.DataFrame:
    """Learn every machine from every sample that the results file has not yet, and summarise all that it has.

    Args:
        path: the results file, made or continued.
        machines: which machines.
        sizes: numbers of rows.
        repeats: samples of each size.
        design: what the numbers depend on; that of the file, if there is one.
        jobs: processes.
        progress: show a bar on standard error.

    Returns:
        :func:`summary` of the file.
    """
    path = Path(path)
    machines, sizes = list(machines), list(sizes)
    lines = _read(path, design)
    known = {(line["kind"], line["complexity"], line.get("num_rows"), line.get("repeat")) for line in lines}
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    found = joblib.Parallel(n_jobs=jobs)(joblib.delayed(references)(machine, design) for machine in machines)
    by_machine, truth = dict(zip(machines, found, strict=True)), true_law(design)
    biases = [
        {**machine._asdict(), "bias": divergence(truth, ends.best), "stepped_bias": divergence(truth, ends.stepped)}
        for machine, ends in by_machine.items()
        if (*machine, None, None) not in known
    ]
    calls, total = [], 0
    for machine, num_rows in itertools.product(machines, sizes):
        missing = [repeat for repeat in range(repeats) if (*machine, num_rows, repeat) not in known]
        size = 1 if machine.kind in ("gibbs", "cd") else repeats  # a minute or two each: kept as soon as they are done
        for first in range(0, len(missing), size):
            part = missing[first : first + size]
            calls.append(joblib.delayed(_fits)(machine, num_rows, part, by_machine[machine], design))
        total += len(missing)
    with path.open("a", encoding="utf-8") as file, tqdm(total=total, unit="fit", disable=not progress) as bar:
        _write(file, biases)
        for found in parallel(calls):
            _write(file, found)
            bar.update(len(found))
    return summary(path)


def _write(file: Any, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append lines, whole ones as far as the disk goes."""
    file.write("".join(json.dumps(line) + "\n" for line in lines))
    file.flush()


def summary(path: str | Path) -> pd.DataFrame:
    """Means over the samples of a results file.

    Returns:
        One row for each machine and size: ``kind``, ``complexity``, ``num_parameters``, ``num_rows``, ``repeats``,
        ``num_finite``; in nats ``bias``, ``variance``, ``total`` and ``remainder``; ``stepped_bias`` and
        ``stepped_variance``, the same with the other reference; and standard errors, ``variance_error`` and
        ``total_error``. Means are over the samples with a finite variance.
    """
    first, *lines = (json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines())
    frame = pd.DataFrame(lines).replace(math.inf, math.nan).sort_values("repeat")  # sums in one order
    biases = frame[frame["num_rows"].isna()].set_index(["kind", "complexity"])[["bias", "stepped_bias"]]
    groups = frame.dropna(subset="num_rows").groupby(["kind", "complexity", "num_rows"])
    found = groups[["variance", "total", "stepped_variance"]].mean()
    found = found.join(groups[["variance", "total"]].sem().add_suffix("_error")).join(biases)
    found["remainder"] = found["total"] - found["bias"] - found["variance"]
    found.insert(0, "repeats", groups.size())
    found.insert(1, "num_finite", groups["variance"].count())
    found = found.reset_index().astype({"complexity": int, "num_rows": int})
    n = first["design"]["num_variables"]
    numbers = [num_parameters(Machine(kind, k), n) for kind, k in zip(found["kind"], found["complexity"], strict=True)]
    found.insert(2, "num_parameters", numbers)
    return found


def seconds(path: str | Path) -> float:
    """Processor time of the fits in a results file."""
    _, *lines = (json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines())
    return math.fsum(line.get("seconds", 0.0) for line in lines)


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=FIGURE_9, help="sizes; those of figure 9 if left out")
    parser.add_argument("--whole", action="store_true", help="all twelve sizes")
    parser.add_argument("--orders", type=int, nargs="*", default=ORDERS, help="of the HBM")
    parser.add_argument("--hidden", type=int, nargs="*", default=HIDDEN, help="units of the RBM")
    parser.add_argument("--limits", type=int, nargs="*", default=(), help="orders of the HBM without end of steps")
    parser.add_argument("--sampled-orders", type=int, nargs="*", default=(), help="of the HBM by Gibbs samples and AIS")
    parser.add_argument("--sampled-hidden", type=int, nargs="*", default=(), help="units of the RBM by CD")
    parser.add_argument("--repeats", type=int, default=24)
    parser.add_argument("--steps", type=int, default=Design.steps, help="10,000 in the paper")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", type=Path, help="write the means to this CSV file")
    given = parser.parse_args(arguments)
    chosen = {"hbm": given.orders, "rbm": given.hidden, "mle": given.limits}
    chosen |= {"gibbs": given.sampled_orders, "cd": given.sampled_hidden}
    machines = [Machine(kind, number) for kind, numbers in chosen.items() for number in numbers]
    sizes = SIZES if given.whole else given.rows
    design = Design(steps=given.steps)
    found = run(given.results, machines, sizes, repeats=given.repeats, design=design, jobs=given.jobs)
    if given.table:
        found.to_csv(given.table, index=False, float_format="%.5g")
    print(found.to_string())
    print(f"{seconds(given.results):.0f} s of processor time for the fits")


if __name__ == "__main__":
    main()
