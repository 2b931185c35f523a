"""What single calls on the device do not show: the time of the host, and the clock under load."""
import time

import torch
import torch.nn.functional as F

from measuring.cases import t
from measuring.products import LINEAR


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
