"""The images of the window's keyframes where the kernels read them.

Keyframes keep their images in the host's ordinary memory. A GPU holds those of as many keyframes as
one window has, however long the sequence is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import torch

from gsslam.keyframes import Images, Keyframe
from gsslam.memory import STAGES, tensor_bytes


class WindowImages:
    """Brings keyframes' images to a device; on the CPU they are there already.

    Not to be used by two threads at a time.
    """

    def __init__(self, device: torch.device | str, count: int) -> None:
        """``count`` is how many keyframes a window has; room for them is made at the first use."""
        self._device, self._count = torch.device(device), count
        self._slots: list[_Slot] = []
        self._stages: list[_Stage] = []
        self._next_stage = cycle(range(STAGES))

    def of(self, keyframes: Sequence[Keyframe]) -> list[Images]:
        """Return the images of each keyframe, for what is queued on the current stream.

        They hold until the next call.
        """
        away = [k for k in keyframes if k.rgb.device.type != self._device.type]
        if not away:
            return [(k.rgb, k.depth) for k in keyframes]
        self._make_room(away[0], max(len(away), self._count))
        wanted = {id(keyframe) for keyframe in away}
        free = [slot for slot in self._slots if id(slot.keyframe) not in wanted]
        # Old views are drawn anew for every window; the newest stay for the next one.
        free.sort(key=lambda slot: slot.keyframe.index if slot.keyframe else -1, reverse=True)
        held = {id(slot.keyframe): slot for slot in self._slots}
        for keyframe in away:
            if id(keyframe) not in held:
                held[id(keyframe)] = self._fill(free.pop(), keyframe)
        return [held[id(k)].images if id(k) in wanted else (k.rgb, k.depth) for k in keyframes]

    @property
    def on_device(self) -> list[Keyframe]:
        """The keyframes whose images lie on the device beside those in the host's memory."""
        return [slot.keyframe for slot in self._slots if slot.keyframe]

    def bytes(self) -> int:
        """Return what the copies take, on the GPU and on their way there."""
        buffers = [slot.buffer for slot in self._slots] + [stage.buffer for stage in self._stages]
        return tensor_bytes(*buffers)

    def _make_room(self, like: Keyframe, count: int) -> None:
        while len(self._stages) < STAGES:
            self._stages.append(_Stage(like))
        while len(self._slots) < count:
            self._slots.append(_Slot(like, self._device))

    def _fill(self, slot: _Slot, keyframe: Keyframe) -> _Slot:
        slot.keyframe = keyframe
        self._stages[next(self._next_stage)].copy(keyframe, slot.buffer)
        return slot


class _Slot:
    """Room for the images of one keyframe on the GPU."""

    def __init__(self, like: Keyframe, device: torch.device) -> None:
        # Whose images they are; referred to, so that no other keyframe is taken for it.
        self.keyframe: Keyframe | None = None
        self.buffer = torch.empty(_size(like), dtype=torch.uint8, device=device)
        self.images = _views(self.buffer, like)


class _Stage:
    """Pinned memory of the host, from which a GPU copies while the CPU goes on."""

    def __init__(self, like: Keyframe) -> None:
        self.buffer = torch.empty(_size(like), dtype=torch.uint8, pin_memory=True)
        self._images = _views(self.buffer, like)
        self._is_free = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def copy(self, keyframe: Keyframe, to: torch.Tensor) -> None:
        """Queue a copy of the images to a slot's buffer."""
        self._is_free.synchronize()
        self._images[0].copy_(keyframe.rgb)
        self._images[1].copy_(keyframe.depth)
        to.copy_(self.buffer, non_blocking=True)
        self._is_free.record()


def _size(keyframe: Keyframe) -> int:
    return tensor_bytes(keyframe.rgb, keyframe.depth)


def _views(buffer: torch.Tensor, keyframe: Keyframe) -> Images:
    """Return colours and depth in one buffer; depth comes first, as floats want to be aligned."""
    end = tensor_bytes(keyframe.depth)
    depth = buffer[:end].view(torch.float32).view(keyframe.depth.shape)
    return buffer[end:].view(keyframe.rgb.shape), depth
