"""The type stubs say what the module has."""
import ast
import inspect
import subprocess
import sys

import pytest
import weft
import weft._core
from conftest import ROOT

STUB = ast.parse((ROOT / "python/weft/_core.pyi").read_text())


def parameters(function):
    """(name, kind, default) of a function of a stub."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    made = [(each.arg, "plain", default) for each, default in zip(plain, defaults)]
    made += [(each.arg, "keyword", default) for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return [(name, kind, None if default is None else ast.literal_eval(default))
            for name, kind, default in made if name != "self"]


def bound_parameters(function):
    """The same of a function of the module, from the signature that begins its documentation."""
    signature = function.__doc__.split("\n")[0]
    # "<weft._core.X object at 0x…>" cannot be parsed; no default is one.
    return parameters(ast.parse(f"def {signature.replace('weft::', '')}: ...").body[0])


def functions(body):
    return {each.name: each for each in body if isinstance(each, ast.FunctionDef)}


CLASSES = {each.name: each for each in STUB.body if isinstance(each, ast.ClassDef)}


def test_every_public_name_is_in_the_stub_and_the_other_way_round():
    public = {name for name in dir(weft._core) if not name.startswith("_")} | {"__version__"}
    assert public == set(CLASSES) | set(functions(STUB.body)) | {"__version__"}
    assert set(weft.__all__) <= set(dir(weft))


@pytest.mark.parametrize("name", sorted(functions(STUB.body)))
def test_functions_have_the_stubs_parameters(name):
    assert bound_parameters(getattr(weft._core, name)) == parameters(functions(STUB.body)[name])


@pytest.mark.parametrize("name", sorted(set(CLASSES) - {"Error"}))
def test_classes_have_the_stubs_members(name):
    own = getattr(weft._core, name)
    stub = functions(CLASSES[name].body)
    shown = {each for each in vars(own) if not each.startswith("__")}
    assert shown == {each for each in stub if not each.startswith("__")}
    for each, function in stub.items():
        is_property = any(getattr(mark, "id", "") == "property" for mark in function.decorator_list)
        assert is_property == isinstance(inspect.getattr_static(own, each), property), each
        if not is_property and not each.startswith("_"):
            assert bound_parameters(getattr(own, each)) == parameters(function), each


def test_mypy_finds_no_difference_and_the_examples_are_well_typed(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\n")
    # Every bound class has pybind11's metaclass, and where it has no constructor, one that refuses.
    (tmp_path / "unlisted").write_text(r"weft(\._core)?\.[A-Z]\w*(\.__init__)?" + "\n")
    for words in (["mypy.stubtest", "weft", "--mypy-config-file", "mypy.ini", "--allowlist", "unlisted"],
                  ["mypy", "--strict", "--config-file", "mypy.ini", *map(str, sorted((ROOT / "examples").glob("*.py")))]):
        done = subprocess.run([sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
