"""What passes through memory: norms, pointwise functions, softmax and losses, embeddings, optimizers and copies."""
import itertools

import torch
import torch.nn.functional as F

from measuring.cases import Case, forward, grads, t

aten = torch.ops.aten
ROWS = [(512, 768), (8192, 768), (32768, 768), (2048, 1024), (8192, 1024), (4096, 2048), (16384, 2048), (2048, 4096), (8192, 4096),
        (32768, 4096), (8192, 5120), (4096, 8192), (16384, 8192), (2048, 12288), (8192, 12288)]


def norms(rng):
    for (rows, d), dtype in itertools.product(ROWS, ("bf16", "f32")):
        x, w = t(dtype, rows, d), t(dtype, d)
        layer = lambda a, g, b: F.layer_norm(a, g.shape, g, b)
        yield Case("norm", "layer_norm", {}, f"{x} {w} {w}", forward(layer))
        yield Case("norm", "layer_norm", {}, f"{x} {w} {w}", grads(layer), direction="grad")
        def rms(a, g):
            return F.rms_norm(a, g.shape, g)
        def plain(a, g):  # as Hugging Face's Llama has it
            h = a.float()
            return g * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(a.dtype)
        for variant, function in (("eager", rms), ("unfused", plain)):
            yield Case("norm", "rms_norm", {}, f"{x} {w}", forward(function), variant=variant)
            yield Case("norm", "rms_norm", {}, f"{x} {w}", grads(function), direction="grad", variant=variant)


def pointwise(rng):
    def both(operator, attributes, shapes, function, direction="grad", variant="eager"):
        yield Case("pointwise", operator, attributes, shapes, forward(function), variant=variant)
        yield Case("pointwise", operator, attributes, shapes, grads(function), direction=direction, variant=variant)
    for n, dtype in itertools.product((1 << 12, 1 << 16, 1 << 19, 1 << 21, 3 << 21, 1 << 24, 3 << 24, 1 << 26, 1 << 28), ("bf16", "f32")):
        rows, d = max(1, n // 4096), min(n, 4096)
        x = t(dtype, rows, d)
        yield Case("pointwise", "binary", {"fn": "add"}, f"{x} {x}", forward(torch.add))
        yield Case("pointwise", "binary", {"fn": "mul"}, f"{x} {x}", forward(torch.mul))
        yield Case("pointwise", "unary", {"fn": "scale", "value": 0.5}, x, forward(lambda a: a * 0.5))
        yield Case("pointwise", "unary", {"fn": "cast", "to": "f32" if dtype == "bf16" else "bf16"}, x,
                   forward(lambda a: a.to(torch.float32 if a.dtype == torch.bfloat16 else torch.bfloat16)))
        yield Case("pointwise", "bias", {}, f"{x} {t(dtype, d)}", forward(torch.add))
        yield Case("pointwise", "bias", {}, f"{x} {t(dtype, d)}", lambda a, b: lambda: a.sum(0), direction="grad_bias")
        yield Case("pointwise", "accumulate", {}, f"{t('f32', rows, d)} {x}", lambda a, g: lambda: a.add_(g))
        yield Case("pointwise", "sum_squares", {}, x, forward(lambda a: torch.linalg.vector_norm(a)))
        yield Case("pointwise", "dropout", {"p": 0.1}, x, forward(lambda a: torch.native_dropout(a, 0.1, True)))
        yield Case("pointwise", "dropout", {"p": 0.1}, x,
                   lambda a: (lambda mask: lambda: aten.native_dropout_backward(a, mask, 1 / 0.9))(torch.rand_like(a) > 0.1),
                   direction="grad")
        for fn, function in (("gelu", F.gelu), ("gelu_tanh", lambda a: F.gelu(a, approximate="tanh")), ("silu", F.silu), ("relu", F.relu)):
            yield from both("unary", {"fn": fn}, x, function)
        yield from both("glu", {"fn": "silu"}, f"{x} {x}", lambda a, b: F.silu(a) * b, variant="unfused")
    for rows, d in ROWS[1::2]:
        x = t("bf16", rows, d)
        yield Case("pointwise", "transpose", {"perm": [1, 0]}, x, forward(lambda a: a.t().contiguous()))
        yield Case("pointwise", "concat", {"dim": 1}, f"{x} {x}", forward(lambda a, b: torch.cat((a, b), 1)))
    for b, s, h, d in ((8, 1024, 16, 64), (2, 4096, 32, 128), (1, 8192, 8, 128)):
        def rotate(x, h=h, d=d):
            y = x.view(x.shape[0], x.shape[1], h, d)
            angle = torch.outer(torch.arange(x.shape[1], device=x.device, dtype=torch.float32),
                                1e4 ** -(torch.arange(0, d, 2, device=x.device) / d)).repeat(1, 2)[:, None]
            cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
            return lambda: y * cos + torch.cat((-y[..., d // 2:], y[..., : d // 2]), -1) * sin
        yield Case("pointwise", "rotary", {"head_dim": d}, t("bf16", b, s, h * d), rotate, variant="unfused")


def softmaxes(rng):
    for (b, h, s), dtype in itertools.product(((8, 12, 512), (8, 16, 1024), (4, 16, 2048), (1, 32, 4096), (32, 12, 197)), ("bf16", "f32")):
        run = lambda a: a.softmax(-1)
        yield Case("softmax", "softmax", {}, t(dtype, b, h, s, s), forward(run))
        yield Case("softmax", "softmax", {}, t(dtype, b, h, s, s), grads(run), direction="grad")
    for (rows, v), dtype in itertools.product(((1024, 50257), (4096, 50257), (8192, 50304), (4096, 32000), (8192, 30522), (4096, 128256),
                                               (256, 1000)), ("bf16", "f32")):
        shapes = f"{t(dtype, rows, v)} {t('i64', rows)}"
        run = lambda a, target: F.cross_entropy(a, target)
        yield Case("softmax", "cross_entropy", {}, shapes, forward(run), variant="unfused", high=v)
        yield Case("softmax", "cross_entropy", {}, shapes, grads(run), direction="grad", variant="unfused", high=v)
        if dtype == "bf16":  # as autocast and Hugging Face have it: the loss of an fp32 copy
            copied = lambda a, target: F.cross_entropy(a.float(), target)
            yield Case("softmax", "cross_entropy", {}, shapes, forward(copied), variant="unfused_f32_copy", high=v)
            yield Case("softmax", "cross_entropy", {}, shapes, grads(copied), direction="grad", variant="unfused_f32_copy", high=v)


def embeddings(rng):
    for (v, d), (b, s), dtype in itertools.product(((50257, 768), (30522, 1024), (32000, 4096), (128256, 2048), (1024, 768)),
                                                   ((8, 512), (8, 1024), (16, 1024), (4, 4096)), ("bf16", "f32")):
        shapes = f"{t('i64', b, s)} {t(dtype, v, d)}"
        yield Case("embedding", "embedding", {}, shapes, forward(F.embedding), dtype=dtype, high=v)
        yield Case("embedding", "embedding", {}, shapes, lambda ids, w: (lambda dy: lambda: aten.embedding_dense_backward(
            dy, ids, w.shape[0], -1, False))(F.embedding(ids, w)), dtype=dtype, direction="grad_weight", high=v)


def optimizers(rng):
    def step(kind, variant, cut):
        def make(p, *_):
            parts = [torch.nn.Parameter(x.clone()) for x in p.split(cut)]
            for x in parts:
                x.grad = torch.randn_like(x)
            options = {"fused": variant.startswith("fused"), "foreach": variant.startswith("foreach")}
            optimizer = (torch.optim.AdamW(parts, lr=1e-4, **options) if kind == "adam"
                         else torch.optim.SGD(parts, lr=1e-4, momentum=0.9, **options))
            return optimizer.step
        return make
    scalars = ["f32[]"]  # the learning rate; Adam also has the step's number
    for n, dtype in itertools.product((1 << 16, 1 << 20, 1 << 23, 1 << 25, 1 << 27, 1 << 29), ("f32", "bf16")):
        p = t(dtype, n)
        for variant in ("fused", "foreach", "loop"):
            if dtype == "bf16" and variant == "loop":
                continue
            yield Case("optimizer", "adam", {"decoupled": 1}, " ".join([p] * 4 + scalars * 2), step("adam", variant, n), variant=variant)
        for variant in ("fused", "foreach"):
            yield Case("optimizer", "momentum", {}, " ".join([p] * 3 + scalars), step("momentum", variant, n), variant=variant)
    for n, cut in ((1 << 27, 1 << 20), (1 << 27, 1 << 16)):  # many tensors, as a model has
        for variant in ("fused", "foreach"):
            yield Case("optimizer", "adam", {"decoupled": 1}, " ".join([t("f32", n)] * 4 + scalars * 2), step("adam", variant, cut),
                       variant=f"{variant}_{n // cut}_tensors")


def copies(rng):
    for power in range(10, 33, 2):
        n = 1 << power
        x = t("f32", n // 4)
        yield Case("copy", "copy_on_device", {}, x, lambda a: (lambda b: lambda: b.copy_(a))(torch.empty_like(a)), variant="copy_")
        if n > 1 << 30:
            continue
        for variant in ("pinned", "pageable"):
            if variant == "pageable" and n > 1 << 26:
                continue
            host = lambda a, pin: torch.ones(a.shape, dtype=a.dtype, pin_memory=pin and a.is_cuda)
            yield Case("copy", "copy_to_host", {}, x, lambda a, pin=variant == "pinned": (
                lambda h: lambda: h.copy_(a, non_blocking=True))(host(a, pin)), variant=variant)
            yield Case("copy", "copy_from_host", {}, x, lambda a, pin=variant == "pinned": (
                lambda h: lambda: a.copy_(h, non_blocking=True))(host(a, pin)), variant=variant)
    yield Case("copy", "nothing", {}, t("f32", 1), lambda a: lambda: None, variant="two_events", warm=True)
    yield Case("copy", "zero", {}, t("f32", 1), lambda a: a.zero_, variant="smallest_kernel", warm=True)
