// Adam on the CPU: a plan that holds the tables of bias corrections.
#pragma once

#include <vector>

#include "optimizer/adam.h"
#include "optimizer/adam_tables.h"

namespace gsslam {

class CpuAdam {
 public:
  // beta1 and beta2 in [0, kMaxBeta].
  CpuAdam(double beta1, double beta2, double epsilon);

  // Steps every sphere that has a gradient; the same bytes for any number of threads.
  AdamCounts step(const AdamSpheres& spheres);

 private:
  float weight1_, weight2_, epsilon_;
  AdamTables tables_;
  std::vector<AdamCounts> chunk_counts_;
};

}  // namespace gsslam
