# Trains a network by data parallelism, on torch.distributed alone:
#   torchrun --nproc-per-node N train.py [--steps 10] [--seed 1] [--lr 1e-3]
# Samples are drawn from the seed. Weights are drawn by name and index, so that any number of devices trains the same
# function.
import argparse
import math
import os

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F

# SETTINGS


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


def inputs_of(kind, shape):
    """How many products each output of an operator sums, by the shape of its weight."""
    return shape[0] if kind == "linear" else math.prod(shape[1:])


def pair(attributes, name, otherwise):
    return tuple(attributes.get(name, (otherwise, otherwise)))


def pool(x, at):
    size, stride, pad = at["kernel"], pair(at, "stride", 1), pair(at, "pad", 0)
    if at.get("fn", "max") == "max":
        # Halves of a padding that is not the same on both sides stand in the padded tensor.
        return F.max_pool2d(F.pad(x, (pad[1], pad[1], pad[0], pad[0]), value=-math.inf), size, stride)
    return F.avg_pool2d(x, size, stride, pad, count_include_pad=at.get("include_pad", 1) != 0)


def bias(x, b, at):
    shape = [1] * x.dim()
    shape[at.get("dim", x.dim() - 1)] = -1
    return x + b.view(shape)


OPERATORS = {
    "conv2d": lambda at, x, w: F.conv2d(x, w, None, pair(at, "stride", 1), pair(at, "pad", 0), pair(at, "dilation", 1),
                                        at.get("groups", 1)),
    "bias": lambda at, x, b: bias(x, b, at),
    "unary": lambda at, x: F.relu(x),
    "pool2d": lambda at, x: pool(x, at),
    "reshape": lambda at, x: x.reshape(at["shape"]),
    "reduce": lambda at, x: x.mean(at["dims"]),
    "linear": lambda at, x, w: x @ w,
    "batch_norm": lambda at, x, gamma, beta: F.batch_norm(x, None, None, gamma, beta, True, 0.1, at.get("eps", 1e-5)),
    "binary": lambda at, a, b: a + b,
    "cross_entropy": lambda at, x, target: F.cross_entropy(x, target),
}


class Network(torch.nn.Module):
    def __init__(self, seed, device):
        super().__init__()
        self.seed, self.device = seed, device
        self.weights = {}
        for name, (shape, fill, kind) in PARAMETERS.items():
            if fill == "drawn":
                bound = math.sqrt(3 / inputs_of(kind, shape))
                values = uniform(name, numpy.arange(math.prod(shape)).reshape(shape), seed)
                value = torch.from_numpy((-bound + 2 * bound * values).astype(numpy.float32))
            else:
                value = torch.full(shape, 1.0 if fill == "one" else 0.0)
            self.weights[name] = torch.nn.Parameter(value.to(device))
            self.register_parameter(name.replace(".", "_"), self.weights[name])

    def forward(self, inputs):
        """The mean loss of a micro-batch."""
        values = {**self.weights, **inputs}
        for output, kind, names, attributes in OPERATIONS:
            values[output] = OPERATORS[kind](attributes, *(values[name] for name in names))
        return values[OPERATIONS[-1][0]]

    def samples(self, first):
        """Samples by their number since training began."""
        made = {}
        for name, (shape, below) in INPUTS.items():
            each = math.prod(shape[1:])
            at = first * each + numpy.arange(math.prod(shape)).reshape(shape)
            values = uniform(name, at, self.seed)
            made[name] = torch.from_numpy(numpy.floor(below * values).astype(numpy.int64) if below else
                                          (2 * values - 1).astype(numpy.float32)).to(self.device)
        return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    gpus = torch.cuda.is_available()
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if gpus else "gloo")
    rank, replicas = dist.get_rank(), dist.get_world_size()
    assert replicas == PLAN["dp"], f"start {PLAN['dp']} processes"
    count, micro = PLAN["micro_batches"], PLAN["micro_batch"]
    network = Network(arguments.seed, torch.device("cuda" if gpus else "cpu"))
    optimizers = {"sgd": lambda p: torch.optim.SGD(p, arguments.lr),
                  "momentum": lambda p: torch.optim.SGD(p, arguments.lr, momentum=0.9),
                  "adam": lambda p: torch.optim.Adam(p, arguments.lr, (0.9, 0.999), 1e-8),
                  "adamw": lambda p: torch.optim.AdamW(p, arguments.lr, (0.9, 0.999), 1e-8, weight_decay=0)}
    optimizer = optimizers[PLAN["optimizer"]](list(network.parameters()))
    for step in range(arguments.steps):
        optimizer.zero_grad()
        total = torch.zeros((), device=network.device)
        for m in range(count):
            loss = network(network.samples((step * count + m) * micro * replicas + rank * micro))
            (loss / count).backward()
            total += loss.detach() / count
        flat = torch.cat([weight.grad.flatten() for weight in network.parameters()] + [total.view(1)])
        dist.all_reduce(flat)
        flat /= replicas
        at = 0
        for weight in network.parameters():
            weight.grad.copy_(flat[at : at + weight.numel()].view_as(weight))
            at += weight.numel()
        if PLAN["clip"]:
            torch.nn.utils.clip_grad_norm_(network.parameters(), PLAN["clip"])
        optimizer.step()
        if rank == 0:
            print(f"step {step + 1}  loss {float(flat[-1]):.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
