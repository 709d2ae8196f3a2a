"""Root models of data frames: families chosen by column, stated interactions, and what results and files keep."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim.errors import InputError, MissingDataError, UnknownNameError
from pyro_hoim.generalized_root import (
    IndicatorFamily,
    PoissonFamily,
    RootColumns,
    RootFile,
    RootSettings,
    TruncatedPoissonFamily,
    choose_families,
    load_roots,
)

_TIGHT = RootSettings(tolerance=1e-9, jobs=1)


def _frame(num_rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    ill = rng.random(num_rows) < 0.4
    return pd.DataFrame(
        {
            "ill": ill,
            "visits": rng.poisson(np.exp(1.5 + 0.5 * ill)),
            "weight": 70 + 5 * ill + rng.normal(0, 8, num_rows),
            "cost": rng.exponential(20 + 30 * ill),
            "patient": [f"p{i}" for i in range(num_rows)],
        }
    )


_SAID = {"visits": "count"}


def test_a_frame_of_counts_is_fitted_as_ever() -> None:
    counts = pd.DataFrame(np.random.default_rng(2).poisson([1.0, 3.0, 0.5], (200, 3)), columns=list("abc"))
    counts["b"] += counts["a"]
    found, stated, table = (
        hoim.fit_roots(rows, *family, order=3, l1=0.01, settings=_TIGHT)
        for rows, family in ((counts, ()), (counts, ("poisson",)), (hoim.CountTable.from_pandas(counts), ("poisson",)))
    )
    assert found.columns is None and found.structure == stated.structure == table.structure
    assert torch.equal(found.psi, stated.psi) and torch.equal(found.psi, table.psi)
    assert repr(found) == repr(stated)
    times = np.arange(200) % 3
    of_frame, of_rows = (
        hoim.fit_roots(rows, order=2, names=list("xyz"), counts=times, settings=_TIGHT)
        for rows in (counts, counts.to_numpy())
    )
    assert of_frame.domain.names == ("x", "y", "z") and torch.equal(of_frame.psi, of_rows.psi)


def test_families_of_a_mixed_frame_are_chosen_and_said_without_a_warning() -> None:
    frame = _frame()
    with warnings.catch_warnings(action="error"):
        found = hoim.fit_roots(frame, _SAID, order=2, l1=0.05, settings=_TIGHT)
    columns = choose_families(frame, _SAID)
    by_hand = hoim.fit_roots(
        columns.encode(frame), columns.families, order=2, l1=0.05, settings=_TIGHT, names=columns.domain.names
    )
    assert found.columns == columns and torch.equal(found.psi, by_hand.psi)
    assert found.confirmed is not None and found.confirmed.columns == columns
    line = "0/1: ill; counts: visits; real numbers: weight; positive numbers: cost; left out: patient"
    assert repr(found).endswith(line) and found.summary().attrs["notes"][0].endswith(line)
    # Rows of a frame are read by the columns, others by the variables.
    shuffled = frame[["cost", "weight", "visits", "ill"]]
    expected = by_hand.log_pseudo_prob(columns.encode(frame))
    torch.testing.assert_close(found.log_pseudo_prob(shuffled), expected, rtol=0, atol=0)
    torch.testing.assert_close(found.log_pseudo_prob(columns.encode(frame)), expected, rtol=0, atol=0)


def test_a_frame_whose_columns_are_not_clear_is_asked_about_and_gaps_are_named() -> None:
    frame = _frame().assign(ward=np.arange(300) % 4)
    with pytest.raises(InputError, match=r"'ward' holds 4 different whole numbers") as caught:
        hoim.fit_roots(frame)
    assert caught.value.argument == "family" and "such as {'ward': 'category'}" in str(caught.value)
    with pytest.raises(MissingDataError, match=r"'weight' \(150\)"):
        hoim.fit_roots(frame.assign(weight=frame["weight"].where(frame.index % 2 == 0)))
    with pytest.raises(InputError, match=r"such as \{'ward': 'category'\}") as caught:
        hoim.learn(frame, numbers="families")
    assert caught.value.argument == "families"
    with pytest.raises(InputError, match="rows without one"):
        hoim.fit_roots(np.ones((3, 2)), {"x0": "poisson", "x1": "poisson"}, centre=False)
    with pytest.raises(UnknownNameError, match="option"):
        hoim.fit_roots(frame, family_of={"ward": "count"})  # type: ignore[call-arg]


def test_a_column_of_counts_says_how_often_each_row_was_seen() -> None:
    frame = pd.DataFrame({"ill": [False, True, True, False], "days": [0.5, 4.25, 1.75, 2.5], "count": [5, 7, 9, 4]})
    said = {"days": "real"}
    found = hoim.fit_roots(frame, said, order=2, l1=0.05, settings=_TIGHT, centre=False)
    long = frame.loc[frame.index.repeat(list(frame["count"]))].drop(columns="count")
    other = hoim.fit_roots(long, said, order=2, l1=0.05, settings=_TIGHT, centre=False)
    assert found.num_rows == 25 and found.domain.names == ("ill", "days")
    torch.testing.assert_close(found.psi, other.psi, rtol=1e-6, atol=1e-8)


def test_stated_interactions_are_fitted_and_no_others() -> None:
    frame = _frame().drop(columns="patient")
    found = hoim.fit_roots(frame, _SAID, interactions="ill*visits + weight:ill:cost", settings=_TIGHT)
    assert {names for (_, size), names in found.structure.names if size > 1} == {
        ("ill", "visits"),
        ("ill", "weight", "cost"),
    }
    assert found.confirmed is None and found.refit is not None and found.refit.method == "all"
    listed = hoim.fit_roots(frame, _SAID, interactions=["visits:ill", ("cost", "ill", "weight")], settings=_TIGHT)
    assert torch.equal(found.psi, listed.psi)
    # The refit is the maximum of the pseudo-likelihood: no step in any coefficient raises it.
    at = found.log_pseudo_prob(frame).sum()
    for term in range(len(found.psi)):
        for step in (-1e-3, 1e-3):
            moved = found.psi.clone()
            moved[term] *= 1 + step
            energy = hoim.GeneralizedRootEnergy(found.structure, moved, found.free_families)
            assert energy.log_pseudo_prob(torch.from_numpy(choose_families(frame, _SAID).encode(frame))).sum() < at
    independent = hoim.fit_roots(frame, _SAID, interactions="1", settings=_TIGHT)
    assert independent.num_interactions == 0


def test_stated_interactions_of_counts_and_tables() -> None:
    counts = pd.DataFrame(np.random.default_rng(2).poisson(2.0, (100, 3)), columns=list("abc"))
    for rows in (counts, hoim.CountTable.from_pandas(counts)):
        found = hoim.fit_roots(rows, interactions="a:c", settings=_TIGHT)
        assert [names for (_, size), names in found.structure.names if size > 1] == [("a", "c")]
    with pytest.raises(InputError, match="columns of a data frame"):
        hoim.fit_roots(counts.to_numpy(), interactions="a:c")
    with pytest.raises(UnknownNameError, match="'d'"):
        hoim.fit_roots(counts, interactions=["a:d"])
    with pytest.raises(InputError, match="no response"):
        hoim.fit_roots(counts, interactions="a ~ b")
    with pytest.raises(InputError, match="none is searched"):
        hoim.fit_roots(counts, interactions="a:b", settings=RootSettings(stagewise=True))


def test_sets_of_categories_are_sets_of_their_columns() -> None:
    frame = _frame().drop(columns="patient")
    frame["ward"] = np.random.default_rng(3).choice(["north", "south", "west"], len(frame))
    found = hoim.fit_roots(frame, _SAID, interactions="ward*visits + ill:ward:cost", settings=_TIGHT)
    assert found.columns is not None and set(found.sets) == {("visits", "ward"), ("ill", "cost", "ward")}
    assert repr(found).startswith("RootFitResult: generalized root model, 5 variables, 2 interactions")
    prediction = found.predict(frame.head(3), "ward")
    assert list(prediction.columns[:4]) == ["predicted", "p(north)", "p(south)", "p(west)"]
    np.testing.assert_allclose(prediction.iloc[:, 1:4].sum(axis=1), 1.0, rtol=1e-12)


def test_a_model_of_smaller_sets_than_were_searched_is_saved(tmp_path: Path) -> None:
    found = hoim.fit_roots(_frame(300), _SAID, order=3, l1=0.1, refit="all", settings=_TIGHT).confirmed
    assert found is not None and found.structure.order == 2 and found.scales is not None and found.scales.shape[1] == 3
    found.save(tmp_path / "model.safetensors")
    loaded = hoim.load(tmp_path / "model.safetensors")
    assert loaded.interactions()["term"].tolist() == found.interactions()["term"].tolist()


def test_learning_with_families_finds_what_was_planted_and_refuses_options_of_levels() -> None:
    rng = np.random.default_rng(4)
    frame = _frame(600).assign(age=rng.normal(40.0, 9.0, 600), smoker=rng.choice(["no", "yes"], 600))
    learned = hoim.learn(frame, numbers="families", families=_SAID, l1s=(0.1, 0.05), seed=1)
    assert learned.columns is not None and learned.columns.left_out.keys() == {"patient"}
    assert learned.refit is not None and learned.confirmed is not None
    planted = {("ill", "visits"), ("ill", "weight"), ("ill", "cost")}
    assert planted <= set(learned.confirmed.confirmation.kept)
    again = hoim.learn(frame, frame.head(200), numbers="families", families=_SAID, l1s=(0.1, 0.05))
    assert again.columns == learned.columns
    # Options of one way alone are refused by the other in one line.
    for options, problem in (
        ({"bins": "auto"}, "bins: belongs to numbers='cut', received numbers='families'"),
        ({"search": hoim.log_linear.SelectionOptions()}, "search: belongs to numbers='cut'"),
        ({"order_of": 2}, "unknown option 'order_of'"),
    ):
        with pytest.raises(InputError, match=problem):
            hoim.learn(frame, numbers="families", **options)
    with pytest.raises(InputError, match="l1s: belongs to numbers='families', received numbers='cut'"):
        hoim.learn(frame, l1s=(0.1,))
    with pytest.raises(InputError, match="numbers: expected 'cut' or 'families'"):
        hoim.learn(frame, numbers="levels")  # type: ignore[arg-type]


def test_files_keep_how_columns_were_read(tmp_path: Path) -> None:
    found = hoim.fit_roots(_frame(), _SAID, order=2, l1=0.05, settings=_TIGHT)
    found.save(tmp_path / "model.safetensors")
    stored = load_roots(tmp_path / "model.safetensors")
    assert isinstance(stored.columns, RootColumns) and stored.columns == found.columns
    # What does not belong to the model is refused.
    for name, wrong in (("name", "other"), ("family", {"name": "gaussian", "maximum": None})):
        info = found.as_stored.model.info
        columns = [{**column} for column in info["frame"]["columns"]]
        columns[1] |= {name: wrong}
        with pytest.raises(InputError, match="frame"):
            RootFile(
                stored.structure, stored.psi, stored.family, {**info, "frame": {**info["frame"], "columns": columns}}
            )


def test_several_families_are_searched_for_pairs_and_one_for_triples_by_default() -> None:
    frame = _frame().drop(columns="patient")
    said = {**_SAID, "visits": "bounded:60"}
    pairs = hoim.fit_roots(frame, said, l1=0.1)
    assert set(pairs.l1) == {2} and pairs.columns is not None
    assert pairs.columns["visits"].family == TruncatedPoissonFamily(60)
    assert set(hoim.fit_roots(frame, said, l1=0.1, order=3).l1) == {2, 3}
    counts = np.random.default_rng(0).poisson(2.0, (100, 3))
    assert set(hoim.fit_roots(counts, l1=0.1).l1) == {2, 3}
    assert set(hoim.fit_roots(counts, ["poisson"] * 3, l1=0.1).l1) == {2, 3}
    mixed = [PoissonFamily(), TruncatedPoissonFamily(30), "poisson"]
    assert set(hoim.fit_roots(counts, mixed, l1=0.1).l1) == {2}
    # Indicators that were made already stay what they are.
    ward = pd.DataFrame({"ward=a": [1, 0, 1, 0, 1], "ward=b": [0, 1, 0, 1, 0], "visits": [3, 0, 1, 2, 5]})
    by_name = {name: IndicatorFamily("ward") for name in ("ward=a", "ward=b")} | {"visits": PoissonFamily()}
    assert hoim.fit_roots(ward, by_name).domain.names == ("ward=a", "ward=b", "visits")


def test_a_set_with_a_category_is_one_interaction_wherever_it_is_counted() -> None:
    rng = np.random.default_rng(0)
    ward = rng.integers(0, 3, 300)
    frame = pd.DataFrame({"ward": np.array(list("abc"))[ward], "visits": rng.poisson(1.0 + 2.0 * ward)})
    found = hoim.fit_roots(frame, {"visits": "count"}, l1=0.05)
    rows, columns = found.columns.encode(frame), found.columns
    by_hand = hoim.fit_roots(rows, columns.families, l1=0.05, names=columns.domain.names)
    for one in (found, by_hand):
        assert one.num_interactions == 1 and "1 interaction," in repr(one)


def test_a_fit_that_refuses_numbers_says_which_model_keeps_them() -> None:
    for call in (hoim.fit, hoim.learn):
        with pytest.raises(InputError, match=r"hoim\.learn\(frame, numbers='families'\) to keep all values"):
            call(_frame()[["ill", "weight"]].rename(columns={"weight": "mass"}))
