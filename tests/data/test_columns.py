"""One rule for the columns of a table, at every door: kinds of columns with what each is read as, and doors that agree.

The oracle is the table below, written by hand; cut points are those of numpy's order statistics.
"""

import contextlib
import datetime as dt
import io
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import pyro_hoim as hoim
from pyro_hoim import Observations
from pyro_hoim.cli import cli, run
from pyro_hoim.core.operations import stored_model
from pyro_hoim.data import find_bins, open_rows, read_columns
from pyro_hoim.data.bins import cuts_of
from pyro_hoim.data.columns import num_cut_levels
from pyro_hoim.errors import DataWarning, InputError

pytestmark = pytest.mark.usefixtures("words_alone")

N = 240
RANDOM = np.random.default_rng(11)
DAYS = [dt.date(2020, 1, 1) + dt.timedelta(3 * i) for i in range(N)]
AGE = RANDOM.integers(18, 95, N)

KINDS = {  # cells, what the column is read as, whether it is a variable under bins="auto"
    "weight of body": (RANDOM.normal(70, 12, N).round(2), "numbers", True),
    "age": (AGE, "numbers", True),
    "with gaps": (np.where(RANDOM.random(N) < 0.1, np.nan, RANDOM.normal(size=N).round(3)), "numbers", True),
    "as text": ([f"{value:.2f}" for value in RANDOM.normal(5, 1, N)], "numbers", True),
    "codes": (RANDOM.integers(0, 8, N), "labels", True),
    "years": (RANDOM.integers(0, 25, N), "labels", True),
    "yes": (RANDOM.random(N) < 0.4, "labels", True),
    "size": (pd.Categorical(RANDOM.choice(["s", "m", "l"], N), ["s", "m", "l"], ordered=True), "labels", True),
    "colour": (pd.Categorical(RANDOM.choice(["b", "a"], N), ["b", "a"]), "labels", True),
    "postcode": ([f"0{code:03d}" for code in RANDOM.integers(0, 40, N)], "labels", True),
    "wave": (pd.to_datetime(RANDOM.choice(["2020-01-01", "2021-01-01"], N)), "labels", True),
    "same": (np.ones(N, dtype=int), "constant", True),
    "timestamp": (pd.to_datetime(DAYS) + pd.Timedelta("1h"), "date", False),
    "day": (DAYS, "date", False),
    "day as text": ([str(day) for day in DAYS], "date", False),
    "duration": (pd.to_timedelta(np.arange(N), unit="min"), "date", False),
    "row": (np.arange(1, N + 1), "id", False),
    "patient_id": (RANDOM.permutation(np.arange(10_000, 10_000 + 97 * N, 97)), "id", False),
    "visitId": (np.repeat(RANDOM.permutation(N // 2) * 31, 2), "id", False),
    "code of person": ([f"p{i:03d}" for i in range(N)], "id", False),
    "remark": ([f"came back {i} days after the visit" for i in range(N)], "text", False),
    "nothing": ([None] * N, "empty", False),
}
FRAME = pd.DataFrame({name: cells for name, (cells, _, _) in KINDS.items()})
NUMBERS = [name for name, (_, kind, _) in KINDS.items() if kind == "numbers"]
LEFT_OUT = [name for name, (_, _, is_used) in KINDS.items() if not is_used]


@pytest.mark.parametrize("name", KINDS)
def test_a_column_is_read_as_its_kind(name):
    _, kind, is_used = KINDS[name]
    by_rule = {bins: {c.name: c for c in read_columns(FRAME, bins=bins)}[name] for bins in ("refuse", "auto")}
    for bins, found in by_rule.items():
        assert found.kind == kind and found.num_missing == FRAME[name].isna().sum(), (bins, found)
        assert found.is_used == (is_used and (kind != "numbers" or bins == "auto"))
        assert found.is_refused == (kind == "numbers" and bins == "refuse")
        assert bool(found.reason) != found.is_used and bool(found.levels) == found.is_used
    # Cut points are those that are said before, and are values that split the rows evenly.
    if kind == "numbers":
        cuts = by_rule["auto"].cuts
        assert cuts == by_rule["refuse"].cuts and by_rule["auto"].levels == cuts.labels
        numbers = np.sort(pd.to_numeric(FRAME[name]).dropna())
        shares = np.searchsorted(numbers, cuts.cuts) / len(numbers)
        assert set(cuts.cuts) <= set(numbers)
        assert shares == pytest.approx(np.arange(1, len(cuts.labels)) / len(cuts.labels), abs=0.02)
        assert by_rule["auto"].order == "cuts" and by_rule["auto"].is_ordered
    assert (by_rule["auto"].order == "declared") == (name == "size")


def test_declared_levels_and_allowed_columns_are_taken_as_they_are():
    numbers = pd.Series(RANDOM.integers(0, 60, N))
    frame = pd.DataFrame({"of type": numbers.astype("category"), "plain": numbers, "n2": numbers})
    of_type, plain, allowed = read_columns(frame, allow=["n2"])
    assert of_type.is_used and allowed.is_used and plain.is_refused
    assert of_type.levels == allowed.levels == tuple(map(str, sorted(set(numbers))))


def domain_of(rows):
    return rows.domain if hasattr(rows, "domain") else stored_model(rows)[1].domain


def labels(rows):
    return {variable.name: set(variable.labels) for variable in domain_of(rows)}


def by_command_line(*words):
    """What a command writes on standard error, which is raised where it fails."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as stderr:
        status = run(words)
    if status:
        raise InputError(stderr.getvalue())
    return stderr.getvalue()


def by_command(*words):
    """What a command reads: its model's levels; its notes and, where it is refused, its line."""

    def read(frame, folder, bins=None, exclude=()):
        frame.to_csv(folder / "t.csv", index=False)
        rules = [*(["--bins", bins] if bins else []), *(["--exclude", ",".join(exclude)] if exclude else [])]
        name, *options = words
        arguments = [name, str(folder / "t.csv"), *options, *rules, "--missing", "drop", "--out", str(folder / "o")]
        if notes := re.findall(r"note: \S+: (columns were left out.*)", by_command_line(*arguments)):
            warnings.warn(DataWarning(notes[0]), stacklevel=1)
        return labels(hoim.load(next((folder / "o").glob("*.safetensors"))))

    return read


def in_memory(call, *missing):
    options = {"missing": "drop"} if missing else {}
    return lambda frame, _, **rules: labels(call(frame, **options, **rules))


def by_file(frame, folder, **rules):
    frame.to_csv(folder / "t.csv", index=False)
    return labels(Observations.from_csv(folder / "t.csv", **rules))


DOORS = {
    "from_pandas": in_memory(Observations.from_pandas),
    "from_csv": by_file,
    "open_rows": in_memory(open_rows),
    "fit": in_memory(lambda frame, **how: hoim.fit(frame, order=1, **how), "drop"),
    "learn": in_memory(lambda frame, **how: hoim.learn(frame, seed=0, false_discovery_rate=None, **how), "drop"),
    "learn_network": in_memory(hoim.learn_network, "drop"),
    "command fit": by_command("fit", "--order", "1"),
    "command fit of a network": by_command("fit", "--model", "dependency-network"),
    "command learn": by_command("learn", "--max-order", "2"),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_cuts_and_leaves_out_alike(door, tmp_path):
    few = FRAME.drop(columns=["years", "postcode"])
    with warnings.catch_warnings(record=True, action="always") as caught:
        found = DOORS[door](few, tmp_path, bins="auto")
    expected = {column.name: set(column.levels) for column in read_columns(few, bins="auto") if column.is_used}
    assert found == expected
    # One note names every column that was left out, and no other one.
    (note,) = [str(warning.message) for warning in caught if "left out" in str(warning.message)]
    assert all(repr(name) in note for name in LEFT_OUT[:5]) and f"and {len(LEFT_OUT) - 6} more" in note
    assert not any(repr(name) in note for name, (_, _, is_used) in KINDS.items() if is_used)


@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_numbers_in_one_line_with_both_ways(door, tmp_path):
    frame = FRAME.drop(columns=LEFT_OUT)
    with pytest.raises(InputError) as refusal:
        DOORS[door](frame, tmp_path)
    line = str(refusal.value).strip()
    assert "\n" not in line and all(f"{name!r} holds" in line for name in NUMBERS)
    cuts = {column.name: column.cut_text for column in read_columns(frame) if column.is_refused}
    assert list(cuts) == NUMBERS and all(f"{name} at {text}" in line for name, text in cuts.items())
    names = f"'{','.join(NUMBERS)}'" if door.startswith("command") else repr(NUMBERS)
    assert re.search(r"bins[= ]'?auto'? to cut", line) and re.search(f"exclude[= ]{re.escape(names)} to leave", line)
    # What the line says leaves them out.
    found = DOORS[door](frame[["codes", "yes", "age"]], tmp_path, exclude=["age"])
    assert list(found) == ["codes", "yes"]


@pytest.mark.parametrize("name", ["row", "code of person", "day", "remark"])
def test_columns_that_are_spelled_out_are_never_left_out(name, tmp_path):
    frame = FRAME[["yes", "codes", name]].rename(columns={name: "x"})
    for call in (
        lambda: hoim.fit("x*yes", frame),
        lambda: hoim.fit(frame, edges=[("x", "yes")]),
        lambda: Observations.from_pandas(frame, columns=["x", "yes"]),
        lambda: by_command("fit", "--edges", "x*yes")(frame, tmp_path),
        lambda: by_command("fit", "--columns", "x,yes")(frame, tmp_path),
    ):
        with pytest.raises(InputError, match=r"'x' .*(identifier|dates|free text).*other columns than x") as refusal:
            call()
        assert re.search(r"allow[= ]", str(refusal.value))
    # Control: a formula that stands for all columns does not spell it out, and one of others does not read it.
    with pytest.warns(DataWarning, match="left out: 'x'"):
        assert domain_of(hoim.fit(".^2", frame, prior="unit")).names == ("yes", "codes")
    assert domain_of(hoim.fit("yes*codes", frame, prior="unit")).names == ("yes", "codes")


def test_excluded_columns_must_not_be_asked_for(tmp_path):
    for call in (
        lambda: hoim.fit("age*yes", FRAME, exclude=["age"]),
        lambda: Observations.from_pandas(FRAME, columns=["age"], exclude=["age"]),
        lambda: Observations.from_pandas(FRAME, weights="age", exclude=["age"]),
    ):
        with pytest.raises(InputError, match="exclude: column 'age' is asked for and left out"):
            call()
    with pytest.raises(InputError, match="unknown column 'agee'; did you mean 'age'"):
        hoim.learn(FRAME, exclude=["agee"])


def test_options_of_frames_are_refused_for_rows_that_hold_theirs():
    rows = Observations.from_pandas(FRAME[["codes", "yes"]])
    for call in (hoim.learn, hoim.learn_network, lambda data, **how: hoim.fit("codes*yes", data, **how)):
        with pytest.raises(InputError, match="can only be said of a data frame"):
            call(rows, bins="auto")
        with pytest.raises(InputError, match="unknown option 'bin'; did you mean 'bins'"):
            call(FRAME, bin="auto")


def test_weights_and_counts_of_a_frame_are_those_of_its_rows():
    cells = FRAME.groupby(["codes", "yes"]).size().reset_index(name="n")
    by_rows = hoim.learn_network(FRAME[["codes", "yes"]])
    by_count, by_weight = hoim.learn_network(cells, count="n"), hoim.learn_network(cells.assign(n=2.0), weights="n")
    assert by_count.num_observations == N and by_weight.num_observations == 2 * len(cells)
    assert [c.tolist() for c in by_count.counts] == [c.tolist() for c in by_rows.counts]
    assert hoim.learn(cells, count="n", refit=True, seed=0).num_rows == N
    # Missing cells are as told, of a frame that was cut too.
    gaps = FRAME[["with gaps", "yes"]].assign(yes=FRAME["yes"].astype(object).mask(FRAME.index < 9, "?"))
    how = {"missing_values": ["?"], "bins": "auto", "missing": "drop"}
    complete = int((gaps["with gaps"].notna() & (FRAME.index >= 9)).sum())
    for call in (hoim.learn_network, lambda frame, **options: hoim.fit(frame, order=1, **options)):
        with pytest.warns(DataWarning, match="numbers were cut into levels: with gaps at"):
            learned = call(gaps, **how)
        assert getattr(learned, "num_rows", getattr(learned, "num_observations", None)) == complete
    with pytest.raises(InputError, match="learn needs complete rows"):
        hoim.learn(gaps, **{**how, "missing": "marginalise"})


@pytest.mark.parametrize(
    "model",
    [
        lambda frame: hoim.fit("age*yes", frame, bins="auto", prior="unit"),
        lambda frame: hoim.learn(frame, bins="auto", seed=0),
        lambda frame: hoim.learn_network(frame, bins="auto"),
    ],
)
@pytest.mark.filterwarnings("ignore:numbers were cut")
def test_results_and_their_files_cut_raw_numbers_alike(model, tmp_path):
    frame = pd.DataFrame({"age": AGE, "yes": AGE + RANDOM.normal(0, 10, N) > 60})
    result = model(frame)
    cuts = cuts_of(domain_of(result)["age"].labels)
    raw = pd.DataFrame({"age": [18, 45, 60, 94]})
    as_levels = pd.DataFrame({"age": [cuts.label(value) for value in raw["age"]]})
    expected = result.predict(as_levels, "yes")["p(True)"].tolist()
    result.save(tmp_path / "m.safetensors")
    raw.assign(yes=True).to_csv(tmp_path / "raw.csv", index=False)
    for found in (result, hoim.load(tmp_path / "m.safetensors")):
        assert found.predict(raw, "yes")["p(True)"].tolist() == expected
        at_levels = frame.assign(age=[cuts.label(value) for value in frame["age"]])
        assert found.score(frame)["pseudo_nll"] == found.score(at_levels)["pseudo_nll"]
    words = ["predict", tmp_path / "m.safetensors", tmp_path / "raw.csv", "--target", "yes", "--json"]
    shown = CliRunner().invoke(cli, [*map(str, words), "--out", str(tmp_path / "p.csv")])
    assert shown.exit_code == 0, shown.stderr
    assert pd.read_csv(tmp_path / "p.csv")["p(True)"].tolist() == pytest.approx(expected, abs=1e-9)


def test_levels_between_cut_points_say_these():
    assert cuts_of(("<20", "[20, 30)", ">=40")).cuts == (20, 30, 40)
    assert cuts_of(("<2020-01-01", ">=2020-01-01")).kind == "dates"
    for control in (("a", "b"), ("<20", "other"), ("[1, 2]",), ("<x", ">=x"), (">=3", "<2")):
        assert cuts_of(control) is None or set(control) <= set(cuts_of(control).labels)


@pytest.mark.parametrize("total", [50, 500, 5_000, 10**6])
@pytest.mark.parametrize("others", [[], [2] * 3, [2] * 9, [8, 5], [2] * 18])
@pytest.mark.parametrize("number", [1, 3, 12])
def test_the_number_of_levels_is_the_largest_that_the_rule_allows(total, others, number):
    def allows(levels):
        sizes = [*others, *[levels] * number]
        pairs = sum((a - 1) * (b - 1) for i, a in enumerate(sizes) for b in sizes[:i])
        is_small = np.prod(np.array([*others, *[2] * number], dtype=float)) <= 2**20
        return 5 * pairs <= total and (not is_small or np.prod(np.array(sizes, dtype=float)) <= 2**20)

    assert num_cut_levels(total, others, number) == max([2, *(levels for levels in (3, 4, 5) if allows(levels))])


def people(seed):
    """Raw numbers beside a risk with odds ratio 4.5."""
    random = np.random.default_rng(seed)
    smoke = random.random(4000) < 0.3
    columns = {"age": random.normal(55, 15, 4000).round(), "bmi": random.normal(26, 4, 4000).round(1)}
    return pd.DataFrame({**columns, "smoke": smoke, "ill": random.random(4000) < 1 / (1 + np.exp(2 - 1.5 * smoke))})


@pytest.mark.filterwarnings("ignore:numbers were cut")
def test_what_is_learned_beside_raw_numbers_is_what_is_there():
    frame = people(0)
    pairs = [edge for edge in hoim.learn(frame, bins="auto", seed=0).structure.hypergraph.edges if len(edge) > 1]
    assert pairs == [("smoke", "ill")]
    shuffled = frame.assign(ill=frame["ill"].sample(frac=1, random_state=1).to_numpy())  # control
    learned = hoim.learn(shuffled, bins="auto", seed=0)
    assert [e for e in (learned.structure or learned).hypergraph.edges if len(e) > 1] == []


def test_one_rule_for_all_other_numbers_is_that_of_each():
    frame = pd.DataFrame({"age": AGE, "height": RANDOM.normal(170, 10, N), "codes": RANDOM.integers(0, 8, N)})
    frame.loc[:9, "age"] = -9
    rules = {"age": "quantile:3", "*": "spread:4"}
    readings = {r.name: r for r in read_columns(frame, bins=rules, missing_values=("", "-9"))}
    assert readings["age"].cuts == find_bins(frame["age"][10:], "quantile:3")
    assert readings["height"].cuts == find_bins(frame["height"], "spread:4")
    assert (readings["age"].num_missing, readings["codes"].order) == (10, "numbers")
    with pytest.raises(InputError, match="bins of 'age': expected"):
        read_columns(frame, bins={"*": "halves"})


@pytest.mark.parametrize("kind", ["text", "categories"])
def test_numbers_beside_a_word_are_numbers(kind, tmp_path):
    cells = np.random.default_rng(0).integers(18, 94, 2000).astype(object)
    cells[:40] = "refused"
    age = pd.Series(cells).astype(str) if kind == "text" else pd.Series(pd.Categorical(cells))
    frame = pd.DataFrame({"age": age, "ill": np.tile(["n", "y"], 1000)})
    (reading, _) = read_columns(frame, bins="auto", missing_values=("", "refused"))
    assert reading.kind == "numbers" and reading.num_missing == 40 and reading.cut_text == "34, 50, 65, 79"
    with pytest.raises(InputError, match=r"holds 76 different numbers") as refusal:
        hoim.fit(".^2", frame)
    assert "write missing_values=['', 'refused'] if these words mean that a number is missing" in str(refusal.value)
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match="write --missing refused if these words mean"):
        by_command_line("fit", str(tmp_path / "t.csv"), "--bins", "auto", "--out", str(tmp_path / "o"))
    # The controls: levels of a type, labels that hold a number, and many words beside numbers.
    assert read_columns(frame.assign(age=pd.Categorical(cells[40:].tolist() + [18] * 40)))[0].is_used
    ordered = frame.assign(age=pd.Categorical(age, ordered=True))
    assert read_columns(ordered)[0].is_used
    for label in ("age {}", "{} years"):
        assert read_columns(frame.assign(age=[label.format(cell) for cell in cells]))[0].kind == "labels"
    several = [cell if i > 200 else f"word {i % 5}" for i, cell in enumerate(cells)]
    assert read_columns(frame.assign(age=pd.Series(several).astype(str)))[0].kind == "labels"
