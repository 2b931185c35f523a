"""Operators on images: convolutions, batch norm and pooling."""
import itertools

import torch
import torch.nn.functional as F

from measuring.cases import Case, back, forward, grads, t

aten = torch.ops.aten
# (in, out, kernel, stride, padding, height and width)
RESNET = [(3, 64, 7, 2, 3, 224), (64, 64, 1, 1, 0, 56), (64, 64, 3, 1, 1, 56), (64, 256, 1, 1, 0, 56), (256, 64, 1, 1, 0, 56),
          (256, 128, 1, 1, 0, 56), (128, 128, 3, 2, 1, 56), (128, 512, 1, 1, 0, 28), (256, 512, 1, 2, 0, 56), (512, 128, 1, 1, 0, 28),
          (128, 128, 3, 1, 1, 28), (512, 256, 1, 1, 0, 28), (256, 256, 3, 2, 1, 28), (256, 1024, 1, 1, 0, 14), (512, 1024, 1, 2, 0, 28),
          (1024, 256, 1, 1, 0, 14), (256, 256, 3, 1, 1, 14), (1024, 512, 1, 1, 0, 14), (512, 512, 3, 2, 1, 14), (512, 2048, 1, 1, 0, 7),
          (1024, 2048, 1, 2, 0, 14), (2048, 512, 1, 1, 0, 7), (512, 512, 3, 1, 1, 7)]
VGG = [(3, 64, 3, 1, 1, 224), (64, 64, 3, 1, 1, 224), (64, 128, 3, 1, 1, 112), (128, 128, 3, 1, 1, 112), (128, 256, 3, 1, 1, 56),
       (256, 256, 3, 1, 1, 56), (256, 512, 3, 1, 1, 28), (512, 512, 3, 1, 1, 28), (512, 512, 3, 1, 1, 14)]
INCEPTION = [(3, 32, 3, 2, 0, 299), (32, 32, 3, 1, 0, 149), (32, 64, 3, 1, 1, 147), (64, 80, 1, 1, 0, 73), (80, 192, 3, 1, 0, 73),
             (192, 64, 1, 1, 0, 35), (192, 48, 1, 1, 0, 35), (48, 64, 5, 1, 2, 35), (64, 96, 3, 1, 1, 35), (96, 96, 3, 1, 1, 35),
             (288, 384, 3, 2, 0, 35), (768, 192, 1, 1, 0, 17), (768, 128, 1, 1, 0, 17), (128, 128, (1, 7), 1, (0, 3), 17),
             (128, 192, (7, 1), 1, (3, 0), 17), (192, 192, (1, 7), 1, (0, 3), 17), (192, 320, 3, 2, 0, 17), (1280, 320, 1, 1, 0, 8),
             (384, 384, (1, 3), 1, (0, 1), 8), (448, 384, 3, 1, 1, 8), (2048, 448, 1, 1, 0, 8)]
OTHERS = [(3, 768, 16, 16, 0, 224), (3, 64, 11, 4, 2, 224), (64, 192, 5, 1, 2, 27), (192, 384, 3, 1, 1, 13)]


def pair(n):
    return list(n) if isinstance(n, tuple) else [n, n]


def convolutions(rng):
    def convolve(direction, stride, pad, groups, last):
        def make(x, w):
            if last:
                x, w = x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)
            run = lambda: F.conv2d(x, w, stride=stride, padding=pad, groups=groups)
            if direction == "forward":
                return run
            dy = torch.randn_like(run())
            mask = [direction == "grad_input", direction == "grad_weight", False]
            return lambda: aten.convolution_backward(dy, x, w, None, stride, pad, [1, 1], False, [0, 0], groups, mask)
        return make
    cases = [(64, *shape, 1) for shape in RESNET + VGG + INCEPTION + OTHERS]
    cases += [(b, *shape, 1) for b in (16, 256) for shape in RESNET[1::3]]
    cases += [(64, 96, 96, 3, 1, 1, 56, 96), (64, 384, 384, 3, 1, 1, 14, 384), (64, 128, 128, 3, 1, 1, 56, 32)]
    for (b, c, o, kernel, stride, pad, hw, groups), layout in itertools.product(cases, ("nchw_tf32", "nhwc_bf16", "nchw_bf16")):
        if layout == "nchw_bf16" and (c, o) not in ((64, 64), (256, 128), (128, 128), (1024, 256)):
            continue
        dtype = "f32" if layout.endswith("tf32") else "bf16"
        kh, kw = pair(kernel)
        attributes = {"stride": pair(stride), "pad": pair(pad), "groups": groups}
        shapes = f"{t(dtype, b, c, hw, hw)} {t(dtype, o, c // groups, kh, kw)}"
        for direction in ("forward", "grad_input", "grad_weight"):
            if c == 3 and direction == "grad_input":
                continue
            yield Case("convolution", "conv2d", attributes, shapes,
                       convolve(direction, pair(stride), pair(pad), groups, layout.startswith("nhwc")),
                       dtype="tf32" if dtype == "f32" else dtype, direction=direction, variant="cudnn_" + layout[:4])


def vision(rng):
    def last(x, layout):
        return x.to(memory_format=torch.channels_last) if layout == "nhwc" else x
    for (b, c, hw), (layout, dtype) in itertools.product(
            ((64, 64, 112), (64, 64, 56), (64, 256, 56), (64, 128, 28), (64, 512, 28), (64, 256, 14), (64, 1024, 14), (64, 512, 7),
             (64, 2048, 7), (256, 256, 56), (16, 512, 28)), (("nchw", "f32"), ("nhwc", "bf16"))):
        shapes = f"{t(dtype, b, c, hw, hw)} {t('f32', c)} {t('f32', c)}"
        def norm(x, g, beta):
            return F.batch_norm(x, torch.zeros_like(g), torch.ones_like(g), g, beta, training=True)
        def before(x, g, beta, layout=layout):
            x, mean, variance = last(x, layout), torch.zeros_like(g), torch.ones_like(g)
            return lambda: F.batch_norm(x, mean, variance, g, beta, training=True)
        def after(x, g, beta, layout=layout):
            x = last(x, layout).requires_grad_()
            return back(norm(x, g.requires_grad_(), beta.requires_grad_()), x, g, beta)
        yield Case("batch_norm", "batch_norm", {}, shapes, before, variant=layout)
        yield Case("batch_norm", "batch_norm", {}, shapes, after, direction="grad", variant=layout)
        x = t(dtype, b, c, hw, hw)
        pools = [("max", 2, 2, 0), ("max", 3, 2, 1), ("avg", 3, 1, 1)] if hw >= 14 and hw % 2 == 0 else []
        for fn, kernel, stride, pad in pools:
            function = F.max_pool2d if fn == "max" else F.avg_pool2d
            run = lambda a, function=function, kernel=kernel, stride=stride, pad=pad: function(a, kernel, stride, pad)
            attributes = {"fn": fn, "kernel": pair(kernel), "stride": pair(stride), "pad": pair(pad)}
            yield Case("pool", "pool2d", attributes, x, lambda a, run=run, layout=layout: forward(run)(last(a, layout)), variant=layout)
            yield Case("pool", "pool2d", attributes, x, lambda a, run=run, layout=layout: grads(run)(last(a, layout)), direction="grad",
                       variant=layout)
        yield Case("pool", "reduce", {"fn": "mean", "dims": [2, 3]}, x,
                   lambda a, layout=layout: forward(lambda y: y.mean((2, 3)))(last(a, layout)), variant=layout)
