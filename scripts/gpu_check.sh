#!/bin/sh
# Everything that needs a GPU: build, tests, sanitizers, benchmark. Run it in the repository's root.
# usage: scripts/gpu_check.sh [build|test|sanitize|bench]...   (all of them without arguments)
set -eu
BUILD=${BUILD:-build/gpu}
PYTHON=${PYTHON:-python3}
BENCH_OPTIONS=${BENCH_OPTIONS:-}
TESTS="tests/raster tests/test_losses.py tests/test_optimizer.py tests/test_normal_equations.py tests/test_fused.py
    tests/test_operations.py tests/test_recorder.py tests/test_pyramid.py tests/test_pipeline.py
    tests/test_checkpoint.py tests/test_window_images.py tests/test_gaussian_map.py tests/test_gpu_memory.py
    tests/scripts/test_gpu_memory.py tests/diagnosis tests/attention/test_cuda.py tests/quant/test_cuda.py tests/features/test_learner.py"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

build() {
    cmake -S . -B "$BUILD" -G Ninja -DPython_EXECUTABLE="$(command -v "$PYTHON")" \
        | grep -E "gsslam|CMake Error" || true
    ninja -C "$BUILD" >"$BUILD/log" || { grep -A9 -E "FAILED|error" "$BUILD/log" | cut -c1-300; exit 1; }
    rm -f gsslam/_native*.so
    cp "$BUILD"/cuda_ext/_native*.so gsslam/
}

tests() {
    "$PYTHON" -m pytest -q -m gpu $TESTS
}

# A few small tests reach every kernel.
sanitize() {
    for tool in memcheck racecheck; do
        echo "compute-sanitizer $tool"
        compute-sanitizer --tool $tool --error-exitcode 9 --print-limit 20 \
            "$PYTHON" -m pytest -q -m gpu -p no:cacheprovider $TESTS -k sanitize
    done
}

bench() {
    "$PYTHON" -m scripts.bench_attention --device cuda
    "$PYTHON" -m scripts.bench_linear --device cuda
    "$PYTHON" -m scripts.bench_rasterizer --json "$BUILD/bench.json" $BENCH_OPTIONS \
        --sequence "${SEQUENCE:?set SEQUENCE to a folder of tum/fr1_xyz}"
}

for step in ${*:-build test sanitize bench}; do
    echo "== $step"
    case $step in
        test) tests ;;
        build | sanitize | bench) $step ;;
        *) echo "unknown step $step" >&2; exit 2 ;;
    esac
done
