# Which GPU architectures to compile for.
#
# jax_transpose_cuda_architectures(RESULT REQUESTED TOOLKIT): sets RESULT in the caller's scope.
#   REQUESTED: what CMAKE_CUDA_ARCHITECTURES or CUDAARCHS says, empty where neither does.
#   TOOLKIT: version of the CUDA toolkit.
# Reads CMAKE_CUDA_ARCHITECTURES_NATIVE, _ALL and _ALL_MAJOR, which CMake sets with the language.

function(jax_transpose_cuda_architectures result requested toolkit)
  if("${requested}" STREQUAL "")
    # Machine code for each family, and PTX for what lies between (90) and after (the newest).
    set(requested 80-real 90)
    if(toolkit VERSION_GREATER_EQUAL 12.8)
      set(requested 80-real 90 100-real 120)
    endif()
  elseif(requested MATCHES "^(native|all|all-major)$")
    string(TOUPPER "${requested}" kind)
    string(REPLACE "-" "_" kind "${kind}")
    set(named ${CMAKE_CUDA_ARCHITECTURES_${kind}})
    list(FILTER named INCLUDE REGEX "^[0-9]")  # without a GPU CMake may hold a message instead
    if(kind MATCHES "ALL")
      list(FILTER named EXCLUDE REGEX "^[5-7][0-9]")
    endif()
    if("${named}" STREQUAL "")
      message(FATAL_ERROR
        "CUDA architectures '${requested}': the compiler names none here (native needs an NVIDIA "
        "GPU and its driver); allowed: numbers such as 80-real, 90 or 120, joined by semicolons")
    endif()
    set(requested ${named})
  endif()
  foreach(architecture IN LISTS requested)
    if(NOT architecture MATCHES "^([0-9]+)[af]?(-real|-virtual)?$" OR CMAKE_MATCH_1 LESS 80)
      message(FATAL_ERROR
        "CUDA architecture '${architecture}' (of '${requested}'): the kernels need compute "
        "capability 8.0 or newer; allowed: native, all, all-major, or numbers such as 80-real, 90 "
        "or 120, joined by semicolons")
    endif()
  endforeach()
  set(${result} "${requested}" PARENT_SCOPE)
endfunction()
