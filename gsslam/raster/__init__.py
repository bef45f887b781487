"""Rendering of spheres: one interface, a readable reference and native kernels."""
