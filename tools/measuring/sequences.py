"""Operators over sequences: attention and LSTM cells."""
import itertools

import torch
import torch.nn.functional as F

from measuring.cases import Case, back, forward, grads, t


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
