"""Render spheres differentiably with PyTorch, and fit one to an image.

Run: python examples/06_differentiate.py
"""

import torch

from gsslam import Camera, Spheres, rasterize

camera = Camera(width=48, height=48, fx=48.0, fy=48.0, cx=24.0, cy=24.0)
T_camera_world = torch.eye(4)


def sphere(xyz: torch.Tensor) -> Spheres:
    """Return one orange sphere of 20 cm at ``xyz`` (1, 3)."""
    return Spheres(
        xyz=xyz,
        log_radius=torch.log(torch.tensor([0.2])),
        opacity_logit=torch.tensor([3.0]),
        rgb=torch.tensor([[0.9, 0.5, 0.1]]),
    )


truth = torch.tensor([[0.10, -0.15, 2.0]])
target = rasterize(sphere(truth), camera, T_camera_world).colour

guess = torch.tensor([[-0.10, 0.10, 2.0]], requires_grad=True)
optimizer = torch.optim.Adam([guess], lr=0.02)
for step in range(61):
    colour = rasterize(sphere(guess), camera, T_camera_world).colour  # (H, W, 3)
    loss = (colour - target).square().mean()
    if step % 20 == 0:
        print(f"step {step}: {100 * (guess - truth).norm():.2f} cm off")
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()
