// Projection on vectors of spheres, one set of functions for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/isa.h"
#include "rasterize/sphere_matrix.h"

namespace gsslam {

// What a chunk of the map projects to: the drawn spheres that reach the image, in order.
struct ProjectedChunk {
  Splat* splats;
  float* radius2;      // pixels^2: outside, the sphere's alpha is under kMinAlpha
  uint32_t* indices;   // columns of the map
  uint32_t* left_out;  // the other columns, in order
};

// Spheres whose exponentials are done: as often as the camera moves, they are projected again.
struct PlacedSpheres {
  const float *x, *y, *z;
  const float* radius;   // metres
  const float* opacity;  // 0 to 1
};

// Where the circles of listed spheres lay and how far they reached when the lists were made.
struct ListedCircles {
  const float *x, *y;
  const float* radius2;  // pixels^2, the margin included
};

#define GSSLAM_DECLARE(isa)                                                                        \
  namespace isa {                                                                                  \
  /* Projects columns [begin, end) and returns how many reach the image, give or take `margin` */  \
  /* pixels. */                                                                                    \
  uint32_t project_chunk(const SphereMatrix& spheres, const View& view, float margin,              \
                         size_t begin, size_t end, const ProjectedChunk& out);                     \
  /* Turns logarithms of the radius and logits of the opacity into the two, in place. */           \
  void place_spheres(float* radius, float* opacity, size_t count);                                 \
  /* Projects [begin, end) anew into splats and radius2, which keep their order; one that is no    \
   * longer drawn gets a negative radius2. Returns false if a circle left the listed one. */       \
  bool refresh_splats(const PlacedSpheres& spheres, const ListedCircles& listed, const View& view, \
                      size_t begin, size_t end, Splat* splats, float* radius2);                    \
  /* True if any of [begin, end) reaches the image. */                                             \
  bool any_in_image(const PlacedSpheres& spheres, const View& view, size_t begin, size_t end);     \
  }
GSSLAM_FOR_EACH_ISA(GSSLAM_DECLARE)
#undef GSSLAM_DECLARE

}  // namespace gsslam
