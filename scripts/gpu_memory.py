"""Where the bytes on the GPU are at the end of a sequence, part by part.

Run: python -m scripts.gpu_memory --sequence /path/to/tum_fr1_xyz [--capacity 500000]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro
from tyro.conf import arg

from gsslam.datasets import open_dataset
from gsslam.gpu_memory import GpuMemory
from gsslam.memory import tensor_bytes
from gsslam.presets import load_preset
from gsslam.slam import Slam


@dataclass
class Options:
    """What is run."""

    sequence: Annotated[Path, arg(help_behavior_hint="")]
    dataset: str = "tum/fr1_xyz"
    preset: str = "default"
    capacity: int = 500_000
    frames: int | None = None


def parts(slam: Slam) -> dict[str, int]:
    """Return the bytes of everything on the GPU that is known by name."""
    mapper, tracker = slam._mapper, slam._localizer._tracker
    optimizer, spheres = mapper._optimizer, slam.map
    fused = optimizer._fused.bytes() if optimizer._fused else 0
    fused_tracker = tracker._fused.bytes() if tracker._fused else 0
    levels = [t for level in slam._buffers._levels for t in (level.rgb, level.depth)]
    return {
        "map": tensor_bytes(*spheres._arrays()),
        "tracking's copy of it": tensor_bytes(slam._snapshot._with_queries),
        "images of the window's keyframes": tensor_bytes(
            *(slot.buffer for slot in optimizer._images._slots)
        ),
        "mapping: lists, slots, images, D-SSIM": fused,
        "mapping: image that insertion looks at": tensor_bytes(optimizer._image),
        "tracking: lists": fused_tracker,
        "frame at all resolutions": tensor_bytes(*levels, slam._buffers._rgb, slam._buffers._depth),
    }


def main(options: Options) -> None:
    """Run, and print the parts, what torch keeps, and what is in use."""
    dataset = open_dataset(options.dataset, options.sequence, max_frames=options.frames)
    config = load_preset(options.preset)
    config = replace(config, map=replace(config.map, capacity=options.capacity))
    torch.set_num_threads(1)
    gpu = GpuMemory("cuda")
    with Slam(config, dataset.camera, "cuda") as slam:
        for index in range(len(dataset)):
            if slam.track(dataset[index]).is_keyframe:
                gpu.sample()
        slam.finish()
        gpu.sample()
        named = parts(slam)
        spheres, room = slam.map.count, slam.map.parameters.shape[1]
        print(f"{len(dataset)} frames, {len(slam.keyframes)} keyframes, {spheres:,} spheres")
        print(f"room for {room:,} spheres of at most {slam.map.capacity:,}")
        host = sum(tensor_bytes(k.rgb, k.depth) for k in slam.keyframes)
    native = named["mapping: lists, slots, images, D-SSIM"] + named["tracking: lists"]
    reserved = torch.cuda.memory_reserved()
    for name, size in named.items():
        print(f"{size / 1e6:9.1f} MB  {name}")
    print(f"{sum(named.values()) / 1e6:9.1f} MB  all of these")
    tensors = sum(named.values()) - native
    print(f"{(reserved - tensors) / 1e6:9.1f} MB  kept by torch beside them: what comes and goes")
    rest = (gpu.run_mb or 0) - (native + reserved) / 1e6
    print(f"{rest:9.1f} MB  the rest: graphs, code of kernels, rounding; temporarily more")
    print(f"{gpu.run_mb or 0:9.1f} MB  the most that the run took")
    print(f"{gpu.context_mb or 0:9.1f} MB  in use before it: the context")
    print(f"{host / 1e6:9.1f} MB  images of keyframes, in the host's memory")
    print(gpu.described())


if __name__ == "__main__":
    main(tyro.cli(Options))
