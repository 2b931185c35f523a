#!/usr/bin/env python3
"""Measures whole training steps of plain torch.nn models on one GPU, eagerly (no torch.compile): what predictions are held against.

    python3 tools/measure_steps.py --out measured --minutes 5

Writes OUT/steps.csv, a row per (model, batch, precision) as soon as it is measured: milliseconds of the step and of its forward,
backward and optimizer parts by CUDA events, the time the host takes to issue a step, the sum of all kernels by the profiler, and the
peak of allocated memory; and OUT/steps_kernels.csv: device time by operator of one step. Rows that are there are not measured again.

`bf16`: weights, gradients and states of the optimizer in bf16. `amp`: fp32 weights under autocast to bf16. `tf32`: fp32 with tf32
products. The optimizer is fused AdamW (for the CNNs: fused SGD with momentum). Attention is PyTorch's fused one, causal where it should be.
"""
import argparse, csv, os, sys, time

import torch
import torch.nn as nn
import torch.nn.functional as F

COLUMNS = ["model", "parameters", "batch", "sequence", "precision", "layout", "step_ms", "step_p10_ms", "step_p90_ms", "forward_ms",
           "backward_ms", "optimizer_ms", "host_ms", "kernel_ms", "kernels", "peak_bytes", "loss_first", "loss_last", "repeats", "device",
           "torch", "cuda"]


class Attention(nn.Module):
    def __init__(self, d, heads, kv_heads, causal, bias, rotary):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.causal, self.rotary = heads, kv_heads, d // heads, causal, rotary
        self.qkv = nn.Linear(d, (heads + 2 * kv_heads) * self.size, bias=bias)
        self.out = nn.Linear(d, d, bias=bias)

    def forward(self, x, angles):
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, -1, self.size).split((self.heads, self.kv_heads, self.kv_heads), 2)
        if self.rotary:
            q, k = rotate(q, *angles), rotate(k, *angles)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        extra = {"enable_gqa": True} if self.heads != self.kv_heads else {}
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, **extra)
        return self.out(y.transpose(1, 2).reshape(b, s, -1))


def rotate(x, cos, sin):
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


class Block(nn.Module):
    def __init__(self, d, heads, kv_heads, hidden, causal, llama, post_norm, dropout):
        super().__init__()
        norm = (lambda: nn.RMSNorm(d)) if llama else (lambda: nn.LayerNorm(d))
        self.first, self.second, self.post_norm = norm(), norm(), post_norm
        self.attention = Attention(d, heads, kv_heads, causal, not llama, llama)
        self.up = nn.Linear(d, hidden, bias=not llama)
        self.gate = nn.Linear(d, hidden, bias=False) if llama else None
        self.down = nn.Linear(hidden, d, bias=not llama)
        self.dropout = nn.Dropout(dropout)

    def mlp(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x) if self.gate else F.gelu(self.up(x)))

    def forward(self, x, angles):
        if self.post_norm:  # BERT
            x = self.first(x + self.dropout(self.attention(x, angles)))
            return self.second(x + self.dropout(self.mlp(x)))
        x = x + self.dropout(self.attention(self.first(x), angles))
        return x + self.dropout(self.mlp(self.second(x)))


class Transformer(nn.Module):
    """Decoders and encoders over tokens, and ViT over patches of images (vocabulary 0)."""

    def __init__(self, layers, d, heads, hidden, vocabulary, sequence, kv_heads=None, causal=True, llama=False, post_norm=False,
                 dropout=0.0, tied=True, classes=0):
        super().__init__()
        self.vocabulary, self.llama, self.post_norm, self.classes = vocabulary, llama, post_norm, classes
        if vocabulary:
            self.tokens = nn.Embedding(vocabulary, d)
        else:
            self.patches = nn.Conv2d(3, d, 16, 16)
            self.first = nn.Parameter(torch.zeros(1, 1, d))
        if not llama:
            self.positions = nn.Embedding(sequence, d)
        self.blocks = nn.ModuleList(Block(d, heads, kv_heads or heads, hidden, causal, llama, post_norm, dropout) for _ in range(layers))
        self.norm = nn.RMSNorm(d) if llama else nn.LayerNorm(d)
        self.head = nn.Linear(d, classes or vocabulary, bias=bool(classes))
        if tied and vocabulary:
            self.head.weight = self.tokens.weight
        angle = torch.outer(torch.arange(sequence).float(), 1e4 ** -(torch.arange(0, d // heads, 2) / (d // heads))).repeat(1, 2)
        self.register_buffer("cos", angle.cos()[:, None], persistent=False)
        self.register_buffer("sin", angle.sin()[:, None], persistent=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, x):
        if self.vocabulary:
            x = self.tokens(x)
        else:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat((self.first.expand(x.shape[0], -1, -1).to(x.dtype), x), 1)
        if not self.llama:
            x = x + self.positions(torch.arange(x.shape[1], device=x.device))
        if self.post_norm:
            x = self.norm(x)
        angles = (self.cos[: x.shape[1]].to(x.dtype), self.sin[: x.shape[1]].to(x.dtype))
        for block in self.blocks:
            x = block(x, angles)
        if not self.post_norm:
            x = self.norm(x)
        return self.head(x[:, 0] if self.classes else x)


def unit(cin, cout, kernel, stride=1, relu=True):
    layers = [nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(cout)]
    return nn.Sequential(*layers, nn.ReLU(inplace=True)) if relu else nn.Sequential(*layers)


class Bottleneck(nn.Module):
    def __init__(self, cin, width, stride):
        super().__init__()
        self.body = nn.Sequential(unit(cin, width, 1), unit(width, width, 3, stride), unit(width, 4 * width, 1, relu=False))
        self.skip = unit(cin, 4 * width, 1, stride, relu=False) if stride > 1 or cin != 4 * width else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x), inplace=True)


def resnet50():
    layers, cin = [unit(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(cin, width, stride if i == 0 else 1))
            cin = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def vgg16():
    layers, cin = [], 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(cin, width, 3, padding=1), nn.ReLU(inplace=True)]
            cin = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 4096),
                         nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000))


MODELS = {  # (make, sequence, batches, precisions)
    "gpt2-124m": (lambda: Transformer(12, 768, 12, 3072, 50257, 1024, dropout=0.1), 1024, (4, 32), ("bf16", "amp")),
    "gpt2-355m": (lambda: Transformer(24, 1024, 16, 4096, 50257, 1024, dropout=0.1), 1024, (4, 16), ("bf16", "amp")),
    "llama-1b": (lambda: Transformer(16, 2048, 32, 8192, 128256, 4096, kv_heads=8, llama=True), 4096, (1, 4), ("bf16",)),
    "llama-7b-8-layers": (lambda: Transformer(8, 4096, 32, 11008, 32000, 4096, llama=True, tied=False), 4096, (1, 4), ("bf16",)),
    "bert-large": (lambda: Transformer(24, 1024, 16, 4096, 30522, 512, causal=False, post_norm=True, dropout=0.1), 512, (8, 64), ("bf16", "amp")),
    "vit-b-16": (lambda: Transformer(12, 768, 12, 3072, 0, 197, causal=False, classes=1000), 197, (32, 256), ("bf16", "amp")),
    "resnet50": (resnet50, 0, (32, 256), ("tf32", "amp")),
    "vgg16": (vgg16, 0, (32, 128), ("tf32", "amp")),
}
IMAGES = ("vit-b-16", "resnet50", "vgg16")


def measure(name, batch, precision, options):
    make, sequence, _, _ = MODELS[name]
    device, cuda = torch.device(options.device), options.device.startswith("cuda")
    torch.manual_seed(1)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = make().to(device, dtype)
    cnn = not isinstance(model, Transformer)
    last = cnn and precision == "amp"
    if last:
        model = model.to(memory_format=torch.channels_last)
    parameters = list(model.parameters())
    fused = {"fused": True} if cuda else {}
    optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, **fused) if cnn else torch.optim.AdamW(parameters, lr=1e-5, **fused)
    if name in IMAGES:
        x, y = torch.randn(batch, 3, 224, 224, device=device, dtype=dtype), torch.randint(0, 1000, (batch,), device=device)
        x = x.to(memory_format=torch.channels_last) if last else x
    else:
        x = torch.randint(0, model.vocabulary, (batch, sequence), device=device)
        y = torch.randint(0, model.vocabulary, (batch, sequence), device=device)
    event = (lambda: torch.cuda.Event(enable_timing=True)) if cuda else None
    losses = []

    def step(marks=None):
        mark = lambda: marks.append(event()) or marks[-1].record() if marks is not None else None
        mark()
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "amp"):
            out = model(x)
            loss = F.cross_entropy(out.flatten(0, -2), y.flatten())
        mark()
        loss.backward()
        mark()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mark()
        losses.append(loss.detach())

    for _ in range(2 if options.quick else 5):
        step()
    if not cuda:
        return {"parameters": sum(p.numel() for p in parameters), "loss_first": float(losses[0]), "loss_last": float(losses[-1])}, []
    torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    once = time.perf_counter() - begin
    count = 5 if options.quick else max(10, min(40, int(2.5 / once)))
    torch.cuda.reset_peak_memory_stats()
    begin, rounds = time.perf_counter(), []
    for _ in range(count):
        marks = []
        step(marks)
        rounds.append(marks)
    host = (time.perf_counter() - begin) * 1000 / count  # nears step_ms where the device's queue is full
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    # A step lasts from its begin to the next one's.
    steps = sorted(a[0].elapsed_time(b[0]) for a, b in zip(rounds, rounds[1:]))
    middle = lambda values: sorted(values)[len(values) // 2]
    parts = [middle([r[i].elapsed_time(r[i + 1]) for r in rounds]) for i in range(3)]
    row = {"parameters": sum(p.numel() for p in parameters), "step_ms": middle(steps), "step_p10_ms": steps[len(steps) // 10],
           "step_p90_ms": steps[len(steps) * 9 // 10], "forward_ms": parts[0], "backward_ms": parts[1], "optimizer_ms": parts[2],
           "host_ms": host, "peak_bytes": peak, "loss_first": float(losses[0]), "loss_last": float(losses[-1]), "repeats": count,
           "layout": "nhwc" if last else ""}
    kernels = []
    try:
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            step()
            torch.cuda.synchronize()
        for item in trace.key_averages():
            on_device = "CUDA" in str(item.device_type)
            own = item.self_device_time_total
            if own > 0 and on_device and not item.key.startswith("ProfilerStep"):
                kernels.append(("kernel", item.key[:120], item.count, own))
            elif own > 0 and not on_device:
                kernels.append(("operator", item.key[:120], item.count, own))
        row["kernel_ms"] = sum(k[3] for k in kernels if k[0] == "kernel") / 1000
        row["kernels"] = sum(k[2] for k in kernels if k[0] == "kernel")
    except Exception as problem:
        print(f"profiler: {problem}", file=sys.stderr)
    return row, kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="measured")
    parser.add_argument("--only", default="", help="models, separated by commas: " + ", ".join(MODELS))
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    os.makedirs(options.out, exist_ok=True)
    path, begin = os.path.join(options.out, "steps.csv"), time.monotonic()
    known = set()
    if os.path.exists(path):
        with open(path, newline="") as old:
            known = {(r["model"], r["batch"], r["precision"]) for r in csv.DictReader(old)}
    cuda = options.device.startswith("cuda")
    same = {"device": torch.cuda.get_device_name() if cuda else "cpu", "torch": torch.__version__, "cuda": torch.version.cuda or ""}
    with open(path, "a", newline="") as out, open(os.path.join(options.out, "steps_kernels.csv"), "a", newline="") as detail:
        writer, details = csv.DictWriter(out, COLUMNS, lineterminator="\n"), csv.writer(detail, lineterminator="\n")
        if out.tell() == 0:
            writer.writeheader()
            details.writerow(["model", "batch", "precision", "kind", "name", "count", "us"])
        for name, (_, sequence, batches, precisions) in MODELS.items():
            if options.only and name not in options.only.split(","):
                continue
            for batch in batches[:1] if options.quick else batches:
                for precision in precisions:
                    if time.monotonic() - begin > 60 * options.minutes:
                        print(f"out of time before {name}", file=sys.stderr)
                        return
                    if (name, str(batch), precision) in known:
                        continue
                    try:
                        row, kernels = measure(name, batch, precision, options)
                    except Exception as problem:
                        print(f"failed: {name} {batch} {precision}: {' '.join(str(problem).split())[:300]}", file=sys.stderr, flush=True)
                        continue
                    finally:
                        if cuda:
                            torch.cuda.empty_cache()
                    row = {"model": name, "batch": batch, "sequence": sequence or "", "precision": precision, **row, **same}
                    writer.writerow({k: f"{v:.4f}" if isinstance(v, float) else v for k, v in row.items()})
                    out.flush()
                    for kind, key, count, us in kernels:
                        details.writerow([name, batch, precision, kind, key, count, f"{us:.1f}"])
                    detail.flush()
                    print(f"[{time.monotonic() - begin:6.1f} s] {name} b{batch} {precision}: {row.get('step_ms', 0):.2f} ms, kernels "
                          f"{row.get('kernel_ms', 0):.2f} ms, {row.get('peak_bytes', 0) / 1e9:.1f} GB", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
