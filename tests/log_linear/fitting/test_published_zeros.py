"""Structural zeros in published tables.

Sources: squirrel monkeys, Stephen Fienberg, The Analysis of Cross-Classified Categorical Data, 2nd edition, 1980, table
8-2, fitted in SAS/STAT's example of PROC CATMOD "Log-Linear Model, Structural and Sampling Zeros" (likelihood ratio
135.17 on 15 degrees of freedom). Occupations of fathers and sons, Robert Hauser, 1979, as fitted in the vignette
"Mobility tables" of the R package vcdExtra (6170.1 on 16, 683.3 on 11, 27.4 on 6). Health concerns of teenagers, Ann
Brunswick, 1971, Fienberg's table 8-4. Fitted counts are those of R 4.2.2, with the degrees of freedom that its
``loglin`` does not correct for zeros::

    f <- loglin(table, margins, start = possible, fit = TRUE, print = FALSE, eps = 1e-12, iter = 100000)
    c(f$lrt, f$pearson); f$fit
"""

import numpy as np
import pytest

import pyro_hoim as hoim
from pyro_hoim import Domain, NonexistentEstimateWarning, Observations

MONKEYS = np.array(
    [[0, 1, 5, 8, 9, 0], [29, 0, 14, 46, 4, 0], [0] * 6, [2, 3, 1, 0, 38, 2], [0, 0, 0, 0, 0, 1], [9, 25, 4, 6, 13, 0]]
)
MONKEYS_FITTED = [
    [0, 5.25950838, 2.48072585, 8.2159484, 6.6480487, 0.39576868],
    [19.18599278, 0, 10.32171596, 34.1846262, 27.6609648, 1.6467002],
    [10.93639601, 12.47407167, 5.8835826, 0, 15.767298, 0.938651775],
    [0.21996582, 0.25089338, 0.11833762, 0.3919239, 0, 0.018879282],
    [9.6576454, 11.01552657, 5.19563798, 17.2075014, 13.9236886, 0],
]
HAUSER = np.array(
    [
        [1414, 521, 302, 643, 40],
        [724, 524, 254, 703, 48],
        [798, 648, 856, 1676, 108],
        [756, 914, 771, 3325, 237],
        [409, 357, 441, 1611, 1832],
    ]
)
HAUSER_FITTED = [
    [0, 344.0087, 285.54125, 811.49057, 64.959473],
    [419.43449, 0, 321.80532, 914.55079, 73.209399],
    [754.79347, 697.6824, 0, 1645.78014, 131.743996],
    [934.36593, 863.6676, 716.87934, 0, 163.087131],
    [578.40611, 534.6413, 443.77409, 1261.1785, 0],
]
CONCERNS = np.array([[[4, 0, 42, 57], [9, 4, 19, 71]], [[2, 0, 7, 20], [7, 8, 10, 31]]])  # age, sex, concern
CONCERNS_FITTED = {  # of the model of all pairs: by sex and concern, at both ages
    ("male", "sex"): (4.0265227, 1.9734773),
    ("female", "sex"): (8.9734773, 7.0265227),
    ("male", "menstrual"): (0, 0),
    ("female", "menstrual"): (4, 8),
    ("male", "health"): (39.8120926, 9.1879074),
    ("female", "health"): (21.1879074, 7.8120926),
    ("male", "nothing"): (59.161385, 17.838615),
    ("female", "nothing"): (68.838615, 33.161385),
}


def square(counts):
    names = [f"s{i}" for i in range(len(counts[0]))]
    domain = Domain.from_labels({"a": names[: len(counts)], "b": names})
    return Observations.from_table(domain, np.asarray(counts, dtype=float))


def diagonal(rows):
    return [{"a": name, "b": name} for name in set(rows.domain["a"].labels) & set(rows.domain["b"].labels)]


def fitted(result):
    return result.num_rows * result.probs.numpy().reshape(result.hypergraph.domain.cardinalities)


def test_squirrel_monkeys_show_others_as_in_sas_and_r():
    everyone = square(MONKEYS)
    with pytest.warns(NonexistentEstimateWarning, match="never observed: .*a=s2"):
        result = hoim.fit("a + b", everyone, structural_zeros=diagonal(everyone))
    found = hoim.goodness_of_fit(result, p_value=None)
    assert round(found.deviance, 2) == 135.17 and found.pearson == pytest.approx(168.045492, abs=1e-5)
    assert (found.df_adjusted, found.df) == (15, 19)  # the monkey that showed no other takes its row of five cells
    np.testing.assert_allclose(np.delete(fitted(result), 2, 0), MONKEYS_FITTED, atol=1e-5)
    # Without that monkey, as SAS fits the table.
    domain = Domain.from_labels({"a": ["s0", "s1", "s3", "s4", "s5"], "b": everyone.domain["b"].labels})
    others = Observations.from_table(domain, np.delete(MONKEYS, 2, 0).astype(float))
    result = hoim.fit("a + b", others, structural_zeros=diagonal(others))
    found = hoim.goodness_of_fit(result, p_value=None)
    assert (round(found.deviance, 2), found.df, found.df_adjusted, result.status) == (135.17, 15, 15, "converged")
    np.testing.assert_allclose(fitted(result), MONKEYS_FITTED, atol=1e-5)


def test_occupations_of_fathers_and_sons_as_in_vcdextra_and_r():
    rows = square(HAUSER)
    apart = square(HAUSER * (1 - np.eye(5)))
    models = {
        (6170.1, 16): hoim.fit("a + b", rows),
        (683.3, 11): hoim.fit("a + b", apart, structural_zeros=np.eye(5, dtype=bool)),
        (27.4, 6): hoim.fit("a + b + symmetric(a, b)", rows),
    }
    for (deviance, df), result in models.items():
        found = hoim.goodness_of_fit(result, p_value=None)
        assert (round(found.deviance, 1), found.df) == (deviance, df)
    quasi = models[683.3, 11]
    np.testing.assert_allclose(fitted(quasi), HAUSER_FITTED, rtol=1e-6)
    # Symmetric interactions beside impossible cells of their own fit them as whole tables do.
    both = hoim.goodness_of_fit(
        hoim.fit("a + b + symmetric(a, b)", apart, structural_zeros=diagonal(apart)), p_value=None
    )
    assert (round(both.deviance, 1), both.df) == (27.4, 6)
    # The control: as observed zeros the diagonal counts.
    assert hoim.goodness_of_fit(hoim.fit("a + b", apart), p_value=None).deviance > 5000


@pytest.mark.parametrize(
    ("formula", "deviance", "df"),
    [
        ("(age + sex + concern)^2", 2.026533597, 2),
        ("age*concern + sex*concern", 4.85800739, 3),
        ("age*sex + sex*concern", 9.42601008, 5),
        ("age*sex + age*concern", 13.44726059, 4),
        ("age*sex + concern", 22.02472183, 7),
    ],
)
@pytest.mark.parametrize("way", ["dense", "backend"])
def test_health_concerns_of_teenagers_as_in_r(formula, deviance, df, way):
    """Boys have no menstrual problems."""
    concerns = ["sex", "menstrual", "health", "nothing"]
    domain = Domain.from_labels({"age": ["12-15", "16-17"], "sex": ["male", "female"], "concern": concerns})
    rows = Observations.from_table(domain, CONCERNS.astype(float))
    options = {}
    if way == "backend":
        options = {"partition": hoim.log_linear.Auto(), "stopping": hoim.log_linear.Stopping(tolerance=1e-10)}
    result = hoim.fit(formula, rows, structural_zeros=[{"sex": "male", "concern": "menstrual"}], **options)
    found = hoim.goodness_of_fit(result, p_value=None)
    assert result.status == "converged"
    assert found.deviance == pytest.approx(deviance, abs=1e-6) and (found.df, found.df_adjusted) == (df, df)
    if formula.endswith("^2"):
        for (sex, concern), counts in CONCERNS_FITTED.items():
            place = (slice(None), domain["sex"].code(sex), domain["concern"].code(concern))
            laws = hoim.log_linear.Auto().log_marginal(result.model, domain.names).exp().numpy()
            np.testing.assert_allclose(result.num_rows * laws[place], counts, atol=1e-5)
