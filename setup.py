"""Builds weft._core with CMake. WEFT_BUILD names a build tree to use, which may already have it; default build/python."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent


class BuiltByCMake(build_ext):
    def build_extension(self, extension):
        tree = pathlib.Path(os.environ.get("WEFT_BUILD", ROOT / "build/python"))
        if not (tree / "CMakeCache.txt").exists():
            subprocess.run(["cmake", "-S", ROOT, "-B", tree, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                            "-DCMAKE_CXX_FLAGS_RELEASE=-O2", "-DWEFT_UNITY=ON", "-DWEFT_TESTS=OFF", "-DWEFT_RUN=OFF",
                            "-DWEFT_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}"], check=True)
        subprocess.run(["cmake", "--build", tree, "--target", "weft_python"], check=True)
        target = pathlib.Path(self.get_ext_fullpath(extension.name))
        made = tree / "lib/python/weft" / target.name
        if not made.exists():
            sys.exit(f"{tree}: builds the module for another Python than {sys.executable}; "
                     "name another tree in WEFT_BUILD, or remove it")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(made, target)


VERSION = re.search(r"project\(weft VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
setup(version=VERSION, ext_modules=[Extension("weft._core", [])], cmdclass={"build_ext": BuiltByCMake})
