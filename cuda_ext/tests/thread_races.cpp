// Every CPU plan at once on the shared thread pool, while its size changes. Built with a thread
// sanitizer by scripts/thread_sanitizer.py, which finds races; the program itself compares bytes:
// whatever runs beside it, each thread must get what it gets alone.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "common/thread_pool.h"
#include "losses/cpu_image_loss.h"
#include "optimizer/cpu_adam.h"
#include "rasterize/cpu_rasterizer.h"
#include "tracking/cpu_tracking.h"

namespace gsslam {
namespace {

constexpr int kWidth = 72, kHeight = 56, kRows = 8;
constexpr int64_t kSpheres = 700;
constexpr int kRounds = 12, kSteps = 2;
constexpr size_t kPixels = size_t{kWidth} * kHeight;

// What threads only read.
struct Scene {
  std::vector<float> parameters, colour, depth;
  View view{};

  explicit Scene(uint32_t seed)
      : parameters(kRows * kSpheres), colour(3 * kPixels), depth(kPixels, 2.0f) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> unit(0.0f, 1.0f);
    const auto fill = [&](int row, float low, float high) {
      for (int64_t i = 0; i < kSpheres; ++i)
        parameters[row * kSpheres + i] = low + (high - low) * unit(random);
    };
    fill(0, -1.2f, 1.2f);
    fill(1, -1.0f, 1.0f);
    fill(2, 1.0f, 4.0f);
    fill(3, -4.0f, -2.0f);
    fill(4, -1.0f, 3.0f);
    for (int row = 5; row < kRows; ++row) fill(row, 0.0f, 1.0f);
    for (float& value : colour) value = unit(random);
    view.width = kWidth;
    view.height = kHeight;
    view.fx = view.fy = 60.0f;
    view.cx = kWidth / 2.0f;
    view.cy = kHeight / 2.0f;
    view.low_pass = 0.3f;
    view.R[0] = view.R[4] = view.R[8] = 1.0f;
  }

  SphereMatrix spheres() const { return {parameters.data(), kSpheres, kSpheres}; }
};

// A number that stands for the bytes of all that is added (FNV-1a).
class Digest {
 public:
  template <typename T>
  void add(const T* values, size_t count) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(values);
    for (size_t i = 0; i < count * sizeof(T); ++i) value_ = (value_ ^ bytes[i]) * 1099511628211ull;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 14695981039346656037ull;
};

// A few steps of mapping on a map of its own.
uint64_t map(const Scene& scene) {
  std::vector<float> parameters = scene.parameters, gradient(parameters.size());
  std::vector<float> first(parameters.size()), second(parameters.size()), rates(kRows, 1e-3f);
  std::vector<float> image(5 * kPixels), grad_image(5 * kPixels), error(kPixels);
  std::vector<float> statistics(kStatistics * kSpheres);
  std::vector<int32_t> steps(kSpheres);
  CpuRasterizer plan(0);
  CpuImageLoss loss;
  CpuAdam adam(0.9, 0.999, 1e-15);
  Digest digest;
  for (int step = 0; step < kSteps; ++step) {
    const SphereMatrix spheres{parameters.data(), kSpheres, kSpheres};
    plan.project(spheres, scene.view);
    plan.forward(image.data());
    const LossValue value =
        loss.evaluate({image.data(), scene.colour.data(), scene.depth.data(), kWidth, kHeight}, 1.0,
                      0.0, {0.2, 0.1, 0.01, 0.5f}, {grad_image.data(), error.data()});
    double grad_pose[12];
    plan.backward(spheres, {image.data(), grad_image.data(), error.data(), gradient.data(),
                            statistics.data(), 0.9f, grad_pose});
    adam.step({parameters.data(), gradient.data(), first.data(), second.data(), steps.data(),
               rates.data(), kRows, kSpheres, kSpheres});
    digest.add(&value.total, 1);
    digest.add(grad_pose, 12);
  }
  digest.add(parameters.data(), parameters.size());
  digest.add(statistics.data(), statistics.size());
  return digest.value();
}

// One iteration of tracking on the map that all share.
uint64_t track(const Scene& scene) {
  CpuRasterizer plan(0);
  CpuTracking tracking;
  std::vector<double> sums(kTrackSums);
  const Observation seen{scene.colour.data(), scene.depth.data(), 1.0f, 0.0f};
  const TrackingWeights weights{0.05f, 0.05f, 0.01f, 0.003f, 0.5f};
  const float list_margin = 2.0f;
  Digest digest;
  plan.project(scene.spheres(), scene.view, list_margin);
  tracking.normal_equations(plan, seen, weights, {1, 0}, sums.data());
  digest.add(sums.data(), sums.size());
  plan.refresh(scene.view);
  tracking.residuals(plan, seen, weights, {3, 2}, sums.data());
  digest.add(sums.data(), sums.size());
  return digest.value();
}

int run() {
  const Scene scene(1);
  set_thread_count(1);
  const uint64_t mapped = map(scene), tracked = track(scene);
  set_thread_count(3);
  int wrong[4] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) wrong[i] += map(scene) != mapped;
    });
    threads.emplace_back([&, i] {
      for (int round = 0; round < 2 * kRounds; ++round) wrong[2 + i] += track(scene) != tracked;
    });
  }
  std::atomic<bool> resizing{true};
  bool has_threads = true;
  threads.emplace_back([&] {
    while (resizing) has_threads &= thread_count() > 0;
  });
  threads.emplace_back([&] {
    for (int round = 0; round < 4 * kRounds; ++round) set_thread_count(1 + round % 4);
    resizing = false;
  });
  for (std::thread& thread : threads) thread.join();
  const int differing = wrong[0] + wrong[1] + wrong[2] + wrong[3];
  std::printf("%d rounds, %d with other bytes than alone\n", 6 * kRounds, differing);
  return differing == 0 && has_threads ? 0 : 1;
}

// Two threads write one number, so that it can be seen that the sanitizer would say so.
void plant_race() {
  int shared = 0;
  std::thread other([&] { ++shared; });
  ++shared;
  other.join();
}

}  // namespace
}  // namespace gsslam

int main(int count, char**) {
  if (count > 1) gsslam::plant_race();
  return gsslam::run();
}
