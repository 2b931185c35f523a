# Trains a decoder-only transformer by sharded data parallelism (FSDP2, ZeRO 2 and 3) and tensor parallelism (DTensor):
#   torchrun --nproc-per-node N train.py [--steps 10] [--tokens FILE] [--seed 1] [--lr 1e-3]
# It needs torch 2.4 or later. Without --tokens samples are drawn from the seed. Weights are drawn by name and index, so that
# any split of the devices trains the same function; every rank draws them whole before they are sharded.
import argparse
import math
import os
import sys

import numpy
import torch

if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 4):
    sys.exit(f"this script shards by FSDP2, which needs torch 2.4 or later; this is torch {torch.__version__}. "
             "Install a newer one, or export a plan with zero=0.")

import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

try:
    from torch.distributed.fsdp import fully_shard  # torch 2.6
    from torch.distributed.tensor import Replicate
except ImportError:
    from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed._tensor import Replicate

# SETTINGS

TP, FSDP, REPLICATE = PLAN["tp"], PLAN["fsdp"], PLAN["dp"] // PLAN["fsdp"]
HIDDEN, HEADS, KV_HEADS, HEAD = MODEL["hidden"], MODEL["heads"], MODEL["kv_heads"], MODEL["head_dim"]


def mix(z):
    """SplitMix64's output function, on numpy's 64-bit integers."""
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


GOLDEN = numpy.uint64(0x9E3779B97F4A7C15)


def uniform(name, indices, seed):
    """Numbers in [0, 1): a function of a tensor's name and an element's index in the whole tensor."""
    with numpy.errstate(over="ignore"):
        stream = numpy.uint64(0xCBF29CE484222325)  # FNV-1a
        for byte in name.encode():
            stream = (stream ^ numpy.uint64(byte)) * numpy.uint64(0x100000001B3)
        key = mix(mix(numpy.uint64(seed) + GOLDEN) ^ mix(stream + GOLDEN))
        first = mix(mix(key + GOLDEN) + GOLDEN)
        bits = mix(first + numpy.asarray(indices, dtype=numpy.uint64) * GOLDEN)
    return (bits >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53


def drawn(name, shape, low, high, seed):
    values = uniform(name, numpy.arange(shape[0] * shape[1]).reshape(shape), seed)
    return torch.from_numpy((low + (high - low) * values).astype(numpy.float32))


def linear(name, inputs, outputs, bias, seed):
    """Weights are drawn as [inputs, outputs]; torch keeps them transposed."""
    made = torch.nn.Linear(inputs, outputs, bias=bias)
    bound = math.sqrt(3 / inputs)
    with torch.no_grad():
        made.weight.copy_(drawn(name + ".weight", (inputs, outputs), -bound, bound, seed).t())
        if bias:
            made.bias.zero_()
    return made


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(HIDDEN))
        self.bias = None if MODEL["rms"] else torch.nn.Parameter(torch.zeros(HIDDEN))

    def forward(self, x):
        if self.bias is not None:
            return F.layer_norm(x, (HIDDEN,), self.weight, self.bias, 1e-5)
        return x * ((x * x).mean(-1, keepdim=True) + 1e-5).rsqrt() * self.weight


class Layer(torch.nn.Module):
    def __init__(self, i, seed):
        super().__init__()
        at = f"layers.{i}."
        width = KV_HEADS * (HEADS // KV_HEADS + 2) * HEAD
        self.attn_norm, self.mlp_norm = Norm(), Norm()
        self.qkv = linear(at + "attn.qkv", HIDDEN, width, MODEL["qkv_bias"], seed)
        self.out = linear(at + "attn.out", HEADS * HEAD, HIDDEN, MODEL["out_bias"], seed)
        # Gate and up are one tensor of weights, in halves; each is a product of its own, so that tp cuts both alike.
        first = at + ("mlp.gate_up" if MODEL["gated"] else "mlp.up")
        both = linear(first, HIDDEN, MODEL["ffn"] * (2 if MODEL["gated"] else 1), MODEL["mlp_bias"], seed)
        self.gate = self.half(both, 0) if MODEL["gated"] else None
        self.up = self.half(both, 1) if MODEL["gated"] else both
        self.down = linear(at + "mlp.down", MODEL["ffn"], HIDDEN, MODEL["mlp_bias"], seed)

    @staticmethod
    def half(both, which):
        made = torch.nn.Linear(HIDDEN, MODEL["ffn"], bias=both.bias is not None)
        begin = which * MODEL["ffn"]
        with torch.no_grad():
            made.weight.copy_(both.weight[begin : begin + MODEL["ffn"]])
            if both.bias is not None:
                made.bias.copy_(both.bias[begin : begin + MODEL["ffn"]])
        return made

    def attention(self, x):
        batch, tokens, _ = x.shape
        per_group = HEADS // KV_HEADS
        qkv = self.qkv(x).view(batch, tokens, KV_HEADS // TP, per_group + 2, HEAD)
        q = qkv[..., :per_group, :].reshape(batch, tokens, -1, HEAD).transpose(1, 2)
        k, v = (qkv[..., per_group + i, :].transpose(1, 2) for i in (0, 1))
        if MODEL["rotary"]:
            q, k = rotate(q), rotate(k)
        k, v = k.repeat_interleave(per_group, 1), v.repeat_interleave(per_group, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, -1))

    def mlp(self, x):
        if self.gate is not None:
            return self.down(F.silu(self.gate(x)) * self.up(x))
        if MODEL["activation"] == "relu2":
            return self.down(F.relu(self.up(x)) ** 2)
        return self.down(gelu(self.up(x), MODEL["activation"]))

    def forward(self, x):
        x = x + self.attention(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


def rotate(x):
    """Rotary positions of [batch, heads, tokens, head]."""
    count = MODEL["rotary_dim"]
    half = count // 2
    rate = torch.exp(torch.arange(half, dtype=torch.float64) * (-2.0 / count) * math.log(MODEL["rotary_base"]))
    angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * rate
    cosine, sine = angle.cos().to(x), angle.sin().to(x)
    low, high = x[..., :half], x[..., half:count]
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine, x[..., count:]], -1)


def gelu(x, form):
    if form == "gelu":
        return F.gelu(x)
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Decoder(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.tokens = torch.nn.Embedding(MODEL["vocab"], HIDDEN,
                                         _weight=drawn("embed.tokens.weight", (MODEL["vocab"], HIDDEN), -0.035, 0.035, seed))
        self.positions = None
        if MODEL["learned"]:
            self.positions = torch.nn.Embedding(
                MODEL["context"], HIDDEN, _weight=drawn("embed.positions.weight", (MODEL["context"], HIDDEN), -0.035, 0.035, seed))
        self.layers = torch.nn.ModuleList(Layer(i, seed) for i in range(MODEL["layers"]))
        self.norm = Norm()
        self.logits = None if MODEL["tied"] else linear("head.logits", HIDDEN, MODEL["vocab"], False, seed)

    def forward(self, tokens, labels):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if PLAN["recompute"] else layer(x)
        x = self.norm(x)
        logits = F.linear(x, self.tokens.weight) if self.logits is None else self.logits(x)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def shard(model, mesh):
    """Tensor parallelism within layers, then FSDP2 by layer and for the rest."""
    if TP > 1:
        plan = {"qkv": ColwiseParallel(), "out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
        if MODEL["gated"]:
            plan["gate"] = ColwiseParallel()
        for layer in model.layers:
            parallelize_module(layer, mesh["tp"], plan)
        if model.logits is not None:
            parallelize_module(model, mesh["tp"], {"logits": ColwiseParallel(output_layouts=Replicate())})
    over = mesh["replicate", "fsdp"] if REPLICATE > 1 else mesh["fsdp"]
    for layer in model.layers:
        fully_shard(layer, mesh=over, reshard_after_forward=PLAN["zero"] == 3)
    fully_shard(model, mesh=over, reshard_after_forward=PLAN["zero"] == 3)


def clip_gradients(model, mesh, most=1.0):
    """By the norm of all gradients: what tp ranks hold alike is counted once."""
    alone, alike = (torch.zeros((), dtype=torch.float64, device=model.tokens.weight.device) for _ in range(2))
    for weight in model.parameters():
        square = weight.grad.to_local().double().square().sum()
        if TP > 1 and "tp" in (weight.grad.device_mesh.mesh_dim_names or ()):
            alone += square
        else:
            alike += square
    if TP > 1:
        dist.all_reduce(alone, group=mesh["tp"].get_group())
    squares = alone + alike
    dist.all_reduce(squares, group=mesh["fsdp"].get_group())
    scale = min(1.0, most / math.sqrt(float(squares)))
    for weight in model.parameters():
        weight.grad.to_local().mul_(scale)


class Samples:
    """Token ids and the ids that follow, by the number of a sample since training began."""

    def __init__(self, path, seed):
        self.seed = seed
        self.ids = numpy.memmap(path, numpy.uint32 if MODEL["vocab"] > 65536 else numpy.uint16, "r") if path else None

    def take(self, first, count, device):
        seq = PLAN["seq"]
        if self.ids is not None:
            begins = (first + numpy.arange(count)) % ((len(self.ids) - 1) // seq) * seq
            at = begins[:, None] + numpy.arange(seq)[None, :]
            both = [self.ids[at], self.ids[at + 1]]
        else:
            at = first * seq + numpy.arange(count * seq).reshape(count, seq)
            both = [numpy.floor(MODEL["vocab"] * uniform(name, at, self.seed)) for name in ("tokens", "head.labels")]
        return [torch.from_numpy(each.astype(numpy.int64)).to(device) for each in both]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tokens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    gpus = torch.cuda.is_available()
    kind = "cuda" if gpus else "cpu"
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if gpus else "gloo")
    assert dist.get_world_size() == TP * PLAN["dp"], f"start {TP * PLAN['dp']} processes"
    # Ranks run fastest over tp, then over shards, then over copies.
    mesh = init_device_mesh(kind, (REPLICATE, FSDP, TP), mesh_dim_names=("replicate", "fsdp", "tp"))
    replica = dist.get_rank() // TP
    model = Decoder(arguments.seed)
    shard(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0,
                                  foreach=False)
    samples = Samples(arguments.tokens, arguments.seed)
    count, micro, replicas = PLAN["micro_batches"], PLAN["micro_batch"], PLAN["dp"]
    for step in range(arguments.steps):
        optimizer.zero_grad()
        total = torch.zeros((), device=kind)
        for m in range(count):
            first = (step * count + m) * micro * replicas + replica * micro
            loss = model(*samples.take(first, micro, kind))
            (loss / count).backward()
            total += loss.detach() / count
        clip_gradients(model, mesh)
        optimizer.step()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"step {step + 1}  loss {float(total) / dist.get_world_size():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
