# The plan and the CPU kernels, which need neither Python nor XLA: tests/native builds them alone.

if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11) OR
   (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14))
  message(FATAL_ERROR
    "jax_transpose needs GCC 11 or Clang 14, or newer; ${CMAKE_CXX_COMPILER} is "
    "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}. Name another compiler with CXX.")
endif()

add_library(jax_transpose_plan STATIC)
target_include_directories(jax_transpose_plan PUBLIC "${CMAKE_CURRENT_LIST_DIR}")
foreach(name permutation plan cuda_plan cuda_model block_order cpu_blocks in_place sub_byte_plan tile_set packed_plan
        packed_layout packed_digits)
  target_sources(jax_transpose_plan PRIVATE "${CMAKE_CURRENT_LIST_DIR}/plan/${name}.cc")
endforeach()

# The inner kernels, once for each instruction set; the program picks one when it runs.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(CPU_ISAS sse2 avx2 avx512)
else()
  set(CPU_ISAS generic)
endif()
set(CPU_FLAGS_avx2 -mavx2)
set(CPU_FLAGS_avx512 -mavx512f -mavx512bw -mavx512vl -mprefer-vector-width=512)

# Whatever the build type, other than Debug.
set(CPU_OPTIMIZE $<$<NOT:$<CONFIG:Debug>>:-O3>)

add_library(jax_transpose_cpu STATIC)
target_link_libraries(jax_transpose_cpu PUBLIC jax_transpose_plan)
foreach(name kernels block_walk in_place dispatch instruction_sets parallel sub_byte)
  target_sources(jax_transpose_cpu PRIVATE "${CMAKE_CURRENT_LIST_DIR}/cpu/${name}.cc")
endforeach()
target_compile_options(jax_transpose_cpu PRIVATE ${CPU_OPTIMIZE})
foreach(isa IN LISTS CPU_ISAS)
  add_library(jax_transpose_cpu_${isa} OBJECT "${CMAKE_CURRENT_LIST_DIR}/cpu/isa_kernels.cc")
  target_include_directories(jax_transpose_cpu_${isa} PRIVATE "${CMAKE_CURRENT_LIST_DIR}")
  target_compile_definitions(jax_transpose_cpu_${isa} PRIVATE JAX_TRANSPOSE_ISA=${isa})
  target_compile_options(jax_transpose_cpu_${isa} PRIVATE ${CPU_OPTIMIZE} ${CPU_FLAGS_${isa}})
  target_sources(jax_transpose_cpu PRIVATE $<TARGET_OBJECTS:jax_transpose_cpu_${isa}>)
endforeach()
