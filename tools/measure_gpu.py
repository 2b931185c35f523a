#!/usr/bin/env python3
"""Measures the operators of training steps on one GPU, and how they slow down beside communication-like kernels.

    python3 tools/measure_gpu.py --out measured --minutes 9                         # everything
    python3 tools/measure_gpu.py --out measured --minutes 9 --only interference     # one family (or several: a,b)
    python3 tools/measure_gpu.py --out measured --quick                             # a smoke test, a minute

Writes OUT/operators.csv (interference: OUT/interference.csv), a row per point as soon as it is measured, and OUT/provenance.json.
Rows that are already there are not measured again, so a run that was cut short goes on where it stopped.

A row is an operator of Weft (src/graph/operators.h) with its attributes, the types of its inputs and the product that was timed
(`forward`, or a gradient's name), so that cost models can be asked for the same. `variant` says which kernel PyTorch was made to
use. Times are of the device, by CUDA events around one call; the host is kept ahead, so that its own time does not show. `cold`
rows: the L2 cache is filled with other, clean data before each call. Data are random, because zeros draw less power.
"""
import argparse, csv, ctypes, glob, itertools, json, os, platform, random, re, subprocess, sys, time
from datetime import datetime, timezone

import torch
import torch.nn.functional as F

aten = torch.ops.aten
COLUMNS = ["family", "operator", "attributes", "shapes", "dtype", "direction", "variant", "cache", "us_median", "us_p10", "us_p90",
           "repeats", "sm_mhz", "memory_mhz", "watts", "device", "torch", "cuda", "driver"]
BESIDE = ["beside", "beside_units", "beside_alone_gbs", "beside_gbs", "us_alone"]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64,
          "f8": getattr(torch, "float8_e4m3fn", None)}
WIDTH = {"f32": 4, "bf16": 2, "f16": 2, "i64": 8, "f8": 1}


# ---- the device -------------------------------------------------------------------------------------------------------------------

class Meter:
    """Clocks and power by NVML, where the library is there."""

    def __init__(self, index):
        self.handle = None
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            handle = ctypes.c_void_p()
            if self.nvml.nvmlInit_v2() == 0 and self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
                self.handle = handle
        except OSError:
            pass

    def read(self):
        if self.handle is None:
            return "", "", ""
        values = []
        for clock in (1, 2):  # SM, memory
            mhz = ctypes.c_uint()
            values.append(mhz.value if self.nvml.nvmlDeviceGetClockInfo(self.handle, clock, ctypes.byref(mhz)) == 0 else "")
        power = ctypes.c_uint()
        fine = self.nvml.nvmlDeviceGetPowerUsage(self.handle, ctypes.byref(power)) == 0
        return values[0], values[1], round(power.value / 1000) if fine else ""

    def driver(self):
        if self.handle is None:
            return ""
        text = ctypes.create_string_buffer(96)
        self.nvml.nvmlSystemGetDriverVersion(text, 96)
        return text.value.decode()


class Device:
    def __init__(self, options):
        self.options = options
        self.cuda = options.device.startswith("cuda")
        if self.cuda:
            torch.cuda.set_device(int(options.device.partition(":")[2] or 0))
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            self.name, self.units = properties.name, properties.multi_processor_count
            self.l2 = getattr(properties, "L2_cache_size", 64 << 20)
            # Four times the L2 cache: reading it leaves nothing else there.
            self.flush = torch.ones(self.l2, dtype=torch.float32, device=options.device)
            self.meter = Meter(torch.cuda.current_device())
        else:
            self.name, self.units, self.l2, self.meter = platform.processor() or "cpu", 1, 0, None
        self.driver = self.meter.driver() if self.meter else ""
        self.events = []
        self.readings = ("", "", "")
        self.issued = None  # called when all samples are issued, before they are waited for

    def tensor(self, text, high=None):
        dtype, shape = re.fullmatch(r"(\w+)\[([\d,]*)\]", text).groups()
        shape = [int(n) for n in shape.split(",") if n]
        if dtype == "i64":
            return torch.randint(0, high, shape, device=self.options.device)
        if dtype == "f8":
            return torch.randn(shape, device=self.options.device).to(DTYPES["f8"])
        return torch.randn(shape, device=self.options.device, dtype=DTYPES[dtype])

    def sync(self):
        if self.cuda:
            torch.cuda.synchronize()

    def sample(self, call, count, cold, cover_us):
        """Microseconds of `count` calls, each on its own. The device is kept busy for `cover_us` while the host issues the call."""
        if not self.cuda:
            times = []
            for _ in range(count):
                begin = time.perf_counter()
                call()
                times.append((time.perf_counter() - begin) * 1e6)
            return times
        while len(self.events) < count:
            self.events.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
        for start, end in self.events[:count]:
            if cold:
                self.flush.sum()
            if cover_us > 0:
                torch.cuda._sleep(int(cover_us * 1900))
            start.record()
            call()
            end.record()
        if self.issued:
            self.issued()
        self.readings = self.meter.read()  # while the last calls run
        torch.cuda.synchronize()
        return [1000 * start.elapsed_time(end) for start, end in self.events[:count]]

    def measure(self, call, cold, around=None):
        """Sorted microseconds. `around(sampler)` may run the sampling inside something else (interference)."""
        options = self.options
        call()  # first use: libraries load and choose
        self.sync()
        host = []
        for _ in range(3):
            begin = time.perf_counter()
            call()
            host.append((time.perf_counter() - begin) * 1e6)
            self.sync()
        cover = 1.5 * sorted(host)[1] + (0 if cold else 40)  # reading the flush buffer covers some of it
        estimate = sorted(self.sample(call, 3, cold, cover))[1]
        count = int(min(max(options.point_ms * 1000 / max(estimate, 1), options.fewest), options.most))
        sampler = lambda: self.sample(call, count, cold, cover)
        return sorted(around(sampler, count * (estimate + cover + 120)) if around else sampler())


# ---- cases ------------------------------------------------------------------------------------------------------------------------

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


# A linear layer's three products, the weight stored [n, k] as in torch.nn.Linear.
LINEAR = {
    "forward": lambda x, w: lambda: x @ w.t(),                                                    # NT
    "grad_input": lambda x, w: (lambda dy: lambda: dy @ w)(x @ w.t()),                            # NN
    "grad_weight": lambda x, w: (lambda dy: lambda: dy.t() @ x)(x @ w.t()),                       # TN
}


def linear(family, dtype, rows, k, n, direction, arithmetic=None):
    return Case(family, "linear", {"transposed": 1}, f"{t(dtype, rows, k)} {t(dtype, n, k)}", LINEAR[direction],
                dtype=arithmetic or dtype, direction=direction, variant="cublas")


def fp8_product(fast):
    def make(x, w):
        one = torch.ones((), device=x.device)
        return lambda: torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast)
    return make


WEIGHTS = [(768, 768), (768, 2304), (768, 3072), (3072, 768), (1024, 1024), (1024, 3072), (1024, 4096), (4096, 1024), (1600, 6400),
           (2048, 2048), (2048, 3072), (2048, 8192), (8192, 2048), (2560, 7680), (4096, 4096), (4096, 6144), (4096, 14336),
           (14336, 4096), (5120, 13824), (7168, 2048), (8192, 1280), (1024, 8192), (8192, 8192), (12288, 1536), (12288, 6144)]
VOCABULARIES = [(768, 50257), (768, 50304), (1024, 30522), (1024, 50257), (2048, 32000), (2048, 128256), (4096, 32000), (4096, 50257)]


def size(rng):
    """64 to 16k, log-uniform; of every four one power of two, two multiples of 8, one odd."""
    n = 64 * 256 ** rng.random()
    kind = rng.randrange(4)
    return 1 << round(torch.tensor(n).log2().item()) if kind == 0 else max(64, int(n) // 8 * 8) if kind < 3 else int(n) | 1


def products(rng):
    directions = list(LINEAR)
    for k, n in WEIGHTS:
        for rows in (512, 2048, 4096, 8192, 16384):
            for direction in directions:
                yield linear("gemm", "bf16", rows, k, n, direction)
    for k, n in VOCABULARIES:
        for rows in (1024, 4096, 8192):
            for direction in directions:
                yield linear("gemm", "bf16", rows, k, n, direction)
    for n in (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384):
        yield linear("gemm", "bf16", n, n, n, "forward")
    for _ in range(360):
        rows, k, n = size(rng), size(rng), size(rng)
        if 2 * rows * k * n < 4e12:
            yield linear("gemm", "bf16", rows, k, n, rng.choice(directions))
    for arithmetic, dtype, count, most in (("f16", "f16", 50, 4e12), ("tf32", "f32", 90, 2e12), ("f32", "f32", 30, 2e11)):
        for _ in range(count):
            rows, k, n = size(rng), size(rng), size(rng)
            if 2 * rows * k * n < most:
                yield linear("gemm", dtype, rows, k, n, rng.choice(directions), arithmetic)
        for rows, (k, n) in itertools.product((2048, 8192), WEIGHTS[:22:3]):
            if arithmetic != "f32":
                for direction in directions:
                    yield linear("gemm", dtype, rows, k, n, direction, arithmetic)
    sixteen = lambda n: max(64, n // 16 * 16)
    shapes = [(rows, k, n) for rows in (2048, 8192, 16384) for k, n in WEIGHTS[::2]]
    shapes += [(sixteen(size(rng)), sixteen(size(rng)), sixteen(size(rng))) for _ in range(40)]
    for rows, k, n in shapes:
        for fast in (True, False):
            yield Case("gemm", "linear", {"transposed": 1}, f"{t('f8', rows, k)} {t('f8', n, k)}", fp8_product(fast), dtype="fp8",
                       variant="cublas_fast_accumulation" if fast else "cublas")


def batched(rng):
    for heads, (s, d) in itertools.product((16, 64, 256), ((128, 64), (512, 64), (1024, 128), (2048, 64), (4096, 128))):
        if heads * s * s < 1.1e9:
            for m, k, n in ((s, d, s), (s, s, d), (d, s, s)):
                yield Case("gemm_batched", "matmul", {}, f"{t('bf16', heads, m, k)} {t('bf16', heads, k, n)}", forward(torch.bmm),
                           variant="nn")
                yield Case("gemm_batched", "matmul", {}, f"{t('bf16', heads, m, k)} {t('bf16', heads, k, n)}",
                           lambda a, b: (lambda bt: lambda: torch.bmm(a, bt.transpose(1, 2)))(b.transpose(1, 2).contiguous()),
                           variant="nt")
    for _ in range(30):
        b, m, k, n = rng.choice((2, 4, 8, 12, 32, 128)), size(rng) // 4, size(rng) // 4, size(rng) // 4
        dtype = rng.choice(("bf16", "bf16", "f32"))
        yield Case("gemm_batched", "matmul", {}, f"{t(dtype, b, m, k)} {t(dtype, b, k, n)}", forward(torch.bmm),
                   dtype="tf32" if dtype == "f32" else dtype, variant="nn")


def grouped_mm():
    found = getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)
    if found is None:
        raise RuntimeError("this PyTorch has no grouped product")
    return found


def grouped(rng):
    def rows_of(experts, rows, skew):
        """Where each expert's rows end: even, or a share that falls off geometrically, in multiples of 16."""
        weights = [1.0] * experts if skew == "even" else [0.9 ** i for i in range(experts)]
        total, ends = sum(weights), []
        for i in range(experts):
            ends.append(int(sum(weights[: i + 1]) / total * experts * rows) // 16 * 16)
        ends[-1] = experts * rows
        return ends

    def make(direction, skew):
        def build(x, w):
            experts, rows, k = x.shape
            ends = torch.tensor(rows_of(experts, rows, skew), dtype=torch.int32, device=x.device)
            flat, multiply = x.reshape(-1, k), grouped_mm()
            wt = w.transpose(1, 2).contiguous().transpose(1, 2)  # as nn.Linear keeps it
            dy = torch.randn(flat.shape[0], w.shape[2], dtype=x.dtype, device=x.device)
            if direction == "forward":
                return lambda: multiply(flat, wt, offs=ends)
            if direction == "grad_input":
                return lambda: multiply(dy, wt.transpose(1, 2), offs=ends)
            return lambda: multiply(flat.t(), dy, offs=ends)
        return build

    for experts, rows, (k, n) in itertools.product((8, 32, 64), (128, 512, 2048), ((2048, 1408), (4096, 14336), (1408, 2048), (7168, 2048))):
        if experts * (2 * rows * (k + n) + 2 * k * n) > 8e9:
            continue
        shapes = f"{t('bf16', experts, rows, k)} {t('bf16', experts, k, n)}"
        for direction in LINEAR:
            yield Case("grouped", "expert_linear", {}, shapes, make(direction, "even"), direction=direction, variant="grouped_mm")
        yield Case("grouped", "expert_linear", {}, shapes, make("forward", "skewed"), variant="grouped_mm_skewed")
        yield Case("grouped", "expert_linear", {}, shapes, forward(torch.bmm), variant="bmm")


def backend(name):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel({"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
                        "efficient": SDPBackend.EFFICIENT_ATTENTION}[name])


def attend(heads, kv_heads, causal, variant):
    def heads_first(x, count):
        b, s, width = x.shape
        return x.view(b, s, count, width // count).transpose(1, 2)

    masks = {}

    def run(q, k, v):
        q, k, v = heads_first(q, heads), heads_first(k, kv_heads), heads_first(v, kv_heads)
        if variant == "unfused":
            if kv_heads != heads:
                k, v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
            scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
            if causal:
                if not masks:
                    masks[0] = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
                scores = scores.masked_fill(masks[0], float("-inf"))
            return scores.softmax(-1) @ v
        extra = {"enable_gqa": True} if kv_heads != heads else {}
        if variant == "default":
            return F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), **extra)
        with backend(variant):
            return F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), **extra)
    return run


def attention(rng):
    heads_of = ((12, 12, 64), (16, 16, 64), (16, 16, 128), (32, 32, 128), (32, 8, 128), (8, 1, 128))
    batches = ((64, 128), (16, 512), (4, 512), (8, 1024), (1, 1024), (4, 2048), (1, 2048), (2, 4096), (1, 8192), (1, 16384))
    for (heads, kv, d), (b, s), causal in itertools.product(heads_of, batches, (0, 1)):
        shapes = f"{t('bf16', b, s, heads * d)} {t('bf16', b, s, kv * d)} {t('bf16', b, s, kv * d)}"
        attributes = {"causal": causal, "heads": heads, "kv_heads": kv}
        for variant in ("flash", "cudnn", "unfused", "default"):
            if variant == "unfused" and (b * heads * s * s > 2.2e9 or (heads, kv, d) in heads_of[:1]):
                continue
            if variant == "default" and not (causal and s in (1024, 4096)):
                continue
            run = attend(heads, kv, causal, variant)
            yield Case("attention", "attention", attributes, shapes, forward(run), variant=variant)
            yield Case("attention", "attention", attributes, shapes, grads(run), direction="grad", variant=variant)


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
    for n, dtype in itertools.product((1 << 16, 1 << 20, 1 << 23, 1 << 25, 1 << 27, 1 << 29), ("f32", "bf16")):
        p = t(dtype, n)
        for variant in ("fused", "foreach", "loop"):
            if dtype == "bf16" and variant == "loop":
                continue
            yield Case("optimizer", "adam", {"decoupled": 1}, " ".join([p] * 4), step("adam", variant, n), variant=variant)
        for variant in ("fused", "foreach"):
            yield Case("optimizer", "momentum", {}, " ".join([p] * 3), step("momentum", variant, n), variant=variant)
    for n, cut in ((1 << 27, 1 << 20), (1 << 27, 1 << 16)):  # many tensors, as a model has
        for variant in ("fused", "foreach"):
            yield Case("optimizer", "adam", {"decoupled": 1}, " ".join([t("f32", n)] * 4), step("adam", variant, cut),
                       variant=f"{variant}_{n // cut}_tensors")


def recurrent(rng):
    for b, hidden in itertools.product((16, 64, 256), (256, 512, 1024, 2048)):
        for dtype in ("bf16", "f32"):
            x, w = t(dtype, b, hidden), t(dtype, hidden, 4 * hidden)
            shapes = f"{x} {x} {x} {w} {w} {t(dtype, 4 * hidden)}"
            def cell(xx, h, c, wi, wh, bias):
                gates = torch.addmm(bias, xx, wi) + h @ wh
                i, f, g, o = gates.chunk(4, 1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                return o.sigmoid() * c.tanh()
            def whole(backward, steps=32):
                def make(xx, *rest, hidden=hidden):
                    layer = torch.nn.LSTM(hidden, hidden).to(xx)
                    data = torch.randn(steps, *xx.shape, dtype=xx.dtype, device=xx.device, requires_grad=True)
                    if not backward:
                        return lambda: layer(data)
                    return back(layer(data)[0], data, *layer.parameters())
                return make
            arithmetic = "tf32" if dtype == "f32" else dtype
            yield Case("lstm", "lstm_cell", {}, shapes, forward(cell), dtype=arithmetic, variant="unfused")
            yield Case("lstm", "lstm_cell", {}, shapes, grads(cell), dtype=arithmetic, direction="grad", variant="unfused")
            yield Case("lstm", "lstm_cell", {}, shapes, whole(False), dtype=arithmetic, variant="cudnn_32_steps")
            yield Case("lstm", "lstm_cell", {}, shapes, whole(True), dtype=arithmetic, direction="grad", variant="cudnn_32_steps")


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


FAMILIES = {  # with the share of the time that each may take; what one leaves over, the next ones have
    "gemm": (products, 30), "gemm_batched": (batched, 5), "grouped": (grouped, 6), "attention": (attention, 18), "norm": (norms, 8),
    "pointwise": (pointwise, 14), "softmax": (softmaxes, 5), "embedding": (embeddings, 4), "convolution": (convolutions, 30),
    "vision": (vision, 8), "optimizer": (optimizers, 4), "lstm": (recurrent, 5), "copy": (copies, 4),
}


# ---- host time and sustained load -------------------------------------------------------------------------------------------------

def host_time(device, table):
    """What the host takes to issue an operator in eager PyTorch: wall time of many calls on tiny data, none waited for."""
    on = {"device": device.options.device, "dtype": torch.bfloat16 if device.cuda else torch.float32}
    x, w, small = torch.randn(64, 64, **on), torch.randn(64, 64, **on), torch.randn(64, **on)
    image, kernel = torch.randn(2, 16, 8, 8, **on), torch.randn(16, 16, 3, 3, **on)
    q = torch.randn(1, 2, 64, 64, **on)
    ids = torch.randint(0, 64, (64,), device=device.options.device)
    mean, variance, one = torch.zeros(16, **on), torch.ones(16, **on), torch.ones(16, **on)
    parts = [torch.nn.Parameter(torch.randn(64, **on)) for _ in range(100)]
    for part in parts:
        part.grad = torch.randn_like(part)
    operators = {
        "linear": (lambda x, w, b: F.linear(x, w, b), (x, w, small)), "matmul": (torch.matmul, (x, w)),
        "binary_add": (torch.add, (x, w)), "unary_gelu": (F.gelu, (x,)), "unary_relu": (F.relu, (x,)),
        "glu_silu": (lambda a, b: F.silu(a) * b, (x, w)), "dropout": (lambda a: F.dropout(a, 0.1), (x,)),
        "softmax": (lambda a: F.softmax(a, -1), (x,)), "layer_norm": (lambda a, g, b: F.layer_norm(a, (64,), g, b), (x, small, small.clone())),
        "embedding": (lambda table: F.embedding(ids, table), (w,)), "cross_entropy": (lambda a: F.cross_entropy(a, ids), (x,)),
        "conv2d": (lambda a, k: F.conv2d(a, k, padding=1), (image, kernel)),
        "batch_norm": (lambda a, g, b: F.batch_norm(a, mean, variance, g, b, training=True), (image, one, one.clone())),
        "pool2d": (lambda a: F.max_pool2d(a, 2), (image,)),
        "view": (lambda a: a.view(-1), (x,)), "cast": (lambda a: a.to(torch.float32 if device.cuda else torch.float64), (x,)),
        "concat": (lambda a, b: torch.cat((a, b)), (x, w)),
    }
    if hasattr(F, "rms_norm"):
        operators["rms_norm"] = (lambda a, g: F.rms_norm(a, (64,), g), (x, small))
    if hasattr(F, "scaled_dot_product_attention"):
        operators["attention"] = (lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=True), (q, q.clone(), q.clone()))
    calls = 100
    def record(name, direction, variant, run, per=calls):
        run()
        device.sync()
        times = []
        for _ in range(5 if device.options.quick else 15):
            begin = time.perf_counter()
            run()
            times.append((time.perf_counter() - begin) * 1e6 / per)
            device.sync()
        table.add(("host", name, "", "", "bf16", direction, variant, "warm"), sorted(times))
    for name, (function, inputs) in operators.items():
        def without():
            for _ in range(calls):
                function(*inputs)
        record(name, "forward", "no_grad", without)
        tracked = [a.clone().requires_grad_() for a in inputs]
        def tracking():
            for _ in range(calls):
                function(*tracked)
        record(name, "forward", "autograd", tracking)
        outs = []
        def backward():
            for out, dy in outs:
                torch.autograd.grad(out, tracked, dy)
        # Graphs are made outside of the timed part; a graph serves once.
        def timed():
            outs[:] = [(out, torch.ones_like(out)) for out in (function(*tracked) for _ in range(calls))]
            device.sync()
            begin = time.perf_counter()
            backward()
            return (time.perf_counter() - begin) * 1e6 / calls
        timed()
        table.add(("host", name, "", "", "bf16", "backward", "autograd", "warm"), sorted(timed() for _ in range(5)))
    for variant in ("fused", "foreach", "loop"):
        try:
            step = torch.optim.AdamW(parts, fused=variant == "fused", foreach=variant == "foreach").step
            record("adam_100_tensors", "forward", variant, step, per=1)
        except (RuntimeError, TypeError) as problem:
            table.fail(("host", "adam", variant), problem)


def sustained(device, table):
    """Products back to back for a second or more: the clock under load, which single calls do not show."""
    for m, k, n, dtype in ((8192, 8192, 8192, "bf16"), (4096, 4096, 4096, "bf16"), (16384, 4096, 14336, "bf16"), (16384, 1024, 4096, "bf16"),
                           (8192, 8192, 8192, "tf32"), (16384, 2048, 2048, "bf16")):
        stored = "f32" if dtype == "tf32" else dtype
        key = ("sustained", "linear", "{transposed=1}", f"{t(stored, m, k)} {t(stored, n, k)}", dtype, "forward", "back_to_back", "warm")
        if table.has(key) or not device.cuda:
            continue
        x, w = (device.tensor(item) for item in key[3].split())
        call, rounds = LINEAR["forward"](x, w), []
        call()
        until = time.perf_counter() + (0.2 if device.options.quick else 2.0)
        inner = max(1, int(5e12 / (2 * m * k * n)))
        while time.perf_counter() < until:
            rounds.append(device.sample(lambda: [call() for _ in range(inner)], 1, False, 0)[0] / inner)
        table.add(key, sorted(rounds[len(rounds) // 2:]))  # the second half: warm and throttled


# ---- interference -----------------------------------------------------------------------------------------------------------------

# Thread blocks that hold their compute unit (shared memory and registers leave no room for a product's tile), as those of a
# collective do, until told to stop. 0: only hold; 1: copy; 2: add two arrays. `pause` throttles: nanoseconds after each pass.
OCCUPANT = r"""
extern "C" __global__ void __launch_bounds__(512) occupy(int mode, const float4* a, const float4* b, float4* c, long long each,
    volatile int* stop, unsigned long long* bytes, unsigned long long* nanoseconds, int pause, unsigned long long limit) {
  extern __shared__ int held[];
  __shared__ int done;
  unsigned long long begin, now, moved = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  const long long base = (long long)blockIdx.x * each, step = blockDim.x * 4;
  long long at = 0;
  if (threadIdx.x == 0) held[0] = 0;
  for (;;) {
    if (threadIdx.x == 0) {
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
      done = *stop || now - begin > limit;
    }
    __syncthreads();
    if (done) break;
    if (mode == 0) {
      __nanosleep(500);
    } else {
      for (int pass = 0; pass < 8; ++pass) {
        float4 x[4], y[4];
        for (int i = 0; i < 4; ++i) x[i] = a[base + at + i * blockDim.x + threadIdx.x];
        if (mode == 2) {
          for (int i = 0; i < 4; ++i) y[i] = b[base + at + i * blockDim.x + threadIdx.x];
          for (int i = 0; i < 4; ++i) { x[i].x += y[i].x; x[i].y += y[i].y; x[i].z += y[i].z; x[i].w += y[i].w; }
        }
        for (int i = 0; i < 4; ++i) c[base + at + i * blockDim.x + threadIdx.x] = x[i];
        at += step;
        if (at + step > each) at = 0;
        moved += step * 16 * (mode == 2 ? 3 : 2);
      }
      if (pause > 0 && threadIdx.x == 0) {
        unsigned long long from;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
        do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - from < pause);
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    bytes[blockIdx.x] = moved;
    nanoseconds[blockIdx.x] = now - begin;
  }
}
"""


class Occupant:
    """The kernel above, compiled by NVRTC and started by the driver; both by ctypes, so that PyTorch alone is needed."""
    SHARED = 96 << 10
    BLOCKS = 64

    def __init__(self, device):
        self.device = device
        root = os.path.dirname(os.path.dirname(torch.__file__))
        found = sorted(glob.glob(f"{root}/nvidia/**/libnvrtc.so*", recursive=True) + glob.glob("/usr/local/cuda*/lib64/libnvrtc.so*"))
        found = [f for f in found if "builtins" not in f and "alt" not in f] or ["libnvrtc.so"]
        nvrtc, self.driver = ctypes.CDLL(found[0]), ctypes.CDLL("libcuda.so.1")
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        major, minor = torch.cuda.get_device_capability()
        options = (ctypes.c_char_p * 1)(f"--gpu-architecture=sm_{major}{minor}".encode())
        self.check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), OCCUPANT.encode(), b"occupy.cu", 0, None, None))
        if nvrtc.nvrtcCompileProgram(program, 1, options) != 0:
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(log.value.decode())
        self.check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        binary = ctypes.create_string_buffer(size.value)
        self.check(nvrtc.nvrtcGetCUBIN(program, binary))
        torch.zeros(1, device=device.options.device)  # makes the context current
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.driver.cuModuleLoadData(ctypes.byref(module), binary))
        self.check(self.driver.cuModuleGetFunction(ctypes.byref(self.function), module, b"occupy"))
        self.check(self.driver.cuFuncSetAttribute(self.function, 8, self.SHARED))  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        on = {"device": device.options.device}
        self.each = 4 << 20  # float4 of one block: 64 MiB
        self.arrays = [torch.ones(4 * self.each * 32, **on) for _ in range(3)]
        self.stop = torch.zeros(1, dtype=torch.int32, **on)
        self.bytes, self.nanoseconds = (torch.zeros(self.BLOCKS, dtype=torch.int64, **on) for _ in range(2))
        self.stream = torch.cuda.Stream(priority=-1)

    @staticmethod
    def check(code):
        if code != 0:
            raise RuntimeError(f"CUDA or NVRTC error {code}")

    def launch(self, mode, blocks, pause, limit_us):
        values = [ctypes.c_int(mode), *(ctypes.c_void_p(x.data_ptr()) for x in self.arrays), ctypes.c_longlong(self.each),
                  ctypes.c_void_p(self.stop.data_ptr()), ctypes.c_void_p(self.bytes.data_ptr()),
                  ctypes.c_void_p(self.nanoseconds.data_ptr()), ctypes.c_int(pause), ctypes.c_ulonglong(int(limit_us * 1000))]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values))
        self.check(self.driver.cuLaunchKernel(self.function, blocks, 1, 1, 512, 1, 1, self.SHARED,
                                              ctypes.c_void_p(self.stream.cuda_stream), pointers, None))

    def rate(self, blocks):
        """GB/s of the last run."""
        seconds = self.nanoseconds[:blocks].double() / 1e9
        return float((self.bytes[:blocks].double() / seconds.clamp_min(1e-9)).sum() / 1e9)

    def alone(self, mode, blocks, pause):
        self.stop.zero_()
        torch.cuda.synchronize()
        self.launch(mode, blocks, pause, 3000)
        torch.cuda.synchronize()
        return self.rate(blocks)

    def beside(self, mode, blocks, pause):
        def around(sampler, expected_us):
            self.stop.zero_()
            torch.cuda.synchronize()
            self.launch(mode, blocks, pause, 6 * expected_us + 200_000)
            torch.cuda._sleep(100_000)
            self.device.issued = lambda: self.stop.fill_(1)
            try:
                return sampler()
            finally:
                self.device.issued = None
                torch.cuda.synchronize()
        return around


def host_traffic(device, to_host):
    """Pure memory traffic: copies by the copy engines, which hold no compute unit."""
    stream = torch.cuda.Stream()
    host, there = torch.ones(1 << 26, pin_memory=True), torch.ones(1 << 26, device=device.options.device)
    def around(sampler, expected_us):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(int(expected_us * 2 / 5000) + 2):  # 256 MB each, about 5 ms
                (host if to_host else there).copy_(there if to_host else host, non_blocking=True)
        return sampler()
    return around


def victims():
    def gemm(rows, k, n, direction="forward"):
        return linear("interference", "bf16", rows, k, n, direction)
    cases = [gemm(4096, 4096, 4096), gemm(8192, 4096, 14336), gemm(8192, 1024, 4096), gemm(8192, 1024, 4096, "grad_weight"),
             gemm(2048, 768, 3072), gemm(2048, 768, 3072, "grad_input"), gemm(16384, 2048, 2048, "grad_weight")]
    for b, s, heads, d, variant in ((4, 2048, 16, 128, "flash"), (8, 1024, 12, 64, "flash"), (4, 2048, 16, 128, "cudnn")):
        shapes = " ".join([t("bf16", b, s, heads * d)] * 3)
        attributes = {"causal": 1, "heads": heads, "kv_heads": heads}
        run = attend(heads, heads, 1, variant)
        cases.append(Case("interference", "attention", attributes, shapes, forward(run), variant=variant))
        cases.append(Case("interference", "attention", attributes, shapes, grads(run), direction="grad", variant=variant))
    x, w = t("bf16", 8192, 4096), t("bf16", 4096)
    layer = lambda a, g, b: F.layer_norm(a, g.shape, g, b)
    cases.append(Case("interference", "layer_norm", {}, f"{x} {w} {w}", forward(layer)))
    cases.append(Case("interference", "layer_norm", {}, f"{x} {w} {w}", grads(layer), direction="grad"))
    cases.append(Case("interference", "rms_norm", {}, f"{x} {w}", forward(lambda a, g: F.rms_norm(a, g.shape, g))))
    cases.append(Case("interference", "unary", {"fn": "gelu"}, t("bf16", 8192, 8192), forward(F.gelu)))
    cases.append(Case("interference", "binary", {"fn": "add"}, f"{x} {x}", forward(torch.add)))
    return cases


def interference(device, table, until):
    if not device.cuda:
        return
    occupant = Occupant(device)
    units = (2, 16) if device.options.quick else (1, 2, 4, 8, 12, 16, 20, 24, 32)
    points = [(name, mode, n, 0) for n in units for name, mode in (("copy", 1), ("reduce", 2), ("hold", 0))]
    points += [(f"copy_paused_{pause}ns", 1, n, pause) for n in units[len(units) // 2::3] for pause in (2000, 8000)]
    alone = {(mode, n, pause): occupant.alone(mode, n, pause) for _, mode, n, pause in points if mode}
    cases = victims()
    for index, case in enumerate(cases[:: 5] if device.options.quick else cases):
        progress(f"interference {index + 1}/{len(cases)}: {case.operator} {case.direction} {case.variant}")
        if time.monotonic() > until:
            return progress("interference: out of time")
        try:
            call = case.make(*[device.tensor(s) for s in case.shapes])
            base = device.measure(call, False)
            alone_us = round(base[len(base) // 2], 3)
            table.add(case.key("warm"), base, ["none", 0, "", "", alone_us])
            for name, mode, n, pause in points:
                times = device.measure(call, False, occupant.beside(mode, n, pause))
                free, shared = (round(alone[mode, n, pause], 2), round(occupant.rate(n), 2)) if mode else ("", "")
                table.add(case.key("warm"), times, [name, n, free, shared, alone_us])
            for name in ("to_host", "from_host"):
                times = device.measure(call, False, host_traffic(device, name == "to_host"))
                table.add(case.key("warm"), times, ["copy_" + name, 0, "", "", alone_us])
            again = device.measure(call, False)
            table.add(case.key("warm"), again, ["none_again", 0, "", "", alone_us])
        except Exception as problem:
            table.fail(case.key("warm"), problem)
            if "CUDA error" in str(problem):
                raise


# ---- the table and the run --------------------------------------------------------------------------------------------------------

class Table:
    def __init__(self, path, device, extra=()):
        self.device, self.failures, self.rows = device, [], 0
        self.columns = COLUMNS[:8] + list(extra) + COLUMNS[8:]
        self.keys = set()
        if os.path.exists(path):
            with open(path, newline="") as old:
                for row in csv.DictReader(old):
                    self.keys.add(tuple(row[c] for c in COLUMNS[:8] + list(extra)[:2]))
        self.file = open(path, "a", newline="")
        self.writer = csv.writer(self.file, lineterminator="\n")
        if self.file.tell() == 0:
            self.writer.writerow(self.columns)
        self.tail = [device.name, torch.__version__, torch.version.cuda or "", device.driver]

    def has(self, key):
        return key in self.keys

    def add(self, key, times, extra=()):
        if (*key, *map(str, extra[:2])) in self.keys:
            return
        at = lambda share: f"{times[min(len(times) - 1, int(share * len(times)))]:.3f}"
        self.writer.writerow([*key, *extra, at(0.5), at(0.1), at(0.9), len(times), *self.device.readings, *self.tail])
        self.file.flush()
        self.keys.add((*key, *map(str, extra[:2])))
        self.rows += 1

    def fail(self, key, problem):
        words = " ".join(str(problem).split())[:200]
        self.failures.append({"case": [str(k) for k in key], "problem": words})
        progress(f"failed: {' '.join(str(k) for k in key)}: {words}")


def progress(words):
    print(f"[{time.monotonic() - BEGIN:6.1f} s] {words}", file=sys.stderr, flush=True)


def provenance(device, options, tables, path):
    smi = ""
    if device.cuda:
        try:
            fields = "name,driver_version,vbios_version,power.limit,clocks.max.sm,clocks.max.mem,clocks.sm,temperature.gpu,memory.total,ecc.mode.current"
            smi = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv"], capture_output=True, text=True, timeout=20).stdout
        except (OSError, subprocess.SubprocessError):
            pass
    record = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"), "command": " ".join(sys.argv), "seed": options.seed,
        "device": device.name, "compute_units": device.units, "l2_bytes": device.l2, "torch": torch.__version__,
        "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "driver": device.driver, "python": platform.python_version(),
        "system": platform.platform(), "host_cpus": os.cpu_count(), "nvidia_smi": smi.splitlines(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark, "seconds": round(time.monotonic() - BEGIN, 1),
        "rows": {name: table.rows for name, table in tables.items()},
        "failures": [failure for table in tables.values() for failure in table.failures],
    }
    runs = []
    if os.path.exists(path):
        with open(path) as old:
            runs = json.load(old)
    with open(path, "w") as out:
        json.dump(runs + [record], out, indent=1)


def run_family(device, table, name, seconds, rng):
    options = device.options
    cases = list(FAMILIES[name][0](rng))
    rng.shuffle(cases)  # a family that is cut short is still a fair sample
    if options.quick:
        cases = cases[: options.quick_cases]
    until = time.monotonic() + seconds
    done = 0
    for case in cases:
        if time.monotonic() > until:
            progress(f"{name}: out of time after {done} of {len(cases)} cases")
            break
        wanted = [cache for cache in ("cold", "warm") if cache == "cold" or case.warm]
        if case.operator in ("nothing", "zero"):
            wanted = ["warm"]
        if all(table.has(case.key(cache)) for cache in wanted) or (not device.cuda and case.bytes() > 4e6):
            continue
        call = None
        torch.backends.cuda.matmul.allow_tf32 = case.dtype != "f32"
        try:
            call = case.make(*[device.tensor(s, case.high) for s in case.shapes])
            for cache in wanted:
                table.add(case.key(cache), device.measure(call, cache == "cold"))
            done += 1
        except Exception as problem:  # one case that this machine cannot run must not end the others
            table.fail(case.key("cold"), problem)
            if "CUDA error" in str(problem):
                raise
        call = None
        if done % 50 == 0 and device.cuda:
            torch.cuda.empty_cache()
    progress(f"{name}: {done} cases")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="measured", help="folder for the results")
    parser.add_argument("--only", default="", help="families, separated by commas: " + ", ".join([*FAMILIES, "host", "sustained", "interference"]))
    parser.add_argument("--skip", default="", help="families to leave out")
    parser.add_argument("--minutes", type=float, default=9, help="stop after about this long")
    parser.add_argument("--quick", action="store_true", help="a few cases of every family, few repeats")
    parser.add_argument("--quick-cases", type=int, default=6, help="cases of a family in a quick run")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--point-ms", type=float, default=25, help="time that the repeats of one point take together")
    options = parser.parse_args()
    options.fewest, options.most = (3, 5) if options.quick else (9, 60)
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    device = Device(options)
    os.makedirs(options.out, exist_ok=True)
    tables = {"operators": Table(os.path.join(options.out, "operators.csv"), device)}
    wanted = [n for n in [*FAMILIES, "host", "sustained", "interference"] if not options.only or n in options.only.split(",")]
    wanted = [n for n in wanted if n not in options.skip.split(",")]
    end = BEGIN + 60 * options.minutes
    try:
        if "host" in wanted:
            host_time(device, tables["operators"])
            progress("host: done")
        if "sustained" in wanted:
            sustained(device, tables["operators"])
            progress("sustained: done")
        if "interference" in wanted:
            tables["interference"] = Table(os.path.join(options.out, "interference.csv"), device, BESIDE)
            interference(device, tables["interference"], end)
        left = [n for n in wanted if n in FAMILIES]
        for index, name in enumerate(left):
            weights = [FAMILIES[n][1] for n in left[index:]]
            remaining = max(0.0, end - time.monotonic())
            # The case generator's numbers depend on the seed and the family alone, not on what ran before.
            run_family(device, tables["operators"], name, remaining * weights[0] / sum(weights) * 1.15, random.Random(f"{options.seed} {name}"))
    finally:
        provenance(device, options, tables, os.path.join(options.out, "provenance.json"))
    progress("rows: " + ", ".join(f"{name} {table.rows}, failed {len(table.failures)}" for name, table in tables.items()))


BEGIN = time.monotonic()
if __name__ == "__main__":
    main()
