/* What printed CUDA kernels need of CUDA, for a C++ compiler of the host. */
#define __global__
#define __device__
#define __forceinline__ inline
struct float2 { float x, y; };
struct double2 { double x, y; };
static inline float2 make_float2(float x, float y) { float2 z = {x, y}; return z; }
static inline double2 make_double2(double x, double y) { double2 z = {x, y}; return z; }
struct Index { long x; };
static thread_local Index blockIdx, blockDim, threadIdx;
template <class A, class B> static inline A bits_of(B b) {
    A a; static_assert(sizeof(A) == sizeof(B)); __builtin_memcpy(&a, &b, sizeof a); return a;
}
static inline float __int_as_float(int n) { return bits_of<float>(n); }
static inline int __float_as_int(float x) { return bits_of<int>(x); }
static inline double __longlong_as_double(long long n) { return bits_of<double>(n); }
static inline long long __double_as_longlong(double x) { return bits_of<long long>(x); }
static inline float from_half(unsigned short h) { return (float)bits_of<_Float16>(h); }
static inline unsigned short to_half(float x) { return bits_of<unsigned short>((_Float16)x); }
extern "C" int usleep(unsigned);
static inline void __nanosleep(unsigned n) { usleep(n / 1000); }
#define ONE(name) \
    static inline double name(double x) { return __builtin_##name(x); } \
    static inline float name(float x) { return __builtin_##name##f(x); }
#define TWO(name) \
    static inline double name(double x, double y) { return __builtin_##name(x, y); } \
    static inline float name(float x, float y) { return __builtin_##name##f(x, y); }
#define IS(name) \
    static inline bool name(double x) { return __builtin_##name(x) != 0; } \
    static inline bool name(float x) { return __builtin_##name(x) != 0; }
ONE(exp) ONE(expm1) ONE(exp2) ONE(log) ONE(log1p) ONE(log2) ONE(log10) ONE(sqrt) ONE(cbrt)
ONE(sin) ONE(cos) ONE(tan) ONE(asin) ONE(acos) ONE(atan) ONE(sinh) ONE(cosh) ONE(tanh)
ONE(asinh) ONE(acosh) ONE(atanh) ONE(erf) ONE(erfc) ONE(floor) ONE(ceil) ONE(trunc)
ONE(rint) ONE(fabs)
TWO(atan2) TWO(hypot) TWO(pow) TWO(copysign) TWO(nextafter) TWO(fmod)
IS(isnan) IS(isfinite) IS(signbit)
static inline bool isinf(double x) { return __builtin_isinf(x) != 0; }
static inline bool isinf(float x) { return __builtin_isinf(x) != 0; }
