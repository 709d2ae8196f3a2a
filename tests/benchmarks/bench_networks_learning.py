"""Learning of dependency networks beside scikit-learn's trees and forests: time, held-out fit, accuracy.

python tests/benchmarks/bench_networks_learning.py [--append] [speed | accuracy] [OPTIONS]
"""

import time

import numpy as np
import torch
from harness import LOADERS, Report, first_call, main, markdown, median, part

from pyro_hoim import Domain, Observations, learn_network
from pyro_hoim.datasets import load_mushroom

TARGETS = {
    "mushroom": ("class", "odor", "habitat"),
    "adult": ("income", "race", "sex"),
    "breast_cancer": ("class", "deg-malig"),
}
ALPHAS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
PRIORS = (0.001, 0.01, *ALPHAS)
LEAVES = (1, 3, 10)
FIRST_CALL = """
import time, torch
from pyro_hoim.data import Observations
from pyro_hoim.dependency_network import learn_network
from pyro_hoim.schema import Domain
rows = Observations(Domain.from_cardinalities([2, 3]), torch.tensor([[0, 1], [1, 0], [1, 2]]))
start = time.perf_counter()
learn_network(rows)
print(time.perf_counter() - start)
"""


def synthetic(num_variables, num_rows, seed=0):
    """Binary rows: five fair coins, then noisy functions (15 % flipped) of three earlier columns each."""
    rng = np.random.default_rng(seed)
    codes = np.empty((num_rows, num_variables), dtype=np.int64)
    codes[:, :5] = rng.integers(0, 2, (num_rows, 5))
    for j in range(5, num_variables):
        parents = rng.choice(j, 3, replace=False)
        table = rng.random(8) < 0.5
        codes[:, j] = table[codes[:, parents] @ [4, 2, 1]] ^ (rng.random(num_rows) < 0.15)
    return Observations(Domain.from_cardinalities([2] * num_variables), torch.from_numpy(codes))


def trees(data, columns):
    from sklearn.tree import DecisionTreeClassifier

    codes = data.codes.numpy().astype(np.float32)
    return [
        DecisionTreeClassifier(random_state=0).fit(np.delete(codes, j, axis=1), data.codes[:, j].numpy())
        for j in columns
    ]


def bench_speed(report):
    compiling, _ = first_call(FIRST_CALL)
    report.add("first call", "compilation", compiling, note="once per machine, then cached on disk")
    learn_network(load_mushroom())
    for name in ("mushroom", "adult"):
        data = LOADERS[name]()
        what = f"{name}, {data.num_rows} x {len(data.domain)}"
        fresh = lambda: Observations(data.domain, data.codes, data.counts)  # noqa: E731 (nothing is kept between calls)
        for jobs in (1, 2):
            busy = time.process_time()
            seconds, _ = median(lambda: learn_network(fresh(), jobs=jobs), 5, warm=0)
            busy = (time.process_time() - busy) / 5
            learned = learn_network(data)
            leaves = sum(node.num_leaves for node in learned.nodes)
            report.add(
                what, f"learn_network, {jobs} jobs", seconds, note=f"{leaves} leaves, {busy:.2f} s of processor time"
            )
        busy = time.process_time()
        peer, _ = median(lambda: trees(data, range(len(data.domain))), 3, warm=0)
        busy = (time.process_time() - busy) / 3
        leaves = sum(int(t.get_n_leaves()) for t in trees(data, range(len(data.domain))))
        report.add(what, "scikit-learn trees", peer, peer / seconds, f"{leaves} leaves, {busy:.2f} s of processor time")
    data = synthetic(500, 20_000)
    what = "synthetic, 20000 x 500"
    start, busy = time.perf_counter(), time.process_time()
    learned = learn_network(data, jobs=2)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    steps = sum(node.num_splits + node.num_merges for node in learned.nodes)
    leaves = sum(node.num_leaves for node in learned.nodes)
    report.add(
        what, "learn_network, 2 jobs", seconds, note=f"{leaves} leaves, {steps} steps, {busy:.0f} s of processor time"
    )
    start, busy = time.perf_counter(), time.process_time()
    trees(data, (50, 150, 250, 350, 450))
    peer, busy = 100 * (time.perf_counter() - start), 100 * (time.process_time() - busy)
    note = f"100 x the time of 5 columns, {busy:.0f} s of processor time"
    report.add(what, "scikit-learn trees", peer, peer / seconds, note)


def indicators(data, j):
    codes = data.codes.numpy()
    cards = data.domain.cardinalities
    return np.concatenate([np.eye(n, dtype=np.float32)[codes[:, k]] for k, n in enumerate(cards) if k != j], axis=1)


def classifier_probs(model, x, num_levels, prior):
    """Probabilities of all levels under a prior of that total: in a leaf of a tree, or in ten rows of a forest."""
    probs = np.zeros((len(x), num_levels))
    probs[:, model.classes_] = model.predict_proba(x)
    size = model.tree_.n_node_samples[model.apply(x)][:, None] if hasattr(model, "tree_") else 10.0
    return (probs * size + prior / num_levels) / (size + prior)


def peer_columns(kind, train, validation, test, seed):
    """Held-out log-likelihood and accuracy of every column by one classifier each, chosen on validation rows."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.tree import DecisionTreeClassifier

    found = []
    for j, n in enumerate(train.domain.cardinalities):
        parts = [indicators(part, j) for part in (train, validation, test)]
        own = [part.codes[:, j].numpy() for part in (train, validation, test)]
        best = None
        for leaf in LEAVES:
            if kind == "tree":
                model = DecisionTreeClassifier(criterion="entropy", min_samples_leaf=leaf, random_state=seed)
            else:
                model = RandomForestClassifier(100, min_samples_leaf=leaf, random_state=seed)
            model.fit(parts[0], own[0])
            for prior in PRIORS:
                probs = classifier_probs(model, parts[1], n, prior)
                score = np.log(probs[np.arange(len(own[1])), own[1]]).mean()
                if best is None or score > best[0]:
                    best = (score, model, prior)
        probs = classifier_probs(best[1], parts[2], n, best[2])
        right = probs.argmax(1) == own[2]
        found.append((np.log(probs[np.arange(len(own[2])), own[2]]).mean(), right.mean()))
    return np.array(found)


def network_columns(learned, part):
    log_conditionals = learned.conditionals.log_conditionals(part.codes).double().mean(0).numpy()
    accuracy = [
        float((node.log_probs(part.codes).argmax(-1) == part.codes[:, j]).double().mean())
        for j, node in enumerate(learned.conditionals.nodes)
    ]
    return np.stack([log_conditionals, accuracy], axis=1)


def bench_accuracy(names, num_seeds):
    head = "data; split seeds; model; pseudo-log-likelihood, nats a row; mean accuracy; accuracy; s"
    lines = markdown(head.split("; "))
    for name in names:
        data = LOADERS[name]()
        results = {}
        for seed in range(num_seeds if name == "breast_cancer" else 1):
            train, validation, test = data.split([0.35, 0.15, 0.5], seed)

            def chosen(train=train, validation=validation):
                fits = [learn_network(train, penalty=p, jobs=2).with_alpha(a) for p in ("mdl", "aic") for a in ALPHAS]
                return max(fits, key=lambda f: float(f.conditionals.log_pseudo_prob(validation.codes).double().mean()))

            for label, learn in (
                ("network, defaults", lambda train=train: learn_network(train, jobs=2)),
                ("network, AIC", lambda train=train: learn_network(train, penalty="aic", jobs=2)),
                ("network, chosen", chosen),
            ):
                start = time.perf_counter()
                learned = learn()
                seconds = time.perf_counter() - start
                results.setdefault(label, []).append((network_columns(learned, test), seconds))
            for kind in ("tree", "forest"):
                start = time.perf_counter()
                found = peer_columns(kind, train, validation, test, seed)
                results.setdefault(f"scikit-learn {kind}s, chosen", []).append((found, time.perf_counter() - start))
            print(name, seed, {k: v[-1][0].sum(0) for k, v in results.items()}, flush=True)
        for label, runs in results.items():
            values = np.array([found for found, _ in runs])
            likelihood, accuracy = values[:, :, 0].sum(1), 100 * values[:, :, 1].mean(1)
            targets = ", ".join(f"{t} {100 * values[:, data.domain.index(t), 1].mean():.1f}" for t in TARGETS[name])
            spread = f" ± {likelihood.std():.3f}" if len(runs) > 1 else ""
            seeds = f"0 to {len(runs) - 1}" if len(runs) > 1 else "0"
            lines.append(
                f"| {name} | {seeds} | {label} | {likelihood.mean():.3f}{spread} | {accuracy.mean():.1f} | "
                f"{targets} | {np.mean([s for _, s in runs]):.2f} |"
            )
    return lines


@part("Learning of dependency networks")
def speed():
    """The structures and tables of all nodes beside one DecisionTreeClassifier with its defaults per column.

    On the same rows (codes as numbers). 500 x 20,000: every column is a noisy function of three earlier ones; trees are
    timed on five of its columns and that time is multiplied. The compile row is the first call of a process with an
    empty Numba cache.
    """
    report = Report()
    bench_speed(report)
    return report.lines()


@part("Dependency networks on held-out rows")
def accuracy(data=tuple(LOADERS), seeds=5):
    """Half of the rows to test on, the rest 70/30 for training and validation, shuffled by the seed.

    Split seeds other than 0 are used for breast cancer only. Trees and forests are fitted per column on indicators of
    the levels; their leaf size and the prior that keeps their probabilities from zero are chosen on the validation
    rows, by the log-likelihood of the column. The network has its defaults; "chosen" takes penalty and alpha by the
    pseudo-log-likelihood of the validation rows. Pseudo-log-likelihood summed over all variables, accuracy averaged
    over all variables and of single ones in percent.
    """
    return bench_accuracy(data, seeds)


if __name__ == "__main__":
    main(__doc__)
