"""Kernels that are launched together: CUDA graphs, where the device has them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any

import torch

_logger = logging.getLogger("pyro_hoim")
_MAX_GRAPHS = 16  # kept by one engine; the memory of their intermediate results is shared
_USES = 2  # times that a function runs before it is captured


class Graphs:
    """Runs functions of tensors that stay where they are; on CUDA all but the first two runs are replays.

    A function takes no arguments and gives nothing: it reads and writes tensors whose memory stays, draws no random
    numbers and looks at no value. It runs as it is where the device has no graphs, or a capture fails.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._captured: dict[Hashable, Callable[[], None]] = {}
        self._uses: dict[Hashable, int] = {}
        self._pool: Any = None
        self.is_on = device.type == "cuda"

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Run the function, which is always the same for equal keys."""
        if not self.is_on:
            function()
            return
        replay = self._captured.get(key)
        if replay is None and self._is_due(key):
            replay = self._captured[key] = self._capture(function)
        (replay or function)()

    def forget(self) -> None:
        """Capture anew, because a tensor moved."""
        self._captured.clear()
        self._uses.clear()

    def _is_due(self, key: Hashable) -> bool:
        """Whether a function that was not captured has run often enough, and there is room."""
        if len(self._captured) >= _MAX_GRAPHS:
            return False
        if len(self._uses) > 64 * _MAX_GRAPHS:  # visits in random order never come back
            self._uses.clear()
        self._uses[key] = self._uses.get(key, 0) + 1
        return self._uses[key] > _USES

    def _capture(self, function: Callable[[], None]) -> Callable[[], None]:
        """Record the kernels of a function, which is not run."""
        try:
            return self._recorded(function)
        except RuntimeError as error:
            self.is_on = False
            _logger.info("CUDA graphs are off, because a capture failed: %s", error)
            return function

    def _recorded(self, function: Callable[[], None]) -> Callable[[], None]:
        with torch.cuda.device(self._device):
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                function()
        return graph.replay
