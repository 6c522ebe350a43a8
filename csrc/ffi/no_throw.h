// XLA calls handlers through a C interface: no exception may cross it, at whatever stage.
#pragma once

#include <cstdio>
#include <exception>
#include <new>

#include "xla/ffi/api/ffi.h"

namespace jax_transpose {

inline XLA_FFI_Error* ErrorOf(const XLA_FFI_Api* api, XLA_FFI_Error_Code code, const char* what) {
  char message[256];  // nothing is allocated: memory may be what there is none of
  std::snprintf(message, sizeof(message), "jax_transpose: %s", what);
  XLA_FFI_Error_Create_Args args = {};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message;
  args.errc = code;
  return api->XLA_FFI_Error_Create(&args);
}

// The handler to register: `handler`, from the decoding of its arguments on, with exceptions turned
// into errors.
template <XLA_FFI_Handler* const& handler>
XLA_FFI_Error* NoThrow(XLA_FFI_CallFrame* frame) noexcept {
  try {
    return handler(frame);
  } catch (const std::bad_alloc&) {
    return ErrorOf(frame->api, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "out of host memory");
  } catch (const std::exception& failure) {
    return ErrorOf(frame->api, XLA_FFI_Error_Code_INTERNAL, failure.what());
  } catch (...) {
    return ErrorOf(frame->api, XLA_FFI_Error_Code_INTERNAL, "an unknown exception");
  }
}

}  // namespace jax_transpose
