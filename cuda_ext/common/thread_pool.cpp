#include "common/thread_pool.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace gsslam {
namespace {

struct Job {
  const std::function<void(size_t)>* body;
  size_t count;
  std::atomic<size_t> next{0};
  int workers_inside = 0;  // guarded by the pool's mutex

  void work() {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) (*body)(i);
  }
};

int processors_allowed() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

class Pool {
 public:
  Pool() { resize(processors_allowed()); }
  ~Pool() { stop(); }

  int size() const { return size_.load(); }

  void resize(int count) {
    std::lock_guard resizing(resize_mutex_);
    stop();
    stopping_ = false;
    for (int i = 1; i < count; ++i) workers_.emplace_back([this] { serve(); });
    size_ = count;
  }

  void run(size_t count, const std::function<void(size_t)>& body) {
    Job job{&body, count};
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(&job);
    }
    wake_.notify_all();
    job.work();
    std::unique_lock lock(mutex_);
    jobs_.remove(&job);
    // A worker that still runs one of this job's calls leaves before the job's memory goes.
    left_.wait(lock, [&] { return job.workers_inside == 0; });
  }

 private:
  Job* open_job() {
    for (Job* job : jobs_)
      if (job->next.load(std::memory_order_relaxed) < job->count) return job;
    return nullptr;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      Job* job = nullptr;
      wake_.wait(lock, [&] { return stopping_ || (job = open_job()) != nullptr; });
      if (stopping_) return;
      ++job->workers_inside;
      lock.unlock();
      job->work();
      lock.lock();
      if (--job->workers_inside == 0) left_.notify_all();
    }
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
    workers_.clear();
  }

  std::mutex mutex_, resize_mutex_;
  std::condition_variable wake_, left_;
  std::list<Job*> jobs_;
  std::vector<std::thread> workers_;  // guarded by resize_mutex_
  std::atomic<int> size_{1};          // of the workers and the caller
  bool stopping_ = false;
};

// Never destroyed: at exit other threads may still be inside it.
Pool& pool() {
  static Pool* instance = new Pool;
  return *instance;
}

}  // namespace

int thread_count() { return pool().size(); }

void set_thread_count(int count) { pool().resize(count > 0 ? count : processors_allowed()); }

void parallel_for(size_t count, const std::function<void(size_t)>& body) {
  if (count == 0) return;
  if (count == 1) return body(0);
  pool().run(count, body);
}

}  // namespace gsslam
