// Whether and why not the CUDA kernels can run here; works without a driver.
#pragma once

#include <string>

namespace gsslam {

// Empty if they can run on `device`, else one line that says what is wrong and what to do.
std::string cuda_problem(int device);

}  // namespace gsslam
