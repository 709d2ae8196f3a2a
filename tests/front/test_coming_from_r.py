"""What the page for users of R advises runs: every span of code of its tables and lists that calls the library."""

import re
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import pyro_hoim as hoim

PAGE = (Path(__file__).parents[2] / "docs" / "coming_from_r.md").read_text(encoding="utf-8")
ANSWERS = [line.split("|")[2] for line in PAGE.splitlines() if line.startswith("|")]
ADVICE = dict.fromkeys(span for answer in ANSWERS for span in re.findall(r"`([^`]+)`", answer))
CALLS = [span for span in ADVICE if re.match(r"(result = )?(hoim|result)\.", span)]


def test_the_page_advises_calls():
    assert len(CALLS) > 15 and {span for span in ADVICE if "(" in span} == set(CALLS)


@pytest.mark.parametrize("call", CALLS)
def test_advice_runs(call):
    mpl.use("Agg")
    random = np.random.default_rng(0)
    df = pd.DataFrame({name: random.choice(["1", "2", "3"], 300) for name in "ab"})
    df["c"] = random.choice(["u", "v"], 300)
    named: dict[str, object] = {"hoim": hoim, "df": df, "other": hoim.fit("a + b + c", df)}
    named["result"] = hoim.fit("a*b + c", df)
    if "missing" in call or "impute" in call:
        named["df"] = df.mask(random.random(df.shape) < 0.05)
    elif "weights" in call or "clusters" in call:
        village = random.integers(0, 30, 300)
        named["df"] = df.assign(weight=random.gamma(2, 1, 300), village=village, region=village % 3)
    with warnings.catch_warnings(action="ignore"):
        exec(f"answer = {call.removeprefix('result = ')}", named)
    assert named["answer"] is not None
