"""The checksum of headers and tensors, against one written here from its description with hashlib alone."""

import hashlib
import json

import pytest
import torch

from pyro_hoim.runs.container import is_intact, sealed

HEADER = {"rows": 12, "größe": [1.5e-7, None, True, "\ud800"], "nested": {"b": {}, "a": []}}
TENSORS = {
    "theta": torch.linspace(-1, 1, 7, dtype=torch.float64),
    "ü": torch.arange(6).reshape(2, 3).T,
    "bits": torch.tensor([True, False]),
    "half": torch.tensor([1.5], dtype=torch.bfloat16),
    "scalar": torch.tensor(2.0),
    "none": torch.zeros(0, 3),
}


def test_the_checksum_is_the_described_one():
    text = sealed(HEADER, TENSORS)
    found = json.loads(text)
    checksum = found.pop("sha256")
    assert found == HEADER and text.isascii()
    digest = hashlib.sha256(text.replace(f', "sha256": "{checksum}"', "").encode())
    for name, dtype, shape, values in (
        ("bits", "bool", "[2]", b"\1\0"),
        ("half", "bfloat16", "[1]", b"\xc0\x3f"),
        ("none", "float32", "[0, 3]", b""),
        ("scalar", "float32", "[]", TENSORS["scalar"].numpy().tobytes()),
        ("theta", "float64", "[7]", TENSORS["theta"].numpy().tobytes()),
        ("\\u00fc", "int64", "[3, 2]", TENSORS["ü"].contiguous().numpy().tobytes()),
    ):
        digest.update(f'["{name}", "{dtype}", {shape}]'.encode() + values)
    assert digest.hexdigest() == checksum and is_intact(text, TENSORS)


def changed(**tensors):
    return {name: value for name, value in {**TENSORS, **tensors}.items() if value is not None}


@pytest.mark.parametrize(
    "tensors",
    [
        changed(theta=TENSORS["theta"].flip(0)),
        changed(theta=TENSORS["theta"].view(torch.int64)),
        changed(theta=TENSORS["theta"].reshape(1, 7)),
        changed(none=torch.zeros(3, 0)),
        changed(none=None),
        changed(more=torch.zeros(0)),
        changed(theta=None, thetb=TENSORS["theta"]),
        changed(bits=torch.tensor([False, True])),
    ],
)
def test_other_tensors_are_noticed(tensors):
    text = sealed(HEADER, TENSORS)
    assert is_intact(text, changed()) and not is_intact(text, tensors)


def test_every_other_text_is_noticed():
    text = sealed(HEADER, TENSORS)
    for i, letter in enumerate(text):
        for other in {chr(ord(letter) ^ 1), letter.swapcase(), ""} - {letter}:
            assert not is_intact(text[:i] + other + text[i + 1 :], TENSORS), (i, other)
    for other in ("", "{}", "null", text + " ", " " + text, text.replace("12", "12 ")):
        assert not is_intact(other, TENSORS)
