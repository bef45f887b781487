# Native module for a source checkout, beside the package: used by the targets below and by hand.
native:
	cmake -S . -B build/dev -G Ninja -DPython_EXECUTABLE=$(PWD)/.venv/bin/python >/dev/null && ninja -C build/dev && cp build/dev/cuda_ext/_native*.so gsslam/
