// What host and device compile alike.
#pragma once

#if defined(__CUDACC__)
#define JAX_TRANSPOSE_INLINE __host__ __device__ __forceinline__
#else
#define JAX_TRANSPOSE_INLINE inline
#endif
