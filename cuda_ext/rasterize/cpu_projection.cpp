// The vector form of project_sphere in math.h; both are held to the same reference.
#define GSSLAM_WIDE
#include "rasterize/cpu_projection.h"

#include "common/vec.h"

namespace gsslam::GSSLAM_ISA {
namespace {

struct Circles {
  vfloat mx, my, k, opacity, z, radius2;
  vint drawn;
};

// Comparisons are written so that NaN fails them.
Circles project(const View& v, vfloat wx, vfloat wy, vfloat wz, vfloat radius, vfloat opacity) {
  const vfloat x = v.R[0] * wx + v.R[1] * wy + v.R[2] * wz + v.t[0];
  const vfloat y = v.R[3] * wx + v.R[4] * wy + v.R[5] * wz + v.t[1];
  Circles c;
  c.z = v.R[6] * wx + v.R[7] * wy + v.R[8] * wz + v.t[2];
  const vfloat inv_z = 1.0f / c.z;
  const vfloat sigma = __builtin_sqrtf(v.fx * v.fy) * radius * inv_z;
  const vfloat sigma2 = sigma * sigma;
  const vfloat s2 = sigma2 + v.low_pass;
  c.opacity = sigma2 / s2 * opacity;
  c.drawn = (c.z > kNearPlane) & (sigma < kMaxSigma) & (c.opacity >= kMinAlpha);
  c.mx = v.fx * x * inv_z + v.cx;
  c.my = v.fy * y * inv_z + v.cy;
  c.k = -kLog2e / (2.0f * s2);
  // A little more than exact: the blending loops test alpha itself.
  c.radius2 = 2.0f * s2 * max(log(c.opacity * (1.0f / kMinAlpha)), vfloat{}) * 1.0001f + 1e-3f;
  return c;
}

vint reaches_image(const Circles& c, const View& v, float margin) {
  const vfloat zero{};  // first, so that NaN stays
  const vfloat dx = max(zero, max(0.5f - c.mx, c.mx - (static_cast<float>(v.width) - 0.5f)));
  const vfloat dy = max(zero, max(0.5f - c.my, c.my - (static_cast<float>(v.height) - 0.5f)));
  if (margin == 0) return c.drawn & (dx * dx + dy * dy <= c.radius2);
  const vfloat reach = sqrt(c.radius2) + margin;
  return c.drawn & (dx * dx + dy * dy <= reach * reach);
}

// The same, to be read lane by lane.
struct StoredCircles {
  explicit StoredCircles(const Circles& c) {
    store(mx, c.mx);
    store(my, c.my);
    store(k, c.k);
    store(opacity, c.opacity);
    store(z, c.z);
    store(radius2, c.radius2);
  }
  float mx[kLanes], my[kLanes], k[kLanes], opacity[kLanes], z[kLanes], radius2[kLanes];
};

vfloat sigmoid(vfloat logit) { return 1.0f / (1.0f + exp(-logit)); }

// Lanes of a row from column i on; beyond the end, NaN, which is never drawn.
vfloat lanes(const float* row, size_t i, size_t end) {
  if (i + kLanes <= end) return load(row + i);
  vfloat v = splat(__builtin_nanf(""));
  std::memcpy(&v, row + i, sizeof(float) * (end - i));
  return v;
}

Circles project_placed(const PlacedSpheres& s, const View& view, size_t i, size_t end) {
  return project(view, lanes(s.x, i, end), lanes(s.y, i, end), lanes(s.z, i, end),
                 lanes(s.radius, i, end), lanes(s.opacity, i, end));
}

}  // namespace

uint32_t project_chunk(const SphereMatrix& spheres, const View& view, float margin, size_t begin,
                       size_t end, const ProjectedChunk& out) {
  const auto row = [&](int r, size_t i) {
    return lanes(spheres.data + r * spheres.capacity, i, end);
  };
  const float* red = spheres.data + kRed * spheres.capacity;
  uint32_t taken = 0, left_out = 0;
  for (size_t i = begin; i < end; i += kLanes) {
    const Circles c = project(view, row(kX, i), row(kY, i), row(kZ, i), exp(row(kLogRadius, i)),
                              sigmoid(row(kOpacityLogit, i)));
    const uint32_t reached = bits_of(reaches_image(c, view, margin));
    const StoredCircles s(c);
    for (uint32_t bits = reached; bits; bits &= bits - 1) {
      const int lane = __builtin_ctz(bits);
      const float* rgb = red + i + lane;
      out.splats[taken] = {s.mx[lane],
                           s.my[lane],
                           s.k[lane],
                           s.opacity[lane],
                           rgb[0],
                           rgb[spheres.capacity],
                           rgb[2 * spheres.capacity],
                           s.z[lane]};
      out.radius2[taken] = s.radius2[lane];
      out.indices[taken++] = static_cast<uint32_t>(i + lane);
    }
    if (!out.left_out) continue;
    const uint32_t all = end - i < kLanes ? (1u << (end - i)) - 1 : (1u << kLanes) - 1;
    for (uint32_t bits = all & ~reached; bits; bits &= bits - 1)
      out.left_out[left_out++] = static_cast<uint32_t>(i + __builtin_ctz(bits));
  }
  return taken;
}

void place_spheres(float* radius, float* opacity, size_t count) {
  for (size_t i = 0; i < count; i += kLanes) {
    const int64_t n = static_cast<int64_t>(count - i);
    store_first(radius + i, exp(load_first(radius + i, n)), n);
    store_first(opacity + i, sigmoid(load_first(opacity + i, n)), n);
  }
}

bool refresh_splats(const PlacedSpheres& spheres, const ListedCircles& listed, const View& view,
                    size_t begin, size_t end, Splat* splats, float* radius2) {
  vint left{};
  for (size_t i = begin; i < end; i += kLanes) {
    const Circles c = project_placed(spheres, view, i, end);
    const vfloat dx = c.mx - lanes(listed.x, i, end), dy = c.my - lanes(listed.y, i, end);
    const vfloat reach = sqrt(dx * dx + dy * dy) + sqrt(c.radius2);
    left |= c.drawn & ~(reach * reach <= lanes(listed.radius2, i, end));
    store_first(radius2 + i, c.drawn ? c.radius2 : splat(-1.0f), static_cast<int64_t>(end - i));
    const StoredCircles from(c);
    for (uint32_t bits = bits_of(c.drawn); bits; bits &= bits - 1) {
      const int lane = __builtin_ctz(bits);
      Splat& s = splats[i + lane];
      s.mx = from.mx[lane];
      s.my = from.my[lane];
      s.k = from.k[lane];
      s.opacity = from.opacity[lane];
      s.z = from.z[lane];
    }
  }
  return !any(left);
}

bool any_in_image(const PlacedSpheres& spheres, const View& view, size_t begin, size_t end) {
  vint found{};
  for (size_t i = begin; i < end; i += kLanes)
    found |= reaches_image(project_placed(spheres, view, i, end), view, 0);
  return any(found);
}

}  // namespace gsslam::GSSLAM_ISA
