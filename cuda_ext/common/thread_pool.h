// A pool of threads that sleep while there is nothing to do.
#pragma once

#include <cstddef>
#include <functional>

namespace gsslam {

// Number of threads that take part in parallel_for, the caller included; at least 1.
int thread_count();

// Sets that number; 0 takes the number of processors this process may run on.
void set_thread_count(int count);

// Calls body(i) for every i in [0, count), on the caller and the pool's threads, in any order, and
// returns when all calls have returned. Several threads may call it at the same time. The body must
// not throw and must not call parallel_for.
void parallel_for(size_t count, const std::function<void(size_t)>& body);

}  // namespace gsslam
