#!/usr/bin/env python3
"""Fits a device's constants (presets/cost/devices.yaml) to rows of tools/measure_gpu.py, on half of the rows; looks at the other half.

    cmake --build --preset release --target cost_check
    python3 tools/fit_device.py measurements/h200/operators.csv --entry Hopper --device h200 > hopper.yaml

Coordinate descent, one group of constants after another, each on the rows that it governs: least mean |log(predicted / measured)|, a
row counting at most as if it were off by a factor of e. Prints the constants as YAML, and to stderr the errors before and after by
family, on the half that was fitted to and on the half that was held out.
"""
import argparse, math, subprocess, sys, tempfile

TILES = [(256, 128), (128, 128), (128, 64), (64, 64), (64, 32), (32, 32)]
START = {  # today's Hopper
    "fp32": 0.85, "tf32": 0.72, "fp16": 0.72, "bf16": 0.72, "fp8": 0.65, "tile0": 1.0, "tile1": 0.97, "tile2": 0.85, "tile3": 0.7,
    "tile4": 0.5, "tile5": 0.35, "tile_overhead": 128, "wave_quantisation": 0.4, "misaligned": 0.6, "grouped": 0.92, "convolution": 0.75,
    "attention_forward": 0.82, "attention_backward": 0.68, "attention_narrow": 0.8, "stream": 0.9, "rows": 0.67, "reduction": 0.65,
    "gather": 0.65, "scatter": 0.35, "windows": 0.6, "optimizer": 0.8, "kernel": 2.0,
}
MOST = {"tile_overhead": 4096.0, "kernel": 100.0}  # the others are shares
# Constants that are fitted together, the rows that they are fitted to: (family, operator, direction, dtype, variant) -> bool, and where
# short ones behave otherwise, the least microseconds of a row.
GROUPS = [
    (["kernel", "stream"], lambda f, o, d, t, v: f == "pointwise" and o in ("unary", "binary", "accumulate", "concat")),
    (["bf16", "tile_overhead", "wave_quantisation", "misaligned", "tile1", "tile2", "tile3", "tile4", "tile5"],
     lambda f, o, d, t, v: f in ("gemm", "gemm_batched") and t == "bf16"),
    (["fp16"], lambda f, o, d, t, v: f == "gemm" and t == "f16"),
    (["tf32"], lambda f, o, d, t, v: f == "gemm" and t == "tf32"),
    (["fp8"], lambda f, o, d, t, v: f == "gemm" and t == "fp8" and v == "cublas_fast_accumulation"),
    (["fp32"], lambda f, o, d, t, v: f == "gemm" and t == "f32"),
    (["grouped"], lambda f, o, d, t, v: v == "grouped_mm"),
    (["convolution"], lambda f, o, d, t, v: f == "convolution"),
    (["attention_forward", "attention_backward", "attention_narrow"], lambda f, o, d, t, v: f == "attention" and v == "cudnn", 100),
    (["rows"], lambda f, o, d, t, v: f in ("norm", "softmax", "batch_norm") and v in ("eager", "nchw", "nhwc", "unfused") and o != "rms_norm"
     or v == "eager" and o == "rms_norm"),
    (["reduction"], lambda f, o, d, t, v: d == "grad_bias" or o in ("sum_squares", "reduce")),
    (["gather"], lambda f, o, d, t, v: o == "embedding" and d == "forward"),
    (["scatter"], lambda f, o, d, t, v: o == "embedding" and d == "grad_weight"),
    (["windows"], lambda f, o, d, t, v: o == "pool2d"),
    (["optimizer"], lambda f, o, d, t, v: f == "optimizer" and v == "fused"),
]


def yaml_of(values, entry, source):
    """The constants as a file that is laid over the built-in ones."""
    figure = lambda value: f"[{value:.4g}, fit]"
    lines = ["sources:", f'  fit: "{source}"', "devices:", f"  {entry}:", "    like: Ampere"]
    lines.append("    sustained: {" + ", ".join(f"{k}: {figure(values[k])}" for k in ("fp32", "tf32", "fp16", "bf16", "fp8")) + "}")
    tiles = ", ".join(f"[{m}, {n}, {values[f'tile{i}']:.3g}]" for i, (m, n) in enumerate(TILES))
    lines.append(f"    tiles: [[{tiles}], fit]")
    for name in START:
        if name in ("fp32", "tf32", "fp16", "bf16", "fp8") or name.startswith("tile") and name != "tile_overhead":
            continue
        lines.append(f"    {name}: [{values[name]:.4g}us, fit]" if name == "kernel" else f"    {name}: {figure(values[name])}")
    return "\n".join(lines) + "\n"


class Model:
    def __init__(self, options):
        self.options = options
        self.file = tempfile.NamedTemporaryFile("w", suffix=".yaml")

    def rows(self, values, half):
        """(ratio, (family, operator, direction, dtype, variant), microseconds) of every row; values None: the built-in constants."""
        command = [self.options.check, "--rows", "--device", self.options.device, "--half", half, self.options.csv]
        if values:
            self.file.seek(0)
            self.file.truncate()
            self.file.write(yaml_of(values, self.options.entry, "trial"))
            self.file.flush()
            command[1:1] = ["--tuning", self.file.name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        out = done.stdout
        result = []
        for line in out.splitlines():
            ratio, _, measured, family, operator, rest = line.split(" ", 5)
            rest = rest[rest.index("}") + 2:].split(" ")
            result.append((float(ratio), (family, operator, rest[0], rest[1], rest[2]), float(measured)))
        return result


def loss(rows, chosen, least=0):
    picked = [min(1.0, abs(math.log(ratio))) for ratio, key, us in rows if us >= least and chosen(*key)]
    return sum(picked) / max(1, len(picked))


def fit(model, half):
    values = dict(START)
    for names, *which in GROUPS:
        best = loss(model.rows(values, half), *which)
        step = 0.3
        while step > 0.015:
            moved = False
            for name in names:
                for factor in (1 + step, 1 / (1 + step)):
                    trial = dict(values, **{name: min(MOST.get(name, 1.0), values[name] * factor)})
                    got = loss(model.rows(trial, half), *which)
                    if got < best - 1e-5:
                        best, values, moved = got, trial, True
                        break
            if not moved:
                step /= 2
        print(f"{', '.join(names)}: {best:.4f}", file=sys.stderr, flush=True)
    return values


def table(before, after):
    def by(rows, full):
        found = {}
        for ratio, key, _ in rows:
            name = " ".join(key if full else key[:1])
            found.setdefault(name, []).append(abs(ratio - 1))
        return found
    def middle(errors):
        return 100 * sorted(errors)[(len(errors) - 1) // 2]
    for full in (False, True):
        first, last = by(before, full), by(after, full)
        for name in sorted(first):
            mean = lambda e: 100 * sum(e) / len(e)
            print(f"{name:<58} {len(first[name]):>5}  median {middle(first[name]):6.1f} -> {middle(last[name]):6.1f} %   mean "
                  f"{mean(first[name]):6.1f} -> {mean(last[name]):6.1f} %", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("csv")
    parser.add_argument("--check", default="build/release/bin/cost_check")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--entry", default="Hopper")
    options = parser.parse_args()
    model = Model(options)
    values = fit(model, "even")
    for half in ("even", "odd"):
        print(f"\n== {'fitted to' if half == 'even' else 'held out'}: the {half} half, before -> after", file=sys.stderr)
        table(model.rows(None, half), model.rows(values, half))
    print(yaml_of(values, options.entry, f"fitted by tools/fit_device.py to the even half of the rows of {options.csv}"), end="")


if __name__ == "__main__":
    main()
