# Shared by the scripts of .ci: finding or installing what they need. Source it.

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_PROGRESS_BAR=off PIP_ROOT_USER_ACTION=ignore
export PYTHONDONTWRITEBYTECODE=1

# heading TEXT: tells what comes next and the seconds since the start.
heading() { printf '\n== %s (%ds)\n' "$1" "$SECONDS"; }

# apt_install PACKAGE...: quietly, as root or through sudo.
apt_install() {
  local sudo=
  [[ $(id -u) == 0 ]] || sudo=sudo
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@"
}

# find_python 3.12: prints the path of that Python, from PATH or pyenv; fails where there is none.
find_python() {
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python \
    python3 python; do
    if "$candidate" -c "import sys, venv, ensurepip
sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

# main_python: prints the path of the Python to build with; installs one where there is none.
main_python() {
  local version
  for version in 3.12 3.13 3.11; do find_python $version && return; done
  apt_install python3 python3-venv python3-dev >&2
  for version in 3.12 3.13 3.11; do find_python $version && return; done
  echo "no Python 3.11, 3.12 or 3.13 was found" >&2
  return 1
}

ensure_cxx() {
  command -v "${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || apt_install g++
}

# ensure_nvcc VENV: where no CUDA compiler is installed, takes one from pip and exports CUDACXX.
ensure_nvcc() {
  [[ -z ${CUDACXX:-} ]] || return 0
  command -v nvcc >/dev/null && return 0
  "$1/bin/pip" install -q "nvidia-cuda-nvcc==13.0.*" "nvidia-cuda-crt==13.0.*" \
    "nvidia-nvvm==13.0.*" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-cccl==13.0.*"
  local toolkit
  toolkit=$(echo "$1"/lib/python3*/site-packages/nvidia/cu13)
  # The wheels lack two names under which nvcc and CMake look for the runtime.
  ln -sfn lib "$toolkit/lib64"
  ln -sf libcudart.so.13 "$toolkit/lib/libcudart.so"
  export CUDACXX="$toolkit/bin/nvcc"
}

# build_native FOLDER TARGET CMAKE_OPTION...: builds a target of tests/native there, or `all`.
build_native() {
  local folder=$1 target=$2
  shift 2
  cmake -G Ninja -S tests/native -B "$folder" "$@" >/dev/null
  cmake --build "$folder" --target "$target" -j "$(nproc)" >"$folder/log" || {
    cat "$folder/log"
    return 1
  }
}
