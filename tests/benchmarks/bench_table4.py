"""Paper 1 beside us: table 4, the algorithms as printed, many-body rows, and ablations of its appendix B.5.

Mushroom's first ten columns, exact gradients, rows split as in the paper (test 50 %, rest 70/30 train and validation),
once for every seed; processor seconds. Needs the mushroom data (downloaded, or PYRO_HOIM_DATA).

    PYTHONPATH=tutorials python tests/benchmarks/bench_table4.py [--append] [PART] [OPTIONS]
"""

import itertools
import math
import time
import warnings

import numpy as np
from harness import Report, main, part, reported

from pyro_hoim import ConvergenceWarning, InteractionHypergraph
from pyro_hoim.datasets import load_breast_cancer, load_mushroom
from pyro_hoim.log_linear import (
    ExactTrainer,
    GibbsChains,
    InteractionRidge,
    PseudoTrainer,
    SampledTraining,
    SelectionOptions,
    Stopping,
    fit,
    fit_collection,
    learn,
    score_rows,
    select,
)
from pyro_hoim.log_linear.training.sampled._weighted_chains import schedule_of

from studies.printed import PrintedTrainer, Reading, printed_search, printed_stop

PUBLISHED = {1: 4.6062, 2: 0.8281, 3: 0.2644}
HEREDITIES = (0.3, 0.5, "semi-strong", 1.0)
PUBLISHED_SELECTED = {
    ("likelihood", True): (0.2359, 0.2466, 0.2445, 0.2559),
    ("likelihood", False): (0.2372, 0.2489, 0.2472, 0.2555),
    ("pseudo-likelihood", True): (0.3659, 0.3533, 0.3659, 0.3817),
    ("pseudo-likelihood", False): (0.3589, 0.3498, 0.3519, 0.3583),
}
RIDGE = 0.1


def three_parts(seed):
    """Train, validation and test rows."""
    data = load_mushroom()
    test, rest = data.project(data.domain.names[:10]).split([0.5, 0.5], seed)
    return (*rest.split([0.7, 0.3], seed), test)


def shown(values):
    """Mean, spread and number of values."""
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread} ({len(values)} seeds)"


def attainable(seed):
    """Divergence of the validation rows from the law of all rows."""
    _, validation, _ = three_parts(seed)
    data = load_mushroom()
    everything = data.project(validation.domain.names).unique()
    law = {tuple(codes): count for codes, count in zip(everything.codes.tolist(), everything.counts, strict=True)}
    rows = validation.unique()
    probs = np.array([law[tuple(codes)] for codes in rows.codes.tolist()]) / everything.total_count
    return float(-(rows.counts.numpy() @ np.log(probs)) / rows.total_count - validation.entropy())


def run_selected(objective, divide, heredity, seed, per_round=10, patience=3, strength=RIDGE):
    """One search; its result, the divergence of the test rows at the round of least validation KL, and seconds."""
    train, validation, test = three_parts(seed)
    kind = ExactTrainer if objective == "likelihood" else PseudoTrainer
    begin = InteractionHypergraph.from_order(train.domain, 1)
    ridge = InteractionRidge(strength, by_order={1: 0.0}) if strength else None
    trainer = kind(train, begin, penalty=ridge, stopping=Stopping(1e-4, 60))
    score = "J-per-parameter" if divide else "J"
    start = time.perf_counter()
    search = SelectionOptions(heredity=heredity, score=score, per_round=per_round, patience=patience)
    found = select(train, validation, trainer, search=search)
    seconds = time.perf_counter() - start
    judge = ExactTrainer(train, found.hypergraph)
    judge.load_state_dict({"tables": found.tables})
    return found, judge.loss(test).value - test.entropy(), seconds


def selected_row(label, published, runs):
    """One line of the table of searches. The best validation KL is that of the whole curve, as in the paper."""
    curves = [found.capacity_curve() for found, _, _ in runs]
    best = [curve.loc[curve["validation_kl"].idxmin()] for curve in curves]
    return (
        label,
        shown([float(curve["validation_kl"].min()) for curve in curves]),
        f"{np.mean([test for _, test, _ in runs]):.3f}",
        published,
        f"{np.median([b['num_interactions'] for b in best]):.0f}",
        f"{np.median([b['num_parameters'] for b in best]):,.0f}",
        f"{np.median([seconds for _, _, seconds in runs]):.1f}",
    )


def run(order, seed, method="auto", **limits):
    train, validation, _ = three_parts(seed)
    hypergraph = InteractionHypergraph.from_order(train.domain, order)
    start = time.perf_counter()
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        stopping = Stopping(**{"patience": 20, **limits})
        result = fit(hypergraph, train, method=method, validation=validation, stopping=stopping)
    return result, time.perf_counter() - start


def summary(name, order, runs):
    iterations = int(np.median([result.best_iteration for result, _ in runs]))
    return (
        f"{order}-body, {runs[0][0].hypergraph.num_parameters:,} parameters",
        name,
        shown([result.validation_kl for result, _ in runs]),
        f"{PUBLISHED[order]:.4f}",
        f"{iterations}",
        f"{np.median([seconds for _, seconds in runs]):.1f}",
    )


def selected_table(seeds, pseudo_seeds):
    """The sixteen searches, our own setting, and what is attainable."""
    report = Report(("search", "validation KL", "test KL", "published", "interactions", "parameters", "seconds"))
    for (objective, divide), published in PUBLISHED_SELECTED.items():
        for heredity, value in zip(HEREDITIES, published, strict=True):
            number = seeds if objective == "likelihood" else pseudo_seeds
            if number:
                runs = [run_selected(objective, divide, heredity, seed) for seed in range(number)]
                name = heredity if isinstance(heredity, str) else f"{heredity:.0%}"
                label = f"{objective}, {'with' if divide else 'without'} division, {name}"
                report.row(*selected_row(label, f"{value:.4f}", runs))
    if seeds:
        runs = [run_selected("likelihood", True, 0.3, seed, per_round=5) for seed in range(seeds)]
        report.row(*selected_row("likelihood, with division, 30%, five a round", "-", runs))
        floors = [attainable(seed) for seed in range(seeds)]
        report.row("law of all 8,124 rows", shown(floors), *["-"] * 5)
    return report


@part("Table 4 of paper 1", is_default=False)
def table4(seeds=10, descent_seeds=1, descent_iterations=1000, selected_seeds=5, pseudo_seeds=1):
    """Validation KL, early-stopped on validation, mean and standard deviation over splits, in nats.

    Two optimisers: L-BFGS, and the paper's gradient descent (purified gradient, step 0.5) for a stated number of
    iterations. The plain maximum-likelihood estimate is infinite; the combinations that make it so are counted and the
    first are named. The selected rows are sixteen searches: the paper's score with and without division by the number
    of parameters, four kinds of heredity, likelihood and pseudo-likelihood (judged by their true divergence), each the
    best round of a curve that goes on for three rounds beyond it; then settings of our own. Beside them stands what no
    learner can expect to pass: the divergence of the validation rows from the empirical law of *all* rows, their own
    and the test rows included.
    """
    report = Report(("model", "optimiser", "validation KL", "published", "best iteration", "seconds"))
    notes = []
    for order in (1, 2, 3) if seeds else ():
        runs = [run(order, seed) for seed in range(seeds)]
        report.row(*summary("L-BFGS", order, runs))
        notes.append(f"* {order}-body, seed 0: {runs[0][0].existence.describe(limit=3)}.")
        descent = {"method": "gradient", "max_iterations": descent_iterations, "patience": descent_iterations}
        if descent_seeds:
            runs = [run(order, seed, **descent) for seed in range(descent_seeds)]
            report.row(*summary(f"gradient descent, step 0.5, {descent_iterations} iterations", order, runs))
    told = (
        f"Selected interactions: L-BFGS of at most 60 steps a round, ridge {RIDGE}, ten interactions a round unless "
        "said otherwise. Lowest validation KL of the curve, with the sizes there; test KL of the model that is "
        "returned, for the pseudo-likelihood the best by that loss. The last row has seen the validation rows."
    )
    return [*report.lines(), "", *notes, "", told, "", *selected_table(selected_seeds, pseudo_seeds).lines()]


READINGS = {
    "as printed: raw": Reading(gradient="raw"),
    "purified (9)": Reading(),
    "raw, over the number of tables": Reading(gradient="raw", is_shared=True),
    "purified, over the number of tables": Reading(is_shared=True),
    "purified, 100 steps": Reading(num_steps=100),
    "raw, masked": Reading(gradient="raw", is_masked=True),
    "purified, masked": Reading(is_masked=True),
    "purified, masked, 50 steps of 0.1": Reading(is_masked=True, step=0.1, num_steps=50),
    "purified, masked, 100 steps": Reading(is_masked=True, num_steps=100),
    "raw, in turn": Reading(gradient="raw", order="in turn"),
    "purified, in turn": Reading(order="in turn"),
    "raw, in turn, masked": Reading(gradient="raw", order="in turn", is_masked=True),
    "purified, in turn, masked": Reading(order="in turn", is_masked=True),
}
DIVISORS = ("parameters", "cells", "nothing")
READ = ("reading", "where it stops", "lowest", "published", "stops with sets", "lowest with sets", "parameters")
READ = (*READ, "left out", "s")


def one_reading(reading, heredity, divides, seed, num_rounds):
    """Figures of one search."""
    train, validation, _ = three_parts(seed)
    begin = time.process_time()
    found = printed_search(train, validation, reading, heredity=heredity, divides_by=divides, num_rounds=num_rounds)
    seconds = time.process_time() - begin
    curve = [entry.validation_kl for entry in found.rounds]
    stop, best = found.rounds[printed_stop(found.rounds)], found.best
    judge = PrintedTrainer(train, reading)
    judge.restructure(found.hypergraph)
    print("   ", seed, " ".join(f"{value:.3f}" for value in curve), flush=True)
    sizes = (stop.num_interactions, best.num_interactions, best.num_parameters)
    return stop.validation_kl, best.validation_kl, *sizes, judge.lost_share(validation), seconds


def line(name, heredity, divides, figures):
    """Cells of one reading over seeds."""
    stop, lowest, stop_sets, sets, parameters, lost, seconds = zip(*figures, strict=True)
    values = PUBLISHED_SELECTED["likelihood", divides != "nothing"]
    published = dict(zip(HEREDITIES, values, strict=True)).get(heredity, "-")
    heredity = heredity if isinstance(heredity, str) else f"{heredity:.0%}"
    label = f"{name}; over {divides}, {heredity}"
    sizes = [f"{np.median(values):,.0f}" for values in (stop_sets, sets, parameters)]
    return [label, shown(stop), shown(lowest), published, *sizes, f"{np.mean(lost):.1%}", f"{np.mean(seconds):.0f}"]


@part("Algorithms 1 and 2 as printed")
def printed_readings(readings=tuple(READINGS)[:-4], heredities=("0.3",), seeds=3, rounds=30, divide_by=DIVISORS):
    """Paper 1's algorithms 1 and 2 as printed, under the readings of their step.

    From nothing, ten interactions a round, exact margins. Every line is one reading with one heredity, a number or
    semi-strong: the divergence of the validation rows where the printed rule stops, the lowest along all rounds, the
    sizes there, the share of validation rows that masking leaves out there, and processor seconds of a search.
    """
    report = Report(READ)
    for name, divides, word in itertools.product(readings, divide_by, heredities):
        heredity = word if word == "semi-strong" else float(word)
        figures = [one_reading(READINGS[name], heredity, divides, seed, rounds) for seed in range(seeds)]
        report.row(*line(name, heredity, divides, figures))
    return report.lines()


PRINTED = {1: 4.6062, 2: 1.5005, 3: 0.6579}
PATHS = (
    "sets of up to", "optimiser", "after 10 steps", "100", "last", "lowest", "at step", "printed", "passed at step",
    "s",
)  # fmt: skip


def path(order, method, seed, steps):
    """The true divergence of the validation rows along a training: steps and nats."""
    train, validation, _ = three_parts(seed)
    graph = InteractionHypergraph.from_order(train.domain, order)
    trainer = PseudoTrainer(train, graph, method=method, stopping=Stopping(1e-9, 10))
    judge, entropy, done, found = ExactTrainer(train, graph), validation.entropy(), 0, []
    while done < steps:
        count = 10 if done < 100 else 50
        trainer.stopping = Stopping(1e-9, count)
        report = trainer.train()
        done += report.num_iterations
        judge._adopt(trainer.tables.numpy())
        judge._known = None
        found.append((done, judge.loss(validation).value - entropy))
        if report.status not in ("max_iterations", "stalled") or not np.isfinite(found[-1][1]):
            break
    return found


def path_line(order, method, seeds, steps):
    """One row of the table."""
    begin = time.process_time()
    paths = [path(order, method, seed, steps) for seed in range(seeds)]
    seconds = (time.process_time() - begin) / seeds
    for found in paths:
        print("   ", order, method, " ".join(f"{step}:{value:.3f}" for step, value in found), flush=True)
    at = {n: [min(found, key=lambda pair: abs(pair[0] - n))[1] for found in paths] for n in (10, 100)}
    best = [min(found, key=lambda pair: pair[1]) for found in paths]
    last = [found[-1][1] for found in paths]
    where = f"{np.median([step for step, _ in best]):.0f}"
    lowest = shown([value for _, value in best])
    name = "gradient, step 0.5" if method == "gradient" else "L-BFGS"
    figures = (shown(at[10]), shown(at[100]), shown(last), lowest, where)
    passed = [next((step for step, value in found if value <= PRINTED[order]), None) for found in paths]
    at_step = ", ".join("never" if step is None else str(step) for step in passed)
    return order, name, *figures, f"{PRINTED[order]:.4f}", at_step, f"{seconds:.0f}"


@part("Many-body pseudo-likelihood of table 4")
def many_body(orders=(1, 2, 3), seeds=3, steps=1000):
    """Many-body rows of the pseudo-likelihood: the true divergence along its training.

    All sets of up to K columns, no penalty, no masking. Gradient descent with the published step of 0.5 on the
    pseudo-likelihood and L-BFGS; every ten steps up to 100 and every fifty then the divergence of the validation rows
    from the joint distribution of the tables, exact. Processor seconds of a path.
    """
    warnings.simplefilter("ignore", ConvergenceWarning)
    cases = itertools.product(orders, ("gradient", "lbfgs"))
    return reported(PATHS, (path_line(order, method, seeds, steps) for order, method in cases))


SWITCHES = {
    "sites (default)": {},
    "whole interactions": {"blocks": "interactions"},
    "whole interactions, half to new ones": {"blocks": "interactions", "emphasis": 0.5},
    "sites, half to new interactions": {"emphasis": 0.5},
    "ended by pseudo-likelihood": {"pseudo": True},
    "not ended by a loss: six rounds": {"rounds": 6},
}
SWITCHED = (
    "switch", "test gain", "per split", "interactions", "rounds", "learning, s", "sweep, ms", "look-ups", "uncached",
)  # fmt: skip


def parts(name, seed):
    """Train, validation and test rows."""
    rows = load_breast_cancer() if name == "breast_cancer" else load_mushroom()
    if name == "mushroom10":
        rows = rows.project(rows.domain.names[:10])
    return rows.split([0.35, 0.15, 0.5], seed)


def exact_gain(learned, rows):
    """Gain over independent columns with an exact log Z."""
    judge = ExactTrainer(rows, learned.hypergraph)
    judge.load_state_dict({"tables": learned.tables})
    return score_rows(learned.independent, rows).nll - judge.loss(rows).value


def sweep_cost(learned, blocks):
    """Processor milliseconds of a sweep of 1,000 chains, and look-ups of a chain in it with and without caching."""
    graph = learned.energy.hypergraph
    settings = SampledTraining(blocks=blocks)
    schedule = schedule_of(graph, settings)
    chains = GibbsChains(learned.energy, 1000, schedule=schedule, seed=0)
    chains.sweep(2)
    begin = time.process_time()
    chains.sweep(10)
    milliseconds = 100 * (time.process_time() - begin)
    size = graph.domain.cardinalities
    cached = uncached = 0
    for block in schedule.resolve(graph):
        shared = [set(block) & set(edge) for edge in graph.edge_indices]
        cached += sum(math.prod(size[i] for i in common) for common in shared if common)
        uncached += math.prod(size[i] for i in block) * len(graph)
    return milliseconds, cached, uncached


def one_switch(data, name, seed, settings):
    """Figures of one split."""
    train, validation, test = parts(data, seed)
    options = dict(SWITCHES[name])
    is_pseudo, rounds = options.pop("pseudo", False), options.pop("rounds", None)
    begin = time.process_time()
    if is_pseudo:
        found = learn(train, validation, trainer="pseudo-likelihood", false_discovery_rate=None, seed=seed)
    else:
        sampling = SampledTraining(**settings, **options)
        how = {"trainer": "sampled", "sampling": sampling, "seed": seed}
        search = None if rounds is None else SelectionOptions(patience=rounds, max_rounds=rounds)
        found = learn(train, validation, search, false_discovery_rate=None, **how)
    selection = found.selection
    if rounds is not None:
        last = {edge for step in selection.rounds for edge in step.changed} | {(v,) for v in train.domain.names}
        found = fit_collection(train, InteractionHypergraph(train.domain, last), **how)
    seconds = time.process_time() - begin
    blocks = options.get("blocks", "sites")
    line = exact_gain(found, test), found.hypergraph.num_interactions, len(selection.rounds), seconds
    print("   ", data, name, seed, *(f"{value:.4g}" for value in line), flush=True)
    return *line, *sweep_cost(found, blocks)


@part("Ablations of B.5 of paper 1")
def ablations(data="breast_cancer", seeds=2, only=tuple(SWITCHES), chains=4000, iterations=1000):
    """What each idea of its training costs and brings, one switched at a time.

    Breast cancer (whole) or mushroom10, learned by sampled training with the defaults of ``learn`` otherwise, on 35 %
    of the rows with 15 % for validation; the gain over independent columns on the other half, with an exact log Z.
    Processor seconds of everything, and processor time of a sweep of 1,000 chains on the final collection. The
    switches: ``blocks`` and ``emphasis`` of ``SampledTraining``; and the end of the search by annealed log Z, or by the
    pseudo-likelihood of the validation rows (which then trains the model, too), or after six rounds whatever the loss,
    the last collection being kept and fitted once more. Energies are cached always: of the sets that share variables
    with a block, each is looked up once for every state of those variables, and no other set is. The last columns count
    look-ups of a sweep so, and once for every set and state of the block.
    """
    settings = {"num_chains": chains, "num_iterations": iterations, "margin_states": 200_000}
    report = Report(SWITCHED)
    for name in only:
        rows = list(zip(*(one_switch(data, name, seed, settings) for seed in range(seeds)), strict=True))
        gains, sets, rounds, seconds, sweeps, cached, uncached = rows
        whole = [f"{np.median(values):,.0f}" for values in (sets, rounds, seconds)]
        numbers = (*whole, f"{np.mean(sweeps):.3g}", f"{np.median(cached):,.0f}", f"{np.median(uncached):,.0f}")
        report.row(name, f"{np.mean(gains):.3f}", ", ".join(f"{gain:.3f}" for gain in gains), *numbers)
    return report.lines()


if __name__ == "__main__":
    main(__doc__)
