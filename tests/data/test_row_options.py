"""Every method that takes a data frame, with every option of its rows: equal to what a person does to the frame.

Methods that answer about every row take ``missing_values`` alone, since each row has an answer, whatever its weight.
"""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import pyro_hoim as hoim
from pyro_hoim import Domain, Observations
from pyro_hoim.errors import DataWarning, InputError, UnknownNameError
from pyro_hoim.inference import average_decomposable, enumerate_structures, log_evidence, sample_structures
from pyro_hoim.inference.structure.chains import ChainSettings

DOMAIN = Domain.from_labels({"a": ["n", "y"], "b": ["0", "1", "2"], "c": ["u", "v"]})


def frame_of(has_gaps=True, seed=0, number=60):
    """Rows with cells that say "?", with whole numbers ``n`` and weights ``w``."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.integers(0, 2, number), rng.integers(0, 3, number), rng.integers(0, 2, number)
    b = np.where(rng.random(number) < 0.5, a, b)
    columns = {v.name: np.array(v.labels, dtype=object)[code] for v, code in zip(DOMAIN, (a, b, c), strict=True)}
    frame = pd.DataFrame(columns).assign(n=rng.integers(1, 4, number), w=rng.uniform(0.5, 2.0, number).round(3))
    if has_gaps:
        frame.loc[::9, "a"], frame.loc[::7, "c"] = "?", "?"
    return frame


GAPS, WHOLE = frame_of(), frame_of(has_gaps=False)
KNOWN = GAPS.replace("?", None)
RESULT = hoim.fit("a*b + b*c", Observations.from_pandas(WHOLE[["a", "b", "c"]]))
NAMES = ["a", "b", "c"]


def weighted(frame, name):
    return Observations.from_pandas(frame[[*NAMES, name]], weights=name)


def repeated(frame):
    return frame.loc[frame.index.repeat(frame["n"]), NAMES].reset_index(drop=True)


# Options, the frame that they are said of, and the rows that a person makes of it.
OPTIONS = {
    "missing_values": ({"missing_values": ["?"]}, GAPS[NAMES], KNOWN[NAMES]),
    "missing": ({"missing": "drop"}, KNOWN[NAMES], KNOWN[NAMES].dropna()),
    "both": ({"missing": "drop", "missing_values": ["?"]}, GAPS[NAMES], KNOWN[NAMES].dropna()),
    "count": ({"count": "n"}, WHOLE[[*NAMES, "n"]], repeated(WHOLE)),
    "weights": ({"weights": "w"}, WHOLE[[*NAMES, "w"]], weighted(WHOLE, "w")),
}


def drawn(ax):
    """What a picture shows."""
    ax.figure.draw_without_rendering()
    patches = [tuple(np.round(patch.get_extents().bounds, 6)) for patch in ax.patches]
    offsets = [collection.get_offsets().tolist() for collection in ax.collections]
    lines = [line.get_xydata().tolist() for line in ax.lines]
    return patches, offsets, lines


SPACE = {"settings": ChainSettings(num_chains=2, num_draws=50), "seed": 1}
MEAN = {  # methods that say something of all rows
    "score": lambda rows, **o: {name: hoim.score(RESULT, rows, **o)[name] for name in ("nll", "rows", "gain")},
    "Fitted.score": lambda rows, **o: RESULT.score(rows, **o)["nll_std_error"],
    "compare": lambda rows, **o: hoim.compare({"m": RESULT}, rows, **o)["mean_log_likelihood"].tolist(),
    "Fitted.compare": lambda rows, **o: RESULT.compare(RESULT, data=rows, **o)["gain_std_error"].tolist(),
    "plot_fitted": lambda rows, **o: drawn(RESULT.plot_fitted(Figure(), data=rows, **o)),
    "plot_mosaic": lambda rows, **o: drawn(RESULT.plot_mosaic("a", "b", ax=Figure(), data=rows, **o)),
    "fit": lambda rows, **o: hoim.fit("a*b + c", rows, **o).theta.tolist(),
    "learn_network": lambda rows, **o: hoim.learn_network(rows, **o).odds_ratios().to_dict("list"),
    "sample_structures": lambda rows, **o: sample_structures(rows, **SPACE, **o).log_evidence.tolist(),
    "enumerate_structures": lambda rows, **o: enumerate_structures(rows, **o).log_evidence.tolist(),
    "average_decomposable": lambda rows, **o: average_decomposable(rows, num_draws=50, **o).log_evidence.tolist(),
    "log_evidence": lambda rows, **o: log_evidence(RESULT.hypergraph, rows, **o).value,
}
EACH = {  # methods that answer about every row
    "predict": lambda rows, **o: hoim.predict(RESULT, rows, "b", **o),
    "Fitted.predict": lambda rows, **o: RESULT.predict(rows, "b", **o),
    "impute": lambda rows, **o: hoim.impute(RESULT, rows, seed=1, **o),
    "Fitted.impute": lambda rows, **o: RESULT.impute(rows, 2, seed=1, **o),
    "row_log_likelihood": lambda rows, **o: RESULT.row_log_likelihood(rows, **o).to_frame(),
}
NEEDS_WHOLE = {"sample_structures", "enumerate_structures", "average_decomposable", "log_evidence"}


@pytest.mark.filterwarnings("ignore::pyro_hoim.ConvergenceWarning")
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("method", MEAN)
def test_an_option_is_what_a_person_does_to_the_frame(method, option):
    options, frame, rows = OPTIONS[option]
    ask = MEAN[method]
    if option == "missing_values" and (method in NEEDS_WHOLE or method == "fit"):
        with pytest.raises(InputError, match="missing"):
            ask(frame, **options)
        return
    found, expected = ask(frame, **options), ask(rows)
    assert_alike(found, expected)
    # A model gains nothing over itself, and a picture of cells shows complete rows alone.
    if method != "Fitted.compare" and (method, option) != ("plot_fitted", "missing"):
        with pytest.raises((AssertionError, InputError, DataWarning)):  # the control: unsaid, it is something else
            assert_alike(ask(frame[NAMES]), expected)


def assert_alike(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            assert_alike(found[name], expected[name])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)
    else:
        assert found == expected


@pytest.mark.parametrize("method", EACH)
def test_words_for_missing_are_missing_cells_of_every_row(method):
    ask = EACH[method]
    found, expected = ask(GAPS, missing_values=["?"]), ask(KNOWN)
    pd.testing.assert_frame_equal(found, expected)
    assert len(found) in (len(GAPS), 2 * len(GAPS)) and not (found == "?").to_numpy().any()
    with pytest.raises(UnknownNameError, match=r"\?"):
        ask(GAPS)


@pytest.mark.parametrize("method", EACH)
@pytest.mark.parametrize("option", ["missing", "weights", "count"])
def test_answers_about_every_row_take_no_weights(method, option):
    with pytest.raises((UnknownNameError, TypeError), match=option):
        EACH[method](WHOLE, **{option: "w"})


@pytest.mark.parametrize("method", MEAN)
def test_options_of_frames_are_refused_for_other_rows(method):
    rows = Observations.from_pandas(WHOLE[NAMES])
    with pytest.raises(InputError, match=r"missing_values.* can only be said of a data frame"):
        MEAN[method](rows, missing_values=["?"])


def test_options_without_rows_and_of_numbers_are_refused():
    with pytest.raises(InputError, match="data= names none"):
        RESULT.compare(RESULT, weights="w")
    with pytest.raises(UnknownNameError, match="weigths"):
        RESULT.compare(RESULT, data=WHOLE, weigths="w")
    numbers = pd.DataFrame(np.random.default_rng(0).poisson(1.0, (60, 2)), columns=["x", "y"])
    roots = hoim.fit_roots(numbers, order=2)
    for options in ({"weights": "x"}, {"missing": "drop"}, {"missing_values": ["?"]}):
        with pytest.raises(InputError, match=f"{next(iter(options))}: a generalized root model takes rows of numbers"):
            roots.score(numbers, **options)
