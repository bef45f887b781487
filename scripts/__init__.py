"""Benches and measurements: thin programs around the package, run as `python -m scripts.NAME`."""
