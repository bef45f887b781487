// Choice of the instruction set, once, when the module is loaded.
#pragma once

namespace gsslam {

enum class Isa { portable, avx2, avx512 };

// The instruction set in use: the best that the processor has, or the one that was set.
Isa current_isa();

// Name of the instruction set in use: "portable", "avx2" or "avx512".
const char* isa_name();

// Takes the named one; false if the processor or the build does not have it.
bool set_isa(const char* name);

// Picks the function compiled for the instruction set in use: GSSLAM_DISPATCH(forward_tile).
#ifdef GSSLAM_X86
#define GSSLAM_DISPATCH(function)                                                \
  (::gsslam::current_isa() == ::gsslam::Isa::avx512 ? ::gsslam::avx512::function \
   : ::gsslam::current_isa() == ::gsslam::Isa::avx2 ? ::gsslam::avx2::function   \
                                                    : ::gsslam::portable::function)
#define GSSLAM_FOR_EACH_ISA(declare) declare(portable) declare(avx2) declare(avx512)
#else
#define GSSLAM_DISPATCH(function) (::gsslam::portable::function)
#define GSSLAM_FOR_EACH_ISA(declare) declare(portable)
#endif

}  // namespace gsslam
