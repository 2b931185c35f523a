#!/usr/bin/env python3
"""A training step of GPT-2 small by weft run and by eager PyTorch, on one rank of this machine, one after the other.

  tools/eager_step.py [--weft build/release/bin/weft] [--device cpu] [--dtype fp32] [--tokens 128] [--samples 4] [--layers 12]

Both train the same shapes with AdamW and gradients clipped by their norm, without dropout; PyTorch as its users write it
(nn.Linear, F.scaled_dot_product_attention where there is one, F.cross_entropy). Needs Python's torch.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    sys.exit("tools/eager_step.py: no torch for this python3; Debian has python3-torch")


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = (t.view(b, s, self.heads, h // self.heads).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(h, dim=2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(2, 3)) / (h // self.heads) ** 0.5
            mask = torch.ones(s, s, dtype=torch.bool, device=x.device).tril()
            y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(b, s, h))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, vocab, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, hidden), nn.Embedding(context, hidden)
        self.blocks, self.norm = nn.ModuleList(Block(hidden, heads) for _ in range(layers)), nn.LayerNorm(hidden)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def eager(arguments):
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[arguments.dtype]
    model = Gpt(arguments.layers, 768, 12, 50257, 1024).to(arguments.device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(0, 50257, (arguments.samples, arguments.tokens), device=arguments.device)
    times = []
    for _ in range(arguments.steps):
        begun = time.perf_counter()
        loss = model(ids, ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append(time.perf_counter() - begun)
    return times[2:]


def weft(arguments):
    words = ["run", "--model", f"gpt2-124m:layers={arguments.layers},dropout=0", "--strategy", "dp=1", "--ranks", "1", "--seq", str(arguments.tokens),
             "--global-batch", str(arguments.samples), "--micro-batch", str(arguments.samples), "--dtype", arguments.dtype, "--device", arguments.device,
             "--threads", str(arguments.threads), "--steps", str(arguments.steps), "--json", "--timing"]
    done = subprocess.run([arguments.weft, *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return [step["time_s"] for step in json.loads(done.stdout)["steps"]][2:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/release/bin/weft")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    ours, theirs = [], []
    for _ in range(arguments.rounds):  # in turn, so that a machine's mood meets both
        theirs += eager(arguments)
        ours += weft(arguments)
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"weft run {a * 1e3:.1f} ms a step, eager PyTorch {torch.__version__} {b * 1e3:.1f} ms: {a / b - 1:+.1%}")


if __name__ == "__main__":
    main()
