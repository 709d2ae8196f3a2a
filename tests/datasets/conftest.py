"""No local copies, an empty cache folder, and no network."""

from pathlib import Path

import pooch
import pytest
from requests import ConnectionError as NoConnection


@pytest.fixture
def serve(monkeypatch):
    """A function that answers every download with its argument, and returns the requests made."""

    def answers(content):
        requests = []

        def answer(self, url, output_file, *_):
            requests.append((url, self.kwargs["timeout"]))
            if isinstance(content, Exception):
                raise content
            Path(output_file).write_bytes(content)

        monkeypatch.setattr(pooch.HTTPDownloader, "__call__", answer)
        return requests

    return answers


@pytest.fixture
def isolated(tmp_path, monkeypatch, serve):
    """A folder with an empty cache folder; downloads fail."""
    monkeypatch.delenv("PYRO_HOIM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    serve(NoConnection("no route to host"))
    return tmp_path
