#!/bin/sh
# Builds weft-rank, and nothing else, against the libtorch of an installed PyTorch (2.x): on a GPU node or a cluster's
# image, where no package can be installed. Needs g++ (C++20), Python with torch, and the headers of fmt and Gloo, which
# PyTorch's wheel does not have: they are carried along. Where that PyTorch has CUDA, the rank has CUDA and NCCL.
#
#   tools/build_rank.sh OUTPUT [DIRECTORY OF HEADERS]      e.g. build/weft-rank build/headers (fmt/, gloo/)
#
# PYTHON names the interpreter (python3).
set -e
output=${1:?usage: tools/build_rank.sh OUTPUT [DIRECTORY OF HEADERS]}
headers=${2:-/usr/include}
root=$(cd "$(dirname "$0")/.." && pwd)
ask() { "${PYTHON:-python3}" -c "import torch; print($1)"; }
torch=$(ask 'torch.__path__[0]')
abi=$(ask 'int(torch._C._GLIBCXX_USE_CXX11_ABI)')
objects=$(dirname "$output")/weft-rank.objects
mkdir -p "$objects"

flags="-std=c++20 -O2 -ffp-contract=off -DFMT_HEADER_ONLY -DUSE_C10D_GLOO -D_GLIBCXX_USE_CXX11_ABI=$abi
  -I$root/src -isystem $headers -isystem $torch/include -isystem $torch/include/torch/csrc/api/include"
libraries="-ltorch -ltorch_cpu -lc10"

# CUDA's and NCCL's headers come with the toolkit, or as Python packages beside torch.
if [ "$(ask 'torch.version.cuda is not None')" = True ]; then
  nvidia=$(dirname "$torch")/nvidia
  flags="$flags -DUSE_C10D_NCCL -DUSE_CUDA"
  for include in "${CUDA_HOME:-/usr/local/cuda}/include" "$nvidia"/*/include; do
    [ -d "$include" ] && flags="$flags -isystem $include"
  done
  # Nothing of a rank refers to these by name: they register what CUDA tensors are computed with.
  libraries="$libraries -Wl,--no-as-needed -ltorch_cuda -lc10_cuda"
  for library in "$nvidia"/nccl/lib/libnccl.so.2; do
    [ -e "$library" ] && libraries="$libraries $library -Wl,-rpath,$(dirname "$library")"
  done
fi

# What a rank is made of: no planner, no presets, no models.
sources="src/base/check.cpp src/base/read_file.cpp src/base/suggest.cpp src/base/units.cpp src/base/whole_file.cpp
  src/profile/event.cpp src/profile/event_list.cpp"
for folder in graph layout program bundle run; do
  for file in "$root"/src/$folder/*.cpp; do
    case $file in
      *_test.cpp | *_bench.cpp | *launch.cpp) ;;
      *) sources="$sources src/$folder/$(basename "$file")" ;;
    esac
  done
done
for file in $sources; do
  object=$objects/$(echo "$file" | tr / _).o
  [ "$object" -nt "$root/$file" ] || echo "$file $object"
done | xargs -r -P "$(nproc)" -L 1 sh -c "g++ $(echo $flags) -c $root/\$0 -o \$1"
g++ "$objects"/*.o -o "$output" -L"$torch/lib" -Wl,-rpath,"$torch/lib" $libraries
echo "$output: built against $torch"
