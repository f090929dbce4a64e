// cuBLAS and cuSOLVER for the two devices of devices.cpp: preloaded in place of those of the
// stand-in driver, whose functions are called in the end. A handle belongs to the device that is
// current when it is made. A call fails, and prints a line that starts with DEVICES, if its handle,
// the stream of its handle, or an operand is not of the current device.
//
// It is built for each of the two: BLAS is 1 or 0, ORIGINAL the path of the stand-in's library.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <mutex>

typedef void* handle_t;
typedef const void* in_t;
typedef void* out_t;

extern "C" {  // of devices.cpp
int devices_current();
int devices_owner(const void* address);
int devices_of_stream(void* stream);
bool devices_apart(const char* what, const char* name, int device, int other);
}

namespace {
constexpr int EXECUTION_FAILED = BLAS ? 13 : 6;  // as in the headers of the libraries
struct state_t {
  int device, of_stream;
};
std::mutex lock;
std::map<handle_t, state_t> handles;

// What is not defined here is found in the stand-in's library.
__attribute__((constructor)) void load() {
  if (dlopen(ORIGINAL, RTLD_NOW | RTLD_GLOBAL)) return;
  fprintf(stderr, "DEVICES: %s\n", dlerror());
  abort();
}

template <class F>
F* original(const char* name) {
  void* found = dlsym(dlopen(ORIGINAL, RTLD_NOW | RTLD_NOLOAD), name);
  if (!found) {
    fprintf(stderr, "DEVICES: no %s in %s\n", name, ORIGINAL);
    abort();
  }
  return reinterpret_cast<F*>(found);
}

bool mixed(const char* name, handle_t handle, std::initializer_list<const void*> operands) {
  const int current = devices_current();
  state_t state;
  {
    const std::lock_guard<std::mutex> held(lock);
    state = handles.at(handle);
  }
  bool found = devices_apart("handle of", name, state.device, current);
  found = devices_apart("stream of", name, state.of_stream, current) || found;
  for (const void* operand : operands)
    found = devices_apart("operand of", name, devices_owner(operand), current) || found;
  return found;
}

#if BLAS
// Pointers of a batch lie on the device themselves.
bool mixed_batch(const char* name, handle_t handle, int count,
                 std::initializer_list<void* const*> batches) {
  bool found = false;
  for (void* const* batch : batches) {
    found = mixed(name, handle, {batch}) || found;
    for (int i = 0; !found && i < count; ++i) found = mixed(name, handle, {batch[i]});
  }
  return found;
}
#endif

int created(handle_t* handle, int (*next)(handle_t*)) {
  const int status = next(handle);
  const std::lock_guard<std::mutex> held(lock);
  handles[*handle] = {devices_current(), devices_current()};
  return status;
}

int streamed(handle_t handle, void* stream, int (*next)(handle_t, void*)) {
  const std::lock_guard<std::mutex> held(lock);
  handles.at(handle).of_stream = devices_of_stream(stream);
  return next(handle, stream);
}
}  // namespace

#define CALL(name, parameters, arguments, ...)               \
  int name parameters {                                      \
    static const auto next = original<int parameters>(#name); \
    if (__VA_ARGS__) return EXECUTION_FAILED;                \
    return next arguments;                                   \
  }
#define CREATE(name) \
  int name(handle_t* h) { return created(h, original<int(handle_t*)>(#name)); }
#define SET_STREAM(name) \
  int name(handle_t h, void* s) { return streamed(h, s, original<int(handle_t, void*)>(#name)); }

extern "C" {
#if BLAS
CREATE(cublasCreate_v2)
SET_STREAM(cublasSetStream_v2)

#define GEMM(name)                                                                               \
  CALL(name,                                                                                     \
       (handle_t h, int ta, int tb, int m, int n, int k, in_t alpha, in_t A, int lda, in_t B,    \
        int ldb, in_t beta, out_t C, int ldc),                                                   \
       (h, ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc), mixed(#name, h, {A, B, C}))
GEMM(cublasDgemm_v2)
GEMM(cublasSgemm_v2)

CALL(cublasGemmEx,
     (handle_t h, int ta, int tb, int m, int n, int k, in_t alpha, in_t A, int of_a, int lda,
      in_t B, int of_b, int ldb, in_t beta, out_t C, int of_c, int ldc, int compute, int how),
     (h, ta, tb, m, n, k, alpha, A, of_a, lda, B, of_b, ldb, beta, C, of_c, ldc, compute, how),
     mixed("cublasGemmEx", h, {A, B, C}))
CALL(cublasGemmStridedBatchedEx,
     (handle_t h, int ta, int tb, int m, int n, int k, in_t alpha, in_t A, int of_a, int lda,
      long long sa, in_t B, int of_b, int ldb, long long sb, in_t beta, out_t C, int of_c, int ldc,
      long long sc, int count, int compute, int how),
     (h, ta, tb, m, n, k, alpha, A, of_a, lda, sa, B, of_b, ldb, sb, beta, C, of_c, ldc, sc, count,
      compute, how),
     mixed("cublasGemmStridedBatchedEx", h, {A, B, C}))

#define BATCHED(name)                                                                            \
  CALL(name,                                                                                     \
       (handle_t h, int ta, int tb, int m, int n, int k, in_t alpha, void** A, int lda, void** B, \
        int ldb, in_t beta, void** C, int ldc, int count),                                       \
       (h, ta, tb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, count),                         \
       mixed_batch(#name, h, count, {A, B, C}))
BATCHED(cublasDgemmBatched)
BATCHED(cublasSgemmBatched)

#define TRSM(name)                                                                              \
  CALL(name,                                                                                    \
       (handle_t h, int side, int uplo, int op, int diag, int m, int n, in_t alpha, in_t A,     \
        int lda, out_t B, int ldb),                                                             \
       (h, side, uplo, op, diag, m, n, alpha, A, lda, B, ldb), mixed(#name, h, {A, B}))
TRSM(cublasDtrsm_v2)
TRSM(cublasStrsm_v2)
#else
CREATE(cusolverDnCreate)
SET_STREAM(cusolverDnSetStream)

#define POTRF(name)                                                                          \
  CALL(name,                                                                                 \
       (handle_t h, int uplo, int n, out_t A, int lda, out_t work, int size, int* info),     \
       (h, uplo, n, A, lda, work, size, info), mixed(#name, h, {A, work, info}))             \
  CALL(name##_bufferSize, (handle_t h, int uplo, int n, out_t A, int lda, int* size),        \
       (h, uplo, n, A, lda, size), mixed(#name "_bufferSize", h, {A}))
POTRF(cusolverDnDpotrf)
POTRF(cusolverDnSpotrf)
#endif
}
