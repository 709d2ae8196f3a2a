"""Learning from indicator columns: the model of the categories, and a warning where they are left apart."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_hoim as hoim
from pyro_hoim import Domain, Observations
from pyro_hoim.core.operations import row_log_likelihood
from pyro_hoim.data import ColumnGroup, JoinedColumns, join_columns
from pyro_hoim.errors import DataWarning, InputError, IntractableError, MissingDataError, UnknownNameError
from pyro_hoim.log_linear import SelectionOptions
from pyro_hoim.log_linear.learning.joined import columns_joined


def tables(number=600, seed=0):
    """Categories of four and two levels that depend on each other and on a coin; and the same as columns of 0 and 1."""
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 4, number)
    s = np.where(rng.random(number) < 0.8, k // 2, rng.integers(0, 2, number))
    w = np.where(rng.random(number) < 0.7, s, rng.integers(0, 2, number))
    plain = pd.DataFrame({"k": [f"v{i}" for i in k], "s": [f"s{i}" for i in s], "w": w.astype(str)})
    wide = pd.get_dummies(plain[["k", "s"]], prefix_sep="=").astype(int).astype(str).assign(w=plain["w"])
    return plain, wide


@pytest.fixture(scope="module")
def learned():
    plain, wide = tables()
    return plain, wide, hoim.learn(plain, seed=1), hoim.learn(wide, seed=1)


def test_columns_give_the_model_of_the_categories(learned):
    plain, wide, one, two = learned
    assert two.hypergraph.edges == one.hypergraph.edges and torch.equal(two.tables, one.tables)
    assert one.joined is None and [group.name for group in two.joined.groups] == ["k", "s"]
    assert two.gain(wide) == one.gain(plain) and two.row_scores(wide).nll == one.row_scores(plain).nll
    assert torch.equal(
        torch.tensor(row_log_likelihood(two, wide).to_numpy()), torch.tensor(row_log_likelihood(one, plain).to_numpy())
    )
    assert two.structure.joined == two.joined and any("were joined" in note for note in two.notes)
    # Control: left apart they are another model.
    apart = hoim.learn(wide, join="none", seed=1, false_discovery_rate=None)
    assert len(apart.hypergraph.domain) == 7 and apart.joined is None and apart.gain(wide) != two.gain(wide)


def test_file_speaks_of_the_columns(learned, tmp_path):
    _, wide, _, model = learned
    model.save(tmp_path / "model.safetensors")
    loaded = hoim.load(tmp_path / "model.safetensors")
    assert loaded.domain.names == tuple(wide.columns)
    assert hoim.score(loaded, wide) == hoim.score(model, wide)
    drawn = loaded.sample(300, given={"k=v0": 0}, seed=2)
    assert (drawn["k=v0"] == "0").all() and set(drawn["k=v1"]) == {"0", "1"}
    assert (drawn[[f"k=v{i}" for i in range(4)]].astype(int).sum(axis=1) == 1).all()
    assert (tmp_path / "page" / "report.html").exists() or loaded.report(tmp_path / "page").exists()
    assert "were joined to 2 variables" in (tmp_path / "page" / "report.html").read_text(encoding="utf-8")
    assert {"k", "s"} <= {text.get_text() for text in loaded.plot_hypergraph().texts}
    assert hoim.compare({"a": loaded, "b": model}, wide)["gain"].tolist() == pytest.approx([0, 0])


def test_draws_given_columns_follow_the_law_given_them(learned):
    _, _, one, two = learned
    drawn = two.sample(4000, given={"k=v0": 0, "k=v1": 0}, seed=3)
    share = (drawn["w"] == "1").mean()
    law = one.sample(60_000, seed=4)
    law = law[law["k"].isin(["v2", "v3"])]
    expected = (law["w"] == "1").mean()
    assert abs(share - expected) < 4 * (0.25 / 4000 + 0.25 / len(law)) ** 0.5
    assert abs(share - (one.sample(4000, seed=5)["w"] == "1").mean()) > 0.1  # control: it is not the marginal law
    with pytest.raises(InputError, match="never has together"):
        two.sample(2, given={"k=v0": 1, "k=v1": 1})


def test_missing_cells_of_a_group(learned):
    plain, wide, one, two = learned
    rows = wide.head(40).copy()
    rows[["k=v2", "k=v3"]] = None  # k is v0, v1, or one of two levels
    found = row_log_likelihood(two, rows)
    levels = [row_log_likelihood(one, plain.head(40).assign(k=f"v{i}")).to_numpy() for i in range(4)]
    is_open = plain["k"].head(40).isin(["v2", "v3"]).to_numpy()
    known = row_log_likelihood(one, plain.head(40)).to_numpy()
    np.testing.assert_allclose(found, np.where(is_open, np.logaddexp(levels[2], levels[3]), known), rtol=1e-12)
    with pytest.raises(MissingDataError, match=f"{is_open.sum()} rows have missing cells in joined columns"):
        two.score(rows)
    full = two.impute(rows, 50, seed=1)
    assert (full[["k=v0", "k=v1"]] == pd.concat([rows] * 50)[["k=v0", "k=v1"]]).all(axis=None)
    share = (full["k=v3"] == "1").mean()
    odds = np.exp(levels[3] - np.logaddexp(levels[2], levels[3]))[is_open].sum() / 40
    assert abs(share - odds) < 4 * (0.25 * is_open.mean() / (50 * 40)) ** 0.5
    with pytest.raises(MissingDataError, match="most probable level"):
        two.impute(
            rows.assign(**{"k=v0": "0", "k=v1": "0", "s=s0": "1", "s=s1": "0", "k=v2": None}), most_probable=True
        )
    with pytest.raises(IntractableError, match="pseudo-likelihood"):
        row_log_likelihood(two, rows, pseudo=True)


def test_rows_that_break_a_group_are_impossible(learned):
    _, wide, _, two = learned
    broken = wide.copy()
    broken.loc[0, ["k=v0", "k=v1"]] = "1"
    found = two.score(broken)
    assert (found["nll"], found["gain"], found["impossible_rows"]) == (np.inf, -np.inf, 1)
    assert found["possible"]["nll"] == two.score(broken.iloc[1:])["nll"]
    assert row_log_likelihood(two, broken).iloc[0] == -np.inf
    with pytest.raises(InputError, match="break a group"):
        two.row_scores(broken)
    # A column of the broken group is not predicted; others are, without the group.
    three = broken.head(2)
    frame = two.predict(three, "k=v2")
    assert np.isnan(frame["p(1)"].iloc[0]) and frame["p(1)"].iloc[1] in (0, 1)
    frame = two.predict(three, "w")
    hidden = three.copy()
    hidden.loc[0, [f"k=v{i}" for i in range(4)]] = None
    assert frame["p(1)"].tolist() == two.predict(hidden, "w")["p(1)"].tolist()
    assert "1 row break joined columns" in " ".join(frame.attrs["notes"])


def test_columns_left_apart_make_log_z_unreliable(learned):
    _, wide, _, two = learned
    rows = Observations.from_pandas(wide)
    apart = hoim.learn(rows, join="none", seed=1, false_discovery_rate=None)
    estimated = replace(apart, log_partition=replace(apart.log_partition, kind="unbiased"))
    none = JoinedColumns(rows.domain, ())
    with pytest.warns(DataWarning, match="6 columns exclude each other and are left apart"):
        found = columns_joined(estimated, none, rows)
    assert found.log_partition.verdict == "unreliable" and "exclude each other" in found.log_partition.notes[-1]
    # Controls: an exact log Z, joined columns, and columns of which often none is set.
    assert columns_joined(apart, none, rows) is apart
    joined = join_columns(rows)
    held = replace(two, joined=None, log_partition=replace(two.log_partition, kind="unbiased"))
    assert columns_joined(held, joined, joined.join(rows)).log_partition.verdict == "verified"
    rare = np.eye(3, 2)[np.random.default_rng(0).choice(3, 900, p=[0.2, 0.2, 0.6])]
    others = Observations.from_tensor(torch.from_numpy(rare).long(), Domain.from_cardinalities([2, 2]))
    assert columns_joined(estimated, JoinedColumns(others.domain, ()), others) is estimated


def test_arguments():
    plain, wide = tables(200)
    rows = Observations.from_pandas(wide)
    group = ColumnGroup(("k=v0", "k=v1"), ((1, 0), (0, 1), (0, 0)), name="first")
    search = SelectionOptions(candidates=[("k=v0", "w"), ("k=v1", "w"), ("k=v0", "k=v1")])
    found = hoim.learn(rows, rows, search, join=JoinedColumns(rows.domain, (group,)))
    assert found.hypergraph.edges[-1] == ("first", "w") and len(found.hypergraph.domain) == 6
    with pytest.raises(InputError, match="the columns of train"):
        hoim.learn(plain, join=JoinedColumns(rows.domain, (group,)))
    with pytest.raises(InputError, match="join"):
        hoim.learn(rows, join="some")
    with pytest.raises(UnknownNameError, match="seed"):
        hoim.learn(rows, seeds=1)
    with pytest.raises(InputError, match="break a group"):
        hoim.learn(rows, join=JoinedColumns(rows.domain, (ColumnGroup.exclusive(["k=v0", "w"]),)))
