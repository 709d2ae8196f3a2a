"""UAI files against a reader that enumerates: models, evidence and results, in and out, and files that are wrong."""

import io
import math
import re
import sys

import numpy as np
import pytest
import torch

from pyro_hoim import AnnealedImportance, Auto, Domain, InteractionHypergraph, LogLinearEnergy, load
from pyro_hoim.data.files.uai import is_uai
from pyro_hoim.errors import InputError, InputTypeError, IntractableError, ModelFileError
from pyro_hoim.interop import (
    UaiResult,
    read_uai,
    read_uai_evidence,
    read_uai_result,
    write_uai_evidence,
    write_uai_result,
)

from support.uai_problems import PROBLEMS, enumerated, odd, parsed, text_of


def _read(text, **limits):
    return read_uai(io.BytesIO(text.encode()), **limits)


def _conditioned(problem):
    model = _read(problem.text)
    rest, constant = model.condition({f"x{i}": level for i, level in problem.evidence.items()})
    return model, rest, float(constant)


@pytest.mark.parametrize("name", PROBLEMS)
def test_log_z_marginals_and_mode_are_those_of_enumeration(name):
    total, margins, largest = enumerated(PROBLEMS[name])
    model, rest, constant = _conditioned(PROBLEMS[name])
    assert float(Auto().log_partition(rest).value) + constant == pytest.approx(math.log(total), abs=1e-12)
    for variable in rest.domain.names:
        found = Auto().marginal(rest, [variable]).tolist()
        assert found == pytest.approx(margins[model.domain.index(variable)], abs=1e-12)
    state, value = Auto().mode(rest)
    assert float(value) + constant == pytest.approx(math.log(largest), abs=1e-12)
    assert float(-rest.energy(state)) == pytest.approx(float(value), abs=1e-12)


@pytest.mark.parametrize("name", ["wide grid with zeros", "noisy or", "three groups", "a face that is no table"])
def test_annealed_estimates_of_problems_with_zeros_hold_z_within_their_errors(name):
    total, _, _ = enumerated(PROBLEMS[name])
    _, rest, constant = _conditioned(PROBLEMS[name])
    estimate = AnnealedImportance(num_chains=256, num_temperatures=100, seed=3).log_partition(rest)
    distance = abs(float(estimate.value) + constant - math.log(total))
    assert estimate.verdict != "unreliable" and distance < 4 * float(estimate.std_error) + 1e-9


def test_many_odd_files_have_the_z_of_enumeration():
    for seed in range(100, 140):
        problem = odd(seed)
        total, _, _ = enumerated(problem)
        _, rest, constant = _conditioned(problem)
        log_z = float(Auto().log_partition(rest).value) + constant
        assert log_z == (-math.inf if total == 0 else pytest.approx(math.log(total), abs=1e-11))


def test_the_last_variable_changes_fastest():
    weights = np.arange(6.0).reshape(2, 3)
    model = _read(text_of([2, 3], [((0, 1), weights)]))
    assert model.tables.exp().tolist() == pytest.approx(weights.ravel().tolist(), abs=1e-14)
    swapped = _read(text_of([2, 3], [((1, 0), weights.T)]))
    assert torch.equal(swapped.tables, model.tables)
    # Control: the first one fastest is another law.
    assert not torch.equal(_read(text_of([2, 3], [((0, 1), weights.ravel(order="F"))])).tables, model.tables)


def test_constants_and_repeated_factors_are_in_z():
    model = _read("MARKOV 2 2 1 3  0  1 0  1 0  1 5  2 1 2  2 3 4")
    assert model.hypergraph.edges == (("x0",),)
    assert float(Auto().log_partition(model).value) == pytest.approx(math.log(5 * (1 * 3 + 2 * 4)), abs=1e-14)
    alone = _read("MARKOV 2 2 3 1 0 1 7")
    assert float(Auto().log_partition(alone).value) == pytest.approx(math.log(7 * 6), abs=1e-14)
    assert float(Auto().log_partition(_read("MARKOV 2 2 3 0")).value) == pytest.approx(math.log(6), abs=1e-14)


@pytest.mark.parametrize("zero", ["0", "-0", "0.0e5", "0e-999", "+0."])
def test_all_tables_zero_have_log_z_minus_infinity(zero):
    model = _read(f"MARKOV 2 2 2 1 2 0 1 4 {' '.join([zero] * 4)}")
    assert float(Auto().log_partition(model).value) == -math.inf
    assert float(Auto().log_partition(_read(f"MARKOV 1 2 2 0 1 0 1 {zero} 2 1 1")).value) == -math.inf


def test_numbers_are_read_in_every_spelling_and_with_blanks_anywhere():
    words = ["1", "1.", "+1.0", "10e-1", ".1E+1", "0.001e3", "1.00000000000000000000", "1e0"]
    text = (
        "c a comment\n\t MARKOV# 9\r\n3 # numbers\n2 2\n\n2 1 3\v0 1 2\f8\n"
        + "\r\n".join(words[:5])
        + "\nc\nc  9 9\nc\r\nc 9\r\nc \r\n"
        + " ".join(words[5:])
    )
    assert _read(text).tables.tolist() == [0.0] * 8


# Bit for bit.


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_model_that_was_read_is_written_to_the_last_bit(name, tmp_path):
    model = _read(PROBLEMS[name].text)
    model.to_uai(tmp_path / "a.uai")
    again = read_uai(tmp_path / "a.uai")
    again.to_uai(tmp_path / "b.uai")
    assert again.hypergraph == model.hypergraph
    assert (tmp_path / "a.uai").read_bytes() == (tmp_path / "b.uai").read_bytes()
    if not name.startswith("odd"):  # sums of several factors need not be the log of a float64
        assert torch.equal(again.tables, model.tables)


def _pairs(tables):
    graph = InteractionHypergraph(Domain.from_cardinalities([2, 2]), [("x0", "x1")], hierarchical=False)
    return LogLinearEnergy(graph, torch.tensor(tables, dtype=torch.float64))


@pytest.mark.parametrize("scale", [1.5, 30.0, 599.0, 601.0, 1e3, 5e3, 6e5])
def test_tables_beyond_the_range_of_weights_keep_their_law(scale, tmp_path):
    rng = np.random.default_rng(3)
    tables = [*(rng.uniform(0.5, 1, 3) * [scale, -scale, scale]).tolist(), -math.inf]
    _pairs(tables).to_uai(tmp_path / "a.uai")
    assert all(math.isfinite(float(word)) for word in (tmp_path / "a.uai").read_text().split()[1:])
    found = read_uai(tmp_path / "a.uai").tables.tolist()
    assert found[3] == -math.inf
    assert (
        found == tables if scale > 30 else found == pytest.approx(tables, abs=1.2e-16 + sys.float_info.epsilon * scale)
    )


def test_small_tables_come_back_to_the_nearest_weight(tmp_path):
    tables = np.random.default_rng(0).normal(size=4) * [1e-3, 0.1, 1, 1]
    _pairs(tables.tolist()).to_uai(tmp_path / "a.uai")
    assert read_uai(tmp_path / "a.uai").tables.numpy() == pytest.approx(tables, abs=2.3e-16)


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InputError, match="one model"):
        _pairs([[0.0] * 4] * 2).to_uai(tmp_path / "a.uai")
    with pytest.raises(InputError, match="within 614,400 nats of 0"):
        _pairs([0.0, 0.0, 0.0, 7e5]).to_uai(tmp_path / "a.uai")
    with pytest.raises(InputError, match="does not exist"):
        _pairs([0.0] * 4).to_uai(tmp_path / "none" / "a.uai")
    assert list(tmp_path.iterdir()) == []


# Files that are wrong.

_DOMAIN = Domain.from_cardinalities([2, 3, 2, 4, 5])
_GOOD = "MARKOV\n2\n2 3\n2\n1 0\n2 0 1\n2\n1 2\n6\n1 2 3\n4 5 6\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "empty file"),
        (" \n ", None, "empty file"),
        ("GRAPH\n1", 1, "expected MARKOV or BAYES, received 'GRAPH'"),
        ("comment\n" + _GOOD, 1, "expected MARKOV or BAYES, received 'comment'"),
        (" c one\n" + _GOOD, 1, "expected MARKOV or BAYES, received 'c'"),
        ("markov\n1", 1, "expected MARKOV or BAYES, received 'markov'"),
        ("MARKOV", None, "the number of variables, a whole number from 1, received the end of the file"),
        ("MARKOV\n0\n\n0\n", 2, "the number of variables, a whole number from 1, received '0'"),
        ("MARKOV\n-2\n2 3", 2, "received '-2'"),
        ("MARKOV\n2.5\n2 3", 2, "received '2.5'"),
        ("MARKOV\nnan\n2 3", 2, "received 'nan'"),
        ("MARKOV\n3\n2 3", None, "levels of each of 3 variables, received the end of the file"),
        (
            _GOOD.replace("2 3\n2", "2 0\n2", 1),
            3,
            "a number of levels, a whole number from 1 to 16777216, received '0'",
        ),
        (_GOOD.replace("2 3\n2", "2 x\n2", 1), 3, "a number, received 'x'"),
        (_GOOD.replace("2\n1 0", "9999999\n1 0"), 9, "the number of variables of a factor"),
        (_GOOD.replace("\n2 0 1", "\n3 0 1"), 6, "variables of a factor, a whole number from 0 to 2, received '3'"),
        (_GOOD.replace("\n2 0 1", "\n2 0 2"), 6, "expected the number of a variable, from 0 to 1, received '2'"),
        (_GOOD.replace("\n2 0 1", "\n2 0 -1"), 6, "received '-1'"),
        (_GOOD.replace("\n2 0 1", "\n2 1 1"), 6, "every variable of a factor once, received '1'"),
        (_GOOD.replace("\n6\n", "\n5\n"), 9, "expected 6 entries of factor 1 (2 x 3), received '5'"),
        (_GOOD.replace("\n6\n", "\n7\n"), 9, "expected 6 entries of factor 1 (2 x 3), received '7'"),
        (_GOOD.replace("4 5 6", "4 5"), None, "the tables of all factors, received the end of the file"),
        (_GOOD[:-12], None, "received the end of the file"),
        (_GOOD.replace("4 5 6", "4 5 6 7"), 11, "expected nothing after the last table, received '7'"),
        (_GOOD.replace("4 5 6", "4 -5 6"), 11, "expected a finite number from 0, received '-5'"),
        (_GOOD.replace("4 5 6", "4 nan 6"), 11, "expected a finite number from 0, received 'nan'"),
        (_GOOD.replace("4 5 6", "4 inf 6"), 11, "expected a finite number from 0, received 'inf'"),
        (_GOOD.replace("4 5 6", "4 1e999 6"), 11, "expected a finite number from 0, received '1e999'"),
        (_GOOD.replace("4 5 6", "4 1e-999 6"), 11, "a number in the range of float64, received '1e-999'"),
        (_GOOD.replace("4 5 6", "4 1_0 6"), 11, "expected a number, received '1_0'"),
        (_GOOD.replace("4 5 6", "4 5,6"), 11, "expected a number, received '5,6'"),
        (_GOOD.replace("4 5 6", "4 5 \0"), 11, "expected a number, received '\\x00'"),
        (_GOOD.replace("4 5 6", "4 5 é"), 11, "expected a number, received"),
        ("c one\nc two\n" + _GOOD.replace("4 5 6", "4 5 z"), 13, "expected a number, received 'z'"),
    ],
)
def test_wrong_files_are_refused_in_one_line(text, line, words, tmp_path):
    (tmp_path / "m.uai").write_text(text, encoding="utf-8", newline="")
    with pytest.raises(InputError) as caught:
        read_uai(tmp_path / "m.uai")
    message = str(caught.value)
    assert words in message and "\n" not in message
    assert ("m.uai, line" in message) == (line is not None)
    assert line is None or f"m.uai, line {line}:" in message


def test_the_file_that_wrong_ones_are_made_of_is_read():
    assert _read(_GOOD).tables.exp().tolist() == pytest.approx([1, 2, 1, 2, 3, 4, 5, 6])


_WORDS = ["-1", "nan", "inf", "1e400", "1e-400", "1" + "0" * 30, "0", "2", "1.5", "-BEGIN-", "#", "c", "\0", "1_0", "é"]
_READERS = {
    read_uai: [problem.text for problem in PROBLEMS.values()],
    lambda file: read_uai_evidence(file, _DOMAIN): ["0", "2 1 2 3 0", "2\n1 4 0\n2 0 1 1 1\n"],
    read_uai_result: ["PR\n1\n-2.5", "MAP 3 0 1 4", "MAR 2 2 .5 .5 1 1", "MPE\n3 0 0 0\n-BEGIN-\n1\n3 0 0 1"],
}


def _altered(text, rng):
    """A text with words taken out, put in or replaced, cut off, or with other bytes."""
    words, how = text.split(), int(rng.integers(5))
    where = int(rng.integers(len(words)))
    if how < 3:
        words[where : where + (how < 2)] = [_WORDS[rng.integers(len(_WORDS))]] * (how > 0)
        return " ".join(words).encode()
    content = bytearray(text.encode())
    if how == 3:
        return bytes(content[: rng.integers(len(content))])
    content[rng.integers(len(content))] = rng.integers(256)
    return bytes(content)


def test_altered_files_are_read_or_refused_in_one_line():
    rng, messages, num_read = np.random.default_rng(5), [], 0
    for read, texts in _READERS.items():
        for _ in range(500):
            content = _altered(texts[rng.integers(len(texts))], rng)
            try:
                read(io.BytesIO(content))
                num_read += 1
            except (InputError, IntractableError) as error:
                messages.append(str(error))
    assert num_read > 100 and len(messages) > 500
    assert [message for message in messages if "\n" in message] == []


def test_limits_are_those_of_the_caller():
    with pytest.raises(
        IntractableError, match=f"{len(_GOOD)} bytes, more than the budget of {len(_GOOD) - 1}; read_uai"
    ):
        _read(_GOOD, max_bytes=len(_GOOD) - 1)
    with pytest.raises(IntractableError, match="2 variables, more than the budget of 1"):
        _read(_GOOD, max_variables=1)
    with pytest.raises(IntractableError, match="8 entries, more than the budget of 7"):
        _read(_GOOD, max_cells=7)
    with pytest.raises(IntractableError, match="entries, more than the budget"):  # nothing of that size is made
        _read(f"MARKOV 60 {'9 ' * 60} 1 60 {' '.join(map(str, range(60)))} 1 1")
    assert _read(_GOOD, max_bytes=len(_GOOD), max_variables=2, max_cells=8).domain.cardinalities == (2, 3)


def test_what_is_a_model_is_told_by_its_first_word(tmp_path):
    for text, expected in (
        (_GOOD, True),
        ("c words\n BAYES 1", True),
        ("MARKOVIAN 1", False),
        ("a,b\n", False),
        ("", False),
    ):
        (tmp_path / "f").write_text(text)
        assert is_uai(tmp_path / "f") is expected
    assert not is_uai(tmp_path / "none") and not is_uai(tmp_path)
    # A name says it too, so that what is wrong with the file is said in the words of the format.
    (tmp_path / "wrong.uai").write_text("MARKOFF 1")
    with pytest.raises(ModelFileError, match=r"wrong\.uai: is a file in the UAI format; read_uai reads it"):
        load(tmp_path / "wrong.uai")


# Evidence and results.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", {}),
        ("0\n", {}),
        ("2 1 2 3 0", {"x1": 2, "x3": 0}),
        ("2\n1 2\n3 0\n", {"x1": 2, "x3": 0}),
        ("1\n2 1 2 3 0\n", {"x1": 2, "x3": 0}),
        ("1 2 1 2 3 0", {"x1": 2, "x3": 0}),
        ("1\n0\n", {}),
        ("2\n3 1 0 1\n", {"x0": 1, "x3": 1}),
        ("1\n0 1\n", {"x0": 1}),
        ("2 0 1 0 1", {"x0": 1}),
    ],
)
def test_evidence_is_read_in_both_layouts(text, expected):
    assert read_uai_evidence(io.BytesIO(text.encode()), _DOMAIN) == expected


def test_of_several_samples_one_is_chosen():
    text = b"2\n1 4 0\n2 0 1 1 1\n"
    assert read_uai_evidence(io.BytesIO(text), _DOMAIN, sample=1) == {"x0": 1, "x1": 1}
    with pytest.raises(InputError, match=r"2 samples of evidence; keep one in the file, .*sample=, from 0 to 1"):
        read_uai_evidence(io.BytesIO(text), _DOMAIN)
    with pytest.raises(InputError, match="from 0 to 1"):
        read_uai_evidence(io.BytesIO(text), _DOMAIN, sample=2)
    # The same words are one sample or two: lines decide.
    assert read_uai_evidence(io.BytesIO(b"2\n1 4 1\n0\n"), _DOMAIN, sample=0) == {"x4": 1}
    assert read_uai_evidence(io.BytesIO(b"2 1 1 1 1"), _DOMAIN) == {"x1": 1}


@pytest.mark.parametrize(
    ("text", "sample"),
    [
        ("1 0 1", None),
        ("2 3 0 2 1", None),
        ("2\n3 0\n2 1", None),
        ("1\n2 3 0 2 1", None),
        ("2\n1 0 1\n2 3 0 2 1", 1),
        ("2\n0\n1 4 1", 1),
    ],
)
def test_evidence_that_is_cut_between_words_is_refused(text, sample):
    """What is left of a file that is whole is never read as something else."""
    assert read_uai_evidence(io.BytesIO(text.encode()), _DOMAIN, sample=sample)
    for blank in re.finditer(r"\s", text):
        with pytest.raises(InputError, match="may be truncated"):
            read_uai_evidence(io.BytesIO(text[: blank.start()].encode()), _DOMAIN, sample=sample)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty file"),
        ("x", "expected a number, received 'x'"),
        ("1 5 0", "the number of a variable, a whole number from 0 to 4, received '5'"),
        ("1 0 2", "a level of variable 0, a whole number from 0 to 1, received '2'"),
        ("2 0 1 0 0", "one level of variable 0, which is 1 before, received '0'"),
        ("3 0 1", "expected 6 numbers of variables and levels, or samples in lines of their own, received the end"),
        ("1 0", "expected 2 numbers of variables and levels, or samples in lines of their own, received the end"),
        ("2 0 0", "expected 4 numbers of variables and levels, or samples in lines of their own, received the end"),
        ("1\n2 0", "whole samples in their lines, or the only sample in one line with its number, received the end"),
        ("1\n1 1", "whole samples in their lines"),
        ("2 0 1 1 1 1", "nothing after 2 samples"),
        ("1 0 1 1", "nothing after 1 samples"),
        ("-1 0 1", "received '-1'"),
    ],
)
def test_wrong_evidence_is_refused(text, words):
    with pytest.raises(InputError) as caught:
        read_uai_evidence(io.BytesIO(text.encode()), _DOMAIN)
    assert words in str(caught.value)


def test_evidence_is_written_by_number(tmp_path):
    domain = Domain.from_labels({"a": ("no", "yes"), "b": ("low", "mid", "high")})
    write_uai_evidence(tmp_path / "e", domain, {"b": "high", "a": 0})
    assert (tmp_path / "e").read_text() == "2 1 2 0 0\n"
    assert read_uai_evidence(tmp_path / "e", domain) == {"a": 0, "b": 2}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("PR\n2\n", UaiResult("PR", log_partition=2 * math.log(10))),
        ("PR\n1\n2\n", UaiResult("PR", log_partition=2 * math.log(10))),
        ("PR\n1\n", UaiResult("PR", log_partition=math.log(10))),
        ("PR 3\n-BEGIN-\n2", UaiResult("PR", log_partition=2 * math.log(10))),
        ("PR -inf", UaiResult("PR", log_partition=-math.inf)),
        ("MAP\n3 0 1 0\n", UaiResult("MAP", state=(0, 1, 0))),
        ("MPE\n1\n3 0 1 0\n", UaiResult("MAP", state=(0, 1, 0))),
        ("MPE 1 0", UaiResult("MAP", state=(0,))),
        ("MPE 1 1 0", UaiResult("MAP", state=(0,))),
        ("MAR\n2 2 0.25 0.75 1 1\n", UaiResult("MAR", margins=(np.array([0.25, 0.75]), np.array([1.0])))),
        ("MAR\n1\n1 2 0.25 0.75", UaiResult("MAR", margins=(np.array([0.25, 0.75]),))),
        ("MAR 1 1 1", UaiResult("MAR", margins=(np.array([1.0]),))),
        ("MAR 1 3 .333 .333 .333", UaiResult("MAR", margins=(np.array([0.333] * 3),))),
    ],
)
def test_results_are_read_with_and_without_a_count_of_samples(text, result):
    _assert_same(read_uai_result(io.BytesIO(text.encode())), result)


def _assert_same(found, result):
    assert found.task == result.task
    if result.task == "MAR":
        assert [part.tolist() for part in found.margins] == [part.tolist() for part in result.margins]
    else:
        assert found.solution == pytest.approx(result.solution, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("MMAP\n1 0 1", "expected PR, MAR, MAP or MPE, received 'MMAP'"),
        ("PR", "the log10 of Z, received the end of the file"),
        ("PR 1 2 3", "nothing after the solution"),
        ("PR nan", "a number below infinity"),
        ("MAP 2 0", "a level of variable 1"),
        ("MAP 2 0 3", "a level of variable 1, a whole number from 0 to 2, received '3'"),
        ("MAP 3 0 1 1", "the number of variables, 2"),
        ("MAR 2 2 0.5 0.5 2 0.5 0.5", "the number of levels of variable 1, a whole number from 3 to 3, received '2'"),
        ("MAR 2 2 0.5 0.5 3 0.5 0.5", "probabilities of variable 1, received the end of the file"),
        ("MAR 2 2 0.5 -0.5 3 0.5 0.5 0", "a probability, received '-0.5'"),
        (
            "MAR 2 2 0.5 0.5\n3 0.5 0.3 0.1985",
            "line 2: expected probabilities of variable 1 that sum to 1, received 0.9985",
        ),
        ("MAR 2 2 0 0 3 0.5 0.5 0", "probabilities of variable 0 that sum to 1, received 0"),
    ],
)
def test_wrong_results_are_refused(text, words):
    with pytest.raises(InputError) as caught:
        read_uai_result(io.BytesIO(text.encode()), Domain.from_cardinalities([2, 3]))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "result",
    [
        UaiResult("PR", log_partition=-1.25),
        UaiResult("PR", log_partition=-math.inf),
        UaiResult("MAP", state=(0, 2, 1)),
        UaiResult("MAR", margins=(np.array([1 / 3, 2 / 3]), np.array([0.0, 1.0, 0.0]))),
    ],
)
def test_results_come_back(result, tmp_path):
    write_uai_result(tmp_path / "r", result)
    _assert_same(read_uai_result(tmp_path / "r"), result)


def test_a_result_has_the_answer_of_its_task():
    with pytest.raises(InputTypeError, match="log_partition"):
        UaiResult("PR", state=(0, 1))
    with pytest.raises(InputError, match="task"):
        UaiResult("MMAP", state=(0, 1))  # type: ignore[arg-type]
    for value in (math.nan, math.inf):
        with pytest.raises(InputError, match=f"log_partition: expected a number below infinity, received {value}"):
            UaiResult("PR", log_partition=value)
    for part in ([0.5, 0.4], [1.5, -0.5], [math.nan, 1.0]):
        with pytest.raises(InputError, match="margins: expected probabilities of variable 1 that sum to 1"):
            UaiResult("MAR", margins=(np.array([1.0]), np.array(part)))


@pytest.mark.parametrize(
    ("task", "solution", "words"),
    [
        ("PR", 3, "log_partition: expected a float for a PR, received int"),
        ("PR", torch.tensor(1.0), "log_partition: expected a float for a PR, received Tensor"),
        ("MAP", [0, 1], "state: expected a tuple for a MAP, received list"),
        ("MAP", (0.5, 1.9), "state[0]: expected a whole number from 0, received 0.5"),
        ("MAP", (0, -1), "state[1]: expected a whole number from 0, received -1"),
        ("MAP", ("a",), "state[0]: expected a whole number from 0, received 'a'"),
        ("MAP", (True,), "state[0]: expected a whole number from 0, received True"),
        ("MAR", (None,), "margins[0]: expected a NumPy array of probabilities, received NoneType"),
        ("MAR", ("ab",), "margins[0]: expected a NumPy array of probabilities, received str"),
        ("MAR", (np.array([[0.5, 0.5]]),), "margins: expected probabilities of variable 0 that sum to 1"),
        ("MAR", (np.array(["1"]),), "margins: expected probabilities of variable 0 that sum to 1"),
        ("MAR", (np.array(1.0),), "margins: expected probabilities of variable 0 that sum to 1"),
        ("MAR", (np.array([]),), "margins: expected probabilities of variable 0 that sum to 1"),
    ],
)
def test_what_no_file_could_say_is_no_result(task, solution, words):
    field = {"PR": "log_partition", "MAP": "state", "MAR": "margins"}[task]
    with pytest.raises((InputError, InputTypeError)) as caught:
        UaiResult(task, **{field: solution})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda file: read_uai(3), "source: expected a path or an open file, received int"),  # type: ignore[arg-type]
        (lambda file: read_uai(file, max_cells=1.5), "max_cells: expected a whole number"),  # type: ignore[arg-type]
        (lambda file: read_uai_evidence(file, None), "domain: expected a Domain"),  # type: ignore[arg-type]
        (lambda file: read_uai_evidence(file, _DOMAIN, sample=0.0), "sample: expected a whole number"),  # type: ignore[arg-type]
        (lambda file: read_uai_result(file, (2, 3)), "domain: expected a Domain or None"),  # type: ignore[arg-type]
        (lambda file: write_uai_evidence("e", None, {}), "domain: expected a Domain"),  # type: ignore[arg-type]
        (lambda file: write_uai_evidence("e", _DOMAIN, None), "evidence: expected a mapping"),  # type: ignore[arg-type]
        (lambda file: write_uai_evidence("e", _DOMAIN, [("x0", 1)]), "evidence: expected a mapping"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_another_type_are_refused(call, argument):
    with pytest.raises((InputError, InputTypeError)) as caught:
        call(io.BytesIO(b"0"))
    assert str(caught.value).startswith(argument)


# The problems of UAI 2014.


@pytest.mark.parametrize(
    ("name", "has_zeros", "published"),
    [
        ("Grids_23", False, 6401.5545),
        ("Grids_26", False, 3051.0128),
        ("Grids_30", False, 3013.0694),
        ("Promedas_55", True, -29.2784),
        ("ObjectDetection_11", True, 10063.0180),
    ],
)
def test_published_problems_are_read_and_their_states_are_possible(shared_data, name, has_zeros, published):
    path = shared_data / "uai" / f"{name}.uai"
    model = read_uai(path)
    evidence = read_uai_evidence(f"{path}.evid", model.domain)
    state = read_uai_result(f"{path}.MAP", model.domain).state
    assert state is not None and all(state[model.domain.index(key)] == code for key, code in evidence.items())
    # The value of the published state, added up word by word.
    cards, factors = parsed(path.read_text())
    value = math.fsum(math.log(np.reshape(w, [cards[i] for i in s])[tuple(state[i] for i in s)]) for s, w in factors)
    assert value == pytest.approx(published, abs=1e-4)
    assert float(-model.energy(torch.tensor(state))) == pytest.approx(value, rel=1e-12)
    assert bool(torch.isneginf(model.tables).any()) == has_zeros


def test_published_grid_has_the_log_z_that_was_found_before(shared_data):
    model = read_uai(shared_data / "uai" / "Grids_30.uai")
    assert float(Auto().log_partition(model).value) == pytest.approx(3020.9545, abs=1e-4)
