"""A case is a point to measure: an operator of Weft, the types of its inputs, and how to make a call that computes it."""
import re

import torch

WIDTH = {"f32": 4, "bf16": 2, "f16": 2, "i64": 8, "f8": 1}


class Case:
    def __init__(self, family, operator, attributes, shapes, make, dtype=None, direction="forward", variant="eager", high=None,
                 warm=None):
        self.family, self.operator, self.make, self.direction, self.variant = family, operator, make, direction, variant
        self.attributes = "{" + ", ".join(f"{k}={text(v)}" for k, v in sorted(attributes.items())) + "}" if attributes else ""
        self.shapes = shapes.split()
        self.dtype = dtype or self.shapes[0].split("[")[0]
        self.high = high
        self.warm = self.bytes() < 64e6 and family in ("pointwise", "norm", "softmax") if warm is None else warm

    def bytes(self):
        total = 0
        for item in self.shapes:
            dtype, shape = re.fullmatch(r"(\w+)\[([\d,]*)\]", item).groups()
            count = WIDTH[dtype]
            for n in shape.split(","):
                count *= int(n) if n else 1
            total += count
        return total

    def key(self, cache):
        return (self.family, self.operator, self.attributes, " ".join(self.shapes), self.dtype, self.direction, self.variant, cache)


def text(value):
    if isinstance(value, str):
        return f'"{value}"'
    return "[" + ",".join(map(str, value)) + "]" if isinstance(value, (list, tuple)) else str(value)


def t(dtype, *shape):
    return f"{dtype}[{','.join(map(str, shape))}]"


def back(out, *inputs):
    """A call that computes the gradients of `inputs` alone."""
    dy = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, inputs, dy, retain_graph=True)


def grads(function):
    """make() for the backward of a function of all its float inputs."""
    def make(*inputs):
        inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
        return back(function(*inputs), *[x for x in inputs if x.is_floating_point()])
    return make


def forward(function):
    return lambda *inputs: lambda: function(*inputs)
