"""Names, counts and numbers as a reader sees them."""

import math

import pytest

from pyro_hoim.core.words import (
    elpd_sentence,
    fixed,
    gain_sentence,
    listed,
    literal,
    plural,
    short_edge,
    short_labels,
    shorten,
)


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (-1e-9, 4, "0.0000"),
        (-0.00004, 4, "0.0000"),
        (-0.00006, 4, "-0.0001"),
        (-0.04, 1, "0.0"),
        (-0.0, 3, "0.000"),
        (-12.34, 1, "-12.3"),
        (1234567.25, 1, "1234567.2"),
        (math.inf, 4, "inf"),
    ],
)
def test_what_rounds_to_zero_has_no_minus_sign(value, digits, shown):
    assert fixed(value, digits) == shown


def test_signs_on_request():
    assert [fixed(v, 4, sign=True) for v in (-1e-9, 1e-9, -0.5, 0.5)] == ["+0.0000", "+0.0000", "-0.5000", "+0.5000"]


def test_counts_and_nouns_agree():
    assert [plural(n, "row") for n in (0, 1, 2, 1200, 1.5)] == ["0 rows", "1 row", "2 rows", "1,200 rows", "1.5 rows"]
    assert plural(3, "matrix", "matrices") == "3 matrices" and plural(1, "matrix", "matrices") == "1 matrix"


def test_shortened_text_keeps_both_ends():
    name = "how satisfied are you with the food that you were given"
    for width in (1, 2, 3, 5, 20, 54):
        short = shorten(name, width)
        assert width - 2 <= len(short) <= width and short.count("…") == 1 and name.startswith(short.split("…")[0])
        assert name.endswith(short.split("…")[1])
    assert shorten(name, len(name)) == name


def test_labels_stay_apart():
    names = [f"a question with a long beginning ({k}) and the same long end" for k in range(30)]
    labels = short_labels([*names, "age"], 20)
    assert list(labels) == [*names, "age"] and len(set(labels.values())) == 31 and labels["age"] == "age"
    assert max(map(len, labels.values())) <= 20


def test_edges_shorten_their_longest_names_first():
    assert short_edge(["ab", "cd"], 44) == "ab:cd"
    shown = short_edge(["a" * 90, "short", "c" * 90], 44)
    assert len(shown) <= 44 and shown.split(":")[1] == "short"
    assert len(short_edge(["x" * 30] * 12, 20)) == 12 * 4 + 11  # four characters each, whatever the width


def test_lists_of_names():
    assert listed(["a"]) == "a" and listed(["a", "b"]) == "a, b"
    assert listed([f"v{i}" for i in range(9)]) == "v0, v1, v2, v3, v4, v5 and 3 more"


def test_dollars_are_no_formula():
    assert literal("a $x$ b") == r"a \$x\$ b"


@pytest.mark.parametrize(
    ("differences", "errors", "named"),
    [
        ([0, 7.3], [0, 5.0], "b"),
        ([0, 7.3, 40.0], [0, 5.0, 9.0], "b"),
        ([0, 7.3, 10.0], [0, 1.0, 9.0], "c"),
        ([0, 7.3, 10.0], [0, 5.0, 9.0], "b, c"),
        ([0, 7.3], [0, math.nan], "b"),
    ],
)
def test_a_model_is_not_called_best_within_two_standard_errors(differences, errors, named):
    shown = elpd_sentence(["a", "b", "c"][: len(errors)], differences, errors)
    assert "best" not in shown and "that of b is 7.3 nats lower (standard error " in shown
    assert shown.endswith(f"not told apart by these rows: {named}.")


def test_a_model_is_called_best_beyond_two_standard_errors():
    assert elpd_sentence(["a", "b", "c"], [0, 10.2, 30], [0, 5, 9]) == (
        "By leave-one-out cross-validation it predicts new observations best: the elpd of b is 10.2 nats lower "
        "(standard error 5); every difference is more than two standard errors."
    )


def test_a_gain_without_an_end_is_named_by_its_cause():
    begin = "On the test rows the model has no finite gain over independent columns: some row has probability 0 under "
    for gain, whom in (
        (-math.inf, "the model"),
        (math.inf, "independent columns"),
        (None, "the model and independent columns"),
    ):
        assert gain_sentence("test", "model", gain, None) == f"{begin}{whom}."
    ours = gain_sentence("train", "model", 0.5, None)
    assert ours.startswith("On the train rows the model gains 0.500 nats per row over independent columns. These are")
