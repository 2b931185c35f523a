"""Matrix products: plain, batched and grouped, in the shapes of models and in random ones."""
import itertools

import torch
import torch.nn.functional as F

from measuring.cases import Case, forward, t


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
