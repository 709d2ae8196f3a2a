"""The number of parameters is the same on every page of every command: the one that df, AIC and BIC count."""

import json
import re
from math import log
from pathlib import Path

import numpy as np
import pytest


def table(path, empty):
    """Three columns: b follows a, c follows b; with ``empty`` no row has a = 2 and b = 1 together."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 2000)
    b = np.where(rng.random(2000) < 0.2, 1 - a % 2, a % 2)
    b[(a == 2) & empty] = 0
    c = np.where(rng.random(2000) < 0.2, 1 - b, b)
    path.write_text("a,b,c\n" + "".join(f"{x},{y},{z}\n" for x, y, z in zip(a, b, c, strict=True)), encoding="utf-8")
    return str(path)


@pytest.mark.filterwarnings("ignore::pyro_hoim.errors.NonexistentEstimateWarning")
@pytest.mark.parametrize("empty", [True, False])
def test_every_command_counts_the_parameters_that_the_rows_identify(shell, empty):
    file = table(Path("rows.csv"), empty)
    # 2 + 1 + 1 single variables, 2 of a:b and 1 of b:c; the empty combination of a and b takes one away, and two cells.
    family, identified, cells = 7, 7 - empty, 12 - 2 * empty

    page = shell("fit", file, "--edges", "a*b + b*c", "--out", "fit").out
    text = shell("learn", file, "--out", "learned").out
    fitted, learned = (json.loads(Path(name, "fit.json").read_text(encoding="utf-8")) for name in ("fit", "learned"))
    (record,) = fitted["models"]
    assert fitted["num_parameters"] == record["num_parameters"] == identified
    assert fitted["goodness_of_fit"]["df"] == record["df"] == cells - 1 - identified
    assert record["aic"] == pytest.approx(2 * identified - 2 * record["log_likelihood"], rel=1e-12)
    assert record["bic"] == pytest.approx(log(2000) * identified - 2 * record["log_likelihood"], rel=1e-12)
    assert f"with {identified} free parameters" in page

    assert [edge for edge in learned["edges"] if len(edge) > 1] == [["a", "b"], ["b", "c"]]
    assert (learned["num_parameters"], learned["num_parameters_family"]) == (identified, family)
    assert all("num_parameters" not in entry for entry in learned["selection"]["rounds"])
    words = (
        "6 parameters that the rows identify (7 of the family), estimated" if empty else "with 7 parameters, estimated"
    )
    assert words in text

    for folder, shown in (("fit", f"{identified} free parameters"), ("learned", words)):
        html = re.sub(r'src="data:[^"]*"', "", Path(folder, "report.html").read_text(encoding="utf-8"))
        assert shown in html
        assert "num_parameters" not in shell.json("score", folder, file)
