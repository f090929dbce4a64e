// Two devices for the stand-in driver. Preloaded in place of its libcuda, which it is linked with,
// it keeps account of what belongs to a device: allocations, streams and modules belong to the one
// that is current when they are made. A kernel, copy or fill that mixes devices fails, and prints a
// line that starts with DEVICES. Copies between devices that name both (cudaMemcpyPeer) are allowed.
//
// DRIVER and RUNTIME are the paths of the libraries whose functions are called in the end.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

// as in the headers of CUDA
typedef int cudaError_t, cudaMemcpyKind;
typedef void* cudaStream_t;
struct cudaPointerAttributes {
  int type, device;
  void *devicePointer, *hostPointer;
};
constexpr int cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidDevice = 101;
constexpr int cudaMemoryTypeUnregistered = 0, cudaMemoryTypeDevice = 2;

namespace {
constexpr int DEVICES = 2, ILLEGAL_ADDRESS = 700;
struct allocation_t {
  size_t size;
  int device;
};
struct kernel_t {
  std::string name;
  std::vector<size_t> sizes;  // of the parameters
  int device;
};
std::mutex lock;
std::map<uintptr_t, allocation_t> allocations;
std::map<void*, int> streams, modules;
std::map<void*, std::string> images;  // of modules: libraries of the host
std::map<void*, kernel_t> kernels;
thread_local int current = 0;

template <class F>
F* original(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  void* found = handle ? dlsym(handle, name) : nullptr;
  if (!found) {
    fprintf(stderr, "DEVICES: no %s in %s\n", name, library);
    abort();
  }
  return reinterpret_cast<F*>(found);
}

// The device of an address, or -1 if it is of the host.
int owner(uintptr_t address) {
  const std::lock_guard<std::mutex> held(lock);
  auto next = allocations.upper_bound(address);
  if (next == allocations.begin()) return -1;
  --next;
  return address < next->first + next->second.size ? next->second.device : -1;
}
int owner(const void* address) { return owner(reinterpret_cast<uintptr_t>(address)); }

int device_of(const std::map<void*, int>& known, void* handle) {
  const std::lock_guard<std::mutex> held(lock);
  const auto found = known.find(handle);
  return found == known.end() ? current : found->second;
}

bool apart(const char* what, const char* name, int device, int other) {
  if (device < 0 || other < 0 || device == other) return false;
  fprintf(stderr, "DEVICES: %s %s: device %d and device %d\n", what, name, device, other);
  return true;
}

cudaError_t moved(const char* name, const void* to, const void* from, cudaStream_t stream) {
  const bool mixed = apart("copy", name, owner(to), owner(from)) ||
                     apart("stream of", name, owner(to), device_of(streams, stream));
  return mixed ? cudaErrorInvalidValue : cudaSuccess;
}

std::vector<size_t> sizes_of(const std::string& image, const char* name) {
  std::vector<size_t> found;
  void* library = image.empty() ? nullptr : dlopen(image.c_str(), RTLD_NOW);
  if (!library) return found;
  if (void* f = dlsym(library, ("sizes_" + std::string(name)).c_str())) {
    size_t sizes[256];
    const int count = reinterpret_cast<int (*)(size_t*)>(f)(sizes);
    found.assign(sizes, sizes + count);
  } else if (void* g = dlsym(library, ("signature_" + std::string(name)).c_str())) {
    char text[4096] = "";
    reinterpret_cast<void (*)(char*)>(g)(text);
    for (char* t = strtok(text, ","); t; t = strtok(nullptr, ","))
      found.push_back(*t == '*' ? sizeof(void*) : atoi(t + 1));
  }
  return found;
}
}  // namespace

extern "C" {
// --- for device_libraries.cpp

int devices_current() { return current; }
int devices_owner(const void* address) { return owner(address); }
int devices_of_stream(void* stream) { return device_of(streams, stream); }
bool devices_apart(const char* what, const char* name, int device, int other) {
  return apart(what, name, device, other);
}

// --- devices and their memory

cudaError_t cudaGetDeviceCount(int* count) { return *count = DEVICES, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = current, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= DEVICES) return cudaErrorInvalidDevice;
  return current = device, cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  snprintf(text, size, "0000:0%d:00.0", device);
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** p, size_t size) {
  static const auto next = original<cudaError_t(void**, size_t)>(RUNTIME, "cudaMalloc");
  const cudaError_t error = next(p, size);
  const std::lock_guard<std::mutex> held(lock);
  if (error == cudaSuccess) allocations[reinterpret_cast<uintptr_t>(*p)] = {size, current};
  return error;
}
cudaError_t cudaFree(void* p) {
  static const auto next = original<cudaError_t(void*)>(RUNTIME, "cudaFree");
  {
    const std::lock_guard<std::mutex> held(lock);
    allocations.erase(reinterpret_cast<uintptr_t>(p));
  }
  return next(p);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  const int device = owner(p);
  *a = {device < 0 ? cudaMemoryTypeUnregistered : cudaMemoryTypeDevice, device,
        const_cast<void*>(p), nullptr};
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* s) {
  static const auto next = original<cudaError_t(cudaStream_t*)>(RUNTIME, "cudaStreamCreate");
  const cudaError_t error = next(s);
  const std::lock_guard<std::mutex> held(lock);
  streams[*s] = current;
  return error;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return cudaStreamCreate(s); }

// --- copies and fills

cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  typedef cudaError_t copy_t(void*, const void*, size_t, cudaMemcpyKind);
  static const auto next = original<copy_t>(RUNTIME, "cudaMemcpy");
  if (cudaError_t error = moved("cudaMemcpy", to, from, nullptr)) return error;
  return next(to, from, size, kind);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  typedef cudaError_t copy_t(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
  static const auto next = original<copy_t>(RUNTIME, "cudaMemcpyAsync");
  if (cudaError_t error = moved("cudaMemcpyAsync", to, from, stream)) return error;
  return next(to, from, size, kind, stream);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  typedef cudaError_t fill_t(void*, int, size_t, cudaStream_t);
  static const auto next = original<fill_t>(RUNTIME, "cudaMemsetAsync");
  if (cudaError_t error = moved("cudaMemsetAsync", to, to, stream)) return error;
  return next(to, value, size, stream);
}

// --- kernels

int cuModuleLoadData(void** module, const void* image) {
  static const auto next = original<int(void**, const void*)>(DRIVER, "cuModuleLoadData");
  const int error = next(module, image);
  const char* text = static_cast<const char*>(image);
  const std::lock_guard<std::mutex> held(lock);
  modules[*module] = current;
  images[*module] = strncmp(text, "FAKE:", 5) ? "" : text + 5;
  return error;
}
int cuModuleGetFunction(void** kernel, void* module, const char* name) {
  static const auto next =
      original<int(void**, void*, const char*)>(DRIVER, "cuModuleGetFunction");
  const int error = next(kernel, module, name);
  const std::lock_guard<std::mutex> held(lock);
  if (!error) kernels[*kernel] = {name, sizes_of(images[module], name), modules[module]};
  return error;
}
int cuLaunchKernel(void* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void* stream, void** parameters, void** extra) {
  typedef int launch_t(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       void*, void**, void**);
  static const auto next = original<launch_t>(DRIVER, "cuLaunchKernel");
  kernel_t known;
  {
    const std::lock_guard<std::mutex> held(lock);
    known = kernels[kernel];
  }
  const char* name = known.name.c_str();
  bool mixed = apart("module of kernel", name, known.device, current) ||
               apart("stream of kernel", name, device_of(streams, stream), current);
  // an array of CuPy's is a parameter that starts with its address
  for (size_t i = 0; i < known.sizes.size(); ++i) {
    uintptr_t first = 0;
    if (known.sizes[i] < sizeof first) continue;
    memcpy(&first, parameters[i], sizeof first);
    mixed = apart("argument of kernel", name, owner(first), current) || mixed;
  }
  if (mixed) return ILLEGAL_ADDRESS;
  return next(kernel, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}
}
