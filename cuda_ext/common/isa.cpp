#include "common/isa.h"

#include <atomic>
#include <cstring>
#include <initializer_list>

namespace gsslam {
namespace {

bool has(Isa isa) {
#ifdef GSSLAM_X86
  if (isa == Isa::avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return isa == Isa::portable;
}

std::atomic<Isa>& choice() {
  static std::atomic<Isa> value{has(Isa::avx512) ? Isa::avx512
                                : has(Isa::avx2) ? Isa::avx2
                                                 : Isa::portable};
  return value;
}

constexpr const char* kNames[] = {"portable", "avx2", "avx512"};

}  // namespace

Isa current_isa() { return choice().load(std::memory_order_relaxed); }

const char* isa_name() { return kNames[static_cast<int>(current_isa())]; }

bool set_isa(const char* name) {
  for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (std::strcmp(name, kNames[static_cast<int>(isa)]) != 0) continue;
    if (!has(isa)) return false;
    choice().store(isa);
    return true;
  }
  return false;
}

}  // namespace gsslam
