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

    def __init__(self, device: torch.device | str) -> None:
        self._device = torch.device(device)
        self._slots: list[_Slot] = []
        self._stages: list[_Stage] = []
        self._next_stage = cycle(range(STAGES))

    def of(self, keyframes: Sequence[Keyframe]) -> list[Images]:
        """Return the images of each keyframe, for what is queued on the current stream.

        They hold until the next call.
        """
        wanted = {id(keyframe) for keyframe in keyframes}
        free = [slot for slot in self._slots if id(slot.keyframe) not in wanted]
        # Old views are drawn anew for every window; the newest stay for the next one.
        free.sort(key=lambda slot: slot.keyframe.index, reverse=True)
        held = {id(slot.keyframe): slot for slot in self._slots}
        images = []
        for keyframe in keyframes:
            if keyframe.rgb.device.type == self._device.type:
                images.append((keyframe.rgb, keyframe.depth))
                continue
            if id(keyframe) not in held:
                held[id(keyframe)] = self._fill(free.pop() if free else None, keyframe)
            images.append(held[id(keyframe)].images)
        return images

    @property
    def on_device(self) -> list[Keyframe]:
        """The keyframes whose images lie on the device beside those in the host's memory."""
        return [slot.keyframe for slot in self._slots]

    def bytes(self) -> int:
        """Return what the copies take, on the GPU and on their way there."""
        buffers = [slot.buffer for slot in self._slots] + [stage.buffer for stage in self._stages]
        return tensor_bytes(*buffers)

    def _fill(self, slot: _Slot | None, keyframe: Keyframe) -> _Slot:
        if not self._stages:
            self._stages = [_Stage(keyframe) for _ in range(STAGES)]
        if slot is None:
            slot = _Slot(keyframe, self._device)
            self._slots.append(slot)
        slot.keyframe = keyframe
        self._stages[next(self._next_stage)].copy(keyframe, slot.buffer)
        return slot


class _Slot:
    """Room for the images of one keyframe on the GPU."""

    def __init__(self, keyframe: Keyframe, device: torch.device) -> None:
        # Referred to, so that no other keyframe is taken for it.
        self.keyframe = keyframe
        self.buffer = torch.empty(_size(keyframe), dtype=torch.uint8, device=device)
        self.images = _views(self.buffer, keyframe)


class _Stage:
    """Pinned memory of the host, from which a GPU copies while the CPU goes on."""

    def __init__(self, keyframe: Keyframe) -> None:
        self.buffer = torch.empty(_size(keyframe), dtype=torch.uint8, pin_memory=True)
        self._images = _views(self.buffer, keyframe)
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
