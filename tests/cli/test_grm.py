"""Generalized root models at the command line: what is printed agrees with the library; bad input is named."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from scipy import sparse
from scipy.stats import norm

from pyro_hoim import CountTable, InputError
from pyro_hoim.cli import run
from pyro_hoim.generalized_root import (
    PoissonFamily,
    RootAnnealed,
    RootAuto,
    RootModel,
    RootSettings,
    TruncatedPoissonFamily,
    analyse_roots,
    choose_l1,
    fit_independent,
    fit_roots,
    load_roots,
    predict_roots,
)
from pyro_hoim.generalized_root.command import parse_l1
from pyro_hoim.generalized_root.study.analysis import AUTO_L1
from pyro_hoim.testing import FALSE_ALARM_RATE

GRM = ["--model", "grm"]
ALL = [*GRM, "--split", "1,0,0"]
NAMES = ["flow", "heat", "wing", "count_of_words"]


def made_rows(num=150):
    generator = np.random.default_rng(7)
    rate = generator.gamma(1.0, 0.8, size=(num, 1))
    return np.hstack([generator.poisson(rate * np.array([1.0, 0.7, 0.5])), np.zeros((num, 1), dtype=int)])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Folder of a model of three words (a fourth is always zero), and its rows in both kinds of file beside it."""
    folder = tmp_path_factory.mktemp("grm")
    pd.DataFrame(made_rows(), columns=NAMES).to_csv(folder / "rows.csv", index=False)
    sparse.save_npz(folder / "rows.npz", sparse.csr_matrix(made_rows()))
    (folder / "rows_vocab.txt").write_text("\n".join(NAMES))
    arguments = ["fit", str(folder / "rows.csv"), *GRM, "--split", "0.6,0.2,0.2", "--l1", "0.02", "--l1", "0.005"]
    assert run([*arguments, "--out", str(folder / "out")]) == 0
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Folder of a model whose log Z is exact, and its rows."""
    folder = tmp_path_factory.mktemp("small")
    rows = np.minimum(made_rows()[:, :2], 3)
    pd.DataFrame(rows, columns=NAMES[:2]).to_csv(folder / "rows.csv", index=False)
    arguments = ["fit", str(folder / "rows.csv"), *ALL, "--family", "truncated-poisson", "--maximum", "3"]
    assert run([*arguments, "--out", str(folder / "out")]) == 0
    return folder


# Good input


@pytest.mark.parametrize("file", ["rows.csv", "rows.npz"])
def test_fit_prints_what_the_library_finds(file, fitted, shell):
    options = ["--split", "0.6,0.2,0.2", "--seed", "3", "--l1", "0.01", "--jobs", "1"]
    found = shell.json("fit", str(fitted / file), *GRM, *options)
    table = CountTable.from_matrix(made_rows(), NAMES)
    parts = dict(zip(("train", "validation", "test"), table.split((0.6, 0.2, 0.2), 3), strict=True))
    fit = fit_roots(parts["train"], "poisson", order=3, l1=0.01, refit="all")
    assert found["num_states"] is None and found["num_variables"] == 4
    assert found["num_parameters"] == fit.structure.num_terms
    assert found["num_interactions"] == fit.structure.num_terms - 3
    assert {tuple(edge) for edge in found["edges"]} == {t.names for t in fit.terms() if t.key[1] > 1}
    assert found["zero_columns"] == ["count_of_words"]
    assert (found["kkt_residual"], found["status"]) == (pytest.approx(float(fit.kkt_residual.max())), "converged")
    for name, rows in parts.items():
        assert found["rows"][name] == rows.num_rows
        assert found["pseudo_nll"][name] == pytest.approx(-float(fit.log_pseudo_prob(rows).mean()), rel=1e-9)
        for kind in ("poisson", "negative-binomial"):
            law = fit_independent(parts["train"], kind, PoissonFamily())
            assert found["baselines"][kind][name] == pytest.approx(-law.log_prob(rows).mean(), rel=1e-9)
        pairs = fit_roots(parts["train"], "poisson", order=2, l1=0.01, refit="all")
        expected = -float(pairs.log_pseudo_prob(rows).mean())
        assert found["baselines"]["pairwise"][name] == pytest.approx(expected, rel=1e-9)
    for row in found["interactions"]:
        assert row["value"] == pytest.approx(row["coefficient"] / math.factorial(row["order"]))
    assert [row["coefficient"] for row in found["singles"]] == sorted(
        (row["coefficient"] for row in found["singles"]), reverse=True
    )
    tests = fit.confirmed.confirmation.tests
    assert [tuple(test["edge"]) for test in found["structure"]["tests"]] == [test.edge for test in tests]
    assert found["structure"]["num_kept"] == fit.confirmed.num_interactions > 0 and found["seconds"] > 0
    assert found["peak_memory_mb"] > 0
    folder = Path(f"pyro-hoim-{Path(file).stem}")
    assert json.loads((folder / "fit.json").read_text()) == json.loads(json.dumps(found).replace(f'"{folder}/', '"'))
    assert load_roots(found["model"]).structure == fit.structure
    assert Path(found["report"]).exists()
    assert not (folder / "checkpoint").exists()


def test_exact_models_have_a_likelihood(small, shell):
    found = json.loads((small / "out" / "fit.json").read_text())
    stored = load_roots(small / "out" / "model.safetensors")
    rows = CountTable.from_csv(small / "rows.csv")
    analysis = analyse_roots({"train": rows}, TruncatedPoissonFamily(3), order=2)
    log_z = float(RootAuto().log_partition(RootModel.from_fit(analysis.fit).energy).value)
    assert found["log_partition"]["kind"] == "exact"
    assert found["log_partition"]["value"] == pytest.approx(log_z, rel=1e-9)
    assert found["nll"]["train"] == pytest.approx(analysis.parts["train"].scores.nll, rel=1e-9)
    assert found["kl"]["train"] == pytest.approx(analysis.parts["train"].scores.kl, rel=1e-9)
    assert found["nll"]["test"] is None
    assert stored.family == TruncatedPoissonFamily(3)
    for method in ("auto", "exact"):
        again = shell.json("log-z", str(small / "out"), "--method", method)
        assert again["value"] == pytest.approx(log_z, rel=1e-9)
    annealing = ["--method", "ais", "--num-chains", "64", "--num-temperatures", "30"]
    estimate = shell.json("log-z", str(small / "out"), *annealing)
    assert estimate["kind"] == "biased"
    limit = scipy.stats.t.isf(FALSE_ALARM_RATE / 2, 63)
    assert abs(estimate["value"] - log_z) < limit * estimate["std_error"]
    given = []

    def recorded(self, energy):
        given.append(self.starts)
        return RootAuto().log_partition(energy)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RootAnnealed, "log_partition", recorded)
        shell.json("score", str(small / "out"), str(small / "rows.csv"), *annealing)
    assert given == [tuple(map(tuple, rows.to_tensor().unique(dim=0).tolist()))]
    scored = shell.json("score", str(small / "out"), str(small / "rows.csv"))
    assert scored["nll"] == pytest.approx(found["nll"]["train"], rel=1e-9)
    assert scored["kl"] == pytest.approx(found["kl"]["train"], rel=1e-9)
    assert scored["pseudo_nll"] == pytest.approx(found["pseudo_nll"]["train"], rel=1e-9)
    assert scored["log_z_kind"] == "exact"


def test_several_penalties(fitted):
    found = json.loads((fitted / "out" / "fit.json").read_text())
    assert [step["l1"] for step in found["path"]] == [0.02, 0.005]
    best = min(found["path"], key=lambda step: step["pseudo_nll"]["validation"])
    assert found["l1"] == best["l1"]
    assert found["pseudo_nll"]["validation"] == pytest.approx(best["pseudo_nll"]["validation"])


def test_penalties_are_compared_without_validation_rows(fitted, shell):
    found = shell.json("fit", str(fitted / "rows.csv"), *ALL, "--order", "2", "--l1", "0.3,0.02", "--seed", "4")
    rows = CountTable.from_csv(fitted / "rows.csv")
    generator = torch.Generator().manual_seed(4)
    chosen = choose_l1(rows, [0.3, 0.02], order=2, refit="all", generator=generator)
    assert found["l1"] == chosen.l1
    scores = [step["pseudo_nll"]["validation"] for step in found["path"]]
    assert scores == pytest.approx([-score for score in chosen.scores], rel=1e-12)
    assert found["rows"] == {"train": rows.num_rows, "validation": 0, "test": 0}


def test_text_names_scores_tuples_and_files(fitted, shell):
    captured = shell("fit", str(fitted / "rows.csv"), *ALL, "--order", "2", "--out", "again")
    assert "1 column without a count, left out of the model: count_of_words." in captured.out
    assert "independent negative binomial" in captured.out
    assert "flow + heat" in captured.out
    assert re.search(
        r"report: +again.report.html\nmodel: +again.model.safetensors\nconfirmed model: again", captured.out
    )
    assert "--resume" in captured.err


def test_other_families_and_options(fitted, shell):
    pd.DataFrame(np.random.default_rng(0).gamma(2, size=(60, 2)), columns=["x", "y"]).to_csv("r.csv", index=False)
    found = shell.json("fit", "r.csv", *ALL, "--family", "gaussian")
    assert (found["family"], found["order"], list(found["baselines"])) == ("gaussian", 2, ["normal"])
    assert found["nll"]["train"] is not None
    assert found["is_full"] is True  # the columns' means
    assert found["pseudo_nll"]["train"] <= found["baselines"]["normal"]["train"] + 0.01
    found = shell.json("fit", "r.csv", *ALL, "--family", "gaussian", "--no-full")
    assert found["is_full"] is False and found["pseudo_nll"]["train"] > found["baselines"]["normal"]["train"]
    found = shell.json("fit", "r.csv", *ALL, "--family", "exponential", "--order", "1")
    assert found["nll"]["train"] == pytest.approx(found["baselines"]["exponential"]["train"], rel=1e-6)
    options = ["--stagewise", "--symmetrize", "and", "--full", "--false-discovery-rate", "none"]
    found = shell.json("fit", str(fitted / "rows.csv"), *ALL, *options)
    rows = CountTable.from_csv(fitted / "rows.csv")
    expected = fit_roots(rows, settings=RootSettings(stagewise=True, symmetrize="and"), full=True, refit="all")
    assert found["num_parameters"] == expected.structure.num_terms
    assert found["is_full"] is True and found["structure"] is None


def test_gaussian_columns_of_other_units(shell):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 0.8, 0.0], [0.0, 0.0, 1.0]])
    units = np.array([1e4, 2e5, 3e-3])
    frame = pd.DataFrame(x * units + 50 * units, columns=["mass", "price", "length"])
    frame.to_csv("units.csv", index=False)
    (frame / frame.std(ddof=0)).to_csv("scaled.csv", index=False)
    options = [*ALL, "--family", "gaussian", "--order", "2", "--l1", "0"]
    found, other = (shell.json("fit", name, *options) for name in ("units.csv", "scaled.csv"))
    expected = norm.logpdf(frame, frame.mean(), frame.std(ddof=0)).sum(1).mean()
    assert found["independent_pseudo_nll"]["train"] == pytest.approx(-expected, rel=1e-9)
    values = [{tuple(t["edge"]): t["standardised"] for t in each["interactions"]} for each in (found, other)]
    assert values[0] == pytest.approx(values[1], rel=1e-4, abs=1e-6)
    raw = {tuple(t["edge"]): t["coefficient"] for t in found["interactions"]}
    assert 0 < raw["mass", "price"] < 1e-8  # control: in its units it would print as nothing
    assert max(values[0], key=lambda edge: abs(values[0][edge])) == ("mass", "price")
    for told in (
        shell("fit", "units.csv", *options, "--out", "page").out,
        Path("page/report.html").read_text(encoding="utf-8"),
    ):
        assert "per standard deviation" in told
        assert "mass + price" in told.replace("−", "-")
        assert "+0.0000" not in told


def test_refits(fitted, shell):
    found = shell.json("fit", str(fitted / "rows.csv"), *ALL)
    assert found["refit"]["method"] == "all"
    assert found["refit"]["pseudo_nll"] <= found["refit"]["independent_pseudo_nll"]
    rows = CountTable.from_csv(fitted / "rows.csv")
    for words, refit in (([], "all"), (["--refit", "singles"], "singles"), (["--refit", "none"], "none")):
        found = shell.json("fit", str(fitted / "rows.csv"), *ALL, *words)
        expected = fit_roots(rows, refit=refit)
        assert found["pseudo_nll"]["train"] == pytest.approx(-float(expected.log_pseudo_prob(rows).mean()), rel=1e-9)
        assert (found["refit"] or {"method": "none"})["method"] == refit
    assert load_roots(Path(found["model"])).info["refit"] == "none"


def test_interactions_are_sorted_by_coefficient(fitted, shell):
    rows = shell.json("interactions", str(fitted / "out"))["interactions"]
    stored = load_roots(fitted / "out" / "model.safetensors")
    assert len(rows) == sum(len(names) > 1 for _, names in stored.structure.names)
    sizes = [abs(row["coefficient"]) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    index = {names: float(value) for (_, names), value in zip(stored.structure.names, stored.psi, strict=True)}
    for row in rows:
        assert (row["value"], row["order"]) == (pytest.approx(index[tuple(row["edge"])], rel=1e-12), len(row["edge"]))
    assert shell.json("interactions", str(fitted / "out"), "--top", "1")["interactions"] == rows[:1]
    assert ":".join(rows[0]["edge"]) in shell("interactions", str(fitted / "out"), "--top", "1").out


def test_interactions_of_real_numbers_do_not_depend_on_units(shell):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    x[:, 1] += x[:, 0]
    x[:, 2] += 0.5 * x[:, 1]
    rows = []
    for name, units in (("m", (1.0, 1.0, 1.0)), ("mm", (1000.0, 1.0, 0.01))):
        lines = [",".join(f"{value!r}" for value in line) for line in (x * units).tolist()]
        Path(f"{name}.csv").write_text("\n".join(["a,b,c", *lines]) + "\n")
        options = [*ALL, "--family", "gaussian", "--order", "2", "--l1", "0", "--out", name]
        shell("fit", f"{name}.csv", *options)
        rows.append(shell.json("interactions", name)["interactions"])
        text = shell("interactions", name).out
        assert "per SD" in text.splitlines()[0] and "in units of the columns" in text and "+0.0000" not in text
    first, second = rows
    assert [row["edge"] for row in first] == [row["edge"] for row in second] and len(first) == 3
    for one, other in zip(first, second, strict=True):
        assert one["standardised"] == pytest.approx(other["standardised"], rel=1e-4)
    # Control: the coefficients themselves carry the units.
    assert first[0]["coefficient"] != pytest.approx(second[0]["coefficient"], rel=0.5)
    sizes = [abs(row["standardised"]) for row in second]
    assert sizes == sorted(sizes, reverse=True)
    # A Gaussian's coefficient is minus an entry of the precision matrix; per standard deviation, that of correlations.
    precision = np.linalg.inv(np.corrcoef(x.T))
    for row in first:
        i, j = ("abc".index(name) for name in row["edge"])
        assert row["standardised"] == pytest.approx(-precision[i, j], rel=1e-3)


def test_rows_are_drawn(fitted, small, shell):
    arguments = ["sample", str(fitted / "out"), "-n", "40", "--given", "heat=2", "--seed", "1"]
    captured = shell(*arguments, "--method", "gibbs", "--burn-in", "20")
    assert "the rows are approximate" in captured.err
    Path("drawn.csv").write_text(captured.out)
    drawn = CountTable.from_csv("drawn.csv")
    assert (drawn.domain.names, drawn.num_rows, set(drawn.column("heat"))) == (tuple(NAMES), 40, {2.0})
    assert set(drawn.column("count_of_words")) == {0.0}
    assert shell(*arguments, "--method", "gibbs", "--burn-in", "20").out == captured.out
    assert "approximate" not in shell("sample", str(small / "out"), "-n", "10", "--out", "exact.csv").err
    assert CountTable.from_csv("exact.csv").to_array().max() <= 3


def test_prediction_is_the_conditional_mean(fitted, shell):
    arguments = ["predict", str(fitted / "out"), str(fitted / "rows.npz"), "--target", "wing"]
    found = shell.json(*arguments, "--out", "p.csv")
    stored = load_roots(fitted / "out" / "model.safetensors")
    analysis = analyse_roots(
        {"train": CountTable.from_csv(fitted / "rows.csv").split((0.6, 0.2, 0.2), 0)[0]},
        PoissonFamily(),
        l1=next(iter(stored.info["l1"].values())),
        pairwise=False,
    )
    expected = predict_roots(RootModel.from_fit(analysis.fit), CountTable.from_csv(fitted / "rows.csv"), "wing")
    assert found["rmse"] == pytest.approx(expected.rmse, rel=1e-6)
    assert found["log_loss"] == pytest.approx(expected.log_loss, rel=1e-6) and found["accuracy"] is None
    assert found["rows"] == 150
    frame = pd.read_csv("p.csv")
    assert frame["mean"].to_numpy() == pytest.approx(expected.mean, rel=1e-6)
    assert frame["wing"].tolist() == made_rows()[:, 2].tolist()
    pd.DataFrame(made_rows(), columns=NAMES).drop(columns="wing").to_csv("without.csv", index=False)
    without = shell.json("predict", str(fitted / "out"), "without.csv", "--target", "wing")
    assert (without["rows"], without["rmse"], without["predicted_rows"]) == (0, None, 150)
    assert without["mean_prediction"] == pytest.approx(found["mean_prediction"], rel=1e-9)


def test_scores_of_a_file(fitted, shell):
    pd.DataFrame({**{name: [0, 1] for name in reversed(NAMES)}, "other": [5, 5]}).to_csv("new.csv", index=False)
    found = shell.json("score", str(fitted / "out"), "new.csv")
    assert (found["rows"], found["impossible_rows"]) == (2, 1)
    assert found["pseudo_nll"] is None  # infinite
    assert "pseudo-NLL per row" in shell("score", str(fitted / "out"), str(fitted / "rows.csv")).out


def test_an_interrupted_run_is_continued(fitted, monkeypatch, shell):
    import pyro_hoim.generalized_root.command as module

    original = module.analyse_roots

    def interrupted(*arguments, **options):
        original(*arguments, **options)  # the checkpoints are complete, the report is not
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "analyse_roots", interrupted)
    arguments = ["fit", str(fitted / "rows.csv"), *ALL, "--out", "run"]
    shell(*arguments, status=130)
    assert sorted(path.name for path in Path("run/checkpoint").iterdir()) == [
        "lock", "roots-2.safetensors", "roots-3.safetensors", "run.json"
    ]  # fmt: skip
    monkeypatch.setattr(module, "analyse_roots", original)
    told = shell.refused(*arguments, "--l1", "0.02", "--resume", progress=True)
    assert "was started with no --l1, and received --l1 0.02" in told
    found = shell.json(*arguments, "--resume")
    whole = shell.json("fit", str(fitted / "rows.csv"), *ALL)
    assert found["pseudo_nll"] == whole["pseudo_nll"]
    assert "is complete" in shell.refused(*arguments, "--resume")


# Penalties


def test_words_of_penalties():
    assert (parse_l1(()), parse_l1(("auto",)), parse_l1(("0.01,0.1", "0"))) == ((0.01,), AUTO_L1, (0.1, 0.01, 0.0))
    for words, message in (
        (("x",), "expected a number, or auto, received 'x'"),
        (("2e6",), "expected a number from 0 to 1e\\+06"),
        (("0.1,",), "received nothing between two commas"),
        (("0.1", "auto"), "auto stands for 0.1, 0.05, 0.02, 0.01, 0.005 and takes no other"),
        *(((word,), "") for word in ("-1", "nan", "inf")),
        (("0.1", "0.10"), ""),
    ):
        with pytest.raises(InputError, match=f"l1.*{message}"):
            parse_l1(words)


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--l1", "much"], "--l1: expected a number, or auto, received 'much'"),
        (["--refit", "some"], "--refit: "),
        (["--false-discovery-rate", "2"], "--false-discovery-rate: expected a number between 0 and 1, or none"),
        (["--order", "5"], "--order: expected 1 to 4 (the number of columns), received 5"),
        (["--order", "0"], "--order: expected a whole number of at least 1"),
        (["--family", "binomial"], "--family: "),
        (["--family", "truncated-poisson"], "--maximum: --family truncated-poisson needs its largest count"),
        (["--maximum", "3"], "--maximum: belongs to --family truncated-poisson, received --family poisson"),
        (["--family", "truncated-poisson", "--maximum", "1"], "takes numbers from 0 to 1"),
        (["--vocab", "v.txt"], "--vocab: belongs to a .npz file"),
        (["--columns", "9"], "--columns: expected a number from 1 to 4"),
        (["--columns", "flow,hat"], "unknown column 'hat'"),
        (["--penalty", "l1:1"], "--penalty: belongs to --model log-linear or dependency-network, received --model grm"),
        (["--posterior"], "--posterior: belongs to --model log-linear, received --model grm"),
        (["--alpha", "2"], "--alpha: belongs to --model dependency-network, received --model grm"),
        (
            ["--target", "flow"],
            "--target: belongs to --model log-linear or dependency-network or rbm, received --model grm; fit without",
        ),
        (
            ["--missing", "drop"],
            "--missing: belongs to --model log-linear or dependency-network or rbm, received --model grm; fill empty",
        ),
        (["--resume", "--out", "none"], "--resume: none does not exist, so there is nothing to resume"),
    ],
)
def test_bad_options(options, message, fitted, shell):
    assert message in shell.refused("fit", str(fitted / "rows.csv"), *ALL, *options)


@pytest.mark.parametrize(
    "option",
    [["--family", "poisson"], ["--l1", "0.1"], ["--vocab", "v"], ["--maximum", "3"], ["--stagewise"], ["--full"]],
)
def test_options_of_grm_belong_to_it(option, shell):
    for other in ("log-linear", "dependency-network"):
        line = shell.refused("fit", "czech_autoworkers", "--model", other, *option)
        assert line == f"{option[0]}: belongs to --model grm, received --model {other}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3,-4\n", "bad.csv line 3, column 'b': expected a whole number from 0"),
        ("a,b\n1,2.5\n3,4\n", "bad.csv line 2, column 'b': expected a whole number"),
        ("a,b\n1,\n,4\n", "bad.csv: 2 empty cells in columns 'a', 'b'"),
        ("a,b\n1,few\n", "bad.csv line 2, column 'b': expected a number, received 'few'"),
        ("a,b\n1,1e300\n", "line 2, column 'b'"),
        ("a,a\n1,2\n", "'a' is repeated"),
        ("a,b\n", "header only"),
        ("a,count\n1,0\n", "expected at least one observation, received none"),
    ],
)
def test_bad_files(text, message, shell):
    Path("bad.csv").write_text(text)
    assert message in shell.refused("fit", "bad.csv", *ALL)


def test_bad_matrices(fitted, shell):
    sparse.save_npz("m.npz", sparse.csr_matrix(made_rows()))
    assert "m_vocab.txt" in shell.refused("fit", "m.npz", *ALL)
    Path("v.txt").write_text("a\nb\n")
    assert "v.txt: expected 4 names" in shell.refused("fit", "m.npz", *ALL, "--vocab", "v.txt")
    objects = np.array([{}], dtype=object)
    np.savez("o.npz", data=objects, format=np.array("csr"), shape=np.array([1, 1]), indices=[0], indptr=[0, 1])
    assert "o.npz: holds Python objects, which are never read" in shell.refused("fit", "o.npz", *ALL)
    Path("d.npz").write_bytes(Path("m.npz").read_bytes()[:200])
    assert "d.npz: damaged or no .npz file" in shell.refused("fit", "d.npz", *ALL)
    assert "no such file, nor one of the data sets of counts classic3" in shell.refused("fit", "none.npz", *ALL)
    assert "expected a FILE of counts" in shell.refused("fit", *ALL)
    assert "received the data set classic3" in shell.refused("fit", "classic3", *ALL, "--vocab", "v.txt")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sample", "MODEL", "-n", "1", "--given", "heat"], "--given: expected COL=VALUE"),
        (["sample", "MODEL", "-n", "1", "--given", "heat=x"], "--given: expected a number for 'heat', received 'x'"),
        (["sample", "MODEL", "-n", "1", "--given", "heat=0.5"], "--given: expected a whole number from 0 for 'heat'"),
        (["sample", "MODEL", "-n", "1", "--given", "heat=-1"], "--given: expected a whole number from 0 for 'heat'"),
        (["sample", "MODEL", "-n", "1", "--given", "hat=1"], "--given: unknown variable 'hat'"),
        (["sample", "MODEL", "-n", "1", "--given", "count_of_words=1"], "was 0 in all rows learned from"),
        (["sample", "MODEL", "-n", "1", "--complete", "ROWS"], "--complete: not for a generalized root model"),
        (["score", "MODEL", "ROWS", "--missing", "9"], "--missing: not for a generalized root model"),
        (["score", "MODEL", "ROWS", "--vocab", "v"], "--vocab: belongs to a .npz file"),
        (["score", "MODEL", "ROWS", "--num-chains", "20"], "--num-chains: belongs to --method ais"),
        (["score", "MODEL", "SHORT"], "the table lacks column 'wing'"),
        (["predict", "MODEL", "SHORT", "--target", "flow"], "the table lacks column 'wing'"),
        (["predict", "MODEL", "ROWS", "--target", "hat"], "--target: unknown variable 'hat'"),
        (["predict", "MODEL", "ROWS", "--target", "flow", "--method", "gibbs"], "--method: not for"),
        (["interactions", "MODEL", "--num-samples", "200"], "--num-samples: not for a generalized root model"),
        (["log-z", "MODEL", "--seed", "1"], "--seed: belongs to --method ais"),
    ],
)
def test_bad_use(words, message, fitted, shell):
    pd.DataFrame({"flow": [1], "heat": [0]}).to_csv("short.csv", index=False)
    paths = {"MODEL": str(fitted / "out"), "ROWS": str(fitted / "rows.csv"), "SHORT": "short.csv"}
    assert message in shell.refused(*[paths.get(word, word) for word in words])
