"""``structures``: what it prints, writes and shows, awkward tables, and runs that are killed."""

import json
import re
import signal
from pathlib import Path
from unittest.mock import Mock

import forkserver
import joblib
import numpy as np
import pytest
from command_line import kill

from pyro_hoim import Observations
from pyro_hoim.cli import run
from pyro_hoim.inference import StructurePrior, enumerate_structures, load_structure_posterior
from pyro_hoim.log_linear import Auto, Enumeration, MatrixEnumeration, VariableElimination, load_model
from pyro_hoim.study.structures import record_structures

TABLE = "a,b,c,count\nx,0,u,14\nx,1,u,3\ny,0,u,4\ny,1,u,9\nx,0,v,12\nx,1,v,5\ny,0,v,3\ny,1,v,11\n"
SHORT = ("--num-chains", "2", "--num-draws", "40", "--burn-in", "10")
SECTIONS = ("Which interactions exist", "Most probable models", "Other priors", "Averaged cells")


@pytest.fixture
def table():
    Path("t.csv").write_text(TABLE, encoding="utf-8")
    return "t.csv"


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Leave-one-out from fewer draws, half of the time of a command; tests of studies judge it."""

    def recorded(posterior, route, num_chains, num_draws, **options):
        return record_structures(posterior, route, 2, 50, **options)

    monkeypatch.setattr("pyro_hoim.study.command.structures.record_structures", recorded)


def probabilities(found):
    return {":".join(line["edge"]): line["probability"] for line in found["structure_posterior"]["inclusion"]}


def law_of(source, **options):
    rows = Observations.from_csv(source)
    return rows, StructurePrior(rows.domain, **options)


# What comes out


def test_published_numbers_and_the_file(shell):
    options = ("--space", "decomposable", "--prior", "conjugate:1", "--out", "out")
    found = shell.json("structures", "czech_autoworkers", *options)
    told = found["structure_posterior"]
    assert (told["method"], told["is_exact"], told["status"], told["max_r_hat"]) == ("list", True, "exact", None)
    assert told["models"][0]["probability"] == pytest.approx(0.2489, abs=1e-4)
    assert probabilities(found)["phys:protein"] == pytest.approx(0.743, abs=1e-3)
    assert found["edges"] == told["models"][0]["edges"] and found["prior"] == "conjugate:1"
    assert load_model("out/model.safetensors").info["prior"] == "conjugate:1"
    posterior = load_structure_posterior(told["file"])
    assert posterior.inclusion.mean.tolist() == [line["probability"] for line in told["inclusion"]]
    assert [list(edge) for edge in posterior.models(1)[0].hypergraph.edges] == found["edges"]
    assert sum(model["stacking_weight"] for model in told["models"]) == pytest.approx(1)
    assert len(told["models"]) == 5 and all(-6800 < model["elpd_loo"] < -6600 for model in told["models"])
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert all(title in page for title in SECTIONS) and "Where the chains disagree" not in page
    documented = set(re.findall(r"`(\w+)`", (Path(__file__).parents[2] / "docs/api/cli.md").read_text("utf-8")))
    for keys in (found, told, told["inclusion"][0], told["models"][0], told["other_priors"][0]):
        assert {key for key in keys if not key.endswith("_std_error")} <= documented, set(keys) - documented
    assert json.loads(Path("out/fit.json").read_text()) == json.loads(json.dumps(found).replace('"out/', '"'))


def test_a_list_and_other_priors_are_those_of_enumeration(shell, table):
    found = shell.json("structures", table, "--inclusion", "beta:1,2", "--out", "out")
    rows, law = law_of(table, inclusion=("beta", 1.0, 2.0))
    told = found["structure_posterior"]
    assert [other["prior"] for other in told["other_priors"]] == ["unit:0.25", "unit", "unit:4"]
    for other in told["other_priors"]:
        expected = enumerate_structures(rows, other["prior"], law).inclusion.mean
        assert other["inclusion"] == pytest.approx(expected.tolist(), abs=1e-12)
    assert told["evidence_method"] == "laplace" and told["status"] == "approximate" and not told["is_exact"]
    assert told["other_priors"][0]["inclusion"] != pytest.approx(told["other_priors"][2]["inclusion"], abs=0.01)
    plain = shell.json("structures", table, "--out", "plain")
    assert probabilities(plain)["b:c"] > probabilities(found)["b:c"]  # control: the beta law is at work


def test_orders_and_spaces(shell, table):
    for options, number in ((["--max-order", "2"], 8), (["--space", "pairwise"], 8), (["--space", "hierarchical"], 9)):
        found = shell.json("structures", table, *options, "--out", f"o{options[0][2]}{options[1]}")
        assert found["structure_posterior"]["num_collections"] == number


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_chains_where_they_are_asked_for_and_where_no_list_is_possible(shell, table):
    found = shell.json("structures", table, "--num-draws", "2000", "--out", "chains")
    told = found["structure_posterior"]
    assert told["method"] == "chains" and told["status"] in ("converged", "unconverged") and told["max_r_hat"] >= 1
    expected = enumerate_structures(*[law_of(table)[0], "unit"]).inclusion
    for line in told["inclusion"]:
        assert line["mcse"] > 0 and line["probability"] == pytest.approx(expected[line["edge"]], abs=6 * line["mcse"])
    page = Path("chains/report.html").read_text(encoding="utf-8")
    assert "Where the chains disagree" in page and "chain 4" in page and "effective draws" in page
    large = shell.json("structures", "czech_autoworkers", *SHORT, "--out", "large")  # 7,785,062
    assert large["structure_posterior"]["method"] == "chains" and len(large["structure_posterior"]["inclusion"]) == 57
    captured = shell("structures", table, *SHORT, "--out", "text")
    assert "The collections are draws of Markov chains. Prior: unit. Evidence: Laplace's approximation." in captured.out


def test_junction_trees_where_graphs_are_too_many_to_list(shell):
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 60)
    columns = [first, np.where(rng.random(60) < 0.9, first, 1 - first), *rng.integers(0, 2, (5, 60))]
    lines = [",".join("abcdefg"), *(",".join(map(str, row)) for row in np.stack(columns, 1))]
    Path("seven.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ["--space", "decomposable", "--prior", "conjugate:1", "--max-order", "2"]
    found = shell.json("structures", "seven.csv", *options, "--out", "out")
    told = found["structure_posterior"]
    assert (told["method"], told["is_exact"], told["status"]) == ("junction-trees", True, "exact")
    assert probabilities(found)["a:b"] > 0.99 and told["inclusion"][0]["mcse"] < 0.01 and told["max_r_hat"] is None
    assert all(other["num_effective"] > 100 for other in told["other_priors"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_processes_change_no_draw(shell, table):
    first, second = (shell.json("structures", table, *SHORT, "--jobs", n, "--out", f"jobs{n}") for n in "12")
    told = [{**found["structure_posterior"], "file": ""} for found in (first, second)]
    assert told[0] == told[1] and told[0]["method"] == "chains"


# Interrupted runs

LONG = ["--prior", "unit", "--num-chains", "2", "--num-draws", "2500", "--burn-in", "10"]
WHOLE = []  # what a run that nobody disturbed says
OFTEN = "from pyro_hoim.runs.checkpoint import RunFile; RunFile.SECONDS = 0.0; "


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_killed_run_is_resumed(how, shell, table):
    options = ["structures", table, *LONG, "--out"]
    kill([*options, "broken"], Path("broken/checkpoint/structures.safetensors"), how, OFTEN)
    assert not Path("broken/fit.json").exists()
    assert "--resume" in shell.refused(*options, "broken")
    wider = ["unit:2" if word == "unit" else word for word in options]
    told = shell.refused(*wider, "broken", "--resume", progress=True)
    assert "--resume: the run in broken was started with --prior unit, and received --prior unit:2" in told
    told = shell.refused(*options, "broken", "--resume", "--inclusion", "0.3", progress=True)
    assert "was started with no --inclusion, and received --inclusion 0.3" in told
    Path("t.csv").write_text(TABLE.replace("14", "15"), encoding="utf-8")
    told = shell.refused(*options, "broken", "--resume", progress=True)
    assert "--resume: the run in broken was started with other rows" in told
    Path("t.csv").write_text(TABLE, encoding="utf-8")
    shell(*options, "broken", "--resume")
    shell(*options, "whole")
    broken, whole = (json.loads(Path(name, "fit.json").read_text()) for name in ("broken", "whole"))
    assert broken["structure_posterior"] == {
        **whole["structure_posterior"],
        "file": broken["structure_posterior"]["file"],
    }
    one, two = (load_structure_posterior(f"{name}/structures.safetensors") for name in ("broken", "whole"))
    assert one.index is not None and two.index is not None and bool((one.index == two.index).all())
    assert not Path("broken/checkpoint").exists()


MOMENTS = {
    "pyro_hoim.inference.structure.chains._Walk.advance": 1,  # before there is a checkpoint
    "pyro_hoim.runs.checkpoint.RunFile.write": 3,
    "pyro_hoim.study.structures._left_out": 1,
    "pyro_hoim.study.analysis.fit": 1,
    "pyro_hoim.cli.commands.fit.write_page": 1,
    "pyro_hoim.study.analysis.save_structure_posterior": 1,
    "pyro_hoim.cli.commands.fit.keep_split": 1,
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment(moment, shell, table):
    options = ["structures", table, *SHORT, "--out"]
    place, name = moment.rsplit(".", 1)
    program = f"""
import os, signal, pkgutil
from pyro_hoim.cli import main
from pyro_hoim.runs.checkpoint import RunFile
RunFile.SECONDS = 0.0
place = pkgutil.resolve_name({place!r})
calls, before = [], place.{name}
def killing(*args, **kwargs):
    calls.append(1)
    if len(calls) == {MOMENTS[moment]}:
        os.kill(os.getpid(), signal.SIGKILL)
    return before(*args, **kwargs)
place.{name} = killing
main({[*options, "broken"]!r})
"""
    process = forkserver.start(program, Path("output"))
    process.join(240)
    assert process.exitcode == -signal.SIGKILL
    assert not Path("broken/fit.json").exists()
    shell(*options, "broken", "--resume")
    broken = json.loads(Path("broken/fit.json").read_text())["structure_posterior"]
    if not WHOLE:
        shell(*options, "whole")
        WHOLE.append(json.loads(Path("whole/fit.json").read_text())["structure_posterior"])
    assert {**broken, "file": ""} == {**WHOLE[0], "file": ""}


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.ConvergenceWarning")
def test_a_run_in_processes_is_resumed_with_any_number_of_jobs(shell, table, monkeypatch):
    options = ["structures", table, *SHORT, "--out"]

    monkeypatch.setattr(joblib, "Parallel", forkserver.Parallel)
    with monkeypatch.context() as patched:
        interrupted = Mock(side_effect=KeyboardInterrupt)
        patched.setattr("pyro_hoim.study.command.structures.record_structures", interrupted)
        assert run([*options, "broken", "--jobs", "2"]) == 130
    names = [f"structures-chain-{k}.safetensors" for k in range(2)]
    assert all(Path("broken/checkpoint", name).exists() for name in names)
    Path("broken/checkpoint", names[1]).unlink()
    told = shell.refused(*options, "broken", "--resume", "--prior", "unit:2", progress=True)
    assert "was started with --prior unit, and received --prior unit:2" in told
    shell(*options, "broken", "--resume")
    shell(*options, "whole")
    broken, whole = (json.loads(Path(n, "fit.json").read_text())["structure_posterior"] for n in ("broken", "whole"))
    assert {**broken, "file": ""} == {**whole, "file": ""}


# Bad input

INCLUSION = "--inclusion: expected a probability between 0 and 1, or beta:A,B"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--edges", "a*b"], "--edges: belongs to pyro-hoim fit"),
        (["--posterior"], "--posterior: belongs to pyro-hoim fit"),
        *((["--inclusion", word], INCLUSION) for word in ("0", "1", "-0.2", "nan", "often", "beta:1", "beta:1,0")),
        (["--inclusion", "beta:1e308,1e308"], "--inclusion: expected a positive finite number"),
        (["--prior", "normal:1e-300"], "--prior: expected a number from 1e-15 to 1e+15"),
        (["--prior", "none"], "--prior: a posterior needs a proper prior, received none"),
        (["--prior", "conjugate:0"], "--prior: expected none, unit, normal:S"),
        (["--prior", "conjugate:1"], "add --space decomposable, or use unit or normal:S"),
        (["--space", "cyclic"], "--space: 'cyclic' is not one of"),
        (["--space", "pairwise", "--max-order", "3"], "space='pairwise' has pairs alone, received 3"),
        (["--max-order", "4"], "--max-order: expected"),
        (["--max-order", "1"], "--max-order: expected"),
        (["--num-chains", "1"], "--num-chains: expected at least 2"),
        (["--jobs", "0"], "--jobs: expected a whole number from 1 to 256"),
        (["--split", "0.5,0.5,0"], "--split: structures has no use for validation rows"),
        (["--model", "grm"], "--model: belongs to pyro-hoim fit"),
    ],
)
def test_one_clear_error(options, message, shell, table):
    assert message in shell.refused("structures", table, *options, "--out", "out")


@pytest.mark.parametrize("options", [[], ["--space", "pairwise"], ["--space", "decomposable"]])
def test_tables_too_large_for_the_evidence(options, shell):
    names = [f"v{i}" for i in range(13)]
    Path("wide.csv").write_text("\n".join(",".join(line) for line in (names, "0" * 13, "1" * 13)) + "\n", "utf-8")
    told = shell.refused("structures", "wide.csv", *options, "--out", "out")
    assert "--columns: the evidence of a collection is a sum over a table of up to 4,096 cells" in told
    assert "received 8192 cells" in told and "--space decomposable with --prior conjugate:1" in told


def test_a_collection_too_large_for_a_fit_is_refused_before_it_is_compared(shell, table, monkeypatch):
    small = {"enumeration": Enumeration(max_states=2), "matrix": MatrixEnumeration(max_entries=2)}
    tiny = Auto(**small, elimination=VariableElimination(max_cells=2, max_slices=1))
    monkeypatch.setattr("pyro_hoim.study.command.structures.Auto", lambda: tiny)
    told = shell("structures", table, "--out", "out", status=2).err
    assert told.count("\n") == 1 and told.startswith("pyro-hoim: error: ")
    assert "the fit of the most probable collection" in told and "use fewer --columns, or a lower --max-order" in told
    path = Path("out/structures.safetensors")  # what was found is kept
    assert f"{path} holds the posterior" in told and not Path("out/fit.json").exists()
    assert load_structure_posterior(path).models(2) == enumerate_structures(*law_of(table)[:1]).models(2)


@pytest.mark.parametrize("options", [["--space", "graphical"], ["--inclusion", "0.3"]])
def test_options_without_the_posterior(options, shell, table):
    told = shell.refused("fit", table, *options, "--out", "out")
    assert f"{options[0]}: belongs to pyro-hoim structures" in told


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("a,b,count\nx,0,0\ny,1,0\n", [], "at least one observation"),
        ("a,b\n", [], "t"),
        ("a,b,count\nx,0,2.5\ny,1,3.5\n", [], "expected a non-negative whole number, received '2.5'"),
        ("a,b\nx,0\ny,\nx,1\n", [], "pass --missing drop"),
        ("a,b\nx,0\ny,\nx,1\n", ["--missing", "marginalise"], "not together with structures"),
    ],
)
def test_rows_that_are_refused(content, options, message, shell):
    Path("t.csv").write_text(content, encoding="utf-8")
    assert message in shell.refused("structures", "t.csv", *options, "--out", "out")


# Awkward tables with an exact answer


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("a\nx\ny\nx\n", {}, id="one variable"),
        pytest.param("a,b\nx,0\ny,0\nx,0\n", {"a:b": 0.5}, id="one level: nothing is learned"),
        pytest.param("a,b,count\nx,0,30\ny,1,40\n", None, id="identical columns"),
        pytest.param("a,b\nx,0\n", {"a:b": 0.5}, id="one row"),
    ],
)
def test_awkward_tables(content, expected, shell):
    Path("t.csv").write_text(content, encoding="utf-8")
    found = shell.json("structures", "t.csv", "--out", "out")
    if expected is None:
        rows, _ = law_of("t.csv")
        expected = {"a:b": enumerate_structures(rows).inclusion["a", "b"]}
    assert probabilities(found) == pytest.approx(expected, abs=1e-12)
    assert all(title in Path("out/report.html").read_text(encoding="utf-8") for title in SECTIONS[:2])
    has_loo = found["structure_posterior"]["models"][0]["elpd_loo"] is not None
    assert has_loo is (content != "a,b\nx,0\n") is (found["structure_posterior"]["loo_missing"] is None)


@pytest.mark.parametrize("prior", ["normal:0.001", "normal:1000", "unit:1000", "ridge:1"])
def test_narrow_and_wide_priors(prior, shell, table):
    found = shell.json("structures", table, "--prior", prior, "--out", "out")
    expected = enumerate_structures(law_of(table)[0], prior).inclusion.mean
    assert list(probabilities(found).values()) == pytest.approx(expected.tolist(), abs=1e-12)
    if prior == "normal:0.001":
        law = law_of(table)[1]  # theta stays at zero, so the rows tell nothing of the interactions
        assert list(probabilities(found).values()) == pytest.approx(law.marginal_inclusion.tolist(), abs=1e-3)


def test_missing_cells_are_dropped_where_asked_for(shell):
    Path("t.csv").write_text(TABLE.replace("x,0,u,14", "x,0,u,14\n,0,u,3"), encoding="utf-8")
    found = shell.json("structures", "t.csv", "--missing", "drop", "--out", "out")
    Path("whole.csv").write_text(TABLE, encoding="utf-8")
    assert found["dropped_rows"] == 3
    expected = enumerate_structures(law_of("whole.csv")[0]).inclusion.mean
    assert list(probabilities(found).values()) == pytest.approx(expected.tolist(), abs=1e-12)


def test_target_and_test_rows_are_scored(shell, table):
    found = shell.json("structures", table, "--split", "0.8,0,0.2", "--target", "b", "--out", "out")
    assert found["accuracy"]["test"]["rows"] == found["rows"]["test"] > 0
