#!/bin/sh
# Builds weft-rank, and nothing else, against the libtorch of an installed PyTorch (2.x): on a GPU node or a cluster's
# image, where no package can be installed. Needs g++ (C++20), Python with torch, and the headers of fmt and Gloo, which
# PyTorch's wheel does not have: they are carried along.
#
#   tools/build_rank.sh OUTPUT [DIRECTORY OF HEADERS]      e.g. build/weft-rank build/headers (fmt/, gloo/)
set -e
output=${1:?usage: tools/build_rank.sh OUTPUT [DIRECTORY OF HEADERS]}
headers=${2:-/usr/include}
root=$(cd "$(dirname "$0")/.." && pwd)
torch=$(python3 -c 'import torch; print(torch.__path__[0])')
abi=$(python3 -c 'import torch; print(int(torch._C._GLIBCXX_USE_CXX11_ABI))')
objects=$(dirname "$output")/weft-rank.objects
mkdir -p "$objects"

flags="-std=c++20 -O2 -ffp-contract=off -DFMT_HEADER_ONLY -DUSE_C10D_GLOO -D_GLIBCXX_USE_CXX11_ABI=$abi
  -I$root/src -isystem $headers -isystem $torch/include -isystem $torch/include/torch/csrc/api/include"

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
g++ "$objects"/*.o -o "$output" -L"$torch/lib" -Wl,-rpath,"$torch/lib" -ltorch -ltorch_cpu -lc10
echo "$output: built against $torch"
