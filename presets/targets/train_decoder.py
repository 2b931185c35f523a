# Trains a decoder-only transformer by data, tensor and pipeline parallelism, on torch.distributed alone:
#   torchrun --nproc-per-node N train.py [--steps 10] [--tokens FILE] [--seed 1] [--lr 1e-3]
# Without --tokens (ids of 16 bits, of 32 where the vocabulary needs them) samples are drawn from the seed. Weights are
# drawn by name and index, so that any split of the devices trains the same function.
import argparse
import math
import os

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

# SETTINGS

TP, PP, DP = PLAN["tp"], PLAN["pp"], PLAN["dp"]
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


class Ranks:
    """Where this process stands: ranks run fastest over tp, then dp, then pp."""

    def __init__(self):
        rank = dist.get_rank()
        assert dist.get_world_size() == TP * DP * PP, f"start {TP * DP * PP} processes"
        self.tp, self.dp, self.pp = rank % TP, rank // TP % DP, rank // TP // DP

        def groups(members):
            """All processes make all groups, in one order; each keeps its own."""
            mine = None
            for ranks in members:
                group = dist.new_group(ranks)
                mine = group if rank in ranks else mine
            return mine

        at = lambda t, d, p: t + TP * (d + DP * p)
        self.tp_group = groups([[at(t, d, p) for t in range(TP)] for p in range(PP) for d in range(DP)])
        self.dp_group = groups([[at(t, d, p) for d in range(DP)] for p in range(PP) for t in range(TP)])
        self.stage_group = groups([[at(t, d, p) for p in range(PP)] for d in range(DP) for t in range(TP)])
        self.ends_group = groups([[at(t, d, 0), at(t, d, PP - 1)] for d in range(DP) for t in range(TP)] if PP > 1 else [])
        self.before, self.after = rank - TP * DP, rank + TP * DP
        self.first, self.last = self.pp == 0, self.pp == PP - 1


class CopyToTensorParallel(torch.autograd.Function):
    """Identity forward, sum over tp backward: what enters a column-parallel product."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        if TP > 1:
            dist.all_reduce(grad, group=ctx.group)
        return grad, None


class SumOverTensorParallel(torch.autograd.Function):
    """Sum over tp forward, identity backward: what a row-parallel product gives."""

    @staticmethod
    def forward(ctx, x, group):
        x = x.contiguous()
        if TP > 1:
            dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def slice_of(size, rank):
    """The part of a dimension that a tensor-parallel rank has."""
    assert size % TP == 0, f"tp={TP} does not divide {size}"
    return size // TP * rank, size // TP


class Decoder(torch.nn.Module):
    """The layers of one pipeline stage, with this rank's part of their weights."""

    def __init__(self, ranks, layers, seed, device):
        super().__init__()
        self.ranks, self.layers, self.seed, self.device = ranks, layers, seed, device
        self.weights = {}
        columns = [self.columns(HIDDEN, (HEADS // KV_HEADS + 2) * HEAD, KV_HEADS), KV_HEADS * (HEADS // KV_HEADS + 2) * HEAD]
        ffn, gated = MODEL["ffn"], MODEL["gated"]
        for i in layers:
            at = f"layers.{i}."
            self.norm_weights(at + "attn_norm")
            self.linear(at + "attn.qkv", HIDDEN, columns[1], columns[0], MODEL["qkv_bias"])
            self.linear(at + "attn.out", HEADS * HEAD, HIDDEN, None, MODEL["out_bias"], rows=True)
            self.norm_weights(at + "mlp_norm")
            first = "mlp.gate_up" if gated else "mlp.up"
            halves = 2 if gated else 1
            begin, count = slice_of(ffn, ranks.tp)
            own = numpy.concatenate([half * ffn + numpy.arange(begin, begin + count) for half in range(halves)])
            self.linear(at + first, HIDDEN, halves * ffn, own, MODEL["mlp_bias"])
            self.linear(at + "mlp.down", ffn, HIDDEN, None, MODEL["mlp_bias"], rows=True)
        begin, count = slice_of(MODEL["vocab"], ranks.tp)
        self.rows = numpy.arange(begin, begin + count)
        if ranks.first or (ranks.last and MODEL["tied"]):
            self.drawn("embed.tokens.weight", (MODEL["vocab"], HIDDEN), -0.035, 0.035, rows=self.rows)
        if ranks.first and MODEL["learned"]:
            self.drawn("embed.positions.weight", (MODEL["context"], HIDDEN), -0.035, 0.035)
        if ranks.last:
            self.norm_weights("head.norm")
            if not MODEL["tied"]:
                self.linear("head.logits", HIDDEN, MODEL["vocab"], self.rows, False)

    def columns(self, rows, per_head, heads):
        begin, count = slice_of(heads, self.ranks.tp)
        return numpy.arange(begin * per_head, (begin + count) * per_head)

    def add(self, name, value):
        weight = torch.nn.Parameter(value.to(self.device))
        self.register_parameter(name.replace(".", "_"), weight)
        self.weights[name] = weight

    def drawn(self, name, shape, low, high, rows=None, columns=None):
        rows = numpy.arange(shape[0]) if rows is None else rows
        columns = numpy.arange(shape[1]) if columns is None else columns
        values = uniform(name, rows[:, None] * shape[1] + columns[None, :], self.seed)
        self.add(name, torch.from_numpy((low + (high - low) * values).astype(numpy.float32)))

    def linear(self, name, inputs, outputs, columns, bias, rows=False):
        """Column-parallel, or with `rows` row-parallel, whose bias every rank has whole."""
        bound = math.sqrt(3 / inputs)
        own = None
        if rows:
            begin, count = slice_of(inputs, self.ranks.tp)
            own = numpy.arange(begin, begin + count)
        self.drawn(name + ".weight", (inputs, outputs), -bound, bound, rows=own, columns=columns)
        if bias:
            self.add(name + ".bias", torch.zeros(outputs if columns is None else len(columns)))

    def norm_weights(self, name):
        self.add(name + ".weight", torch.ones(HIDDEN))
        if not MODEL["rms"]:
            self.add(name + ".bias", torch.zeros(HIDDEN))

    # The forward pass.

    def norm(self, name, x):
        if not MODEL["rms"]:
            return F.layer_norm(x, (HIDDEN,), self.weights[name + ".weight"], self.weights[name + ".bias"], 1e-5)
        return x * ((x * x).mean(-1, keepdim=True) + 1e-5).rsqrt() * self.weights[name + ".weight"]

    def column_parallel(self, name, x):
        y = CopyToTensorParallel.apply(x, self.ranks.tp_group) @ self.weights[name + ".weight"]
        return y + self.weights[name + ".bias"] if name + ".bias" in self.weights else y

    def row_parallel(self, name, x):
        y = SumOverTensorParallel.apply(x @ self.weights[name + ".weight"], self.ranks.tp_group)
        return y + self.weights[name + ".bias"] if name + ".bias" in self.weights else y

    def rotate(self, x):
        """Rotary positions of [batch, heads, tokens, head]."""
        count = MODEL["rotary_dim"]
        half = count // 2
        rate = torch.exp(torch.arange(half, dtype=torch.float64) * (-2.0 / count) * math.log(MODEL["rotary_base"]))
        angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * rate
        cosine, sine = angle.cos().to(x), angle.sin().to(x)
        low, high = x[..., :half], x[..., half:count]
        return torch.cat([low * cosine - high * sine, high * cosine + low * sine, x[..., count:]], -1)

    def attention(self, at, x):
        batch, tokens, _ = x.shape
        groups, per_group = KV_HEADS // TP, HEADS // KV_HEADS
        qkv = self.column_parallel(at + "attn.qkv", x).view(batch, tokens, groups, per_group + 2, HEAD)
        q = qkv[..., :per_group, :].reshape(batch, tokens, groups * per_group, HEAD).transpose(1, 2)
        k, v = (qkv[..., per_group + i, :].transpose(1, 2) for i in (0, 1))
        if MODEL["rotary"]:
            q, k = self.rotate(q), self.rotate(k)
        k, v = k.repeat_interleave(per_group, 1), v.repeat_interleave(per_group, 1)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(2, 3) / math.sqrt(HEAD)
            later = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return self.row_parallel(at + "attn.out", y.transpose(1, 2).reshape(batch, tokens, -1))

    def mlp(self, at, x):
        if MODEL["gated"]:
            gate, up = self.column_parallel(at + "mlp.gate_up", x).chunk(2, -1)
            return self.row_parallel(at + "mlp.down", F.silu(gate) * up)
        up = self.column_parallel(at + "mlp.up", x)
        if MODEL["activation"] == "relu2":
            return self.row_parallel(at + "mlp.down", F.relu(up) ** 2)
        return self.row_parallel(at + "mlp.down", gelu(up, MODEL["activation"]))

    def layer(self, x, i):
        at = f"layers.{i}."
        x = x + self.attention(at, self.norm(at + "attn_norm", x))
        return x + self.mlp(at, self.norm(at + "mlp_norm", x))

    def embed(self, ids):
        local = ids - int(self.rows[0])
        other = (local < 0) | (local >= len(self.rows))
        x = F.embedding(local.masked_fill(other, 0), self.weights["embed.tokens.weight"])
        x = SumOverTensorParallel.apply(x.masked_fill(other[..., None], 0), self.ranks.tp_group)
        return x + self.weights["embed.positions.weight"][: ids.shape[1]] if MODEL["learned"] else x

    def loss(self, x, labels):
        """Mean cross-entropy, the vocabulary split over tp."""
        x = CopyToTensorParallel.apply(self.norm("head.norm", x), self.ranks.tp_group)
        weight = self.weights["embed.tokens.weight"].t() if MODEL["tied"] else self.weights["head.logits.weight"]
        logits = (x @ weight).float()
        highest = logits.detach().max(-1).values
        if TP > 1:
            dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=self.ranks.tp_group)
        logits = logits - highest[..., None]
        total = SumOverTensorParallel.apply(logits.exp().sum(-1), self.ranks.tp_group)
        local = labels - int(self.rows[0])
        other = (local < 0) | (local >= len(self.rows))
        picked = logits.gather(-1, local.masked_fill(other, 0)[..., None])[..., 0].masked_fill(other, 0)
        return (total.log() - SumOverTensorParallel.apply(picked, self.ranks.tp_group)).mean()

    def forward(self, x, labels):
        if self.ranks.first:
            x = self.embed(x)
        for i in self.layers:
            x = checkpoint(self.layer, x, i) if PLAN["recompute"] and x.requires_grad else self.layer(x, i)
        return self.loss(x, labels) if self.ranks.last else x


def gelu(x, form):
    if form == "gelu":
        return F.gelu(x)
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


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


def train_step(model, ranks, samples, step):
    """Forward and backward of all micro-batches, one forward one backward (1F1B); returns the mean loss."""
    count, micro = PLAN["micro_batches"], PLAN["micro_batch"]
    shape = (micro, PLAN["seq"], HIDDEN)
    in_flight, losses, sent = [], [], []

    def send(x, to):
        """Sends must not wait for their receiver, which may be about to send; what is sent is kept until the end."""
        sent.append((dist.isend(x, to), x))

    def forward(m):
        first = (step * count + m) * micro * DP + ranks.dp * micro
        tokens, labels = samples.take(first, micro, model.device)
        x = tokens
        if not ranks.first:
            x = torch.empty(shape, device=model.device)
            dist.recv(x, ranks.before)
            x.requires_grad_()
        y = model(x, labels)
        if ranks.last:
            losses.append(y.detach())
        else:
            send(y.detach().contiguous(), ranks.after)
        in_flight.append((x, y))

    def backward():
        x, y = in_flight.pop(0)
        if ranks.last:
            (y / count).backward()
        else:
            grad = torch.empty(shape, device=model.device)
            dist.recv(grad, ranks.after)
            y.backward(grad)
        if not ranks.first:
            send(x.grad, ranks.before)

    warm_up = min(PP - 1 - ranks.pp, count)
    for m in range(warm_up):
        forward(m)
    for m in range(warm_up, count):
        forward(m)
        backward()
    while in_flight:
        backward()
    for work, _ in sent:
        work.wait()
    return torch.stack(losses).mean() if ranks.last else torch.zeros((), device=model.device)


def reduce_gradients(model, ranks):
    """Mean over replicas; a table that embeds and predicts is summed over both of its stages."""
    if PP > 1 and MODEL["tied"] and (ranks.first or ranks.last):
        dist.all_reduce(model.weights["embed.tokens.weight"].grad, group=ranks.ends_group)
    flat = torch.cat([weight.grad.flatten() for weight in model.parameters()])
    if DP > 1:
        dist.all_reduce(flat, group=ranks.dp_group)
    flat /= DP
    at = 0
    for weight in model.parameters():
        weight.grad.copy_(flat[at : at + weight.numel()].view_as(weight))
        at += weight.numel()


def clip_gradients(model, ranks, most=1.0):
    """By the norm of all gradients: each element is counted on one rank."""
    squares = torch.zeros((), dtype=torch.float64, device=model.device)
    for name, weight in model.weights.items():
        split = not ("norm" in name or "positions" in name or name.endswith(("out.bias", "down.bias")))
        twice = name == "embed.tokens.weight" and PP > 1 and ranks.last
        if (split or ranks.tp == 0) and not twice:
            squares += weight.grad.double().square().sum()
    if TP > 1:
        dist.all_reduce(squares, group=ranks.tp_group)
    if PP > 1:
        dist.all_reduce(squares, group=ranks.stage_group)
    scale = min(1.0, most / math.sqrt(float(squares)))
    for weight in model.parameters():
        weight.grad.mul_(scale)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--tokens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    gpus = torch.cuda.is_available()
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if gpus else "gloo")
    ranks = Ranks()
    begin = sum(PLAN["stages"][: ranks.pp])
    layers = range(begin, begin + PLAN["stages"][ranks.pp])
    model = Decoder(ranks, layers, arguments.seed, torch.device("cuda" if gpus else "cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    samples = Samples(arguments.tokens, arguments.seed)
    for step in range(arguments.steps):
        optimizer.zero_grad()
        loss = train_step(model, ranks, samples, step)
        reduce_gradients(model, ranks)
        clip_gradients(model, ranks)
        optimizer.step()
        dist.all_reduce(loss, group=ranks.dp_group)
        if ranks.last and ranks.tp == 0 and ranks.dp == 0:
            print(f"step {step + 1}  loss {float(loss) / DP:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
